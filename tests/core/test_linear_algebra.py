"""Linear algebra with one thread, as threadpoolctl reports it."""

from __future__ import annotations

import sys
import types

import numpy as np
import threadpoolctl

from refhmc.core.linear_algebra import controller, one_thread


def threads():
    return [library["num_threads"] for library in threadpoolctl.threadpool_info()]


def test_libraries_have_one_thread_within_and_as_many_as_before_afterwards():
    np.eye(3) @ np.eye(3)
    with threadpoolctl.threadpool_limits(2):
        before = threads()
        for _ in range(2):  # also where the libraries are known already
            with one_thread():
                assert set(threads()) <= {1}
            assert threads() == before


def test_a_block_that_is_left_first_does_not_give_threads_back_to_the_others():
    """The number of threads belongs to the process: a chain that still runs would round differently."""
    np.eye(3) @ np.eye(3)
    with threadpoolctl.threadpool_limits(2, user_api="blas"):
        before = threads()
        first, second = one_thread(), one_thread()
        first.__enter__()
        second.__enter__()
        first.__exit__(None, None, None)
        assert set(threads()) <= {1}
        second.__exit__(None, None, None)
        assert threads() == before


def test_libraries_are_looked_for_again_after_an_import(monkeypatch):
    one_thread()
    there = controller(len(sys.modules))
    assert controller(len(sys.modules)) is there
    monkeypatch.setitem(sys.modules, "a_module_of_this_test", types.ModuleType("a_module_of_this_test"))
    assert controller(len(sys.modules)) is not there
