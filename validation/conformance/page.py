"""The page of the matrix, from ``results/matrix.json`` and :mod:`validation.conformance.findings`."""

from __future__ import annotations

import json
import pathlib
import re

from validation.common import markdown
from validation.conformance.findings import DEFECT, FINDINGS, Finding, finding_of

HERE = pathlib.Path(__file__).resolve().parent
MATRIX = HERE / "results" / "matrix.json"
REPRODUCTIONS = HERE / "reproductions"
PAGE = HERE.parents[1] / "docs" / "conformance_of_peers.md"
TITLES = {
    "blackjax": "BlackJAX",
    "mici": "mici",
    "numpyro": "NumPyro",
    "pymc": "PyMC",
    "nutpie": "nutpie",
    "walnutpie": "walnutpie",
    "tfp": "TensorFlow Probability",
    "hamiltorch": "hamiltorch",
}
NOT_EXAMINED = {
    "blackjax": "stochastic gradients, sequential Monte Carlo, nested sampling, variational methods, adaptation, `rmh`, "
    "`laplace_dhmc`, `laplace_dmhmc`, coupled HMC",
    "mici": "constrained systems and their integrators, `SymmetricCompositionIntegrator`, adapters",
    "numpyro": "`SA`, `MixedHMC`, `HMCECS`, Gibbs kernels, adaptation, variational methods, other transforms",
    "pymc": "step methods for discrete variables, `DEMetropolis`, adaptation, transforms of matrices",
    "nutpie": 'the samplers `sampler="mclmc"` and `adaptation="flow"`',
    "walnutpie": "the warm-up by itself, Stan models",
    "tfp": "wrappers that adapt, replica exchange, other bijectors. This release cannot be imported with current JAX, so "
    "it runs with JAX 0.4.30",
    "hamiltorch": "explicit Riemannian HMC (its copies cannot be set from outside), random splittings, `HMC_NUTS`. "
    "PyPI has no release of it; the last commit of its repository is installed",
}
HEAD = """# Conformance of other samplers

This page shows what the [conformance kit](guide/check_your_sampler.md) reports about current releases of other projects. Each
integrator, kernel or transform that can be called is a subject. Every failure was examined by hand, and has a cause.

A row is a statement about the release and the call that it names, and about nothing else. A PASS means that no row failed:
the kit would have found the faults that its rows describe, and no others. For samplers the column *resolution* gives the
least shift, in standard deviations, and the least widening that would have been found with probability 0.99.

| cause | meaning |
|---|---|
| defect | The release does not do what its documentation states. A short program without the kit shows it. |
| documented limitation | The documentation or the source of the project states the behaviour. |
| the examination | The call, the adapter or the kit explains the failure. The subject is not at fault. |

A finding without a failed subject was made while the adapters were written. Each subject has a budget of processor time, the
constant `SECONDS` of its adapter. Rows that the budget ends are undecided, and never failures.

The adapter is the code between the project and the kit. Its lines are counted without blank lines, comments and docstrings.
The code is in `validation/conformance`, and one command repeats everything:

    python -m validation.conformance --environments FOLDER
"""


def page(matrix: dict) -> str:
    """Return the text of the page."""
    columns = ["project", "versions", "subjects", "PASS", "FAIL", "undecided"]
    text = HEAD + "\n## Projects\n\n" + markdown(columns, _projects(matrix))
    for name, project in matrix.items():
        text += f"\n\n## {TITLES[name]}\n\n"
        if "absent" in project:
            text += project["absent"] + "\n"
            continue
        columns = ["subject", "call", "check", "adapter lines", "verdict", "resolution", "failed rows", "cause"]
        text += markdown(columns, [_row(name, row) for row in project["subjects"]]) + "\n"
        text += f"\nNot examined: {NOT_EXAMINED[name]}.\n"
        for finding in FINDINGS:
            if finding.project == name:
                text += _section(finding, matrix)
    return text.rstrip() + "\n\nMade by `python -m validation.conformance`.\n"


def _projects(matrix: dict) -> list[list[str]]:
    rows = []
    for name, project in matrix.items():
        if "absent" in project:
            rows.append([TITLES[name], "not installed", "", "", "", ""])
            continue
        versions = ", ".join(f"{package} {number}" for package, number in project["packages"].items())
        statuses = [row["status"] for row in project["subjects"]]
        counts = [str(statuses.count(status)) for status in ("PASS", "FAIL", "INCONCLUSIVE")]
        rows.append([TITLES[name], versions, str(len(statuses)), *counts])
    return rows


def _row(project: str, row: dict) -> list[str]:
    finding = finding_of(project, row["subject"])
    verdict = f"{row['status']} ({row['severity']})" if row["severity"] else row["status"]
    return [
        row["subject"],
        f"`{row['call']}`",
        f"`{row['check']}`",
        str(row["adapter lines"]),
        verdict,
        _resolution(row),
        ", ".join(row["failed"]),
        "" if finding is None else f"{finding.kind}: {finding.title}",
    ]


def _resolution(row: dict) -> str:
    """Return the shift and the widening that the check of a sampler would have found, or nothing."""
    found = re.search(r"a shift of (\S+) sd .* widening of (\S+) %", " ".join(row["evidence"]))
    return f"{found[1]} sd, {found[2]} %" if found else ""


def _section(finding: Finding, matrix: dict) -> str:
    text = f"\n### {finding.title}\n\n*{finding.kind.capitalize()}.* {finding.text}\n"
    if finding.kind == DEFECT:
        link = f"[{finding.reproduction}.py](../validation/conformance/reproductions/{finding.reproduction}.py)"
        printed = matrix[finding.project].get("reproductions", {}).get(finding.reproduction, "")
        text += f"\n{link} prints:\n\n" + "".join(f"    {line}\n" for line in printed.splitlines())
    return text


def last_matrix() -> dict:
    """Return the recorded results by project."""
    return json.loads(MATRIX.read_text(encoding="utf-8")) if MATRIX.exists() else {}
