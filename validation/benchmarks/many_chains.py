"""Many chains on one core: chain-steps a second of refhmc's two texts beside BlackJAX's ``hmc`` and ``rmhmc`` under ``vmap``.

    python -m validation.benchmarks.many_chains [--rounds N] [--problems KEY ...] [--chains N ...]

Static HMC with a fixed step and metric, every draw kept; trajectories of 10 steps, of 5 on a Riemannian metric (of one step for
10,000 chains on SoftAbs). A chain-step is one integrator step of one chain.

    arrays      refhmc.sample(backend="arrays")           without the pre-flight check
    compiled    refhmc.sample(backend="numba", cores=1)   likewise
    BlackJAX    a jitted jax.lax.scan over jax.vmap of the kernel's step, compiled before; float64

All times are CPU times. "Whole call" is that of so many draws as the table says; refhmc's has set-up of each chain and a review
(R-hat, ESS, divergences) that BlackJAX's has not. "Sampling" is what further draws take until they are one array: the
difference between two runs, of which the longer has twice the draws, as many as it takes for half a second between them and
memory (6 GB) holds; "not told" where it took no longer (the core's set-up of 10,000 chains takes seconds, and varies by as
much as the draws take). All are run in turn in each round, on one core. BlackJAX's rmhmc takes derivatives automatically and
does not try the way back; refhmc's Riemannian steps are given without it, too (reversibility_check=False), with the same
tolerance, 1e-6.

Wanted: at each number of chains the better of refhmc's two texts makes at least as many chain-steps a second as BlackJAX.
"""

from __future__ import annotations

import argparse
import contextlib
import time
import warnings
from collections.abc import Callable
from typing import NamedTuple
from unittest import mock

import numpy as np

import refhmc
from refhmc.integrators import ImplicitMidpoint, Leapfrog
from refhmc.metrics import Fisher, Identity, SoftAbs
from refhmc.sampling import run as assembled_run
from validation.benchmarks import common, problems

NAME = "many_chains"
CHAINS = (1, 100, 10_000)
A, YBAR, B, N_X, ALPHA = 25.0, 1.0, 0.25, 10, 1e6  # as in validation.benchmarks.riemannian_peers
STEPS, RIEMANNIAN_STEPS = 10, 5


class Problem(NamedTuple):
    title: str
    model: Callable
    log_density: Callable  # of one vector, jax.numpy
    step_size: float
    metric: object = Identity()
    mass: Callable | None = None  # G(q), jax.numpy


def funnel_jax(q):
    import jax.numpy as jnp

    v, x = q[0], q[1:]
    return -v * v / 18 + 0.5 * N_X * v - 0.5 * jnp.exp(v) * (x @ x)


def softabs_jax(q):
    """SoftAbs of the Hessian of the funnel."""
    import jax
    import jax.numpy as jnp

    values, Q = jnp.linalg.eigh(jax.hessian(funnel_jax)(q))
    return (Q * (values / jnp.tanh(ALPHA * values))) @ Q.T


def banana_jax(q):
    r = YBAR - q[0] - q[1] * q[1]
    return -0.5 * (A * r * r + B * (q[0] * q[0] + q[1] * q[1]))


def fisher_jax(q):
    import jax.numpy as jnp

    t = q[1]
    return jnp.array([[A + B, 2 * A * t], [2 * A * t, 4 * A * t * t + B]])


def all_problems() -> dict[str, Problem]:
    jax_of = problems.log_density_jax
    banana = refhmc.models.Banana(np.full(100, YBAR))
    return {
        "schools": Problem("eight schools, HMC", lambda: problems.refhmc_model("schools"), jax_of("schools"), 0.2),
        "logistic": Problem(
            "logistic regression 569 x 31, HMC", lambda: problems.refhmc_model("logistic"), jax_of("logistic"), 0.1
        ),
        "funnel": Problem("funnel 1 + 10, HMC", lambda: refhmc.models.Funnel(N_X), funnel_jax, 0.1),
        "banana": Problem("banana, Fisher, midpoint", lambda: banana, banana_jax, 0.1, Fisher(), fisher_jax),
        "softabs": Problem(
            "funnel 1 + 10, SoftAbs, midpoint",
            lambda: refhmc.models.Funnel(N_X),
            funnel_jax,
            0.1,
            SoftAbs(ALPHA),
            softabs_jax,
        ),
    }


def steps_of(problem: Problem, chains: int) -> int:
    if problem.mass is None:
        return STEPS
    return 1 if chains > 1000 and isinstance(problem.metric, SoftAbs) else RIEMANNIAN_STEPS


class DrawsAreThere(Exception):
    """Ends a call before the constrained values are made and it is reviewed."""


def ours(problem: Problem, chains: int, backend: str) -> Callable:
    """(n, whole=False) -> seconds of CPU time for n transitions, of the call until its draws are one array, or of the whole
    call."""
    model, riemannian = problem.model(), problem.mass is not None
    integrator = ImplicitMidpoint(variant="midpoint", reversibility_check=False) if riemannian else Leapfrog()
    kernel = refhmc.HMC(
        step_size=problem.step_size, n_steps=steps_of(problem, chains), metric=problem.metric, integrator=integrator
    )
    options = {"initvals": starts_of(model.dim, chains), "random_seed": 1, "raw": True, "progressbar": False}
    options |= {"tune": 0, "preflight": False, "backend": backend} | ({"cores": 1} if backend == "numba" else {})

    def run(n: int, whole: bool = False) -> float:
        clock: list[float] = []

        def drawn(*_) -> None:
            clock.append(time.process_time())
            raise DrawsAreThere

        begin = time.process_time()
        with warnings.catch_warnings(), contextlib.ExitStack() as stack:
            warnings.simplefilter("ignore")
            if not whole:
                stack.enter_context(contextlib.suppress(DrawsAreThere))
                stack.enter_context(mock.patch.object(assembled_run, "put_posterior", drawn))
            refhmc.sample(model, kernel, draws=n, chains=chains, generate=False, **options)
        return (time.process_time() if whole else clock[0]) - begin

    return run


def theirs(problem: Problem, chains: int) -> Callable:
    import blackjax
    import jax
    import jax.numpy as jnp

    if problem.mass is None:
        kernel = blackjax.hmc(
            problem.log_density, problem.step_size, jnp.ones(problem.model().dim), steps_of(problem, chains)
        )
    else:
        kernel = blackjax.rmhmc(problem.log_density, problem.step_size, problem.mass, steps_of(problem, chains))
    states = jax.vmap(kernel.init)(jnp.asarray(starts_of(problem.model().dim, chains)))

    def transitions(states, keys):
        def one(states, key):
            states, _ = jax.vmap(kernel.step)(jax.random.split(key, chains), states)
            return states, states.position

        return jax.lax.scan(one, states, keys)

    compiled = jax.jit(transitions)

    def run(n: int, whole: bool = False) -> float:
        keys = jax.random.split(jax.random.key(1), n)
        begin = time.process_time()
        _, draws = compiled(states, keys)
        draws.block_until_ready()
        return time.process_time() - begin

    return run


def starts_of(dim: int, chains: int) -> np.ndarray:
    return 0.5 * np.random.default_rng(0).normal(size=(chains, dim))


class Rates(NamedTuple):
    """Chain-steps a second (rounds,) of the whole call; of sampling, by the medians of the rounds' times, and (rounds,) by each
    round's own; NaN where the longer run took no longer."""

    whole: np.ndarray
    sampling: float
    of_rounds: np.ndarray


def measured(problem: Problem, chains: int, rounds: int) -> dict[str, Rates]:
    """Of each text and of BlackJAX."""
    runs = {
        "arrays": ours(problem, chains, "arrays"),
        "compiled": ours(problem, chains, "numba"),
        "BlackJAX": theirs(problem, chains),
    }
    n, steps = draws_of(problem, chains), chains * steps_of(problem, chains)
    longer = {name: enough(run, n, chains * problem.model().dim) for name, run in runs.items()}
    seconds: dict[str, list] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            m = longer[name]
            seconds[name].append((run(n, whole=True), run(m), run(2 * m)))
    found = {}
    for name, each in seconds.items():
        whole, few, many = np.array(each).T
        work = longer[name] * steps
        more = np.append(many - few, np.median(many) - np.median(few))
        *of_rounds, sampling = work / np.where(more > 0, more, np.nan)
        found[name] = Rates(n * steps / whole, sampling, np.array(of_rounds))
    return found


def enough(run: Callable, n: int, numbers_a_draw: int) -> int:
    """So many draws, from n on, that twice as many take half a second longer, and a fifth of the whole, if there is room for
    them (6 GB). Each number of draws is run once before it is timed: a jitted function is compiled for it."""
    most = 7.5e8 / (8 * numbers_a_draw)
    while True:
        run(n), run(2 * n)
        few, many = run(n), run(2 * n)
        factor = min(np.ceil(max(0.7, 0.3 * few) / max(many - few, 0.05)), most // n)
        if many - few >= max(0.5, 0.2 * many) or factor < 2:
            return n
        n *= int(factor)


def draws_of(problem: Problem, chains: int) -> int:
    """Fewer where a step costs more."""
    if problem.mass is not None:
        few = {1: 200, 100: 20, 10_000: 1 if isinstance(problem.metric, SoftAbs) else 2}
    elif "logistic" in problem.title:
        few = {1: 200, 100: 50, 10_000: 3}
    else:
        few = {1: 1000, 100: 200, 10_000: 50}
    return few[chains]


def row_of(part: str, rates: dict[str, Rates]) -> list[str]:
    """The rates, the ratio of the arrays and of the better of ours to BlackJAX, with the least and largest of a round."""
    middle = {name: float(np.median(of.whole)) if part == "whole" else of.sampling for name, of in rates.items()}
    rounds = {name: of.whole if part == "whole" else of.of_rounds for name, of in rates.items()}

    def ratio(name: str) -> str:
        each = rounds[name] / rounds["BlackJAX"]
        each = each[np.isfinite(each)]
        spread = f"{each.min():.2f}..{each.max():.2f}" if len(each) else "in no round"
        return f"{middle[name] / middle['BlackJAX']:.2f} ({spread})"

    better = max(("arrays", "compiled"), key=lambda name: np.nan_to_num(middle[name]))
    said = (f"{x:,.3g}" if np.isfinite(x) else "not told" for x in middle.values())
    return [*said, ratio("arrays"), better, ratio(better)]


def write(rows: dict[str, list], data: dict, rounds: int, about: dict) -> None:
    """The page, with what has been measured so far."""
    header = ["problem", "chains", "draws", "arrays", "compiled", "BlackJAX"]
    header += ["arrays / BlackJAX", "better", "better / BlackJAX"]
    tables = {part: common.table(header, found) for part, found in rows.items()}
    said = f"by the medians of the times of {rounds} rounds; ratios with the least and largest round"
    text = f"{__doc__}\nChain-steps a second {said}.\n\n"
    text += f"Whole calls:\n\n{tables['whole']}\n\nSampling:\n\n{tables['sampling']}"
    common.report(NAME, "Many chains at once, one core", text, {"rates": data}, about)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--problems", nargs="*", default=None)
    parser.add_argument("--chains", nargs="*", type=int, default=CHAINS)
    options = parser.parse_args()
    common.pin_to_one_core()
    about = common.machine(["refhmc", "numpy", "numba", "jax", "blackjax"])
    rows: dict[str, list] = {"whole": [], "sampling": []}
    data: dict[str, dict] = {}
    for key, problem in all_problems().items():
        if options.problems and key not in options.problems:
            continue
        for chains in options.chains:
            rates = measured(problem, chains, options.rounds)
            data[f"{key} {chains}"] = {
                name: {what: np.asarray(x).tolist() for what, x in of._asdict().items()} for name, of in rates.items()
            }
            for part, found in rows.items():
                row = [problem.title, f"{chains:,}", str(draws_of(problem, chains)), *row_of(part, rates)]
                print(part, " | ".join(row), flush=True)
                found.append(row)
            write(rows, data, options.rounds, about)


if __name__ == "__main__":
    main()
