"""The page that moves, in a browser, from a file: its figures, its keys, its names for a screen reader. No timing is asserted:
``python -m validation.benchmarks.moving_page`` measures."""

from __future__ import annotations

import re

import pytest

from tests.helpers import browser, moving_figures
from tests.helpers.browser import STILL, contrast

pytestmark = pytest.mark.sweep

FAILURES = ("step", "tao", "solver", "curved", "jump")
CONTROLS = ["failure-step", "failure-jump", "start", "momentum", "play", "one-step", "speed", "target", "metric"]
CONTROLS += ["integrator", "eps", "n"]  # in the order of the tab key


def figure(page, name: str) -> str:
    return page.text_content(f"#{name}").replace("−", "-")


def agrees(text: str, right: float) -> bool:
    """Whether the digits shown are those of ``right``, in which what rounding makes is not told apart."""
    if text == "below 1e-12":
        return right < 1e-11
    mantissa, _, exponent = text.partition("e")
    unit = 10.0 ** (int(exponent or 0) - len(mantissa.partition(".")[2]))
    # A way back that the solver's tolerance or rounding alone keeps from the start is not the same on two machines.
    return abs(float(text) - right) <= 0.501 * unit or (abs(right) < 1e-8 and 0.01 < abs(float(text) / right) < 100)


def held_against_refhmc(page) -> dict:
    state = page.evaluate("refhmc.page.state")
    right = moving_figures.by_refhmc(state)
    for name in right._fields:
        text, value = figure(page, name.replace("_", "-")), getattr(right, name)
        assert agrees(text, value), f"{state}: {name} is {text} on the page, {value} by refhmc"
    return state


@pytest.mark.parametrize("failure", FAILURES)
def test_the_figures_of_a_failure_and_of_what_mends_it_are_refhmcs(chromium, failure):
    with browser.opened(chromium, **STILL) as page:
        page.click(f"#failure-{failure}")
        before = held_against_refhmc(page)
        broken = page.eval_on_selector_all("[data-verdict=bad]", "all => all.map(one => one.id)")
        assert broken == (["energy-error"] if failure in ("step", "jump") else ["volume", "way-back"])
        page.click("#mend")
        assert held_against_refhmc(page) != before
        assert page.locator("[data-verdict=bad]").count() == 0


@pytest.mark.parametrize(
    ("target", "metric", "integrator"),
    [
        ("gaussian", "softabs", "generalized-leapfrog"),
        ("banana", "softabs", "implicit-midpoint"),
        ("funnel", "softabs", "generalized-leapfrog"),
        ("funnel", "fisher", "projected-tao"),
        ("funnel", "hierarchical", "block-leapfrog"),
        ("banana", "hierarchical", "block-leapfrog"),
    ],
)
def test_the_figures_of_what_is_chosen_are_refhmcs(chromium, target, metric, integrator):
    with browser.opened(chromium, **STILL) as page:
        for name, value in (("target", target), ("metric", metric), ("integrator", integrator)):
            page.select_option(f"#{name}", value)
        for name, value in (("eps", "0.05"), ("n", "12")):
            page.fill(f"#{name}", value)
        held_against_refhmc(page)


def test_the_keyboard_reaches_and_moves_everything(chromium):
    with browser.opened(chromium, **STILL) as page:
        reached = []
        while "omega" not in reached and len(reached) < 40:
            page.keyboard.press("Tab")
            reached.append(page.evaluate("document.activeElement.id"))
            if not reached[-1]:
                break
        assert [name for name in reached if name in CONTROLS] == CONTROLS
        settle = "() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"
        for handle, moved in (("start", "q"), ("momentum", "p")):
            page.focus(f"#{handle}")
            for key, way in (
                ("ArrowRight", (1, 0)),
                ("ArrowDown", (0, -1)),
                ("Shift+ArrowUp", (0, 1)),
                ("ArrowLeft", (-1, 0)),
            ):
                before, label = (
                    page.evaluate(f"refhmc.page.state.{moved}"),
                    page.get_attribute(f"#{handle}", "aria-label"),
                )
                page.keyboard.press(key)
                page.evaluate(settle)
                after = page.evaluate(f"refhmc.page.state.{moved}")
                change = [(b > a + 1e-9) - (b < a - 1e-9) for a, b in zip(before, after, strict=True)]
                assert tuple(change) == way
                assert page.get_attribute(f"#{handle}", "aria-label") != label
        page.focus("#failure-tao")
        page.keyboard.press("Enter")
        assert page.get_attribute("#failure-tao", "aria-pressed") == "true"
        assert page.input_value("#integrator") == "explicit-tao"
        page.focus("#mend")
        page.keyboard.press("Enter")
        assert page.input_value("#integrator") == "projected-tao"


def test_the_start_is_dragged(chromium):
    with browser.opened(chromium, **STILL) as page:
        box = page.locator("#start").bounding_box()
        x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
        before = page.evaluate("refhmc.page.state.q")
        page.mouse.move(x, y)
        page.mouse.down()
        page.mouse.move(x + 30, y - 20, steps=4)
        page.mouse.up()
        after = page.evaluate("refhmc.page.state.q")
        assert after[0] > before[0]
        assert after[1] > before[1]


def test_a_screen_reader_is_told_everything(chromium):
    with browser.opened(chromium, **STILL) as page:
        page.click("#failure-solver")
        page.wait_for_function("document.querySelector('#summary').textContent.includes('not preserved')")
        tree = page.context.new_cdp_session(page).send("Accessibility.getFullAXTree")["nodes"]
        said = [(node["role"]["value"], node.get("name", {}).get("value", "")) for node in tree if not node["ignored"]]
        interactive = [pair for pair in said if pair[0] in ("button", "combobox", "spinbutton")]
        assert all(name for _, name in interactive)
        assert len(interactive) >= 16
        assert all(name for role, name in said if role in ("image", "img", "form", "group"))
        assert {"main", "status", "heading", "form"} <= {role for role, _ in said}
        summary = page.text_content("#summary")
        assert re.search(r"energy error is .* volume is not preserved .* reverse trajectory ends", summary)
        assert page.get_attribute("#summary", "aria-live") == "polite"


def test_nothing_moves_where_motion_is_not_wanted(chromium):
    with browser.opened(chromium, **STILL) as page:
        page.wait_for_timeout(300)
        assert page.evaluate("refhmc.page.moving.frames") == 0
        page.click("#one-step")
        assert page.evaluate("[refhmc.page.moving.step, refhmc.page.moving.frames]") == [1, 0]
        page.click("#play")
        page.wait_for_function("refhmc.page.moving.frames > 2")
    with browser.opened(chromium) as page:
        page.wait_for_function("refhmc.page.moving.steps > 0")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_ink_can_be_read_in_both_schemes_and_a_phone_need_not_scroll_sideways(chromium, scheme):
    with browser.opened(chromium, color_scheme=scheme, viewport={"width": 360, "height": 740}, **STILL) as page:
        for failure in FAILURES:
            page.click(f"#failure-{failure}")
            assert page.evaluate("document.documentElement.scrollWidth") <= 360
        for element in ("body", "#explanation", "#energy-error", "#way-back", "#target", "#keys"):
            assert contrast(page, element) >= 4.5, element
