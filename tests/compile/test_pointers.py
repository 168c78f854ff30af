"""Compiled code finds a function by a symbol, with which it is cached, or by its address."""

from __future__ import annotations

import ctypes

import numba
import pytest
from numba import types as nb

from refhmc.compile import compiled
from refhmc.compile.compile_cache import OF_MODELS, cache_directory
from refhmc.compile.compiled import jit_anew, jit_of_user
from refhmc.compile.identity import identity_of
from refhmc.compile.pointers import by_address, symbol_of

pytestmark = pytest.mark.skipif(numba.config.DISABLE_JIT, reason="nothing is compiled")
SIGNATURE = nb.float64(nb.float64)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """Use a cache for this test only."""
    monkeypatch.setenv("REFHMC_CACHE_DIR", str(tmp_path / "cache"))
    cache_directory.cache_clear()
    yield tmp_path
    cache_directory.cache_clear()


def through_pointer(inner):
    """Return x -> inner(x) + 1, compiled like a user's function, and whether it was loaded."""
    pointer = by_address(inner, SIGNATURE)

    def text(x):
        return pointer()(x) + 1

    outer = jit_of_user(text, (), identity_of((text,)))
    before = len(compiled.log)
    with compiled.logged("a function that calls another by its pointer"):
        outer.compile(SIGNATURE)
    return outer, compiled.log[before].from_cache


def times(scale):
    return jit_anew(lambda x: scale * x)


def test_pointer_target_is_in_the_name_of_the_code():
    for scale, known in ((2.0, False), (2.0, True), (3.0, False), (2.0, True), (3.0, True)):
        outer, loaded = through_pointer(times(scale))
        assert (outer(5.0), loaded) == (5 * scale + 1, known)


def test_callers_of_a_function_without_identity_are_not_cached():
    foreign = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_double)(lambda x: 4 * x)
    inner = jit_anew(lambda x: foreign(x))
    assert symbol_of(inner, SIGNATURE) is None
    for _ in range(2):
        assert through_pointer(inner)[0](5.0) == 21.0
    folder = cache_directory() / OF_MODELS
    assert not folder.exists() or not list(folder.glob("*.nbc"))


def test_compile_errors_are_raised_at_the_call():
    inner = jit_anew(lambda x: x.nothing)
    assert symbol_of(inner, SIGNATURE) is None
    with pytest.raises(numba.core.errors.TypingError):
        through_pointer(inner)
