"""What the tests share: small models, and a sampler without progress."""

from __future__ import annotations

import functools
import gc
import itertools
import os
import random
import time

import numpy as np
import pytest

import refhmc

pytest.register_assert_rewrite("tests.helpers")
from tests.helpers import random_cases  # noqa: E402

random_cases.register_profiles()
# Numba's compiler makes millions of objects, few of them in reference cycles. With Python's threshold of 700 the collector
# takes a tenth of its time.
gc.set_threshold(50_000, 20, 50)


def pytest_addoption(parser):
    parser.addoption("--minutes", type=float, help="begin no test later; files in an order drawn anew")


def pytest_configure(config):
    config.begun = time.monotonic()


def pytest_collection_modifyitems(config, items):
    """With ``--minutes`` another part of the tests is left out each time."""
    if config.getoption("minutes", None) is not None:
        files = [list(group) for _, group in itertools.groupby(items, key=lambda item: item.path)]
        of_all_processes = getattr(config, "workerinput", {}).get("testrunuid")  # which must agree on the order
        random.Random(of_all_processes).shuffle(files)
        items[:] = itertools.chain.from_iterable(files)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    minutes = item.config.getoption("minutes", None)  # unknown where pytest has read this file late
    if minutes is not None and time.monotonic() - item.config.begun > 60 * minutes:
        pytest.skip(f"{minutes:g} minutes are over")


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config):
    """The whole suite runs in as many processes as there are cores, where pytest-xdist is there to do it."""
    if "PYTEST_XDIST_WORKER" in os.environ or hasattr(config, "workerinput"):
        return  # one of those processes, which must not start others
    whole = config.args_source is pytest.Config.ArgsSource.TESTPATHS
    if whole and config.pluginmanager.hasplugin("xdist") and config.option.numprocesses is None:
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        if cores > 1 and not (config.option.collectonly or config.option.usepdb):
            # A process a core: each with one thread of linear algebra, or they wait for one another's.
            os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
            os.environ.setdefault("REFHMC_COMPILE_PROCESSES", "1")
            config.option.numprocesses = cores
            config.option.dist = "worksteal"


def normal_log_density(q, data):
    return -0.5 * np.sum(q * q)


def normal_gradient(q, data):
    return -q


@pytest.fixture(scope="session")
def normal():
    """A user's model: a two-dimensional standard normal, compiled by Numba."""
    return refhmc.Model(2, normal_log_density, normal_gradient, names=["a", "b"], name="normal")


@pytest.fixture
def sample():
    """``refhmc.sample`` without progress, giving plain arrays."""
    return functools.partial(refhmc.sample, progressbar=False, raw=True)
