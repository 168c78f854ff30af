"""What the tests share: small models, and a sampler without progress."""

from __future__ import annotations

import contextlib
import functools
import gc
import os
import signal

import numpy as np
import pytest

import refhmc

pytest.register_assert_rewrite("tests.helpers")
from tests.helpers import random_cases, seeds, shards  # noqa: E402

random_cases.register_profiles()
seeds.patch()
# Numba's compiler makes millions of objects, few of them in reference cycles. With Python's threshold of 700 the collector
# takes a tenth of its time.
gc.set_threshold(50_000, 20, 50)
# A shell starts a background job with SIGINT ignored, and tests of Ctrl-C send it.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser):
    parser.addoption("--shard", metavar="K/N", type=shards.parsed, help="run the K-th of N fixed parts of the tests")


def pytest_collection_modifyitems(config, items):
    """Keep the tests of one shard."""
    shard = config.getoption("shard", None)  # unknown if pytest has read this file late
    if shard is not None:
        config.hook.pytest_deselected(items=[item for item in items if not shards.contains(shard, item.nodeid)])
        items[:] = [item for item in items if shards.contains(shard, item.nodeid)]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    with seeds.shifted(0) if item.get_closest_marker("fixed_seed") else contextlib.nullcontext():
        return (yield)


def pytest_terminal_summary(terminalreporter, exitstatus, config):
    """After a failure, print the shard and the shift of the seeds, without which it may not occur again."""
    shard = config.getoption("shard", None)
    if exitstatus == pytest.ExitCode.TESTS_FAILED and (shard is not None or seeds.SHIFT):
        shift = f"{seeds.VARIABLE}={seeds.SHIFT} " if seeds.SHIFT else ""
        option = f" --shard {shard[0]}/{shard[1]}" if shard is not None else ""
        terminalreporter.write_line(f"Repeat with: {shift}python -m pytest -m '{config.option.markexpr}'{option}")


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
