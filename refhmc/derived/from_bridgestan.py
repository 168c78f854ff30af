"""A compiled Stan model through BridgeStan: density, gradient and Hessian from Stan's C++, the third order by differences.

::

    hessian_contraction(q, M)_k = sum_ij M_ij dH_ij/dq_k ~ sum_ij M_ij (H_ij(q + h_k e_k) - H_ij(q - h_k e_k)) / (2 h_k)

Here h_k = c ``max(1, |q_k|)``, and c is the cube root of the relative rounding error of the Hessian. This balances the
truncation error, of order h^2, with the rounding error divided by h. The relative error is about 3e-11 if Stan
differentiates the Hessian (a model compiled with ``BRIDGESTAN_AD_HESSIAN=true``). It is about 2e-7 if Stan computes
differences of gradients, assuming that these are accurate to 1e-10. ``hessian_contraction`` costs 2 d Hessians. Such
derivatives are listed in the model's ``approximate`` and in a result's attributes.

Roualdes, Ward, Carpenter, Seyboldt and Axen, BridgeStan: efficient in-memory access to the methods of a Stan model (2023).
"""

from __future__ import annotations

import contextlib
import hashlib
import pathlib
import re
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from refhmc.derived.model import DerivedModel
from refhmc.errors import EvaluationError, InitError, ShapeError

if TYPE_CHECKING:
    from bridgestan import StanModel

IN_PYTHON = "its density is Stan's"
ROUNDING, OF_DIFFERENCES = 2e-16, 1e-10  # relative error of a Hessian by Stan's differentiation, and by its differences


def from_bridgestan(stan: StanModel, *, name: str | None = None, **options: Any) -> DerivedModel:
    """Return the posterior of a Stan model, for every kernel and metric except Fisher's.

    The coordinates are Stan's unconstrained parameters. The variables are its parameters and transformed parameters. If Stan
    raises an exception, the density cannot be evaluated: the transition is a divergence, with Stan's message as reason. A
    model compiled without ``STAN_THREADS=true`` is evaluated by one chain at a time. The third derivatives are differences
    of the Hessian; the model's ``approximate`` gives their accuracy.

    Parameters
    ----------
    stan : bridgestan.StanModel
        The compiled model with its data.
    name : str, optional
        Name of the model. Defaults to Stan's.
    **options : object
        Options of :class:`refhmc.Model`, such as `initial`, `parents`, `dims`, `coords` and `generated`.

    Returns
    -------
    Model
        The posterior.

    References
    ----------
    Roualdes, Ward, Carpenter, Seyboldt and Axen (2023), BridgeStan: efficient in-memory access to the
    methods of a Stan model.

    Examples
    --------
    >>> import bridgestan, refhmc  # doctest: +SKIP
    >>> stan = bridgestan.StanModel("schools.stan", data="schools.json")  # doctest: +SKIP
    >>> result = refhmc.sample(refhmc.from_bridgestan(stan))  # doctest: +SKIP
    """
    evaluation = Evaluation(stan)
    d = int(stan.param_unc_num())
    made = DerivedModel(
        d,
        lambda q, data: evaluation("log_density", q),
        lambda q, data: evaluation("log_density_gradient", q)[1],
        lambda q, data: evaluation.hessian(q),
        hessian_contraction=lambda q, data, M: evaluation.hessian_contraction(q, M),
        names=[as_entry(each) for each in stan.param_unc_names()],
        constrain=evaluation.constrain,
        value_and_gradient=evaluation.value_and_gradient,
        name=name or stan.name(),
        in_python=IN_PYTHON,
        known_by={
            "Stan's model": stan.model_info(),
            "its compiled code": hashlib.sha256(pathlib.Path(stan.lib_path).read_bytes()).hexdigest(),
            "its data": stan.data,
            "its seed": stan.seed,
        },
        again=(made_again, (type(stan), stan.lib_path, stan.data, stan.seed, name, options)),
        **options,
    )
    made.unconstrain = evaluation.unconstrain
    made.approximate = {
        "hessian_contraction": f"by differences of the Hessian, with relative error {evaluation.rounding ** (2 / 3):.0e}"
    }
    if evaluation.rounding > ROUNDING:
        made.approximate["hessian"] = f"by Stan's differences of gradients, with relative error {OF_DIFFERENCES:.0e}"
    return made


def made_again(
    kind: type[StanModel], library: str, data: str, seed: int, name: str | None, options: Mapping
) -> DerivedModel:
    """Rebuild the model in another process."""
    return from_bridgestan(kind(library, data or None, seed=seed, warn=False), name=name, **options)


def as_entry(stan_name: str) -> str:
    """Return the entry ``theta[0][1]`` for Stan's name ``theta.1.2``, whose indices start at 1."""
    return re.sub(r"\.(\d+)", lambda index: f"[{int(index[1]) - 1}]", stan_name)


class Evaluation:
    """Stan's functions, called by one thread at a time unless Stan's code is thread-safe."""

    def __init__(self, stan: StanModel) -> None:
        info = stan.model_info().lower()
        threads = re.search(r"stan_threads\s*=\s*true", info) is not None
        by_autodiff = re.search(r"ad_hessian\s*=\s*true", info) is not None
        self.stan = stan
        self.turn: contextlib.AbstractContextManager = contextlib.nullcontext() if threads else threading.RLock()
        self.rounding = ROUNDING if by_autodiff else OF_DIFFERENCES
        self.places = places_of(stan.param_names(include_tp=True))
        self.parameters = places_of(stan.param_names())

    def __call__(self, method: str, q: np.ndarray, **options: bool) -> Any:
        with self.turn:
            try:
                return getattr(self.stan, method)(np.ascontiguousarray(q), **options)
            except RuntimeError as error:
                raise EvaluationError(f"Stan: {error}") from None

    def value_and_gradient(self, q: np.ndarray, data: object, out: np.ndarray) -> float:
        value, gradient = self("log_density_gradient", q)
        out[:] = gradient
        return value

    def hessian(self, q: np.ndarray) -> np.ndarray:
        H = self("log_density_hessian", q)[2]
        return 0.5 * (H + H.T)

    def hessian_contraction(self, q: np.ndarray, M: np.ndarray) -> np.ndarray:
        """Return the contraction (d,) by the formula in the module docstring."""
        out, steps = np.zeros(len(q)), np.cbrt(self.rounding) * np.maximum(1.0, np.abs(q))
        for k, h in enumerate(steps):
            ahead, behind = q.copy(), q.copy()
            ahead[k] += h
            behind[k] -= h
            difference = self.hessian(ahead) - self.hessian(behind)
            out[k] = np.sum(M * difference) / (ahead[k] - behind[k])
        return out

    def constrain(self, q: np.ndarray) -> dict[str, np.ndarray]:
        """Return the values of parameters and transformed parameters by name, at q (..., d)."""
        rows = np.reshape(q, (-1, q.shape[-1]))
        flat = np.array([self("param_constrain", row, include_tp=True) for row in rows])
        flat = flat.reshape(*q.shape[:-1], -1)
        return {name: flat[..., where] for name, where in self.places.items()}

    def unconstrain(self, values: Mapping, what: str) -> np.ndarray:
        """Return the position (d,) of values by name. Raises ShapeError or InitError for invalid values."""
        flat = np.full(sum(where.size for where in self.parameters.values()), np.nan)
        for name, value in values.items():
            if name not in self.parameters:
                raise ShapeError(
                    f"{what} must be given by names of Stan's parameters ({', '.join(self.parameters)}); got {name!r}."
                )
            where = self.parameters[name]
            if np.shape(value) != where.shape:
                raise ShapeError(f"{what}: {name} must have the shape {where.shape}; got {np.shape(value)}.")
            flat[where] = value
        missing = [name for name, where in self.parameters.items() if np.isnan(flat[where]).any()]
        if missing:
            raise InitError(f"{what} must have finite values of every parameter; got none for {', '.join(missing)}.")
        try:
            return np.asarray(self("param_unconstrain", flat))
        except EvaluationError as error:
            raise InitError(f"{what}: {error}") from None


def places_of(names: list[str]) -> dict[str, np.ndarray]:
    """Return the indices of each variable's entries among Stan's, as an array of the variable's shape."""
    found: dict[str, list[tuple[tuple[int, ...], int]]] = {}
    for place, each in enumerate(names):
        base, *counted = each.split(".")
        if not all(index.isdigit() for index in counted):  # entry of a tuple, or a complex number
            base, counted = each, []
        found.setdefault(base, []).append((tuple(int(index) - 1 for index in counted), place))
    places = {}
    for name, entries in found.items():
        last = np.max([index for index, _ in entries], axis=0)
        places[name] = np.zeros(tuple(last.astype(int) + 1), dtype=int)
        for index, place in entries:
            places[name][index] = place
    return places
