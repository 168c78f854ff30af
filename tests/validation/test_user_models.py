"""The comparison of two runs in ``validation/user_models.py``: what it calls the same, and what it finds."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.signal

pytest.importorskip("validation.user_models", reason="validation/ is beside the tests in the repository only")

from validation.user_models import critical, entries, scores, verdict

LIMIT = critical([{"comparisons": 4000}])  # 5.2


def chains(seed: int, correlation: float = 0.5) -> np.ndarray:
    """Return four chains of 1,000 draws of a standard normal, autoregressive."""
    noise = np.random.default_rng(seed).normal(size=(4, 1200)) * np.sqrt(1 - correlation**2)
    return scipy.signal.lfilter([1.0], [1.0, -correlation], noise)[:, 200:]


@pytest.mark.parametrize("transform", [lambda x: x, np.exp, lambda x: np.tan(1.5 * np.tanh(x))])
def test_scores_of_equal_distributions_are_standard_normal(transform):
    """The draws are NumPy's, the same on every machine. Of 200 standard normal scores, the mean square is 1 within 0.5."""
    found = np.array([scores(transform(chains(2 * k)), transform(chains(2 * k + 1)))[:2] for k in range(100)])
    assert abs(found).max() < LIMIT
    assert 0.5 < np.mean(found**2) < 1.5


@pytest.mark.parametrize(("other", "which"), [(lambda x: x + 0.4, 0), (lambda x: 1.4 * x, 1), (lambda x: x - 0.4, 0)])
def test_a_difference_of_location_or_of_spread_is_found(other, which):
    z = scores(chains(1), other(chains(2)))
    assert abs(z[which]) > LIMIT
    assert abs(z[1 - which]) < LIMIT


@pytest.mark.parametrize(
    ("r_hat", "ess", "z", "said"),
    [
        (1.0, 1000, [1.0, -2.0], "agrees"),
        (1.0, 1000, [1.0, -9.0], "differs"),
        (1.02, 1000, [1.0, -9.0], "undecided"),
        (1.0, 399, [1.0, -2.0], "undecided"),
    ],
)
def test_a_verdict_needs_runs_that_have_converged(r_hat, ess, z, said):
    run = {"r_hat": 1.0, "ess": 1000}
    for ours, theirs in ((run, run | {"r_hat": r_hat, "ess": ess}), (run | {"r_hat": r_hat, "ess": ess}, run)):
        assert verdict({"refhmc": ours, "nutpie": theirs, "z": z}, LIMIT).startswith(said)


def test_entries_leave_constants_out():
    x = np.random.default_rng(0).normal(size=(4, 10, 2))
    values = {"scalar": x[..., 0], "vector": x, "correlation": np.ones((4, 10))}
    assert list(entries(values, ["scalar", "vector", "correlation"])) == ["scalar", "vector[0]", "vector[1]"]
