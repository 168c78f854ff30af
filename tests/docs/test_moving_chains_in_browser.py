"""The chains of the interactive page in a browser, from a file: histograms, address, keyboard, screen reader and phone."""

from __future__ import annotations

import contextlib
import re
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.helpers import browser
from tests.helpers.browser import STILL, contrast
from tests.helpers.places import ROOT

pytestmark = pytest.mark.sweep

SIZES = {"desktop": {"width": 1280, "height": 900}, "phone": {"width": 390, "height": 844}}
CHAINS = ("walk", "tree", "neck", "donut", "modes", "biased")
KEYS = [
    "view-trajectory",
    "view-chain",
    "reset",
    "failure-step",
    "chain-walk",
    "start",
    "play",
    "one-step",
    "pace",
    "target",
]
KEYS += ["kernel", "metric", "integrator", "eps", "maxDepth", "seed"]  # in the order of the tab key
ADDRESS_LATER = 500  # milliseconds, more than the page waits
LINKS = re.compile(r'<a href="\.\./moving/index\.html#([^"]*)"')


@contextlib.contextmanager
def opened(chromium, size="desktop", fragment="", **settings):
    with browser.opened(chromium, viewport=SIZES[size], **{**STILL, **settings}) as page:
        if fragment:
            page.evaluate("fragment => { location.hash = fragment }", fragment)
            page.wait_for_function(
                "fragment => refhmc.page.state.view === new URLSearchParams(fragment).get('view')", arg=fragment
            )
        yield page


def counted(page) -> tuple[int, list[int]]:
    return page.evaluate("[refhmc.page.run.n, refhmc.page.run.counts.map(c => c.reduce((a, b) => a + b))]")


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("chain", CHAINS)
def test_histogram_of_each_chain_grows(chromium, size, chain):
    with opened(chromium, size) as page:
        page.click(f"#chain-{chain}")
        assert counted(page) == [0, [0, 0]]
        empty = page.evaluate("document.querySelector('#margin-1').toDataURL()")
        page.select_option("#pace", "500")
        page.click("#play")
        page.wait_for_function("refhmc.page.run.n > 30", timeout=60_000)
        page.click("#play")
        n, bins = counted(page)
        assert page.text_content("#draws") == str(n)
        assert all(0 < inside <= n for inside in bins)
        assert page.evaluate("document.querySelector('#margin-1').toDataURL()") != empty
        assert page.evaluate("document.documentElement.scrollWidth") <= SIZES[size]["width"]


def test_stages_of_a_tree_each_have_a_sentence(chromium):
    with opened(chromium) as page:
        page.click("#chain-tree")
        stages = page.evaluate("refhmc.page.run.stages")
        doublings = page.evaluate("refhmc.page.run.shown.doublings.length")
        assert len(stages) == doublings + 2
        seen = [page.text_content("#seen")]
        for _ in stages[1:]:
            assert counted(page)[0] == 0
            page.click("#one-step")
            seen.append(page.text_content("#seen"))
        assert seen == stages
        assert all(f"Doubling {k + 1}: the coin gives" in seen[k + 1] for k in range(doublings))
        assert counted(page)[0] == 1
        assert page.get_attribute("#seen", "aria-live") == "polite"


def test_sentence_reports_a_chain_with_another_distribution(chromium):
    with opened(chromium) as page:
        page.click("#chain-biased")
        page.wait_for_function(
            "document.querySelector('#summary').textContent.includes('another stationary distribution')"
        )
        page.click("#mend")
        page.wait_for_function("document.querySelector('#summary').textContent.includes('distribution is the target')")


def test_autoplay_starts_by_itself_and_its_speed_is_kept(chromium):
    with opened(
        chromium,
        fragment="view=chain&target=donut&metric=identity&integrator=leapfrog&pace=30",
        reduced_motion="no-preference",
    ) as page:
        page.wait_for_function("refhmc.page.run.n > 3")
        assert page.get_attribute("#seen", "aria-live") == "off"
        page.select_option("#pace", "500")
        page.wait_for_timeout(ADDRESS_LATER)
        assert "pace=500" in page.url


def test_address_gives_the_same_page_and_reset_the_first_one(chromium):
    with opened(chromium) as page:
        first = page.evaluate("refhmc.page.state")
        assert urlsplit(page.url).fragment == ""
        page.click("#chain-modes")
        page.fill("#seed", "12")
        page.focus("#start")
        page.keyboard.press("ArrowRight")
        page.wait_for_timeout(ADDRESS_LATER)
        state, url = page.evaluate("refhmc.page.state"), page.url
        assert parse_qs(urlsplit(url).fragment)["seed"] == ["12"]
        page.reload()
        assert page.evaluate("refhmc.page.state") == state
        page.click("#reset")
        assert page.evaluate("refhmc.page.state") == first
        assert page.is_hidden("#explanation")
        page.wait_for_timeout(ADDRESS_LATER)
        assert urlsplit(page.url).fragment == ""
    with opened(chromium, fragment=urlsplit(url).fragment) as page:
        assert page.evaluate("refhmc.page.state") == state


def test_invalid_values_in_the_address_are_ignored(chromium):
    with opened(chromium, fragment="view=chain&target=<b>&eps=1e9&kernel=nuts&metric=fisher&q=1&n=x") as page:
        state = page.evaluate("refhmc.page.state")
        assert (state["target"], state["kernel"], state["eps"], state["n"]) == ("banana", "nuts", 0.1, 40)
        assert (state["metric"], state["integrator"]) == ("identity", "leapfrog")  # NUTS has constant metrics here
        page.click("#one-step")


def chapters() -> list[tuple[str, str]]:
    return [
        (file.stem, fragment.replace("&amp;", "&"))
        for file in sorted((ROOT / "docs" / "book").glob("*.md"))
        for fragment in LINKS.findall(file.read_text(encoding="utf-8"))
    ]


def test_links_between_chapters_and_page_lead_to_what_they_name(chromium):
    links = chapters()
    assert len(links) >= 10
    with opened(chromium) as page:
        for chapter, fragment in links:
            page.evaluate("fragment => { location.hash = fragment }", fragment)
            page.wait_for_timeout(30)
            state, given = page.evaluate("refhmc.page.state"), parse_qs(fragment)
            for name, (text,) in given.items():
                value = state[name]
                assert (",".join(map(str, value)) if isinstance(value, list) else str(value)) == text, (chapter, name)
        hrefs = page.eval_on_selector_all("nav a", "all => all.map(a => a.getAttribute('href'))")
        page.click("#chain-tree")
        hrefs.append(page.get_attribute("#explanation a", "href"))
        for href in hrefs:
            assert (ROOT / "docs" / "moving" / href).is_file(), href


def test_keyboard_reaches_everything_of_a_chain(chromium):
    with opened(chromium) as page:
        page.focus("#view-chain")
        page.keyboard.press("Enter")
        page.select_option("#kernel", "nuts")
        page.evaluate("document.activeElement.blur(), getSelection().removeAllRanges()")
        page.focus("#view-trajectory")
        reached = ["view-trajectory"]
        while "seed" not in reached and len(reached) < 40:
            page.keyboard.press("Tab")
            reached.append(page.evaluate("document.activeElement.id"))
        assert [name for name in reached if name in KEYS] == KEYS
        page.focus("#one-step")
        page.keyboard.press("Enter")
        assert page.evaluate("refhmc.page.run.stage") == 1


def test_screen_reader_finds_names_for_everything_of_a_chain(chromium):
    with opened(chromium) as page:
        page.click("#chain-walk")
        page.click("#one-step")
        tree = page.context.new_cdp_session(page).send("Accessibility.getFullAXTree")["nodes"]
        found = [(node["role"]["value"], node.get("name", {}).get("value", "")) for node in tree if not node["ignored"]]
        roles = ("button", "combobox", "spinbutton", "image", "img", "form", "group", "navigation")
        assert all(name for role, name in found if role in roles)
        pictures = [name for role, name in found if role in ("image", "img")]
        assert sum("1 draw" in name and "exact" in name for name in pictures) == 2


@pytest.mark.parametrize("view", ["trajectory", "chain"])
def test_phone_scrolls_and_shows_picture_and_verdict_together(chromium, view):
    with opened(chromium, "phone", has_touch=True, is_mobile=True) as page:
        page.click(f"#view-{view}")
        page.wait_for_function("document.querySelector('#summary').textContent.length > 20")
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        assert page.evaluate("getComputedStyle(document.querySelector('#plane')).touchAction") == "auto"
        page.evaluate("document.querySelector('#plane').scrollIntoView({ block: 'start', behavior: 'instant' })")
        assert page.evaluate("scrollY") > 0
        shown = ["#plane", "#summary", "#play"] + (["#seen", "#margin-1", "#margin-2"] if view == "chain" else [])
        for element in shown:
            box = page.locator(element).bounding_box()
            assert box["y"] >= -1, element
            assert box["y"] + box["height"] <= 844, element
            assert box["x"] >= 0, element
            assert box["x"] + box["width"] <= 390, element


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_of_a_chain_is_legible(chromium, scheme):
    with opened(chromium, color_scheme=scheme) as page:
        page.click("#chain-modes")
        for element in ("#seen", "#summary", "#margin-1-title", "#rate", "#kernel", "#explanation a", "nav a"):
            assert contrast(page, element) >= 4.5, element
