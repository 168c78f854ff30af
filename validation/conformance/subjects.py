"""Examine the subjects of one project, in the environment of that project.

    python -m validation.conformance.subjects PROJECT [--subject NAME] [--out FILE]

This module needs NumPy, SciPy and the project only.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import inspect
import json
import pathlib
import platform
import textwrap
import time
from collections.abc import Callable
from importlib.metadata import version
from typing import NamedTuple

from refhmc.check.report import FAIL, INCONCLUSIVE, Report, Row


class Subject(NamedTuple):
    """Integrator, kernel or transform of another project.

    Parameters
    ----------
    name : str
        Name in the project, with settings that tell it from other subjects.
    call : str
        Call of the project, as its user writes it.
    examine : callable
        ``examine()`` returns the report.
    adapter : tuple of callable
        Functions that make the subject callable by the kit.
    """

    name: str
    call: str
    examine: Callable[[], Report]
    adapter: tuple[Callable, ...]


def lines_of(function: Callable) -> int:
    """Return the number of lines of code of a function, without blank lines, comments and docstrings."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    return len(ast.unparse(_without_docstrings(tree)).splitlines())


def _without_docstrings(tree: ast.Module) -> ast.Module:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and ast.get_docstring(node) is not None:
            node.body = node.body[1:] or [ast.Pass()]
    return tree


def examined(subject: Subject) -> dict:
    """Return the row of one subject."""
    begin = time.process_time()
    try:
        report = subject.examine()
    except Exception as error:  # the adapter or the project raised outside the kit
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        report = Report("none", subject.name, {}, 0, (Row("conduct", INCONCLUSIVE, basis=reason),))
    failed = [row for row in report.rows if row.status == FAIL]
    return {
        "subject": subject.name,
        "call": subject.call,
        "check": report.check,
        "settings": {key: str(value) for key, value in report.settings.items()},
        "adapter lines": sum(map(lines_of, subject.adapter)),
        "status": report.status,
        "severity": report.severity or "",
        "failed": [row.name for row in failed],
        "inconclusive": [row.name for row in report.inconclusive],
        "evidence": [str(row).strip() for row in failed or [row for row in report.rows if report.decides(row)]],
        "case": next((row.case for row in failed if row.case), ""),
        "seconds": round(time.process_time() - begin, 1),
    }


def main(arguments: list[str] | None = None) -> None:
    """Examine the subjects and write their rows as JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("project")
    parser.add_argument("--subject", help="only subjects with this in their names")
    parser.add_argument("--out", type=pathlib.Path, required=True, help="write the rows there, as JSON")
    options = parser.parse_args(arguments)
    adapters = importlib.import_module(f"validation.conformance.adapters.{options.project}")
    names = [subject.name for subject in adapters.SUBJECTS]
    if twice := {name for name in names if names.count(name) > 1}:
        raise ValueError(f"Names of subjects must differ; got {', '.join(sorted(twice))} twice.")
    packages = {name: version(name) for name in ("numpy", *adapters.PACKAGES)}
    found: dict = {"packages": {"python": platform.python_version(), **packages}, "subjects": []}
    for subject in adapters.SUBJECTS:
        if options.subject is None or options.subject in subject.name:
            row = examined(subject)
            found["subjects"].append(row)
            options.out.write_text(json.dumps(found, indent=1), encoding="utf-8")
            print(f"{options.project} {subject.name}: {row['status']} {row['failed']}", flush=True)


if __name__ == "__main__":
    main()
