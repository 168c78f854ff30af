"""Makes the pictures of the page in ``screenshots/``: ``python docs/moving/screenshots.py``.

Needs Playwright (the extra ``browser``), Pillow (which comes with matplotlib) and a Chromium, on the PATH or named in the
environment as REFHMC_CHROMIUM.
"""

from __future__ import annotations

import io
import pathlib
import sys

from PIL import Image

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1]))

from tests.helpers import browser  # noqa: E402

WIDE, PHONE = {"width": 1120, "height": 980}, {"width": 390, "height": 844}
LIMIT = 150_000  # bytes
INTO_THE_NECK = {"target": "funnel", "metric": "hierarchical", "integrator": "block-leapfrog", "eps": 0.2, "n": 40}
A_TREE = {"view": "chain", "kernel": "nuts", "metric": "identity", "integrator": "leapfrog", "eps": 0.12}
BIASED = {"view": "chain", "integrator": "explicit-tao", "eps": 0.15, "n": 28}
# Name of the picture, the failure's button or other settings, whether it is repaired, steps of the points (stages of a chain),
# the window.
PICTURES = (
    ("page", None, False, 12, WIDE, "light"),
    ("step_too_large", "step", False, 2, WIDE, "light"),
    ("explicit_tao", "tao", False, 14, WIDE, "light"),
    ("projected_tao", "tao", True, 14, WIDE, "light"),
    ("solver_stopped_early", "solver", False, 14, WIDE, "light"),
    ("curved_metric", "curved", False, 12, WIDE, "light"),
    ("jump_ignored", "jump", False, 12, WIDE, "light"),
    ("jump_paid_for", "jump", True, 12, WIDE, "light"),
    ("block_leapfrog", INTO_THE_NECK, False, 14, WIDE, "light"),
    ("tree", A_TREE, False, 63, WIDE, "light"),
    ("biased", BIASED, False, 3000, WIDE, "light"),
    ("dark", "tao", False, 14, WIDE, "dark"),
    ("phone", None, False, 12, PHONE, "light"),
)


def main() -> None:
    folder = HERE / "screenshots"
    folder.mkdir(exist_ok=True)
    with browser.launched(browser.found()) as chromium:
        for name, failure, repaired, steps, window, scheme in PICTURES:
            with browser.opened(chromium, viewport=window, color_scheme=scheme, reduced_motion="reduce") as page:
                if isinstance(failure, dict):
                    page.evaluate("settings => refhmc.page.set(settings)", failure)
                elif failure is not None:
                    page.click(f"#failure-{failure}")
                if repaired:
                    page.click("#mend")
                page.evaluate(
                    "n => { for (let k = 0; k < n; k++) document.getElementById('one-step').click(); }", steps
                )
                page.wait_for_timeout(300)  # the summary comes late
                page.evaluate("() => (document.activeElement.blur(), scrollTo(0, 0))")
                path = folder / f"{name}.png"
                picture = Image.open(io.BytesIO(page.screenshot(full_page=window is WIDE)))
                picture.convert("RGB").quantize(255, dither=Image.Dither.NONE).save(path, optimize=True)
                size = path.stat().st_size
                print(f"{path.name}: {size / 1000:.0f} kB")
                if size > LIMIT:
                    raise SystemExit(f"{path.name} has {size} bytes, more than {LIMIT}: make its window smaller")


if __name__ == "__main__":
    main()
