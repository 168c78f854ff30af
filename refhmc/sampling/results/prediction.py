"""Predictions of a sampled model at new inputs.

For each draw q, the observation at an input x has the distribution p(y | f(x; q)), where f are the model's ``outputs`` and p is
its ``likelihood`` (:mod:`refhmc.models.networks.likelihoods`). The posterior predictive distribution is the mean over draws,

    p(y | x, data) = E[p(y | f(x; q))],

from which one y is drawn for each draw of q.
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
from refhmc.sampling.checks.seed import entropy_of
from refhmc.sampling.results.result import Group, Result, predicted_dataset


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
    """Predict at new inputs with each draw of a result.

    For each draw q, the observation at an input x has the distribution p(y | f(x; q)), where f are the model's outputs and p is
    its likelihood. The posterior predictive distribution is the mean of these distributions over draws.

    The group ``predictions`` holds the parameters of p:

    - ``probability`` (chain, draw, observation, class) for a categorical or Bernoulli likelihood, whose classes are 0 and 1;
    - ``mean`` (chain, draw, observation, output) and ``sd`` (chain, draw) for a normal likelihood;
    - ``outputs`` (chain, draw, observation, output) if the model has no likelihood.

    The group ``posterior_predictive`` holds ``y`` (chain, draw, observation), or (chain, draw, observation, output) for a
    normal likelihood. In addition to the new arrays of float64, this needs memory for the outputs of one draw on one batch.

    Parameters
    ----------
    model : Model
        The sampled model. It must define ``outputs``, and ``likelihood`` if `observations` is True.
    result : Result, InferenceData or DataTree
        What :func:`refhmc.sample` returned. It is not changed.
    X : array_like of shape (n, ...)
        New inputs, in the shape of the model's own inputs.
    thin : int, default 1
        Use every `thin`-th draw.
    observations : bool, default False
        Also draw one y per draw and input. The values do not depend on `batch`.
    random_seed : int, sequence of int, SeedSequence or Generator, optional
        Seed of the observations. By default it comes from the operating system.
    batch : int, default 100
        Number of rows of `X` in one call of ``outputs``.

    Returns
    -------
    Result, InferenceData or DataTree
        A copy of `result`, of the same type, with the groups added or replaced.

    Raises
    ------
    NotImplementedError
        If the model does not define ``outputs``, or no ``likelihood`` for `observations`.
    ShapeError
        If `X` or the draws have another shape than the model needs.
    ValueError
        If `X` is not finite or not real.
    ModelError
        If ``outputs`` does not return an array (n, k).

    See Also
    --------
    generate : Posterior predictive draws at the observed inputs.

    Examples
    --------
    >>> import numpy as np
    >>> import refhmc
    >>> X = np.linspace(-1, 1, 20)[:, None]
    >>> model = refhmc.models.LogisticRegression(X, (X[:, 0] > 0).astype(int))
    >>> result = refhmc.sample(model, draws=50, tune=50, random_seed=1, progressbar=False, raw=True)
    >>> refhmc.predict(model, result, [[0.5], [-0.5]]).groups["predictions"]["probability"].shape
    (4, 50, 2, 2)
    """
    if not isinstance(model, Model):
        raise TypeError(f"model must be a refhmc.Model; got {type(model).__name__}.")
    wanting = "outputs" if model.outputs is None else "likelihood" if observations and model.likelihood is None else ""
    if wanting:
        raise NotImplementedError(
            f"Model {model.name!r} must define {wanting} for predictions. Use refhmc.Model(..., {wanting}=...)."
        )
    thin, batch = whole_number("thin", thin), whole_number("batch", batch)
    raw = isinstance(result, Result)
    try:
        positions = result.draws if raw else result["unconstrained_posterior"]["q"]
    except (KeyError, IndexError, TypeError) as error:
        raise TypeError(
            f"result must be returned by refhmc.sample; got {type(result).__name__} without draws of q."
        ) from error
    if positions.ndim != 3 or positions.shape[2] != model.dim:
        raise ShapeError(
            f"The draws of result must have shape (chain, draw, {model.dim}); got {positions.shape}. Give the sampled model."
        )
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
    """Return the groups for draws (chain, draw, d)."""
    if X.ndim == 0 or len(X) == 0:
        raise ShapeError(f"X must have at least one row; got shape {X.shape}.")
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
                raise ModelError(f"outputs of {model.name!r} must return shape ({len(rows)}, k); got {f.shape}.")
            parameters = {"outputs": f} if likelihood is None else likelihood.predicted(f)
            index = (chain, draw, slice(start, start + batch))
            for name, value in parameters.items():
                keep("predictions", name, index, value)
            if rng is not None:
                keep("posterior_predictive", "y", index, observed(rng, parameters))
    return groups


def observed(rng: np.random.Generator, parameters: dict) -> np.ndarray:
    """Draw one y for each row: N(mean, sd^2), or a class with the given probabilities."""
    if "mean" in parameters:
        return parameters["mean"] + parameters["sd"] * rng.standard_normal(parameters["mean"].shape)
    below = np.cumsum(parameters["probability"], axis=1)
    u = rng.random(len(below)) * below[:, -1]
    return np.sum(below[:, :-1] <= u[:, None], axis=1)
