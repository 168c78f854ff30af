"""Answers are within two clicks of the front page: links of the Markdown sources, followed without building the pages."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.helpers.pages import code_of
from tests.helpers.places import ROOT

STARTS = ("docs/index.md", "README.md")

# Task, the page that answers it, and a heading or sentence of the answer.
TASKS = [
    ("set a prior", "docs/guide/own_model.md", r"(?i)\bpriors?\b"),
    ("choose a metric", "docs/guide/choosing.md", r"(?im)^#+ .*metric"),
    ("resume a run", "docs/guide/long_runs.md", r"refhmc\.resume\("),
    ("get LOO", "docs/guide/tutorial.md", r"\baz\.loo\b"),
    ("use a model of PyMC", "docs/guide/own_model.md", r"refhmc\.from_pymc\("),
    ("read a divergence warning", "docs/how_to/warnings.md", r"(?im)^#+ divergences?\b"),
    ("run on Dask", "docs/executors.md", r"from distributed import Client"),
    ("check a JAX integrator", "docs/guide/check_your_sampler.md", r"\bJAX\b"),
    ("cite", "CITATION.cff", r"(?m)^title: .*refhmc"),
    ("report a bug", "CONTRIBUTING.md", r"(?m)^## Report a bug$"),
]


def text_of(page: Path) -> str:
    """Return a page's text with the files that it includes."""
    text = page.read_text(encoding="utf-8")
    included = re.findall(r"^```\{include\} (\S+)", text, re.MULTILINE)
    return "\n".join([text, *((page.parent / each).read_text(encoding="utf-8") for each in included)])


def leads_to(page: Path) -> set[Path]:
    """Return the files that a page's links lead to; the entries of a toctree are links of the built page."""
    text = page.read_text(encoding="utf-8")
    included = [page.parent / each for each in re.findall(r"^```\{include\} (\S+)", text, re.MULTILINE)]
    links = [target.split("#")[0] for target in re.findall(r"\]\(([^)\s]+)\)", text)]
    trees = re.findall(r"^```\{toctree\}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    listed = [line + ".md" for tree in trees for line in tree.splitlines() if line and not line.startswith(":")]
    found = {(page.parent / link).resolve() for link in links + listed if "://" not in link and link}
    return found.union((each.resolve() for each in included), *(leads_to(each) for each in included))


def within_two_clicks(start: Path) -> set[Path]:
    first = leads_to(start)
    return {start, *first}.union(*(leads_to(page) for page in first if page.suffix == ".md" and page.is_file()))


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize(("task", "page", "answer"), TASKS, ids=[task for task, *_ in TASKS])
def test_task_is_answered_within_two_clicks(start, task, page, answer):
    assert ROOT / page in within_two_clicks(ROOT / start)
    assert re.search(answer, text_of(ROOT / page)), f"{page} does not answer: {task}"


@pytest.mark.parametrize("start", STARTS)
def test_links_of_front_page_lead_somewhere(start):
    assert [link for link in sorted(leads_to(ROOT / start)) if not link.exists()] == []


def test_list_of_the_files_with_the_methods_is_one_click_away():
    """The page is made from the registries, so that it has every integrator, metric and kernel."""
    assert ROOT / "docs" / "guide" / "where_to_read.md" in leads_to(ROOT / "docs" / "index.md")


def test_readme_and_front_page_show_the_same_code_and_features():
    readme, front = ((ROOT / page).read_text(encoding="utf-8") for page in STARTS)
    assert code_of("README.md") == code_of("docs/index.md")
    assert len(code_of("README.md")[2].strip().splitlines()) == 5
    tables = [[line for line in page.splitlines() if line.startswith("|")] for page in (readme, front)]
    assert len(tables[0]) > 10
    assert tables[0] == tables[1]


def output_of_readme(block: int) -> str:
    """Return the output that the README shows of its first (0) or second (1) example."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    return re.findall(r"^```text\n(.*?)^```", readme, re.DOTALL | re.MULTILINE)[block]


def test_readme_shows_the_output_of_its_five_lines(capsys):
    """Words are equal, and numbers within a tenth: their last digits depend on the processor and on ArviZ."""
    pytest.importorskip("arviz")
    exec(compile(code_of("README.md")[2], "README.md", "exec"), {})
    for ours, theirs in zip(output_of_readme(1).split(), capsys.readouterr().out.split(), strict=True):
        assert ours == theirs if ours[0].isalpha() else float(ours) == pytest.approx(float(theirs), rel=0.1)


def test_readme_samples_a_pymc_model_and_resumes(tmp_path, monkeypatch, capsys):
    """The example draws its picture, continues its run, and shows its LOO; the words around that depend on ArviZ.

    LOO has a Monte Carlo standard deviation of 0.065 (ten seeds), and 1 % are 23 of these.
    """
    pytest.importorskip("pymc", reason="PyMC is not installed (extra pymc)")
    pytest.importorskip("matplotlib").use("Agg")
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    for block in code_of("README.md")[:2]:
        exec(compile(block.replace('"refhmc/data', f'"{ROOT.as_posix()}/refhmc/data'), "README.md", "exec"), names)
    shown, printed = (re.search(r"elpd_loo\s+(\S+)", text) for text in (output_of_readme(0), capsys.readouterr().out))
    assert shown is not None
    assert printed is not None
    assert float(printed[1]) == pytest.approx(float(shown[1]), rel=0.01)
    assert (tmp_path / "heart.png").stat().st_size > 10_000
    assert names["longer"]["posterior"].sizes["draw"] == 4000
    first, longer = (names[name]["posterior"]["beta"].to_numpy() for name in ("result", "longer"))
    assert (longer[:, :1000] == first).all()
