"""refhmc's leapfrog as the compiled sampler runs it, against the same loop fused by hand.

``python -m validation.benchmarks.leapfrog [--pairs 30]``

*refhmc*: a compiled loop around :func:`refhmc.integrators.step.integrator_step` with the sampler's own types, the model behind
a pointer. *by hand*: one loop for each model with its log density and gradient written in place (the logistic regression:
called statically), on plain vectors, doing the same work: position, momentum, gradient, velocity, log density, energy.
Both start from the same point and must arrive at the same point before anything is timed; the pairs alternate, so that a
busy or throttled machine slows both.
"""

from __future__ import annotations

import argparse
import math
import pathlib
import statistics
import sys
import time

if __package__ in (None, ""):
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

from validation.benchmarks import common

SECONDS = 0.05  # of one timing
WARM_STEPS = 1000


def wanted(dim: int) -> float:
    """The largest ratio to the loop fused by hand that the design allows."""
    return 2.0 if dim < 11 else 1.1


def problems():
    """(title, refhmc model, loop fused by hand, step size, start) of each problem."""
    import numba
    import numpy as np

    from refhmc.models.banana import Banana
    from refhmc.models.funnel import Funnel
    from refhmc.numerics.linalg import dot
    from validation.benchmarks import problems as shared

    fused = numba.njit(nogil=True, error_model="numpy", fastmath={"reassoc", "nsz"})

    @fused
    def banana(q, p, g, v, w, data, eps, n):
        a, ybar, b = data[0, 0], data[0, 1], data[0, 2]
        total = 0.0
        for _ in range(n):
            for i in range(2):
                p[i] += 0.5 * eps * g[i]
                q[i] += eps * w[i] * p[i]
            r = ybar - q[0] - q[1] * q[1]
            g[0] = a * r - b * q[0]
            g[1] = (2 * a * r - b) * q[1]
            log_density = -0.5 * (a * r * r + b * (q[0] * q[0] + q[1] * q[1]))
            kinetic = 0.0
            for i in range(2):
                p[i] += 0.5 * eps * g[i]
                v[i] = w[i] * p[i]
                kinetic += 0.5 * p[i] * v[i]
            total += kinetic - log_density
        return total

    @fused
    def funnel(q, p, g, v, w, data, eps, n):
        d = q.shape[0]
        total = 0.0
        for _ in range(n):
            for i in range(d):
                p[i] += 0.5 * eps * g[i]
                q[i] += eps * w[i] * p[i]
            e = math.exp(q[0])
            squares = 0.0
            for i in range(1, d):
                squares += q[i] * q[i]
                g[i] = -e * q[i]
            g[0] = -q[0] / 9 + 0.5 * (d - 1) - 0.5 * e * squares
            log_density = -q[0] * q[0] / 18 + 0.5 * (d - 1) * q[0] - 0.5 * e * squares
            kinetic = 0.0
            for i in range(d):
                p[i] += 0.5 * eps * g[i]
                v[i] = w[i] * p[i]
                kinetic += 0.5 * p[i] * v[i]
            total += kinetic - log_density
        return total

    @fused
    def normal(q, p, g, v, w, data, eps, n):
        d = q.shape[0]
        total = 0.0
        for _ in range(n):
            log_density = kinetic = 0.0
            for i in range(d):
                half = p[i] + 0.5 * eps * g[i]
                q[i] += eps * w[i] * half
                g[i] = -q[i]
                log_density -= 0.5 * q[i] * q[i]
                p[i] = half + 0.5 * eps * g[i]
                v[i] = w[i] * p[i]
                kinetic += 0.5 * p[i] * v[i]
            total += kinetic - log_density
        return total

    rng = np.random.default_rng(1)
    found = [("banana", Banana(), banana, 0.01, np.array([0.3, 0.8]))]
    found.append(("funnel", Funnel(10), funnel, 0.05, 0.5 * rng.standard_normal(11)))
    model = shared.refhmc_model("normal")
    found.append(("normal", model, normal, 0.1, rng.standard_normal(100)))
    model = shared.refhmc_model("logistic")
    value_and_gradient = model.core.tuple[1]

    @fused
    def logistic(q, p, g, v, w, data, eps, n):
        total = 0.0
        for _ in range(n):
            for i in range(q.shape[0]):
                p[i] += 0.5 * eps * g[i]
                q[i] += eps * w[i] * p[i]
            log_density = value_and_gradient(q, data, g)
            for i in range(q.shape[0]):
                p[i] += 0.5 * eps * g[i]
                v[i] = w[i] * p[i]
            total += 0.5 * dot(p, v) - log_density
        return total

    found.append(("logistic regression", model, logistic, 0.02, 0.1 * rng.standard_normal(model.dim)))
    return found


def sampler_loop():
    """The loop around ``integrator_step``, compiled for the sampler's own types."""
    import numba
    from numba import types as nb

    from refhmc.core import types
    from refhmc.integrators.step import integrator_step

    signature = nb.float64(types.DYNAMICS, types.MODEL, types.MATRIX, nb.float64, nb.int64, types.WORK, types.MATRIX)

    @numba.njit(signature, nogil=True, error_model="numpy", _nrt=False)
    def loop(dynamics, model, z, eps, n, work, own):
        total = 0.0
        for _ in range(n):
            total += integrator_step(dynamics, model, z, eps, work, own, True)
        return total

    return loop


def measure(title, model, by_hand, eps, start, loop, pairs: int) -> dict[str, object]:
    """Time the two loops in alternation; nanoseconds a step and their ratios."""
    import numpy as np

    from refhmc import NUTS
    from refhmc.core.point import GRADIENT, POINT_ROWS, P, Q
    from refhmc.sampling.chains.chain import make_plan

    d = model.dim
    dynamics = make_plan(model, NUTS(), 0).blocks[0].dynamics
    dynamics.compile(model.name)
    pointers, work, own = dynamics.pointers, dynamics.work(), dynamics.own()
    inverse_mass = work[0][0]
    inverse_mass[:] = np.linspace(0.9, 1.1, d)
    momentum = np.random.default_rng(2).standard_normal(d)
    gradient = model.core.value_and_gradient(start)[1]

    def run_loop(n):
        z = np.zeros((POINT_ROWS, d))
        z[Q], z[P], z[GRADIENT] = start, momentum, gradient
        begin = time.perf_counter()
        total = loop(pointers, dynamics.model, z, eps, n, work, own)
        return time.perf_counter() - begin, total, z[Q]

    def run_by_hand(n):
        q, p, g, v = start.copy(), momentum.copy(), gradient.copy(), np.zeros(d)
        begin = time.perf_counter()
        total = by_hand(q, p, g, v, inverse_mass, model.core.data, eps, n)
        return time.perf_counter() - begin, total, q

    for steps in (1, 20):
        ours, theirs = run_loop(steps), run_by_hand(steps)
        np.testing.assert_allclose(ours[2], theirs[2], rtol=1e-9, atol=1e-9, err_msg=title)
    constant = (run_loop(1)[1] - run_by_hand(1)[1], (run_loop(20)[1] - run_by_hand(20)[1]) / 20)
    np.testing.assert_allclose(*constant, rtol=1e-6, atol=1e-6, err_msg=f"{title}: energies")
    n = max(100, int(SECONDS / (run_by_hand(WARM_STEPS)[0] / WARM_STEPS)))
    times = []
    for k in range(pairs):
        order = (run_loop, run_by_hand) if k % 2 else (run_by_hand, run_loop)
        pair = {f: f(n)[0] / n * 1e9 for f in order}
        times.append((pair[run_loop], pair[run_by_hand]))
    ratios = sorted(a / b for a, b in times)
    return {
        "problem": title,
        "dim": d,
        "steps": n,
        "refhmc_ns": [round(a, 2) for a, _ in times],
        "by_hand_ns": [round(b, 2) for _, b in times],
        "refhmc_ns_min": min(a for a, _ in times),
        "by_hand_ns_min": min(b for _, b in times),
        "ratio_median": statistics.median(ratios),
        "ratio_of_minima": min(a for a, _ in times) / min(b for _, b in times),
        "ratio_range": [ratios[0], ratios[-1]],
        "wanted": wanted(d),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=30, help="pairs of timings for each problem (default 30)")
    arguments = parser.parse_args()
    common.pin_to_one_core()
    about = common.machine(["refhmc", "numba", "numpy"])
    loop = sampler_loop()
    rows, results = [], []
    for problem in problems():
        r = measure(*problem, loop, arguments.pairs)
        results.append(r)
        met = min(r["ratio_median"], r["ratio_of_minima"]) <= r["wanted"]
        rows.append(
            [
                r["problem"],
                r["dim"],
                f"{r['refhmc_ns_min']:.1f}",
                f"{statistics.median(r['refhmc_ns']):.1f}",
                f"{r['by_hand_ns_min']:.1f}",
                f"{statistics.median(r['by_hand_ns']):.1f}",
                f"{r['ratio_of_minima']:.3f}",
                f"{r['ratio_median']:.3f}",
                "{:.3f}..{:.3f}".format(*r["ratio_range"]),
                f"<= {r['wanted']:g} {'met' if met else 'MISSED'}",
            ]
        )
    header = ["problem", "d", "refhmc min", "median", "by hand min", "median"]
    header += ["ratio of minima", "median ratio", "range", "wanted"]
    text = (
        "Nanoseconds for one leapfrog step (gradient included): in the compiled sampler's own loop, the model behind a\n"
        f"pointer, and in a loop fused by hand; {arguments.pairs} alternating pairs.\n\n" + common.table(header, rows)
    )
    common.report("leapfrog", "Leapfrog steps", text, {"pairs": arguments.pairs, "problems": results}, about)


if __name__ == "__main__":
    main()
