"""Records and layouts of the compiled core, and the core as plain Python with its invariants."""

from __future__ import annotations

import contextlib
import io
import itertools
import os
import subprocess
import sys
import warnings

import numpy as np
import pytest

import refhmc
from refhmc.compile import compiled
from refhmc.core import records, types
from refhmc.core.records import Layout, one
from refhmc.core.sample_stats import N_STATS, STATS, named
from refhmc.integrators import ExplicitTao, GeneralizedLeapfrog, ImplicitMidpoint, ProjectedTao
from refhmc.integrators.base import CHECK
from refhmc.metrics.base import EUCLIDEAN, SHARED

LAYOUTS = [
    *(EUCLIDEAN, SHARED, CHECK),
    *(each.layout for each in (ExplicitTao, GeneralizedLeapfrog, ImplicitMidpoint, ProjectedTao)),
    *(each.layout for each in vars(refhmc.metrics).values() if hasattr(each, "layout")),
]


def spans(rows: dict[str, str]) -> list[range]:
    ends = ([int(end) for end in index.split(":")] for index in rows.values())
    return [range(each[0], each[-1] if len(each) == 2 else each[0] + 1) for each in ends]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_rows_fill_the_stack_without_overlap(layout):
    for rows, n in ((layout.vectors, layout.n_vectors), (layout.matrices, layout.n_matrices)):
        taken = list(itertools.chain(*spans(rows)))
        assert sorted(taken) == list(range(n))


def test_a_layout_after_another_keeps_its_rows():
    first = Layout("a b[2]", "M")
    second = Layout("c", "N[2]", after=first)
    assert {name: second.vectors[name] for name in first.vectors} == first.vectors
    assert (second.n_vectors, second.n_matrices) == (4, 3)
    with pytest.raises(AssertionError, match="two rows are called a"):
        Layout("a", after=first)


SOME = Layout("a b[2]", "M")
views, rows = SOME.views, SOME.rows


@compiled.jit
def write(work):
    w = views(work)
    w.a[:] = 1.0
    w.b[1, 0] += 2.0
    w.M[0, 1] += 3.0
    rows(work[0]).b[0, 1] = 5.0


def test_views_write_to_the_stack():
    """Compiled and as plain Python. (Use the plain ones from Python: compiled functions of the core return no arrays.)"""
    vecs, mats = np.zeros((3, 2)), np.zeros((1, 2, 2))
    for text in (write, compiled.plain(write)):
        text((vecs, mats))
    np.testing.assert_array_equal(vecs, [[1, 1], [0, 5], [4, 0]])
    np.testing.assert_array_equal(mats, [[[0, 6], [0, 0]]])
    assert compiled.plain(rows)(vecs).b.shape == (2, 2)


def test_a_record_is_passed_by_reference():
    counters = one(records.COUNTERS)
    compiled.jit(count_twice)(counters[0])
    assert (counters.gradients[0], counters.passing[0]) == (2, 0.5)
    assert types.Work._fields[2:] == ("options", "cache", "counters", "status")


def count_twice(counters):
    counters.gradients += 2
    counters.passing = 0.5


def test_rows_of_statistics_by_name():
    rows = np.arange(2.0 * N_STATS).reshape(2, N_STATS)
    names = STATS.names
    by_name = named(rows, ("lp", "n_steps", "diverging"))
    assert by_name["lp"].tolist() == rows[:, names.index("lp")].tolist()
    assert by_name["n_steps"].dtype == np.int64
    assert by_name["diverging"].tolist() == [True, True]


def test_control_has_separate_cache_lines():
    assert records.CONTROL.itemsize == 8 * records.N_CONTROL == 128


def test_counts_are_copied_without_requests():
    control, counts = one(records.CONTROL)[0], one(records.CONTROL)[0]
    counts.stop, counts.draws_done, counts.step_size = 1, 7, 0.5
    records.set_counts(control, counts)
    assert (control.stop, control.draws_done, control.step_size) == (0, 7, 0.5)


PLAIN = """
import warnings
import numpy as np
import refhmc
from refhmc.integrators import *
from refhmc.metrics import *

warnings.simplefilter("ignore")
banana, funnel = refhmc.models.Banana(), refhmc.models.Funnel(2)
grid = refhmc.models.CellGrid(np.array([[1.0, 3.0], [0.5, 2.0]]))
runs = [
    (funnel, refhmc.NUTS(max_treedepth=4)),
    (banana, refhmc.NUTS(step_size=0.1, max_treedepth=3, metric=Fisher())),
    (funnel, refhmc.HMC(step_size=0.3, n_steps=3, metric=SoftAbs(1e6), integrator=GeneralizedLeapfrog())),
    (funnel, refhmc.HMC(step_size=0.2, n_steps=3, metric=Fisher(), integrator=ProjectedTao(1.0))),
    (banana, refhmc.HMC(step_size=0.05, n_steps=3, step_jitter=0.2, metric=Dense())),
    (grid, refhmc.DHMC(step_size=0.5, n_steps=4)),
    (funnel, refhmc.Gibbs({"v": refhmc.HMC(step_size=0.3, n_steps=3), "x": refhmc.NUTS(max_treedepth=3)})),
]
for model, kernel in runs:
    result = refhmc.sample(model, kernel, draws=4, tune=20, chains=1, random_seed=1, progressbar=False, raw=True)
    print(repr(result.draws[0, -1, 0]))
"""


@pytest.mark.sweep
def test_invariants_hold_in_plain_python():
    """The draws agree with compiled code up to the order of sums."""
    environment = {**os.environ, "NUMBA_DISABLE_JIT": "1"}
    command = [sys.executable, "-c", PLAIN]
    plain = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert plain.returncode == 0, plain.stderr[-2000:]
    with contextlib.redirect_stdout(io.StringIO()) as here, warnings.catch_warnings():
        exec(PLAIN, {})
    printed = (plain.stdout, here.getvalue())
    ours, theirs = ([float(x.split("(")[-1].rstrip(")")) for x in text.split()] for text in printed)
    assert len(ours) == 7
    np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-8)
