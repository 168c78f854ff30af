"""How fast the page that moves is, in headless Chromium: ``python -m validation.benchmarks.moving_page [--seconds 5]``.

Loading is from the request of the file to the event ``load``, and to the first picture on the screen, in a new context each.
Frames and steps a second are counted while the cloud of 200 points makes 60 steps a second, one by one, with nothing
kept of an earlier round. "CPU ms a frame" is the processor time of the page's thread: below 16.7, 60 frames a
second are in reach of a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import statistics
import sys
from typing import Any

if __package__ in (None, ""):
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

from tests.helpers import browser
from validation.benchmarks import common

LOADING = """() => [
    performance.getEntriesByType("navigation")[0].loadEventEnd,
    performance.getEntriesByType("paint").find(entry => entry.name === "first-contentful-paint").startTime,
]"""
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
    ("funnel", "hierarchical", "block-leapfrog", 0.1),
)
STEPS = 500  # the longest trajectory; a cloud that arrives waits, and makes no steps
LOADED, WANTED = 1.0, 60  # seconds; frames and steps a second
SETTLING = 0.5  # seconds from the choice of a case to the measurement


def busy(processor: Any) -> float:
    """Seconds of the processor that the page's thread has spent on its tasks."""
    metrics = processor.send("Performance.getMetrics")["metrics"]
    return next(metric["value"] for metric in metrics if metric["name"] == "TaskDuration")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=7, help="loads (default 7)")
    parser.add_argument("--seconds", type=float, default=5, help="of each count of frames (default 5)")
    arguments = parser.parse_args()
    longest = STEPS / WANTED - SETTLING - 1
    if arguments.seconds > longest:
        parser.error(
            f"--seconds must be at most {longest:.1f}, since the cloud makes {STEPS} steps; got {arguments.seconds}."
        )
    path = browser.found()
    if path is None:
        raise SystemExit("no Chromium is here: install it, or say where it is in REFHMC_CHROMIUM")
    about = common.machine(["refhmc", "playwright"])
    loads, moves = [], {}
    with browser.launched(path) as chromium:
        about["versions"]["chromium"] = chromium.version
        for _ in range(arguments.repeats):
            with browser.opened(chromium) as page:
                page.wait_for_function("performance.getEntriesByType('paint').length >= 2")
                loads.append([x / 1000 for x in page.evaluate(LOADING)])
        for target, metric, integrator, eps in CASES:
            with browser.opened(chromium) as page:
                page.evaluate(
                    "state => refhmc.page.set(state)",
                    {"target": target, "metric": metric, "integrator": integrator, "eps": eps, "n": STEPS},
                )
                page.select_option("#speed", "60")
                page.wait_for_timeout(1000 * SETTLING)
                processor = page.context.new_cdp_session(page)
                processor.send("Performance.enable", {"timeDomain": "threadTicks"})
                begin = busy(processor)
                frames, steps = page.evaluate(MOVING, arguments.seconds)
                cost = 1000 * (busy(processor) - begin) / (frames * arguments.seconds)
                moves[f"{integrator} on {metric}, {target}"] = (frames, steps, cost)
    rows = []
    for name, values in zip(("load", "first picture"), zip(*loads, strict=True), strict=True):
        middle = statistics.median(values)
        verdict = f"<= {LOADED:g} {'met' if middle <= LOADED else 'MISSED'}"
        rows.append([f"seconds to {name}", f"{middle:.3f}", f"{min(values):.3f}..{max(values):.3f}", verdict])
    text = common.table(["of the page", "median", "range", "wanted"], rows)
    rows = []
    for name, (frames, steps, cost) in moves.items():
        verdict = f"{WANTED} {'met' if min(frames, steps) >= 0.99 * WANTED else 'MISSED'}"
        rows.append([name, f"{frames:.1f}", f"{steps:.1f}", f"{cost:.1f}", verdict])
    text += "\n" + common.table(["200 points", "frames a second", "steps a second", "CPU ms a frame", "wanted"], rows)
    text += f"\nLoad of the machine, processes: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores.\n"
    common.report("moving_page", "The page that moves", text, {"loads": loads, "moves": moves}, about)


if __name__ == "__main__":
    main()
