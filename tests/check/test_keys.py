"""Kernels of JAX with keys and states, without adapters: how they are recognised, called and read.

JAX is not among the test requirements: these tests are skipped where it is not installed. All seeds are fixed; a correct kernel
fails a check here with probability at most 1e-6 on another processor.
"""

from __future__ import annotations

import functools
import runpy
from typing import Any, NamedTuple

import numpy as np
import pytest

import refhmc.check as rc

jax = pytest.importorskip("jax", reason="JAX is not installed")
import jax.numpy as jnp  # noqa: E402

from refhmc.check.mutants import jax_kernels  # noqa: E402
from refhmc.check.mutants.jax_kernels import Algorithm, KeyInState, hmc, log_density, walks, walks_with_one_key  # noqa: E402
from tests.helpers.places import ROOT  # noqa: E402

DEFAULT = {"jax key twice", "jax one key", "jax no kinetic energy"}
check = functools.partial(rc.sampler, target="normal-2", draws=600, seconds=120)


@pytest.fixture(autouse=True)
def double_precision():
    with jax.enable_x64(True):
        yield


def note_of(report, start="called with JAX keys as "):
    return next(note.removeprefix(start) for note in report.notes if note.startswith(start))


@pytest.mark.parametrize(
    "pair",
    [pytest.param(p, marks=[] if p.id in DEFAULT else pytest.mark.sweep, id=p.id) for p in jax_kernels.PAIRS],
)
def test_planted_bug_fails_in_its_row_and_corrected_code_passes(pair):
    wrong, right = pair.wrong(1), pair.right(1)
    assert {row.name for row in wrong.failures} & set(pair.expected), str(wrong)
    assert wrong.severity == pair.severity
    assert right.ok, str(right)


# ------------------------------------------------------------------------------------------------------- recognition


def walk(key, q):
    one, other = jax.random.split(key)
    new = q + jax.random.normal(one, q.shape)
    return jnp.where(jnp.log(jax.random.uniform(other)) < log_density(new) - log_density(q), new, q)


def walk_with_branches(key, q):
    """Walk with Python's ``if``, which JAX cannot trace."""
    one, other = jax.random.split(key)
    new = q + jax.random.normal(one, q.shape)
    return new if jnp.log(jax.random.uniform(other)) < log_density(new) - log_density(q) else q


def walk_with_raw_keys(key, q):
    assert key.shape == (2,)
    return walk(key, q)


def swapped(state, rng_key):
    return hmc().step(rng_key, state)


SINGLE = "one chain, under vmap; the position is "


@pytest.mark.parametrize(
    ("kernel", "init", "note"),
    [
        (hmc(), None, f"{SINGLE}state.position"),
        (hmc().step, hmc().init, f"{SINGLE}state.position"),
        (lambda k, s: hmc().step(k, s), lambda q: hmc().init(q), f"{SINGLE}state.position"),
        (swapped, lambda q, key: hmc().init(q), f"{SINGLE}state.position"),
        (jax.jit(lambda rng, s: hmc().step(rng, s)), hmc().init, f"{SINGLE}state.position"),
        (walk, None, f"{SINGLE}state"),
        (walk_with_raw_keys, None, f"{SINGLE}state"),
        (lambda key, s: ({"x": walk(key, s["x"])}, None), lambda q: {"x": q}, f"{SINGLE}state['x']"),
        (lambda key, s: (walk(key, s[0]), s[1] + 1), lambda q: (q, 0), f"{SINGLE}state[0]"),
        (KeyInState(), None, f"{SINGLE}state.z; the state contains the key"),
        (walks(), None, "a batch with its keys; the position is state.position"),
        (
            Algorithm(jax.vmap(hmc().init), jax.vmap(hmc().step)),
            None,
            "a batch with its keys; the position is state.position",
        ),
        (jax.jit(jax.vmap(hmc().step)), hmc().init, "a batch with its keys; the position is state.position"),
        (walks_with_one_key(), None, "a batch with one key; the position is state"),
    ],
)
def test_kernel_is_recognised_and_read(kernel, init, note):
    report = check(kernel, init=init)
    assert report.ok, str(report)
    assert note_of(report) == note


def test_kernel_that_cannot_be_traced_is_called_for_one_chain_at_a_time():
    report = check(walk_with_branches, draws=200)
    assert report.ok, str(report)
    assert note_of(report) == "one chain; the position is state"
    assert "one chain at a time" in rc.batch(walk_with_branches, dim=2).row("alone equals batch").basis


def test_position_may_be_any_pytree():
    like = {"b": jnp.zeros(()), "a": jnp.zeros((1, 1))}

    def step(key, state):
        q = jnp.concatenate([state["a"].ravel(), state["b"].ravel()])
        new = walk(key, q)
        return {"a": new[:1].reshape(1, 1), "b": new[1]}, None

    report = check(step, like=like)
    assert report.ok, str(report)
    assert "has 2 numbers, but the target has 3 dimensions" in str(check(step, target="normal-3", like=like))


class Doubled(NamedTuple):
    x: Any
    position: Any
    best: Any


def doubled(key, state):
    new = walk(key, state.x)
    return state._replace(x=new), None


def test_unclear_position_is_refused_with_what_was_found():
    start = {"init": lambda q: Doubled(q, q, q)}
    report = check(doubled, **start)
    assert report.severity == "call failed"
    basis = report.failures[0].basis
    assert "several parts of the state equal the position (state.x, state.position, state.best)" in basis
    assert check(doubled, **start, read=lambda state: state.x).ok
    assert check(doubled, init=lambda q: Doubled(q, 0 * q, q)).ok  # the name decides between x and best
    hidden = check(doubled, init=lambda q: Doubled(2 * q, q[0], q[0]))
    assert "no part of the state of 1024 chains equals the position" in hidden.failures[0].basis
    assert "state.x (1024, 2)" in hidden.failures[0].basis


def test_wrong_answer_is_a_failed_call():
    report = check(lambda key, state: "moved", init=lambda q: {"x": q})
    assert report.severity == "call failed"
    for one in (rc.batch, rc.randomness):
        broken = one(lambda key, q: q[:1] / 0 + undefined, dim=2)  # noqa: F821
        assert "NameError" in broken.row("answers").basis


def test_kernel_with_a_generator_is_called_as_before():
    seen = []

    def kernel(rng, q):
        seen.append(type(rng))
        new = q + rng.normal(size=q.shape)
        return new if np.log(rng.random()) < (q @ q - new @ new) / 2 else q

    assert check(kernel, draws=200).ok
    assert set(seen) == {np.random.Generator}
    assert check(lambda key, q: kernel(key, q), draws=200).ok  # the name of a key, but a generator
    assert check(rc.adapters.kernel_with_key(jax.jit(walk), jax.random.key), draws=200).ok


def test_single_precision_is_stated():
    with jax.enable_x64(False):
        for report in (check(hmc()), rc.batch(hmc(), dim=2), rc.randomness(hmc(), dim=2)):
            assert report.ok, str(report)
            assert any("(float32)" in note for note in report.notes), str(report)
        stuck = check(lambda key, q: q + 0 * jax.random.normal(key, q.shape))
        assert stuck.row("moves").status != "PASS", str(stuck)  # rounding of the start is not a move


def test_client_of_the_guide_is_right_and_its_bugs_are_found():
    path = ROOT / "validation" / "clients" / "client_jax_keys.py"
    checks = runpy.run_path(str(path))["checks"]
    for check in checks().values():
        assert check().ok
    assert checks("key-twice")["randomness"]().row("key reuse").status == "FAIL"
    assert checks("stale-density")["sampler"]().severity == "wrong distribution"


# ------------------------------------------------------------------------------------------------------------ batch


def test_common_step_size_is_no_fault():
    """The key of chain 0 gives the step size of all chains, which preserves the distribution of each."""

    def step(keys, Q):
        size = 0.5 + jax.random.uniform(jax.random.fold_in(keys[0], 1))
        pairs = jax.vmap(jax.random.split)(keys)
        new = Q + size * jax.vmap(lambda key: jax.random.normal(key, Q.shape[1:]))(pairs[:, 0])
        accepted = jnp.log(jax.vmap(jax.random.uniform)(pairs[:, 1])) < log_density(new) - log_density(Q)
        return jnp.where(accepted[:, None], new, Q)

    report = rc.batch(step, dim=2)
    assert not report.failures, str(report)
    assert "right for a common step size" in report.row("streams independent").basis


# ------------------------------------------------------------------------------------------------------- randomness


def test_other_generators_are_found_although_jit_would_freeze_them():
    def noisy(key, q):
        return walk(key, q) + 0.01 * np.random.default_rng().normal(size=2)

    def seeded(key, q):
        return walk(key, q) + 0.01 * np.random.normal(size=2)  # noqa: NPY002

    assert rc.randomness(noisy, dim=2).row("respects the generator").status == "FAIL"
    report = rc.randomness(seeded, dim=2)
    assert {row.name for row in report.failures} >= {"respects the generator", "global state"}


def test_key_reuse_is_not_run_for_raw_keys():
    row = rc.randomness(walk_with_raw_keys, dim=2).row("key reuse")
    assert row.status == "NOT RUN"
    assert "jax.random.PRNGKey" in row.basis


def test_reuse_inside_a_loop_and_in_init_is_found():
    def steps(key, q):
        return jax.lax.fori_loop(0, 3, lambda i, x: x + jax.random.normal(key, x.shape), q)

    assert "in a transition" in rc.randomness(steps, dim=2).row("key reuse").basis

    def init(key, q):
        return {"q": q, "p": jax.random.normal(key, q.shape), "u": jax.random.uniform(key)}

    report = rc.randomness(lambda key, s: ({**s, "q": walk(key, s["q"])}, None), init=init, dim=2)
    assert "in init" in report.row("key reuse").basis
