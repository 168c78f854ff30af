"""``ModelOnArrays``: the functions of any model over leading axes agree with those at each position."""

from __future__ import annotations

import numpy as np
import pytest

import refhmc
from refhmc.errors import EvaluationError, MissingDerivativeError, ShapeError
from tests.helpers.riemannian_cases import model_of
from tests.helpers.sweeps import representatives

KEYS = ("gradient", "hessian", "hessian_contraction", "fisher", "fisher_contraction")


def agree(model, q):
    """Compare results on ``q``, (2, 2, d), whose last position is not finite, up to the rounding of sums in another order."""
    arrays, rng = refhmc.array_api.ModelOnArrays(model), np.random.default_rng(1)
    M = rng.standard_normal((*q.shape, model.dim))
    M, before = M + M.mT, q.copy()
    assert not np.isfinite(q[1, 1]).all()
    for key in ("log_density", *(key for key in KEYS if model.has(key))):
        matrices = (M,) if key.endswith("contraction") else ()
        answers = getattr(arrays, key)(q, *matrices)
        for k in ((0, 0), (0, 1), (1, 0)):
            alone = np.asarray(getattr(model, key)(q[k], *(m[k] for m in matrices)))
            assert answers[k].shape == alone.shape
            assert np.abs(answers[k] - alone).max() <= 1e-12 * (np.abs(alone).max() + 1e-6), (key, k)
        assert np.isnan(answers[1, 1]).all()
    assert np.array_equal(q, before, equal_nan=True)


# The values of an ODE depend on the sensitivities that are integrated with them: tests/models/test_models_ode.py.
@pytest.mark.parametrize(
    "name",
    representatives(sorted(set(refhmc.models.by_name()) - {"fitzhugh-nagumo"}), ["banana", "eight-schools", "funnel"]),
)
def test_every_model(name):
    model = model_of(name)
    start = model.initial if model.initial is not None else np.zeros(model.dim)
    q = start + 0.05 * np.random.default_rng(3).standard_normal((2, 2, model.dim))
    q[1, 1, 0] = np.nan
    agree(model, q)


POSITIONS = np.array([[[0.1, 0.2], [0.3, -0.4]], [[1.0, 2.0], [np.inf, 0.0]]])


def third(q, data):
    T = np.zeros((2, 2, 2))
    T[0, 0, 0] = -6.0 * q[0] * data[0]
    return T


@pytest.mark.sweep
def test_a_users_model_compiled_with_its_full_third_derivative():
    model = refhmc.Model(
        2,
        lambda q, data: -0.25 * data[0] * q[0] ** 4 - 0.5 * q[1] ** 2,
        lambda q, data: np.array([-data[0] * q[0] ** 3, -q[1]]),
        lambda q, data: np.array([[-3 * data[0] * q[0] ** 2, 0.0], [0.0, -1.0]]),
        third,
        data=np.array([2.0]),
    )
    assert model.runs_as_python is None
    agree(model, POSITIONS.copy())
    with pytest.raises(MissingDerivativeError, match="fisher"):
        refhmc.array_api.ModelOnArrays(model).fisher(POSITIONS)


def test_python_model_that_writes_to_its_position():
    def log_density(q, data):
        if q[0] > 0.9:
            raise EvaluationError("too far")
        return -0.5 * float(q @ q)

    def gradient(q, data):
        q *= -1.0
        return q

    model = refhmc.Model(2, log_density, gradient, in_python="it raises")
    q = POSITIONS.copy()
    values = refhmc.array_api.ModelOnArrays(model).log_density(q)
    assert values[1, 0] == -np.inf
    assert np.isnan(values[1, 1])
    assert np.allclose(values[0], -0.5 * np.sum(q[0] ** 2, axis=-1), rtol=1e-15, atol=0)
    assert np.array_equal(refhmc.array_api.ModelOnArrays(model).gradient(q)[0], -POSITIONS[0])
    assert np.array_equal(q, POSITIONS)


def test_other_shapes_are_rejected():
    arrays = refhmc.array_api.ModelOnArrays(model_of("funnel-3"))
    for call in (
        lambda: arrays.gradient(np.zeros(3)),
        lambda: arrays.log_density(np.zeros((2, 5))),
        lambda: arrays.hessian_contraction(np.zeros((2, 4)), np.zeros((4, 4))),
        lambda: arrays.fisher_contraction(np.zeros((2, 4)), np.zeros((3, 4, 4))),
    ):
        with pytest.raises(ShapeError, match="must have shape|expected"):
            call()


def test_no_positions_at_all():
    arrays = refhmc.array_api.ModelOnArrays(model_of("funnel-3"))
    assert arrays.log_density(np.zeros((0, 4))).shape == (0,)
    assert arrays.hessian(np.zeros((3, 0, 4))).shape == (3, 0, 4, 4)
