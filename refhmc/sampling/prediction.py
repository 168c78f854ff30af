"""What a sampled model says of new inputs.

Of each draw q the distribution of the observation at an input x is p(y | f(x; q)): f are the model's ``outputs``, p is its
``likelihood`` (:mod:`refhmc.models.networks.likelihoods`). The posterior predictive distribution is the mean over draws,

    p(y | x, data) = E[p(y | f(x; q))]        drawn from by one y for each draw of q.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from refhmc.core.arguments import refuse_complex, refuse_masked, whole_number
from refhmc.core.arviz import with_groups
from refhmc.core.data import as_data
from refhmc.errors import ModelError, ShapeError
from refhmc.models.base import Model
from refhmc.models.inputs import finite
from refhmc.sampling.arguments import entropy_of
from refhmc.sampling.result import Group, Result, predicted_dataset


def predict(
    model: Model,
    result: Any,
    X: Any,
    *,
    thin: int = 1,
    observations: bool = False,
    random_seed: Any = None,
    batch: int = 100,
) -> Any:
    """``result`` with what each of its draws says of ``X`` (n, ...): the inputs in the shape that the model is made of.

    result : what ``sample`` returned: a :class:`refhmc.Result`, an ArviZ ``InferenceData`` or ``DataTree``. The same kind comes
        back, with groups added, or replaced; ``result`` itself is left alone.
    thin : one in so many draws is used. batch : so many rows of X at a time.
    observations : draw a y for each, too, from the stream of ``random_seed``; they do not depend on the batch.

    Group ``predictions``: ``probability`` (chain, draw, observation, class), for a Bernoulli likelihood of 0 and of 1; or
    ``mean`` (chain, draw, observation, output) and ``sd`` (chain, draw); or, without a likelihood, the ``outputs`` themselves.
    Group ``posterior_predictive``: ``y`` (chain, draw, observation), beside a mean (chain, draw, observation, output).

    Memory beside the result's arrays, of float64: that of ``outputs`` for one draw on one batch.

    Raises NotImplementedError where the model does not say its outputs, ShapeError for X or draws of another shape, ValueError
    for inputs that are not finite, ModelError for outputs that are not (n, k).
    """
    if not isinstance(model, Model):
        raise TypeError(f"model must be a refhmc.Model, got {type(model).__name__}")
    wanting = "outputs" if model.outputs is None else "likelihood" if observations and model.likelihood is None else ""
    if wanting:
        raise NotImplementedError(
            f"model {model.name!r} does not say what is predicted: give refhmc.Model(..., {wanting}=)"
        )
    thin, batch = whole_number("thin", thin), whole_number("batch", batch)
    raw = isinstance(result, Result)
    try:
        positions = result.draws if raw else result["unconstrained_posterior"]["q"]
    except (KeyError, IndexError, TypeError) as error:
        raise TypeError(f"result must be what sample returned, got {type(result).__name__}: no draws of q") from error
    if positions.ndim != 3 or positions.shape[2] != model.dim:
        raise ShapeError(f"draws of {model.name!r}: expected (chain, draw, {model.dim}), got {positions.shape}")
    refuse_masked("X", X)
    X = as_data("X", X)
    refuse_complex("X", X)
    entropy = entropy_of(random_seed)
    rng = np.random.default_rng(entropy) if observations else None
    groups = predicted(model, np.asarray(positions)[:, ::thin], np.asarray(X), rng, batch)
    attributes: dict[str, int] = {"prediction_thin": thin} | ({"prediction_entropy": entropy} if observations else {})
    if raw:
        predicted_groups = sorted({*groups, *result.attributes.get("predicted", ())})
        return dataclasses.replace(
            result,
            groups={**result.groups, **groups},
            attributes={**result.attributes, **attributes, "predicted": predicted_groups},
        )
    coordinates = {"chain": positions["chain"].values, "draw": positions["draw"].values[::thin]}
    added = {
        name: predicted_dataset(group, model.dims, {**model.coords, **coordinates}) for name, group in groups.items()
    }
    for dataset in added.values():
        dataset.attrs.update({key: str(value) if value >= 2**63 else value for key, value in attributes.items()})
    return with_groups(result, added)


def predicted(model: Model, draws: np.ndarray, X: np.ndarray, rng: Any, batch: int) -> dict[str, Group]:
    """The groups, of draws (chain, draw, d)."""
    if X.ndim == 0 or len(X) == 0:
        raise ShapeError(f"X must have rows, got {X.shape}")
    if X.dtype.kind == "f" and not np.isfinite([X.min(initial=0), X.max(initial=0)]).all():
        finite("X", X)
    groups: dict[str, Group] = {"predictions": {}}
    if rng is not None:
        groups["posterior_predictive"] = {}

    def keep(group: str, name: str, index: tuple, value: np.ndarray) -> None:
        if name not in groups[group]:
            shape = (len(X), *value.shape[1:]) if value.ndim else ()
            groups[group][name] = np.empty((*draws.shape[:2], *shape), value.dtype)
        groups[group][name][index[: 2 + min(value.ndim, 1)]] = value

    outputs: Any = model.outputs
    for chain, draw in np.ndindex(draws.shape[:2]):
        q = draws[chain, draw]
        likelihood = model.likelihood(q) if callable(model.likelihood) else model.likelihood
        for start in range(0, len(X), batch):
            rows = X[start : start + batch]
            f = np.asarray(outputs(q.copy(), rows), dtype=np.float64)
            if f.ndim != 2 or len(f) != len(rows):
                raise ModelError(f"outputs of {model.name!r} must be ({len(rows)}, k), got {f.shape}")
            parameters = {"outputs": f} if likelihood is None else likelihood.predicted(f)
            index = (chain, draw, slice(start, start + batch))
            for name, value in parameters.items():
                keep("predictions", name, index, value)
            if rng is not None:
                keep("posterior_predictive", "y", index, observed(rng, parameters))
    return groups


def observed(rng: np.random.Generator, parameters: dict) -> np.ndarray:
    """A y for each row: N(mean, sd^2), or a class by its probabilities."""
    if "mean" in parameters:
        return parameters["mean"] + parameters["sd"] * rng.standard_normal(parameters["mean"].shape)
    below = np.cumsum(parameters["probability"], axis=1)
    u = rng.random(len(below)) * below[:, -1]
    return np.sum(below[:, :-1] <= u[:, None], axis=1)
