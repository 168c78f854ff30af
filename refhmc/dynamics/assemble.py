"""Model, metric and integrator put together as the compiled core takes them: pointers, workspaces, options.

Each combination that has a meaning works; one that has none is refused here, with the reason.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from refhmc.core import compiled, types
from refhmc.core.point import EXTENDED_ROWS, POINT_ROWS
from refhmc.integrators import ExplicitTao, Leapfrog
from refhmc.integrators.defaults import resolve
from refhmc.integrators.discontinuous import Discontinuous
from refhmc.integrators.leapfrog import leapfrog_diagonal
from refhmc.metrics import Diagonal, Tridiagonal, base, euclidean, laplace, tridiagonal


class Dynamics(NamedTuple):
    """``pointers``: all of ``types.DYNAMICS`` but the notes, of which each chain has a copy, as of ``vecs`` and ``mats``."""

    metric: Any
    integrator: Any
    model: tuple
    pointers: tuple
    vecs: np.ndarray
    mats: np.ndarray
    notes: np.ndarray
    point_rows: int

    def compile(self, model_name: str) -> None:
        """Compile, or load from the cache, all that the pointers point at."""
        self.compile_geometry(model_name)
        _, refresh, step, _ = self.pointers
        compiled.compile_pointer(refresh, types.REFRESH.signature, "the momentum draw")
        compiled.compile_pointer(step, types.STEP.signature, f"the integrator {type(self.integrator).__name__}")

    def compile_geometry(self, model_name: str) -> None:
        """The same for the model and the metric alone."""
        value_and_gradient, metric, trace, _ = self.model
        compiled.compile_pointer(value_and_gradient, types.VALUE_AND_GRADIENT.signature, f"the model {model_name}")
        compiled.compile_pointer(metric, types.METRIC.signature, f"the metric of the model {model_name}")
        compiled.compile_pointer(trace, types.TRACE.signature, f"the third derivative of the model {model_name}")
        geometry = self.pointers[3]
        for function, pointer in zip(geometry, types.GEOMETRY.types, strict=True):
            compiled.compile_pointer(function, pointer.signature, f"the metric {type(self.metric).__name__}")


def make_dynamics(model, metric, integrator) -> Dynamics:
    """Raises MetricError or ShapeError for a metric that cannot be, MissingDerivativeError for what the model lacks."""
    metric, integrator = resolve(metric, integrator)
    base = getattr(integrator, "base", integrator)
    composed = base is not integrator
    inlined = isinstance(base, Leapfrog) and base.pointer(metric) is leapfrog_diagonal and not composed
    vecs, mats = workspaces(model, metric, base)
    notes = np.zeros(types.N_NOTES)
    for index, value in {**metric.options(), **integrator.options()}.items():
        notes[index] = value
    return Dynamics(
        metric,
        integrator,
        model.core.tuple_for(metric),
        (
            types.INLINED if inlined else types.THROUGH_POINTERS,
            refresh_of(metric),
            base.pointer(metric),
            metric.geometry,
        ),
        vecs,
        mats,
        notes,
        EXTENDED_ROWS if isinstance(base, ExplicitTao) else POINT_ROWS,
    )


def make_discontinuous_dynamics(model, metric) -> Dynamics:
    """Those of :class:`refhmc.DHMC`. Raises MetricError or ShapeError for variances that cannot be."""
    metric, integrator = Diagonal() if metric is None else metric, Discontinuous()
    J, d = model.discontinuous, model.dim
    variances = metric.inverse_mass(d)
    vecs = np.zeros((laplace.N_ROWS, d))
    vecs[laplace.INVERSE_MASS], vecs[laplace.ROOT] = variances, 1 / np.sqrt(variances)
    vecs[laplace.SCALE] = np.sqrt(variances)
    vecs[laplace.JUMPS, J], vecs[laplace.ORDER, : len(J)] = 1.0, J
    vecs[laplace.INVERSE_MASS, J] = vecs[laplace.SCALE, J]
    notes = np.zeros(types.N_NOTES)
    for index, value in integrator.options().items():
        notes[index] = value
    notes[types.N_DISCONTINUOUS] = len(J)
    notes[types.FULL_DENSITY] = model._functions["log_density_change"] is None
    pointers = (types.JUMPING, laplace.refresh, integrator.pointer(metric), laplace.geometry)
    return Dynamics(
        metric, integrator, model.core.tuple_for_changes, pointers, vecs, np.zeros((0, d, d)), notes, POINT_ROWS
    )


def refresh_of(metric):
    """The compiled momentum draw of a metric."""
    if metric.position_dependent:
        return base.refresh
    return tridiagonal.refresh if isinstance(metric, Tridiagonal) else euclidean.refresh


def workspaces(model, metric, integrator) -> tuple[np.ndarray, np.ndarray]:
    """``vecs`` and ``mats``: a Euclidean metric's numbers (:mod:`refhmc.metrics.euclidean`), and scratch of the size needed."""
    from refhmc.integrators.solver import HISTORY_ROWS

    d = model.dim
    if metric.position_dependent:
        rows, mats = metric.n_vecs, np.zeros((metric.matrices(model), d, d))
    else:
        rows, mats = types.METRIC_ROWS, np.zeros((0, d, d))
    if isinstance(integrator, Leapfrog):
        rows = 2
    vecs = np.zeros((rows + (HISTORY_ROWS if getattr(integrator, "solver", "") == "anderson" else 0), d))
    if isinstance(metric, Tridiagonal):
        mats = metric.bands(d)[None]
        compiled.plain(tridiagonal.factorise_bands)(mats[0], vecs)
    elif not metric.position_dependent:
        inverse_mass = metric.inverse_mass(d)
        if inverse_mass.ndim == 2:
            mats = np.stack([inverse_mass, np.linalg.cholesky(inverse_mass)])
            inverse_mass = np.diag(inverse_mass)
        vecs[0], vecs[1] = inverse_mass, 1 / np.sqrt(inverse_mass)
    return vecs, mats
