"""The report of a run is valid HTML, safe for any names, and shows the values of the run."""

from __future__ import annotations

import base64
import html.parser
import re

import numpy as np
import pytest

import refhmc
from refhmc.plot.runs import run_of
from tests.helpers.made_runs import made_run
from tests.helpers.sweeps import swept

VOID = {"meta", "img"}
TAGS = {"html", "head", "title", "style", "body", "main", "section", "h1", "h2", "p", "div", "ol", "li", "pre", "code"}
TAGS |= {"table", "thead", "tbody", "tr", "th", "td", "figure", "figcaption"} | VOID
EVIL = '<script>alert("x")</script> & \'"'


@pytest.fixture(autouse=True)
def _coarse(monkeypatch):
    """Make images small: their content is tested elsewhere."""
    monkeypatch.setattr("refhmc.plot.reports.DPI", 20)


class Page(html.parser.HTMLParser):
    """Collect the elements in order, with attributes and path; raise for tags that do not match."""

    def __init__(self, text):
        super().__init__()
        self.open, self.elements, self.text, self.declared = [], [], "", ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_decl(self, decl):
        self.declared = decl

    def handle_starttag(self, tag, attrs):
        assert len(dict(attrs)) == len(attrs)
        self.elements.append((tag, dict(attrs), tuple(self.open)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data

    def all(self, tag):
        return [attrs for found, attrs, _ in self.elements if found == tag]


def page_of(result, tmp_path, model=None):
    path = refhmc.plot.report(result, tmp_path / "run.html", model)
    assert list(tmp_path.iterdir()) == [path]  # and no other file
    text = path.read_text(encoding="utf-8")
    return text, Page(text)


def test_page_is_self_contained(tmp_path):
    text, page = page_of(made_run(warmup=20, diverging=[(0, 4)], implicit=True, warnings=["Do this."]), tmp_path)
    assert page.declared == "DOCTYPE html"
    assert page.all("html") == [{"lang": "en"}]
    assert {"name": "viewport", "content": "width=device-width, initial-scale=1"} in page.all("meta")
    assert len(page.all("title")) == len(page.all("h1")) == len(page.all("main")) == 1
    assert len(page.all("img")) == len(page.all("figcaption")) == 4
    for image in page.all("img"):
        assert len(image["alt"]) > 20
        kind, data = image["src"].split(",")
        assert kind == "data:image/png;base64"
        assert base64.b64decode(data, validate=True).startswith(b"\x89PNG")
    for tag in ("script", "link", "iframe", "object", "a"):
        assert page.all(tag) == []
    assert not re.findall(r"https?://|url\(|@import|\son\w+=", text)
    assert all(attrs["scope"] in ("row", "col") for attrs in page.all("th"))


@pytest.mark.sweep
def test_markup_in_names_is_escaped(tmp_path):
    run = made_run(model=EVIL, warnings=[EVIL], name=EVIL, diverging=[(0, 4)])
    run.attributes.update({name: EVIL for name in ("kernel", "adaptation", "device", "stopped_by", "refhmc_version")})
    text, page = page_of(run, tmp_path)
    assert page.all("script") == []
    assert "<script" not in text
    assert page.text.count("<script>") >= 8  # as text: title, heading, model, kernel, warning, names, ...
    assert {tag for tag, _, _ in page.elements} <= TAGS


@pytest.mark.parametrize(
    "value", [EVIL, swept("\x00 \x1b[2J \u202e"), swept(-1), swept([EVIL, "\ud800"]), {"a": [EVIL]}], ids=str
)
def test_a_file_with_attributes_of_other_types_is_reported(value, tmp_path):
    """An untrusted file may contain anything: the page is written, and its markup is escaped."""
    run = made_run(draws=6, d=1, warnings=[value])
    run.attributes.update(dict.fromkeys([*run.attributes, "fused", "adaptation", "compilation_time"], value))
    text, page = page_of(run.to_arviz(), tmp_path)
    assert "<script" not in text
    assert {tag for tag, _, _ in page.elements} <= TAGS


@pytest.mark.sweep
def test_page_shows_attributes_warnings_and_summary(tmp_path):
    run = made_run(chains=3, draws=50, warnings=["First: do this.", "Second."])
    text, page = page_of(run, tmp_path)
    for words in ("NUTS(max_treedepth=10, target_accept=0.8)", "3 chains of 50 draws, 40 warm-up iterations"):
        assert words in page.text
    for words in (str(2**70 + 1), "12,345", "1.2 s", f"refhmc {refhmc.__version__}", "0.3, 0.4, 0.5", *run.warnings):
        assert words in page.text
    rows = re.findall(r'<tr><th scope="row">(x\[\d\])</th>(.*?)</tr>', text)
    assert [name for name, _ in rows] == ["x[0]", "x[1]"]
    for k, (_, cells) in enumerate(rows):
        x = run.posterior["x"][:, :, k]
        shown = [float(each.replace("!", "")) for each in re.findall(r"<td[^>]*>(.*?)</td>", cells)]
        expected = [x.mean(), x.std(ddof=1), *np.quantile(x, [0.05, 0.95])]
        expected += [refhmc.diagnostics.ess(x[:, :, None])[0], refhmc.diagnostics.rhat(x[:, :, None])[0]]
        np.testing.assert_allclose(shown, expected, rtol=6e-3, atol=1e-4)
        assert ("! " in cells) == (expected[4] < 300 or expected[5] > 1.01)


@pytest.mark.sweep
def test_true_moments_are_in_the_summary(tmp_path):
    run = made_run(d=2, draws=100)
    x = run.posterior["x"]
    named = refhmc.Result({**run.groups, "posterior": {"v": x[:, :, 0], "x": x[:, :, 1:]}}, run.attributes)
    text, _ = page_of(named, tmp_path, refhmc.models.Funnel(1))
    ((cells),) = re.findall(r'<tr><th scope="row">v</th>(.*?)</tr>', text)
    true_mean, true_sd, off = re.findall(r"<td[^>]*>(.*?)</td>", cells)[-3:]
    assert (true_mean, true_sd) == ("0", "3")
    v = x[:, :, 0]
    error = v.std(ddof=1) / np.sqrt(refhmc.diagnostics.ess(v[:, :, None])[0])
    assert abs(float(off) - v.mean() / error) < 0.051


@pytest.mark.parametrize(
    "run",
    [
        made_run(draws=0),
        pytest.param(made_run(draws=1), marks=pytest.mark.sweep),
        pytest.param(made_run(chains=1, d=1), marks=pytest.mark.sweep),
        pytest.param(made_run(diverging="all", implicit=True), marks=pytest.mark.sweep),
        refhmc.Result({"posterior": {}, "sample_stats": {}, "unconstrained_posterior": {}}, {}),
        refhmc.Result({"posterior": {"x": np.full((2, 9), np.nan)}}, {"model": "m"}),
    ],
    ids=["no draws", "one draw", "one chain", "all diverging", "empty", "not a number"],
)
def test_every_size(run, tmp_path):
    _, page = page_of(run, tmp_path)
    assert "Reproduce this run" in page.text


@pytest.mark.sweep
def test_summary_shows_the_first_values(tmp_path):
    text, page = page_of(made_run(d=230, draws=8), tmp_path)
    assert "The first 200 of 230 values." in page.text
    assert text.count('<th scope="row">x[') == 200


@pytest.mark.sweep
def test_report_of_a_file_is_that_of_the_run(tmp_path):
    run = made_run(warmup=20, diverging=[(1, 3)], warnings=["Do this."])
    (tmp_path / "a").mkdir()
    run.to_arviz().to_netcdf(str(tmp_path / "run.nc"))
    texts = [page_of(each, tmp_path / "a")[0] for each in (run, str(tmp_path / "run.nc"))]
    without_time = [re.sub(r"<tr><th scope=\"row\">created</th>.*", "", text) for text in texts]
    assert without_time[0] == without_time[1]


@pytest.mark.sweep
def test_failed_write_keeps_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "run.html"
    path.write_text("old")
    monkeypatch.setattr("os.replace", lambda *given: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        refhmc.plot.report(made_run(), path)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_scalars_with_most_extreme_divergences_are_chosen():
    from refhmc.plot.reports import furthest

    run = made_run(d=3, draws=200, diverging=[(0, 5), (1, 9)])
    x = run.posterior["x"]
    x[0, 4], x[1, 8] = [0.1, 6.0, -4.0], [0.0, 5.0, -3.0]
    assert furthest(run_of(run), run.sample_stats["diverging"]) == ["x[1]", "x[2]"]
