"""States and first sensitivities of an ODE: refhmc's solver, a Runge-Kutta method of order 4 written by hand, SciPy's LSODA.

``python -m validation.benchmarks.ode [--pairs 20]``

*by hand*: the classical method with equal steps between the times, the equations of states and sensitivities written out and
compiled in one loop: what a user writes who knows the problem. Of its numbers of steps the least is taken whose error is at
most that of refhmc. *refhmc*: ``ODESolution.first``, called by compiled code, as a user's density calls it, the error of each
step controlled. *LSODA*: ``solver="lsoda"`` at the same tolerance, called by Python; it was the only solver before, and is
behind a lock. Errors are the largest at any time, relative to the largest value of each unknown, against a solution at a
tolerance of 1e-14.
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

SECONDS = 0.05  # of one timing
WANTED = 2.0  # the largest ratio to the method written by hand
TOLERANCES = (1e-5, 1e-6, 1e-8, 1e-10)
MOST = 2048  # steps between two times


def systems():
    """(title, arguments of ODESolution, theta, slopes of states and sensitivities written by hand, u at the start)."""
    import numpy as np
    from numba import njit

    from refhmc.models import fitzhugh_nagumo as fhn

    def rhs(t, x, theta, out):
        out[0] = (theta[0] - theta[1] * x[1]) * x[0]
        out[1] = (theta[3] * x[0] - theta[2]) * x[1]

    def jacobian(t, x, theta, out):
        out[0, 0], out[0, 1], out[0, 2], out[0, 3] = theta[0] - theta[1] * x[1], -theta[1] * x[0], x[0], -x[0] * x[1]
        out[1, 0], out[1, 1], out[1, 4], out[1, 5] = theta[3] * x[1], theta[3] * x[0] - theta[2], -x[1], x[0] * x[1]

    @njit(nogil=True, error_model="numpy")
    def lotka_volterra(u, theta, du):
        x, y = u[0], u[1]
        a, b, c, d = theta[0] - theta[1] * y, -theta[1] * x, theta[3] * y, theta[3] * x - theta[2]
        du[0], du[1] = a * x, d * y
        for k in range(6):
            du[2 + k] = a * u[2 + k] + b * u[8 + k]
            du[8 + k] = c * u[2 + k] + d * u[8 + k]
        du[2] += x
        du[3] -= x * y
        du[10] -= y
        du[11] += x * y

    @njit(nogil=True, error_model="numpy")
    def fitzhugh_nagumo(u, theta, du):
        v, r, i = u[0], u[1], 1 / theta[2]
        e = v - theta[0] + theta[1] * r
        a, b, c, d = theta[2] * (1 - v * v), theta[2], -i, -theta[1] * i
        du[0], du[1] = theta[2] * (v - v * v * v / 3 + r), -e * i
        for k in range(3):
            du[2 + k] = a * u[2 + k] + b * u[5 + k]
            du[5 + k] = c * u[2 + k] + d * u[5 + k]
        du[4] += v - v * v * v / 3 + r
        du[5] += i
        du[6] -= r * i
        du[7] += e * i * i

    def epidemic(t, x, theta, out):
        infected, recovered = theta[0] * x[0] * x[1], theta[1] * x[1]
        out[0], out[1], out[2] = -infected, infected - recovered, recovered

    def epidemic_jacobian(t, x, theta, out):
        for i, sign in ((0, -1.0), (1, 1.0)):
            out[i, 0], out[i, 1], out[i, 3] = sign * theta[0] * x[1], sign * theta[0] * x[0], sign * x[0] * x[1]
        out[1, 1] -= theta[1]
        out[1, 4], out[2, 1], out[2, 4] = -x[1], theta[1], x[1]

    @njit(nogil=True, error_model="numpy")
    def sir(u, theta, du):
        infected, recovered = theta[0] * u[0] * u[1], theta[1] * u[1]
        du[0], du[1], du[2] = -infected, infected - recovered, recovered
        a, b = theta[0] * u[1], theta[0] * u[0]
        for k in range(2):
            gone, well = a * u[3 + k] + b * u[5 + k], theta[1] * u[5 + k]
            if k == 0:
                gone += u[0] * u[1]
            else:
                well += u[1]
            du[3 + k], du[5 + k], du[7 + k] = -gone, gone - well, well

    theta = np.array([0.55, 0.028, 0.8, 0.024, 34.0, 5.9])
    names = ["alpha", "beta", "gamma", "delta", "prey", "predator"]
    u = np.concatenate([theta[4:], np.eye(6)[4:].ravel()])
    options = {"parameters": names, "initial_state": ["prey", "predator"], "times": np.arange(21.0)}
    yield "Lotka-Volterra, 21 times, 14 unknowns", (rhs, jacobian), options, theta, lotka_volterra, u
    for n in (21, 201):
        options = {"parameters": 3, "initial_state": fhn.START, "times": np.linspace(0, 10, n)}
        title, u = f"FitzHugh-Nagumo, {n} times, 8 unknowns", np.concatenate([fhn.START, np.zeros(6)])
        yield title, (fhn.rhs, fhn.jacobian), options, fhn.TRUTH, fitzhugh_nagumo, u
    start = np.array([0.99, 0.01, 0.0])
    options = {"parameters": ["beta", "gamma"], "initial_state": start, "times": np.linspace(0, 80, 21)}
    title, u = "SIR epidemic, 21 times, 9 unknowns", np.concatenate([start, np.zeros(6)])
    yield title, (epidemic, epidemic_jacobian), options, np.array([0.4, 0.1]), sir, u


def by_hand(slopes):
    """``(theta, u, times, steps)`` -> u at the times."""
    import numpy as np
    from numba import njit

    @njit(nogil=True, error_model="numpy")
    def solve(theta, start, times, steps):
        n = len(start)
        path, u, x = np.empty((len(times), n)), start.copy(), np.empty(n)
        k1, k2, k3, k4 = np.empty(n), np.empty(n), np.empty(n), np.empty(n)
        path[0] = u
        for t in range(1, len(times)):
            h = (times[t] - times[t - 1]) / steps
            for _ in range(steps):
                slopes(u, theta, k1)
                for i in range(n):
                    x[i] = u[i] + 0.5 * h * k1[i]
                slopes(x, theta, k2)
                for i in range(n):
                    x[i] = u[i] + 0.5 * h * k2[i]
                slopes(x, theta, k3)
                for i in range(n):
                    x[i] = u[i] + h * k3[i]
                slopes(x, theta, k4)
                for i in range(n):
                    u[i] += h / 6 * (k1[i] + 2 * k2[i] + 2 * k3[i] + k4[i])
            path[t] = u
        return path

    return solve


def repeated(function, *more):
    """A compiled loop that calls it so many times."""
    from numba import njit

    @njit(nogil=True)
    def loop(count, *arguments):
        for _ in range(count):
            function(*arguments)

    loop(1, *more)
    return loop


def seconds(run) -> float:
    """Of one call of ``run(count)``, for a count that takes SECONDS or so."""
    begin = time.perf_counter()
    run(1)
    once = max(time.perf_counter() - begin, 1e-6)
    count = max(1, int(SECONDS / once))
    begin = time.perf_counter()
    run(count)
    return (time.perf_counter() - begin) / count


def measure(title, functions, options, theta, slopes, start, tolerance: float, pairs: int) -> dict[str, object]:
    """Microseconds and errors of the three at one tolerance."""
    import numpy as np

    from refhmc.models import ODESolution

    def whole(found):
        return np.concatenate([found.states, found.first.reshape(len(found.states), -1)], axis=1)

    times = np.asarray(options["times"], dtype=float)
    exact = whole(ODESolution(*functions, **options, tolerance=1e-14, max_steps=10**6).solve(theta, 1))
    size = np.abs(exact).max(axis=0)

    def error(path):
        return float((np.abs(path - exact) / size).max())

    ours, lsoda = (
        ODESolution(*functions, **options, tolerance=tolerance, solver=solver) for solver in ("runge_kutta", "lsoda")
    )
    reached, hand, steps = error(whole(ours.solve(theta, 1))), by_hand(slopes), 1
    while steps < MOST and error(hand(theta, start, times, steps)) > reached:
        steps += 1 if steps < 8 else steps // 8
    first = ours.first
    loop, hand_loop = repeated(first, theta), repeated(hand, theta, start, times, steps)

    def python(count):
        for _ in range(count):
            lsoda.solve(theta, 1)

    runs = {
        "refhmc": lambda count: loop(count, theta),
        "by hand": lambda count: hand_loop(count, theta, start, times, steps),
        "lsoda": python,
    }
    found: dict[str, list[float]] = {key: [] for key in runs}
    for k in range(pairs):
        for key in list(runs)[:: 1 if k % 2 else -1]:
            found[key].append(1e6 * seconds(runs[key]))
    row: dict[str, object] = {f"{key} us": statistics.median(values) for key, values in found.items()}
    for key in ("by hand", "lsoda"):
        ratios = [a / b for a, b in zip(found["refhmc"], found[key], strict=True)]
        row[f"ratio to {key}"] = statistics.median(ratios)
        row[f"range to {key}"] = [min(ratios), max(ratios)]
    return {
        "title": title,
        "tolerance": tolerance,
        "steps": steps,
        "error": reached,
        "error by hand": error(hand(theta, start, times, steps)),
        "error lsoda": error(whole(lsoda.solve(theta, 1))),
        **row,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--pairs", type=int, default=20)
    arguments = parser.parse_args()
    common.pin_to_one_core()
    about = common.machine(["refhmc", "numba", "numpy", "scipy"])
    results = [measure(*system, tolerance, arguments.pairs) for system in systems() for tolerance in TOLERANCES]
    rows = []
    for r in results:
        verdict = "met" if r["ratio to by hand"] <= WANTED else "MISSED"
        rows.append(
            [r["title"], f"{r['tolerance']:g}", f"{r['error']:.0e}", f"{r['refhmc us']:.0f}"]
            + [str(r["steps"]), f"{r['error by hand']:.0e}", f"{r['by hand us']:.0f}", f"{r['ratio to by hand']:.2f}"]
            + [verdict, f"{r['error lsoda']:.0e}", f"{r['lsoda us']:.0f}", f"{r['ratio to lsoda']:.2f}"]
        )
    header = ["system", "tolerance", "error", "refhmc us", "RK4 steps", "error", "RK4 us", "ratio", f"<= {WANTED:g}"]
    header += ["LSODA error", "LSODA us", "ratio"]
    text = (
        "Microseconds for states and first sensitivities at all times, and the largest relative error. RK4: written by\n"
        "hand, with so many equal steps between two times that its error is at most refhmc's. Ratios are medians of\n"
        f"refhmc's time over the other's in {arguments.pairs} alternating rounds.\n\n" + common.table(header, rows)
    )
    common.report("ode", "Differential equations", text, {"pairs": arguments.pairs, "rows": results}, about)


if __name__ == "__main__":
    main()
