"""The page on warnings quotes texts that exist, and every warning ends with the address of one of its sections."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import refhmc.errors
from tests.helpers.places import ROOT

PAGE = (ROOT / "docs" / "how_to" / "warnings.md").read_text(encoding="utf-8")
ANCHORS = {
    re.sub(r"[^a-z0-9 -]", "", title.lower()).replace(" ", "-")
    for title in re.findall(r"^## (.+)$", PAGE, re.MULTILINE)
}
ABOUT_DRAWS = {"SamplingWarning", "DiscontinuityWarning", "PrecisionWarning"}
ADDRESS = re.compile(r"See docs/how_to/warnings\.md#([\w-]+)\.$")


def trees() -> Iterator[tuple[str, ast.Module]]:
    for path in sorted((ROOT / "refhmc").rglob("*.py")):
        yield str(path.relative_to(ROOT)), ast.parse(path.read_text(encoding="utf-8"))


def sections_seen(node: ast.AST) -> Iterator[ast.expr]:
    """Yield the arguments of all calls of ``_see`` below a node."""
    for each in ast.walk(node):
        if isinstance(each, ast.Call) and getattr(each.func, "id", "") == "_see":
            yield each.args[0]


def test_quoted_texts_are_in_the_sources():
    texts = []
    for _, tree in trees():
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                texts.append(node.value)
    prose = re.sub(r"```.*?```|`[^`]*`", "", PAGE, flags=re.DOTALL)
    quoted = [re.sub(r"\s+", " ", text) for text in re.findall(r'"([^"]+)"', prose)]
    assert len(quoted) > 25
    assert [text for text in quoted if not any(text in each for each in texts)] == []


def test_every_category_of_warning_is_named():
    ours = {name for name in vars(refhmc.errors) if name.endswith("Warning")}
    assert {name for name in ours if f"`{name}`" not in PAGE} == set()


def test_every_address_is_a_section_of_the_page():
    found = {}
    for path, tree in trees():
        for section in sections_seen(tree):
            values = (section.body, section.orelse) if isinstance(section, ast.IfExp) else (section,)
            found |= {each.value: path for each in values if isinstance(each, ast.Constant)}
    assert len(found) > 20
    assert {name: path for name, path in found.items() if name not in ANCHORS} == {}


def test_links_within_the_page_are_sections():
    assert {anchor for anchor in re.findall(r"\]\(#([\w-]+)\)", PAGE) if anchor not in ANCHORS} == set()


def test_every_warning_of_a_run_ends_with_an_address(recwarn):
    """Runs with many kinds of trouble; the texts in the result are those that were emitted."""
    options = {"raw": True, "progressbar": False, "random_seed": 1}
    funnel, normal = refhmc.models.Funnel(4), refhmc.models.Gaussian([0.0, 0.0], [[1.0, 0.0], [0.0, 1.0]])
    tao = refhmc.HMC(
        integrator=refhmc.integrators.ExplicitTao(omega=10.0),
        metric=refhmc.metrics.SoftAbs(1e6),
        step_size=0.1,
        n_steps=2,
    )
    runs = [
        refhmc.sample(funnel, refhmc.NUTS(), warmup="stan", draws=200, tune=200, **options),
        refhmc.sample(funnel, tao, draws=20, tune=0, chains=1, **options),
        refhmc.sample(normal, refhmc.NUTS(step_size=1e-4, max_treedepth=2), draws=150, tune=0, chains=2, **options),
        refhmc.sample(normal, refhmc.HMC(step_size=50.0, n_steps=1), draws=150, tune=0, chains=2, **options),
        refhmc.sample(refhmc.models.ChangePoint(), refhmc.NUTS(), draws=100, tune=100, chains=2, **options),
        refhmc.sample(normal, draws=10**6, tune=10**6, max_seconds=0.2, **options),
    ]
    emitted = [str(each.message) for each in recwarn if type(each.message).__name__ in ABOUT_DRAWS]
    kept = [text for run in runs for text in run.warnings]
    assert sorted(set(kept)) == sorted(set(emitted))
    assert [text for text in kept if not ADDRESS.search(text)] == []
    assert {ADDRESS.search(text)[1] for text in kept} <= ANCHORS
    assert len({ADDRESS.search(text)[1] for text in kept}) > 6


def test_every_sampling_warning_in_the_sources_has_an_address():
    """A text that is passed to a warning about draws as a literal has a call of ``_see``, or comes from a function that has."""
    without = []
    for path, tree in trees():
        for node in ast.walk(tree):
            literal = isinstance(node, ast.Call) and getattr(node.func, "id", "") in ABOUT_DRAWS and node.args
            if (
                literal
                and isinstance(node.args[0], ast.Constant | ast.JoinedStr)
                and not list(sections_seen(node.args[0]))
            ):
                without.append(f"{path}:{node.lineno}")
    assert without == []
