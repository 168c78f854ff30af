"""How fast the page that moves is, in headless Chromium: ``python -m validation.benchmarks.moving_page [--seconds 5]``.

Loading is from the request of the file to the event ``load``, and to the first picture on the screen, each in a new context.
Frames and steps a second are counted while the cloud of 200 points makes 60 steps a second, one by one, with nothing
kept of an earlier round.
"""

from __future__ import annotations

import argparse
import pathlib
import statistics
import sys

if __package__ in (None, ""):
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

from tests.helpers import browser
from validation.benchmarks import common

LOADING = """() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done([
    performance.getEntriesByType("navigation")[0].loadEventEnd,
    performance.getEntriesByType("paint").find(entry => entry.name === "first-contentful-paint")?.startTime ?? NaN,
]))))"""
MOVING = """async seconds => {
    const counts = () => { const { frames, steps } = refhmc.page.moving; return [performance.now(), frames, steps] };
    const begin = counts();
    await new Promise(done => setTimeout(done, 1000 * seconds));
    const end = counts();
    return [1, 2].map(k => (end[k] - begin[k]) / (end[0] - begin[0]) * 1000);
}"""
# Target, metric, integrator and step size.
CASES = (
    ("gaussian", "identity", "leapfrog", 0.1),
    ("staircase", "identity", "discontinuous", 0.1),
    ("banana", "fisher", "implicit-midpoint", 0.1),
    ("banana", "softabs", "generalized-leapfrog", 0.05),
    ("funnel", "softabs", "implicit-midpoint", 0.05),
    ("banana", "fisher", "projected-tao", 0.1),
)
STEPS = 500  # so that the cloud does not arrive, and wait, within the measurement
LOADED, WANTED_FRAMES = 1.0, 60


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=7, help="loads (default 7)")
    parser.add_argument("--seconds", type=float, default=5, help="of each count of frames (default 5)")
    arguments = parser.parse_args()
    path = browser.found()
    if path is None:
        raise SystemExit("no Chromium is here: install it, or say where it is in REFHMC_CHROMIUM")
    about = common.machine(["refhmc", "playwright"])
    loads, moves = [], {}
    with browser.launched(path) as chromium:
        about["versions"]["chromium"] = chromium.version
        for _ in range(arguments.repeats):
            with browser.opened(chromium) as page:
                loads.append([x / 1000 for x in page.evaluate(LOADING)])
        for target, metric, integrator, eps in CASES:
            with browser.opened(chromium) as page:
                page.evaluate(
                    "state => refhmc.page.set(state)",
                    {"target": target, "metric": metric, "integrator": integrator, "eps": eps, "n": STEPS},
                )
                page.select_option("#speed", "60")
                page.wait_for_timeout(500)
                moves[f"{integrator} on {metric}, {target}"] = page.evaluate(MOVING, arguments.seconds)
    rows = []
    for name, values in zip(("load", "first picture"), zip(*loads, strict=True), strict=True):
        middle = statistics.median(values)
        verdict = f"<= {LOADED:g} {'met' if middle <= LOADED else 'MISSED'}"
        rows.append([f"seconds to {name}", f"{middle:.3f}", f"{min(values):.3f}..{max(values):.3f}", verdict])
    for name, (frames, steps) in moves.items():
        verdict = f"{WANTED_FRAMES} {'met' if min(frames, steps) >= 0.99 * WANTED_FRAMES else 'MISSED'}"
        rows.append([f"frames a second: {name}", f"{frames:.1f}", f"{steps:.1f} steps", verdict])
    text = common.table(["of the page", "median", "range, steps a second", "wanted"], rows)
    common.report("moving_page", "The page that moves", text, {"loads": loads, "moves": moves}, about)


if __name__ == "__main__":
    main()
