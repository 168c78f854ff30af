"""Model, metric and integrator put together as the compiled core takes them: pointers, work, options.

Each combination that has a meaning works; one that has none is refused here, with the reason.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from refhmc.core import compiled, types
from refhmc.core.point import POINT_ROWS
from refhmc.core.records import CACHE, COUNTERS, OPTIONS, STATUS, one
from refhmc.core.split_data import rows_of_order
from refhmc.errors import MetricError
from refhmc.integrators import Leapfrog
from refhmc.integrators.base import CHECK
from refhmc.integrators.defaults import resolve
from refhmc.integrators.discontinuous import Discontinuous
from refhmc.metrics import Diagonal, laplace
from refhmc.metrics.base import FROM_GRADIENTS, FROM_PAIRS

if TYPE_CHECKING:
    from refhmc.models.base import Model


class Dynamics(NamedTuple):
    """``model`` and ``pointers``: ``types.MODEL`` and ``types.DYNAMICS``. Of ``vecs`` and ``mats`` each chain has a copy.

    ``rows``: those that the integrator has for itself, as they are at first.
    """

    metric: Any
    integrator: Any
    model: tuple
    pointers: tuple
    vecs: np.ndarray
    mats: np.ndarray
    options: np.recarray
    rows: np.ndarray
    point_rows: int

    def compile(self, model_name: str) -> None:
        """Compile, or load from the cache, all that the pointers point at."""
        self.compile_metric(model_name)
        _, refresh, step, _ = self.pointers
        compiled.compile_pointer(refresh, types.REFRESH.signature, "the momentum draw")
        compiled.compile_pointer(step, types.STEP.signature, f"the integrator {type(self.integrator).__name__}")

    def compile_metric(self, model_name: str) -> None:
        """The same for the model and the metric alone."""
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
        """Work of one's own, ``types.WORK``."""
        return self.vecs.copy(), self.mats.copy(), self.options[0], one(CACHE)[0], one(COUNTERS)[0], one(STATUS)[0]

    def own(self) -> np.ndarray:
        """Rows for the integrator."""
        return self.rows.copy()


def make_dynamics(model: Model, metric: Any, integrator: Any) -> Dynamics:
    """Raises MetricError or ShapeError for a metric that cannot be, MissingDerivativeError for what the model lacks, TypeError
    for a metric or an integrator of somebody's own whose options or rows cannot be."""
    metric, integrator = resolve(metric, integrator)
    part = getattr(integrator, "base", integrator)
    follows_parts = getattr(part, "follows_parts", False)
    functions = model.core.tuple_for_changes if follows_parts else model.core.tuple_for(metric)
    vecs, mats = metric.stacks(model, getattr(part, "constant_metric", False))  # large: after what the model may lack
    options = options_of(metric, integrator)
    rows = np.zeros((part.layout.n_vectors, model.dim))
    if hasattr(part, "rows_for"):
        rows = part.rows_for(model, metric)
    if follows_parts:
        options.drawn_parts = part.drawn_parts(model)
        if metric.learns in (FROM_GRADIENTS, FROM_PAIRS):
            raise MetricError(
                f"{type(part).__name__} never has the whole gradient: {type(metric).__name__} cannot learn from it"
            )
    if options.reversal_tolerance[0] > 0 and not CHECK.vectors.items() <= part.layout.vectors.items():
        raise TypeError(
            f"the rows of {type(part).__name__}, whose steps are checked, must come after those of the check: "
            "Layout(..., after=refhmc.integrators.base.CHECK)"
        )
    return Dynamics(
        metric,
        integrator,
        functions,
        (
            types.SMOOTH,
            metric.refresh,
            part.pointer(metric),
            (int(metric.position_dependent), *metric.geometry),
        ),
        vecs,
        mats,
        options,
        rows,
        getattr(part, "point_rows", POINT_ROWS),
    )


def make_minibatch_dynamics(model: Model, metric: Any) -> Dynamics:
    """For the kernels that follow minibatches: no integrator moves them, and a point has rows for the order of the parts."""
    if len(model.discontinuous):
        raise ValueError(
            f"model {model.name!r} jumps: minibatches are followed by their gradients, which do not see jumps"
        )
    dynamics, parts = make_dynamics(model, metric, Leapfrog()), getattr(model, "parts", ())
    dynamics.options.drawn_parts = len(parts)
    return dynamics._replace(point_rows=POINT_ROWS + len(rows_of_order(range(len(parts)), model.dim)))


def make_discontinuous_dynamics(model: Model, metric: Any) -> Dynamics:
    """Those of :class:`refhmc.DHMC`. Raises MetricError or ShapeError for variances that cannot be."""
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
    options.reads_density = model._functions["log_density_change"] is None
    pointers = (types.JUMPING, laplace.refresh, integrator.pointer(metric), (0, *laplace.geometry))
    return Dynamics(
        metric, integrator, model.core.tuple_for_changes, pointers, vecs, mats, options, np.zeros((0, d)), POINT_ROWS
    )


def options_of(metric: Any, integrator: Any) -> np.recarray:
    """The record of options."""
    options = one(OPTIONS)
    for name, value in {**metric.options(), **integrator.options()}.items():
        if name not in (OPTIONS.names or ()):
            raise TypeError(
                f"{type(metric).__name__} or {type(integrator).__name__} says an option {name!r} that there is not"
            )
        options[name] = value
    parts = getattr(integrator, "parts", (1.0,))
    options.n_substeps = len(parts)
    options.substeps[0, : len(parts)] = parts
    return options
