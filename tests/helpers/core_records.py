"""Records and work of the compiled core, made by hand for a test of its text."""

from __future__ import annotations

import numpy as np

from refhmc.compile import compiled
from refhmc.core import records
from refhmc.core.sample_stats import STATS
from refhmc.core.types import Work


def work_of(vecs: np.ndarray, mats: np.ndarray) -> tuple:
    """Work with these stacks and records of zeros."""
    kinds = (records.OPTIONS, records.CACHE, records.COUNTERS, records.STATUS)
    return (vecs, mats, *(records.one(kind)[0] for kind in kinds))


def stats_row() -> np.record:
    return records.one(STATS)[0]


def control_row() -> np.record:
    return records.one(records.CONTROL)[0]


def plain_dynamics(dynamics) -> tuple:
    """The pointers of ``make_dynamics`` as plain Python."""
    kind, refresh, step, metric = dynamics.pointers
    return kind, compiled.plain(refresh), compiled.plain(step), metric


def plain_model(core_tuple: tuple) -> tuple:
    """A model's tuple with its density and gradient as plain Python."""
    data, value_and_gradient, *rest = core_tuple
    return (data, compiled.plain(value_and_gradient), *rest)


def counters_of(chain) -> np.record:
    return Work(*chain.work).counters
