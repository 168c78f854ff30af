"""Make the matrix of :mod:`validation.conformance`: environments, results and page."""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

from validation.conformance.findings import FINDINGS
from validation.conformance.page import HERE, MATRIX, PAGE, REPRODUCTIONS, TITLES, last_matrix, page

REQUIREMENTS = HERE / "requirements"
ROOT = HERE.parents[1]
# Threads of a linear algebra library that wait for one another would use the processor time of a subject.
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


def interpreter(folder: pathlib.Path, project: str, python: str) -> pathlib.Path | None:
    """Return the interpreter of a project's environment, which is created if it is absent; None if that fails."""
    found = folder / project / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    if not found.exists():
        subprocess.run([python, "-m", "venv", str(folder / project)], check=True)
        pinned = REQUIREMENTS / f"{project}.txt"
        done = subprocess.run([str(found), "-m", "pip", "install", "-q", "-r", str(pinned)], check=False)
        if done.returncode:
            shutil.rmtree(folder / project)
            return None
    return found


def results(project: str, python: pathlib.Path, subject: str | None) -> dict:
    """Return the rows of a project's subjects, made by its interpreter."""
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "rows.json"
        command = [str(python), "-m", "validation.conformance.subjects", project, "--out", str(out)]
        command += ["--subject", subject] if subject else []
        subprocess.run(command, env={**os.environ, **ONE_THREAD, "PYTHONPATH": str(ROOT)}, cwd=ROOT, check=True)
        return json.loads(out.read_text(encoding="utf-8"))


def printed(name: str, python: pathlib.Path) -> str:
    """Return what a reproduction prints."""
    command = [str(python), "-W", "ignore", str(REPRODUCTIONS / f"{name}.py")]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": ""}, stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout.rstrip()


def main(arguments: list[str] | None = None) -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--environments", type=pathlib.Path, help="folder of the environments, outside the repository")
    parser.add_argument("--python", default=sys.executable, help="interpreter that creates environments")
    parser.add_argument("--only", choices=TITLES, action="append", help="only this project; may be repeated")
    parser.add_argument("--subject", help="only subjects with this in their names; other rows stay as they are")
    parser.add_argument("--page", action="store_true", help="write the page from the recorded results, and run nothing")
    parser.add_argument("--reproductions", action="store_true", help="run the reproductions only")
    options = parser.parse_args(arguments)
    matrix = last_matrix()
    if not options.page:
        if options.environments is None:
            parser.error("--environments must be given, unless --page is")
        for project in options.only or TITLES:
            python = interpreter(options.environments.resolve(), project, options.python)
            if python is None:
                matrix[project] = {"absent": "The release could not be installed where the matrix was made."}
                continue
            old = matrix.get(project, {})
            new = old if options.reproductions else results(project, python, options.subject)
            if options.subject:
                made = {row["subject"] for row in new["subjects"]}
                new["subjects"] += [row for row in old.get("subjects", []) if row["subject"] not in made]
            names = [found.reproduction for found in FINDINGS if found.project == project and found.reproduction]
            said = old.get("reproductions", {})
            if options.subject is None:
                said = {name: printed(name, python) for name in dict.fromkeys(names)}
            matrix[project] = {**new, "reproductions": said}
            MATRIX.parent.mkdir(exist_ok=True)
            ordered = {name: matrix[name] for name in TITLES if name in matrix}
            MATRIX.write_text(json.dumps(ordered, indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(page(last_matrix()), encoding="utf-8")


if __name__ == "__main__":
    main()
