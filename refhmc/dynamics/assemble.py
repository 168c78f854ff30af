"""Combine model, metric and integrator for the compiled core: pointers, workspaces, options.

Invalid combinations are rejected here, with the reason.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from refhmc.compile import compiled
from refhmc.core import types
from refhmc.core.point import POINT_ROWS
from refhmc.core.records import CACHE, COUNTERS, OPTIONS, STATUS, one
from refhmc.core.split_data import rows_of_order
from refhmc.errors import MetricError
from refhmc.integrators import Leapfrog, microcanonical
from refhmc.integrators.base import CHECK, Integrator
from refhmc.integrators.defaults import resolve
from refhmc.integrators.discontinuous import Discontinuous
from refhmc.integrators.splitting import Splitting
from refhmc.metrics import Diagonal, Identity, laplace
from refhmc.metrics.base import FROM_GRADIENTS, FROM_PAIRS, Metric, for_model, put_hyperparameters

if TYPE_CHECKING:
    from refhmc.models.base import Model


class Dynamics(NamedTuple):
    """A model, a metric and an integrator, as the compiled core needs them.

    ``model`` and ``pointers`` are ``types.MODEL`` and ``types.DYNAMICS``. Each chain has a copy of ``vecs`` and ``mats``.
    ``rows`` are the initial rows of the integrator.
    """

    metric: Metric
    integrator: Integrator
    model: tuple
    pointers: tuple
    vecs: np.ndarray
    mats: np.ndarray
    options: np.recarray
    rows: np.ndarray
    point_rows: int

    def compile(self, model_name: str) -> None:
        """Compile all functions behind the pointers, or load them from the cache."""
        self.compile_metric(model_name)
        _, refresh, step, _ = self.pointers
        compiled.compile_pointer(refresh, types.REFRESH.signature, "the momentum draw")
        compiled.compile_pointer(step, types.STEP.signature, f"the integrator {type(self.integrator).__name__}")

    def compile_metric(self, model_name: str) -> None:
        """Compile the functions of the model and the metric only, or load them from the cache."""
        titles = (
            "the model",
            "the metric of the model",
            "the third derivative of the model",
            "the change in the model",
        )
        for function, pointer, title in zip(self.model[1:], types.MODEL.types[1:], titles, strict=True):
            compiled.compile_pointer(function, pointer.signature, f"{title} {model_name}")
        for function, pointer in zip(self.pointers[3][1:], types.METRIC.types[1:], strict=True):
            compiled.compile_pointer(function, pointer.signature, f"the metric {type(self.metric).__name__}")

    def work(self) -> tuple:
        """Return new workspaces, ``types.WORK``."""
        return self.vecs.copy(), self.mats.copy(), self.options[0], one(CACHE)[0], one(COUNTERS)[0], one(STATUS)[0]

    def own(self) -> np.ndarray:
        """Return new rows for the integrator."""
        return self.rows.copy()


def functions_for(model: Model, metric: Metric) -> tuple:
    """Return the data and pointers of a model that a metric reads. Raises MissingDerivativeError."""
    reads = metric.reads
    if model.has_diagonals and getattr(metric, "reads_diagonals", False):
        reads = ("hessian_diagonal", "diagonal_contraction")
    model.require([key for key in reads if key is not None], f"the metric {type(metric).__name__}")
    return model.core.tuple_reading(reads)


def make_dynamics(model: Model, metric: Metric | None, integrator: Integrator | None) -> Dynamics:
    """Return the dynamics of a model.

    Raises MetricError or ShapeError for an invalid metric, MissingDerivativeError for a function that the model does not
    have, and TypeError for a user's metric or integrator with invalid options or rows.
    """
    metric, integrator = resolve(metric, integrator)
    compiled_metric = for_model(metric, model)
    part: Any = getattr(integrator, "base", integrator)
    follows_parts = getattr(part, "follows_parts", False)
    functions = model.core.tuple_for_changes if follows_parts else functions_for(model, compiled_metric)
    vecs, mats = compiled_metric.stacks(
        model, getattr(part, "constant_metric", False)
    )  # large, hence after the checks of the model
    options = options_of(metric, integrator)
    if hasattr(metric, "hyperparameters"):
        hyperparameters = metric.hyperparameters(model)
        options.hyperparameters = hyperparameters.any()
        put_hyperparameters(vecs, hyperparameters)
    rows = np.zeros((part.layout.n_vectors, model.dim))
    if hasattr(part, "rows_for"):
        rows = part.rows_for(model, metric)
    if follows_parts:
        options.drawn_parts = part.drawn_parts(model)
        if metric.learns in (FROM_GRADIENTS, FROM_PAIRS):
            raise MetricError(
                f"metric must not learn from gradients with {type(part).__name__}, which never has the whole gradient; "
                f"got {type(metric).__name__}. Use Diagonal()."
            )
    if options.reversal_tolerance[0] > 0 and not CHECK.vectors.items() <= part.layout.vectors.items():
        raise TypeError(
            f"layout of {type(part).__name__} must begin with the rows of the reversibility check. "
            "Use Layout(..., after=refhmc.integrators.base.CHECK)."
        )
    return Dynamics(
        metric,
        integrator,
        functions,
        (
            types.SMOOTH,
            metric.refresh,
            part.pointer(metric),
            (int(metric.position_dependent), *compiled_metric.geometry),
        ),
        vecs,
        mats,
        options,
        rows,
        getattr(part, "point_rows", POINT_ROWS),
    )


def make_minibatch_dynamics(model: Model, metric: Metric | None) -> Dynamics:
    """Return the dynamics for the stochastic-gradient kernels, which have no integrator.

    A point has rows for the order of the parts.
    """
    if len(model.discontinuous):
        raise ValueError(
            f"Model {model.name!r} has discontinuous coordinates, which stochastic-gradient kernels cannot move. Use DHMC."
        )
    dynamics, parts = make_dynamics(model, metric, Leapfrog()), getattr(model, "parts", ())
    dynamics.options.drawn_parts = len(parts)
    return dynamics._replace(point_rows=POINT_ROWS + len(rows_of_order(range(len(parts)), model.dim)))


def make_discontinuous_dynamics(model: Model, metric: Identity | Diagonal | None) -> Dynamics:
    """Return the dynamics of :class:`refhmc.DHMC`. Raises MetricError or ShapeError for invalid variances."""
    metric, integrator = Diagonal() if metric is None else metric, Discontinuous()
    J, d = model.discontinuous, model.dim
    variances = metric.inverse_mass(d)
    vecs, mats = np.zeros((laplace.LAYOUT.n_vectors, d)), np.zeros((0, d, d))
    rows = compiled.plain(laplace.LAYOUT.rows)(vecs)
    rows.inverse_mass[:], rows.root[:] = variances, 1 / np.sqrt(variances)
    rows.scale[:] = np.sqrt(variances)
    rows.jumps[J], rows.order[: len(J)] = 1.0, J
    rows.inverse_mass[J] = rows.scale[J]
    options = options_of(metric, integrator)
    options.n_discontinuous = len(J)
    options.reads_density = model.functions.log_density_change is None
    pointers = (types.JUMPING, laplace.refresh, integrator.pointer(metric), (0, *laplace.geometry))
    return Dynamics(
        metric, integrator, model.core.tuple_for_changes, pointers, vecs, mats, options, np.zeros((0, d)), POINT_ROWS
    )


def make_microcanonical_dynamics(model: Model, metric: Metric | None, integrator: Splitting | None) -> Dynamics:
    """Return the dynamics of the microcanonical samplers, with turns for the kicks of a splitting."""
    microcanonical.check_dimension(model.dim)
    dynamics = make_dynamics(model, metric, microcanonical.splitting_of(integrator))
    kind, _, _, of_metric = dynamics.pointers
    pointers = (kind, microcanonical.refresh, microcanonical.step, of_metric)
    return dynamics._replace(pointers=pointers, rows=np.zeros((microcanonical.LAYOUT.n_vectors, model.dim)))


def options_of(metric: Metric, integrator: Integrator) -> np.recarray:
    """Return the record of options."""
    options = one(OPTIONS)
    for name, value in {**metric.options(), **integrator.options()}.items():
        if name not in (OPTIONS.names or ()):
            raise TypeError(
                f"options of {type(metric).__name__} and {type(integrator).__name__} must have known names; got {name!r}. "
                f"The names are {', '.join(OPTIONS.names or ())}."
            )
        options[name] = value
    parts = getattr(integrator, "parts", (1.0,))
    options.n_substeps = len(parts)
    options.substeps[0, : len(parts)] = parts
    return options
