"""What an evaluation of the Riemannian Hamiltonian's field costs: against its own parts, and with the dimension.

``python -m validation.benchmarks.riemannian_scaling [--repeats 7]``

**Floor.** An evaluation of (dH/dp, dH/dq) needs the model's metric, gradient and trace and the linear algebra between
them. Here these are called one after the other in a compiled loop, statically, at exact draws of the target, with nothing
else done; beside it the implicit midpoint rule in the sampler, its time divided by the evaluations it made, energies and
momentum draws included (and no step taken back), by pointer and fused. Wanted: at most 1.3 times the floor, on the
banana 1.5 times, fused.

**Scaling.** Time of one implicit midpoint step of the funnel, and of a Gaussian with a dense covariance, for
d = 2 ... 200. The exponent is the slope of log time against log d over the dimensions of 25 and up. Wanted:
at most 3 for SoftAbs, 1.2 for DiagonalSoftAbs on the funnel.
"""

from __future__ import annotations

import argparse
import pathlib
import statistics
import sys
import time

if __package__ in (None, ""):
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

from validation.benchmarks import common

SECONDS = 0.15  # of one timing
DIMENSIONS = (2, 3, 5, 11, 25, 51, 101, 200)
WANTED_FLOOR, WANTED_FLOOR_FUSED, WANTED_EXPONENT = 1.3, 1.5, {"SoftAbs": 3.0, "DiagonalSoftAbs": 1.2}


def fisher_floor(model):
    """The loop of a Fisher metric's evaluation, everything in it called statically."""
    import numba

    from refhmc.numerics.linalg import factorise_ldl, invert_ldl, solve_ldl

    functions = model.functions
    both, fisher, hessian_contraction = functions.value_and_gradient, functions.fisher, functions.fisher_contraction

    @numba.njit(nogil=True, error_model="numpy")
    def loop(points, data, v, r, g, out, G, L, inverse, n):
        for k in range(n):
            q = points[k % points.shape[0]]
            fisher(q, data, G)
            factorise_ldl(G, L, r)
            invert_ldl(L, r, inverse)
            for i in range(q.shape[0]):
                v[i] = q[i]
            solve_ldl(L, r, v)
            for i in range(q.shape[0]):
                for j in range(q.shape[0]):
                    inverse[i, j] = 0.5 * (inverse[i, j] - v[i] * v[j])
            both(q, data, g)
            hessian_contraction(q, data, inverse, out)

    return loop


def softabs_floor(model):
    """The same of SoftAbs."""
    import numba

    from refhmc.metrics.softabs import conjugate, rotate, rotate_back
    from refhmc.metrics.softabs_function import divided_difference_of, soft
    from refhmc.numerics.eigen import eigen_with

    functions = model.functions
    both, hessian, hessian_contraction = functions.value_and_gradient, functions.hessian, functions.hessian_contraction

    @numba.njit(nogil=True, error_model="numpy")
    def loop(points, data, v, f, g, out, H, Q, work, n):
        J, M, values, a, rows = work[0], work[1], work[2, 0], work[2, 1], work[3]
        for k in range(n):
            q = points[k % points.shape[0]]
            hessian(q, data, H)
            eigen_with(H, values, Q, J, M, rows)
            for i in range(q.shape[0]):
                f[i] = soft(values[i], 1e6)
            rotate(Q, q, a)
            for i in range(q.shape[0]):
                a[i] /= f[i]
            rotate_back(Q, a, v)
            for i in range(q.shape[0]):
                for j in range(i + 1):
                    J[i, j] = J[j, i] = (
                        -0.5 * a[i] * a[j] * divided_difference_of(values[i], values[j], f[i], f[j], 1e6)
                    )
            conjugate(Q, J, work[2], M)
            both(q, data, g)
            hessian_contraction(q, data, M, out)

    return loop


def floor_problems():
    """(title, model, metric, loop, step size, steps, draws) of each problem."""
    import numpy as np

    import refhmc
    from validation.benchmarks import problems as shared

    rng = np.random.default_rng(1)
    banana, funnel = refhmc.models.Banana(), refhmc.models.Funnel(10)
    X, y = shared.breast_cancer()
    logistic = refhmc.models.LogisticRegression(X, y)
    draws = rng.normal(size=(64, logistic.dim))  # at the scale of the prior, which is near that of the posterior
    fisher, softabs = refhmc.metrics.Fisher(), refhmc.metrics.SoftAbs(1e6)
    yield "banana, Fisher", banana, fisher, fisher_floor(banana), 0.1, 10, banana.reference.draw(rng, 64)
    yield "funnel 1 + 10, SoftAbs", funnel, softabs, softabs_floor(funnel), 0.2, 20, funnel.reference.draw(rng, 64)
    yield "logistic regression 569 x 31, Fisher", logistic, fisher, fisher_floor(logistic), 0.1, 10, draws


def timed(run, per_call: float) -> float:
    """Seconds of one of ``per_call`` things, over about SECONDS."""
    run(2)
    begin = time.perf_counter()
    run(8)
    n = max(8, int(SECONDS / ((time.perf_counter() - begin) / 8 + 1e-9)))
    begin = time.perf_counter()
    run(n)
    return (time.perf_counter() - begin) / n / per_call


def sampler_run(model, metric, step_size: float, n_steps: int, start, fuse: bool = False):
    """A function of a number of draws that makes them, and the counts of the last call."""
    import numpy as np

    import refhmc
    from refhmc.core import sample_stats as S
    from refhmc.core.records import records
    from refhmc.sampling.chains.chain import Chain, make_plan

    unchecked = refhmc.integrators.ImplicitMidpoint(reversibility_check=False)  # an evaluation's cost, not a step's
    kernel = refhmc.HMC(step_size=step_size, n_steps=n_steps, metric=metric, integrator=unchecked)
    chain = Chain(model, make_plan(model, kernel, 0, fuse), None)
    chain.plan.compile(model.name)
    chain.rng = np.random.default_rng(2)
    chain.start(start)
    counts = np.zeros(2)

    def run(n):
        stats = np.zeros((n, S.N_STATS))
        chain.run(np.zeros((n, model.dim)), stats)
        rows = records(stats, S.STATS)
        counts[:] = rows.solver_iterations.sum(), rows.n_steps.sum()

    return run, counts


def measure_floor(title, model, metric, loop, step_size, n_steps, draws, repeats, fuse: bool) -> dict:
    import numpy as np

    d = model.dim
    vectors, matrices = np.zeros((4, d)), [np.zeros((d, d)), np.zeros((d, d))]
    work = np.zeros((4, d, d)) if "SoftAbs" in title else np.zeros((d, d))  # d >= 3 for the first
    data = model.core.data
    points = np.ascontiguousarray(draws)
    run, counts = sampler_run(model, metric, step_size, n_steps, draws[0], fuse)
    pairs = []
    for _ in range(repeats):
        floor = timed(lambda n: loop(points, data, *vectors, *matrices, work, 64 * n), 64)
        seconds = timed(run, 1)
        run(16)
        evaluations = counts[0] / 16
        pairs.append((seconds / evaluations * 1e9, floor * 1e9))
    ratios = [a / b for a, b in pairs]
    return {
        "problem": title,
        "fused": fuse,
        "integrator_ns": [round(a, 1) for a, _ in pairs],
        "floor_ns": [round(b, 1) for _, b in pairs],
        "ratio_median": statistics.median(ratios),
        "ratio_range": [min(ratios), max(ratios)],
        "wanted": WANTED_FLOOR_FUSED if fuse else WANTED_FLOOR,
    }


def scaling_models(d: int):
    """(title, model, start) at that dimension."""
    import numpy as np

    import refhmc

    rng = np.random.default_rng(d)
    root = rng.normal(size=(d, 2 * d))
    covariance = root @ root.T / (2 * d)
    funnel, gaussian = refhmc.models.Funnel(d - 1), refhmc.models.Gaussian(np.zeros(d), covariance)
    yield "funnel", funnel, np.concatenate([[0.5], rng.normal(size=d - 1)])
    yield "Gaussian, dense", gaussian, rng.normal(size=d)


def measure_scaling(repeats: int) -> list[dict]:
    import numpy as np

    import refhmc

    kept: dict[tuple, list[float]] = {}
    for d in DIMENSIONS:
        for title, model, start in scaling_models(d):
            for metric in (refhmc.metrics.SoftAbs(1e6), refhmc.metrics.DiagonalSoftAbs(1e6)):
                if title != "funnel" and type(metric).__name__ == "DiagonalSoftAbs":
                    continue
                run, counts = sampler_run(model, metric, 0.05, 5, start)
                times = []
                for _ in range(repeats):
                    seconds = timed(run, 1)
                    run(4)
                    times.append(seconds * 4 / counts[1])
                kept.setdefault((title, type(metric).__name__), []).append(min(times))
    results = []
    for (title, metric), times in kept.items():
        large = [k for k, d in enumerate(DIMENSIONS) if d >= 25]
        slope = np.polyfit(np.log([DIMENSIONS[k] for k in large]), np.log([times[k] for k in large]), 1)[0]
        results.append(
            {
                "problem": title,
                "metric": metric,
                "dimensions": list(DIMENSIONS),
                "microseconds_a_step": [round(t * 1e6, 3) for t in times],
                "exponent": round(float(slope), 3),
                "wanted": WANTED_EXPONENT[metric],
            }
        )
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=7)
    arguments = parser.parse_args()
    common.pin_to_one_core()
    about = common.machine(["refhmc", "numba", "numpy"])
    floors = [
        measure_floor(*problem, arguments.repeats, fuse) for problem in floor_problems() for fuse in (False, True)
    ]
    scaling = measure_scaling(max(3, arguments.repeats // 2))
    rows = [
        [
            r["problem"] + (", fused" if r["fused"] else ""),
            f"{statistics.median(r['integrator_ns']):,.0f}",
            f"{statistics.median(r['floor_ns']):,.0f}",
            f"{r['ratio_median']:.2f}",
            "{:.2f}..{:.2f}".format(*r["ratio_range"]),
            f"<= {r['wanted']:g} {'met' if r['ratio_median'] <= r['wanted'] else 'MISSED'}",
        ]
        for r in floors
    ]
    text = "Nanoseconds for an evaluation of (dH/dp, dH/dq), in the sampler and as the sum of its parts.\n\n"
    text += common.table(["problem", "in the sampler", "floor", "ratio", "range", "wanted"], rows)
    text += "\n\nMicroseconds for an implicit midpoint step (step size 0.05, tolerance 1e-6).\n\n"
    header = ["problem", *(f"d = {d}" for d in DIMENSIONS), "exponent", "wanted"]
    rows = [
        [
            f"{r['problem']}, {r['metric']}",
            *(f"{t:,.1f}" for t in r["microseconds_a_step"]),
            f"{r['exponent']:.2f}",
            f"<= {r['wanted']:g} {'met' if r['exponent'] <= r['wanted'] else 'MISSED'}",
        ]
        for r in scaling
    ]
    text += common.table(header, rows)
    data = {"repeats": arguments.repeats, "floors": floors, "scaling": scaling}
    common.report("riemannian_scaling", "Evaluations of a Riemannian Hamiltonian", text, data, about)


if __name__ == "__main__":
    main()
