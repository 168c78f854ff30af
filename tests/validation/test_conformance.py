"""The page of other projects is that of the recorded results, and each defect has a short program with the project alone."""

from __future__ import annotations

import ast
import re

import pytest

from validation.conformance import findings, page

MATRIX = page.last_matrix()
PROGRAMS = sorted(page.REPRODUCTIONS.glob("*.py"))
# Modules that a reproduction may import besides those of its project.
ARRAYS = {"math", "numpy", "jax", "torch"}
ALONE = {"tfp": "tensorflow_probability"}


def failed_rows():
    for project, found in MATRIX.items():
        for row in found.get("subjects", []):
            if row["status"] == "FAIL":
                yield project, row["subject"]


def test_page_is_current():
    assert page.PAGE.read_text(encoding="utf-8") == page.page(MATRIX)


@pytest.mark.parametrize(("project", "subject"), list(failed_rows()))
def test_each_failure_has_a_cause(project, subject):
    assert findings.finding_of(project, subject) is not None


@pytest.mark.parametrize("finding", findings.FINDINGS, ids=lambda finding: finding.title)
def test_a_finding_is_about_failed_subjects_and_a_defect_is_reproduced(finding):
    assert finding.kind in findings.KINDS
    failed = {subject for project, subject in failed_rows() if project == finding.project}
    assert set(finding.subjects) <= failed
    if finding.kind == findings.DEFECT:
        assert (page.REPRODUCTIONS / f"{finding.reproduction}.py").exists()
        said = MATRIX[finding.project]["reproductions"][finding.reproduction]
        assert re.search("expected", said, re.IGNORECASE)
        assert re.search("obtained", said, re.IGNORECASE)
    else:
        assert not finding.reproduction


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_a_reproduction_is_short_and_uses_one_project_by_its_public_names(path):
    text = path.read_text(encoding="utf-8")
    finding = next(found for found in findings.FINDINGS if found.reproduction == path.stem)
    assert len(text.splitlines()) <= 40
    nodes = list(ast.walk(ast.parse(text)))
    imported = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    imported |= {node.module for node in nodes if isinstance(node, ast.ImportFrom)}
    names = {name.partition(".")[0] for name in imported} - ARRAYS
    assert names == {ALONE.get(finding.project, finding.project)}
    private = {node.attr for node in nodes if isinstance(node, ast.Attribute) and re.match(r"_[^_]", node.attr)}
    assert private <= {"_replace"}  # of a named tuple


def test_every_project_has_pinned_versions():
    for project in page.TITLES:
        lines = (page.HERE / "requirements" / f"{project}.txt").read_text(encoding="utf-8").splitlines()
        assert lines
        assert all("==" in line or "@ git+" in line for line in lines)


def test_each_project_of_the_page_is_in_the_matrix():
    assert set(MATRIX) == set(page.TITLES)
