"""Every public name has a page in the API reference and a docstring that numpydoc accepts; the examples run."""

from __future__ import annotations

import re
import sys

import pytest

import refhmc
from tests.helpers.places import ROOT
from tests.helpers.public import examples, faults, public, run_example

PUBLIC = public()
EXAMPLES = [test for name, value in PUBLIC.items() for test in examples(name, value)]


def listed():
    """Return the qualified names in the lists of the reference."""
    names = []
    for page in sorted((ROOT / "docs" / "reference").glob("*.md")):
        for block in re.findall(r"```\{eval-rst\}\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL):
            module = re.search(r"currentmodule:: (\S+)", block)[1]
            names += [f"{module}.{name}" for name in re.findall(r"^   (\w+)$", block, re.MULTILINE)]
    return names


def test_every_public_name_has_one_page():
    names = listed()
    assert len(names) == len(set(names))
    whole = {id(PUBLIC[name]) for name in names if name in PUBLIC}
    top = {name: value for name, value in PUBLIC.items() if not name.rsplit(".", 2)[-2][:1].isupper()}
    assert [name for name, value in top.items() if id(value) not in whole] == []
    assert [name for name in names if name not in PUBLIC] == []


def test_array_api_has_the_step_of_every_integrator():
    for kind in refhmc.integrators.INTEGRATORS.values():
        step = getattr(sys.modules[kind.__module__], "step", None)
        if step is not None and step.__module__ == kind.__module__:
            assert getattr(refhmc.array_api, kind.name.replace("-", "_")) is step


def test_docstrings_follow_numpydoc():
    pytest.importorskip("numpydoc", reason="needs the extra docs")
    assert [fault for name, value in PUBLIC.items() for fault in faults(name, value)] == []


def test_what_users_meet_has_an_example():
    assert len(EXAMPLES) >= 60


@pytest.mark.parametrize("test", EXAMPLES, ids=lambda test: test.name)
def test_examples_in_docstrings_run(test):
    failed, report = run_example(test)
    assert not failed, report
