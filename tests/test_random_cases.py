"""The default profile of the Hypothesis tests has the same cases on every run."""

from __future__ import annotations

import importlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.helpers.random_cases import cases


def drawn() -> list:
    found = []

    @cases(50)
    @given(st.lists(st.floats(-15.0, 15.0), min_size=4, max_size=4))
    def look(q):
        found.append(q)

    look()
    return found


def test_random_cases_do_not_depend_on_what_is_imported(tmp_path, monkeypatch):
    """Hypothesis would draw the numbers of a module that is imported meanwhile."""
    if not settings.default.derandomize:
        pytest.skip("this profile has other cases on every run")
    before = drawn()
    (tmp_path / "full_of_numbers.py").write_text(f"numbers = {[0.37 + k for k in range(-10, 10)]}\n")
    monkeypatch.syspath_prepend(tmp_path)
    importlib.import_module("full_of_numbers")
    assert drawn() == before
