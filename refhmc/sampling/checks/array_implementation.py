"""The array implementation of a model, and its comparison with the model's functions before the first draw."""

from __future__ import annotations

from types import ModuleType

import numpy as np

from refhmc.batch.chains import copied
from refhmc.errors import GradientError, MissingArrayImplementationError, ModelError, ShapeError, _see
from refhmc.metrics.base import ArrayModel
from refhmc.models.base import Model, SplitModel
from refhmc.models.model_on_arrays import ModelOnArrays
from refhmc.numerics import batched
from refhmc.numerics.batched import Array, to_host
from refhmc.sampling.chains.chain import Plan
from refhmc.sampling.checks.preflight import rounded_to_single

CLOSE = 1e-6  # relative tolerance of the comparison
ROUNDING = 1e-8  # tolerance of differences of L relative to L: order of sums, layers in single precision


def array_implementation(model: Model, xp: ModuleType, streamed: bool = False) -> ArrayModel:
    """Return the model's array implementation; with NumPy, else its compiled functions called for each position.

    `streamed` keeps the data of a split model on the host; it raises ValueError for any other model.
    """
    try:
        if not streamed:
            return model.on_arrays(xp)
        if isinstance(model, SplitModel):
            return model.on_arrays(xp, streamed=True)
        raise ValueError(f"streamed=True needs a split model; got {model.name!r}. Use model.split(M).")
    except MissingArrayImplementationError:
        if xp is not np:
            raise
        return ModelOnArrays(model)


def check_array_implementation(model: Model, text: ArrayModel, plan: Plan, q: Array, values: bool) -> str | None:
    """Compare an array implementation with the model's functions at the positions q (k, d); return a warning or None.

    Raises ModelError if it changes its argument. With `values`, raises GradientError unless all that the metric reads agrees,
    and also differences of L, which a large constant does not hide. The warning is about lower precision.
    """
    if isinstance(text, ModelOnArrays):
        return None
    compiled, at = ModelOnArrays(model), to_host(q).copy()
    given = copied(q)
    found = dict(zip(("log density", "gradient"), text.value_and_gradient(given), strict=True))
    if not np.array_equal(to_host(given), at):
        raise ModelError(
            f"The array implementation of model {model.name!r} must not change its argument q in place. Work on a copy."
        )
    if not values:
        return None
    wanted = dict(zip(("log density", "gradient"), compiled.value_and_gradient(at), strict=True))
    M = np.random.default_rng(20261123).standard_normal((*at.shape, model.dim))
    for name in plan.blocks[0].dynamics.metric.reads:
        if name is not None and hasattr(compiled, name):
            more = (M,) if "contraction" in name else ()
            found[name] = getattr(text, name)(copied(q), *(batched.namespace(q).asarray(x) for x in more))
            wanted[name] = getattr(compiled, name)(at, *more)
    for what, theirs in found.items():
        value, right = to_host(theirs), wanted[what]
        if value.shape != right.shape:
            raise ShapeError(
                f"The {what} of the array implementation must have shape {right.shape}; got {value.shape}."
            )
        axes = tuple(range(1, right.ndim))
        distance, size = np.max(np.abs(value - right), axis=axes), np.max(np.abs(right), axis=axes)
        for k in np.flatnonzero(~(distance <= CLOSE * (1 + size))):
            raise GradientError(
                f"The {what} of the array implementation of model {model.name!r} must equal that of the model; they differ by "
                f"{distance[k]:.3g} at {np.array2string(at[k], precision=6, threshold=8)}."
            )
    for what in ("log density", "gradient"):
        value, kind = to_host(found[what]), str(found[what].dtype)
        if kind != str(q.dtype) or (rounded_to_single(value) and not rounded_to_single(wanted[what])):
            return (
                f"The {what} of the array implementation of {model.name!r} has single precision or another dtype than its "
                f"positions (got {kind} for q of {q.dtype}). Its rounding adds to the energy error, which lowers acceptance if "
                f"it is large. Compute in the dtype of q. {_see('precision')}"
            )
    L, right = to_host(found["log density"]), wanted["log density"]
    distance, change = np.abs(L - L[0] - (right - right[0])), np.abs(right - right[0])
    for k in np.flatnonzero(~(distance <= CLOSE * (1 + change) + ROUNDING * np.abs(right))):
        raise GradientError(
            f"The log density of the array implementation of model {model.name!r} must equal that of the model; between two "
            f"starts it changes by {L[k] - L[0]:.9g} instead of {right[k] - right[0]:.9g}, at "
            f"{np.array2string(at[k], precision=6, threshold=8)}."
        )
    return None
