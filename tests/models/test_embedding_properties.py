"""Properties of the embedding of integers for random supports and positions: round trips, borders, sums of widths.

For large integers the cells of a_n = log n become as narrow as the spacing of numbers: 1/n compared with the rounding error
2^-53 log n of a position. The logarithm and the exponential each have an error of one unit in the last place. An integer
therefore survives the round trip if ::

    1/n > 8 * 2^-53 log n,     n < about 1e13;     a_n = n: n + 1/2 is a number up to n = 2^52
"""

from __future__ import annotations

import contextlib
import math

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refhmc.models.embedding import Embedding
from tests.helpers.random_cases import cases

KIND = st.sampled_from(["n", "log n"])
ROUNDING = 8 * 2.0**-53  # relative to 1 + |x|, because an error of x changes e^x by as much


def farthest(a: str) -> int:
    """Return the largest integer (after the shift) in the tests."""
    return 2**52 - 1 if a == "n" else 10**13


@st.composite
def embedded(draw):
    """Return an embedding, and integers of its support: its ends, their neighbours, and some between."""
    a = draw(KIND)
    lowest = draw(st.one_of(st.integers(-20, 20), st.integers(-(10**6), 10**6), st.integers(0, 10**11)))
    top = lowest + draw(st.one_of(st.integers(0, 5), st.integers(0, 10**4), st.integers(0, 10**11)))
    shift = max(0, 1 - lowest) if a == "log n" else 0
    top = min(top, farthest(a) - shift)
    embedding = Embedding(range(lowest, top + 1) if draw(st.booleans()) else (lowest, None), a=a)
    inside = draw(st.lists(st.integers(lowest, top), min_size=1, max_size=4))
    return embedding, np.array(sorted({lowest, min(lowest + 1, top), max(top - 1, lowest), top, *inside}))


@pytest.mark.sweep
@cases(200)
@given(embedded())
def test_integers_survive_the_round_trip(case):
    embedding, n = case
    x = embedding.embed(n)
    assert np.array_equal(embedding.integers(x), n)
    assert embedding.contains(n).all()
    assert np.all(np.diff(x) > 0)
    drawn = embedding.draw_position(np.random.default_rng(1), np.repeat(n, 50))
    back = embedding.integers(drawn)
    near = np.minimum(np.abs(drawn - embedding.border(back)), np.abs(drawn - embedding.border(back + 1)))
    # A draw may be in the next cell only if rounding at the border decides.
    assert np.all((back == np.repeat(n, 50)) | (near <= ROUNDING * (1 + np.abs(drawn))))


@cases(200)
@given(embedded())
def test_borders_and_outside(case):
    """A border a_n is in the cell below it; positions outside the support give integers outside it."""
    embedding, n = case
    low = embedding.border(n)
    exact = embedding.a == "n"
    slack = 0.0 if exact else ROUNDING * (1 + np.abs(low))
    assert np.array_equal(embedding.integers(low), n - 1)
    assert np.array_equal(embedding.integers(low - slack), n - 1)
    assert np.array_equal(embedding.integers(np.nextafter(low, np.inf) if exact else low + slack), n)
    below = embedding.integers(
        embedding.border(embedding.lowest) - np.array([slack[0] if not exact else 0.0, 1.0, 1e3])
    )
    assert not embedding.contains(below).any()
    if embedding.highest is not None:
        above = embedding.border(embedding.highest + 1) + np.array([1e-3, 1.0, 500.0]) * (1 + exact * 1e3)
        assert not embedding.contains(embedding.integers(above)).any()


@pytest.mark.sweep
@cases(200)
@given(embedded(), st.integers(1, 300))
def test_widths_add_up(case, count):
    """The widths of neighbouring cells add up to the distance of the outer borders; each is right to 2 ulp in 40 digits."""
    embedding, n = case
    for start in n[:2]:
        run = [int(start) + k for k in range(count)]
        widths = [math.exp(embedding.log_width(k)) for k in run]
        with mpmath.workdps(40):
            borders = [mpmath.mpf(k + embedding.shift) for k in (run[0], run[-1] + 1)]
            if embedding.a == "log n":
                borders = [mpmath.log(b) for b in borders]
                one = mpmath.log(mpmath.log1p(1 / mpmath.mpf(run[0] + embedding.shift)))
                assert abs(embedding.log_width(run[0]) - one) <= 4e-16 * max(1, abs(one))
            whole = float(borders[1] - borders[0])
        assert abs(math.fsum(widths) - whole) <= 1e-14 * whole


@cases(50)
@given(KIND, st.integers(45, 62), st.integers(-3, 3))
def test_integer_with_too_narrow_a_cell_is_rejected(a, power, near):
    """From about 2^52 or 5e13, the position would be that of another integer."""
    embedding, n, x = Embedding((1, None), a=a), 2**power + near, None
    with contextlib.suppress(ValueError):
        x = embedding.embed(n)
    if x is None:
        assert n > (2**52 - 2 if a == "n" else 2**45)
    else:  # by chance the middle of the cell is a floating-point number
        assert int(embedding.integers(x)) == n
    with pytest.raises(ValueError, match=f"{2**60}.* a_n = {a}"):
        embedding.embed([5, 2**60])


@pytest.mark.sweep
@cases(100)
@given(KIND, st.integers(-5, 5), st.floats(allow_nan=True, allow_infinity=True))
def test_any_position_has_an_integer(a, lowest, x):
    embedding = Embedding((lowest, None), a=a)
    n = int(embedding.integers(x))
    assert embedding.to_integer(x) == n
    if math.isnan(x):
        assert not embedding.contains(n)
    elif a == "n" and abs(x) < 2**52:
        assert n < x <= n + 1
