"""A self-contained HTML page about a run: no network, no scripts, embedded images.

Every string of the run is escaped, since the run may be an untrusted file. The page follows the browser's colour scheme.
"""

from __future__ import annotations

import base64
import datetime
import html
import io
import json
import os
import pathlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from refhmc.core.matplotlib import import_matplotlib
from refhmc.numerics.convergence import rhat_and_ess
from refhmc.plot.overviews import overview, truth_of
from refhmc.plot.repeated import known_model, repeated
from refhmc.plot.runs import Run, RunLike, before, run_of, scalars
from refhmc.plot.scatter import pairs
from refhmc.plot.solves import solver_iterations
from refhmc.plot.warmups import adaptation
from refhmc.sampling.progress import count
from refhmc.sampling.storage.files import replacing

if TYPE_CHECKING:
    from refhmc.models.base import Model

ROWS = 200  # most rows of the summary
LARGE_RHAT, FEW = 1.01, 100  # mark a larger R-hat, and a smaller effective sample size per chain
DPI = 130
STYLE = """
:root { color-scheme: light dark; --text: #1a1a1a; --page: #ffffff; --line: #c8c8c8; --soft: #f2f4f7; --mark: #a33c00; }
@media (prefers-color-scheme: dark) {
  :root { --text: #e6e6e6; --page: #16181c; --line: #4a4d54; --soft: #22252b; --mark: #ffab70; }
}
body { font: 1rem/1.5 system-ui, sans-serif; color: var(--text); background: var(--page); max-width: 62rem; margin: 0 auto;
  padding: 1rem; }
h1 { font-size: 1.6rem; overflow-wrap: anywhere; } h2 { font-size: 1.2rem; margin-top: 2rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .9rem; }
th, td { padding: .25rem .6rem; border-bottom: 1px solid var(--line); text-align: right; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; }
.facts th, .facts td { text-align: left; vertical-align: top; } .facts td { white-space: normal; overflow-wrap: anywhere; }
.mark { color: var(--mark); font-weight: 600; }
.warnings li { margin-bottom: .6rem; padding-left: .3rem; overflow-wrap: anywhere; }
figure { margin: 1.5rem 0; } figcaption { font-size: .9rem; }
img { max-width: 100%; height: auto; background: #ffffff; border-radius: .3rem; }
pre { background: var(--soft); padding: .8rem; overflow-x: auto; border-radius: .3rem; }
"""


class Drawn(NamedTuple):
    """A figure of the page: its alternative text, its caption, and the function that draws it."""

    alt: str
    caption: str
    draw: Callable[[], Any]


def report(result: RunLike, path: str | os.PathLike, model: Model | None = None) -> pathlib.Path:
    """Write an HTML report of a run.

    The page lists what was run, the warnings, a summary with the true values if they are known, plots, and the code that
    reproduces the run. The file is first written under a temporary name in the same folder, then renamed.

    Parameters
    ----------
    result : Result, ArviZ object or path
        A :class:`refhmc.Result`, the ArviZ object of either version, or a netCDF file.
    path : str or path
        HTML file to write.
    model : Model, optional
        Model with the true moments. Defaults to the built-in model that has the name and fingerprint of the run.

    Returns
    -------
    pathlib.Path
        The path of the page.

    Raises
    ------
    ImportError
        If Matplotlib is not installed.
    TypeError
        If `result` is not the result of a run.
    OSError
        If a file cannot be read or written. An existing file is then unchanged.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> import refhmc
    >>> result = refhmc.sample(
    ...     refhmc.models.Funnel(2), refhmc.NUTS(), draws=50, tune=50, random_seed=1, progressbar=False, raw=True
    ... )
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     page = refhmc.plot.report(result, pathlib.Path(folder, "run.html"))
    ...     page.read_text("utf-8")[:15]
    '<!DOCTYPE html>'
    """
    import_matplotlib()
    run, path = run_of(result), pathlib.Path(path)
    known = known_model(run) if model is None else None
    text = page(run, known[1] if known else model)
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8", errors="backslashreplace")  # JSON may hold half a surrogate pair
    return path


def page(run: Run, model: Model | None) -> str:
    """Return the HTML."""
    name = str(run.attributes.get("model", "unnamed model" if model is None else model.name))
    title = escaped(f"{name}: refhmc report")
    parts = [
        f"<h1>{title}</h1>",
        section("Run", facts_table(facts(run))),
        section("Warnings", warnings_list(run.warnings)),
        section("Summary", summary(run, {} if model is None else truth_of(model))),
        section("Plots", "\n".join(figure(each) for each in pictures(run, model))),
        section("Reproduce this run", f"<pre><code>{escaped(repeated(run))}</code></pre>"),
    ]
    body = "\n".join(parts)
    return (
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n<title>{title}</title>\n'
        f"<style>{STYLE}</style>\n</head>\n<body>\n<main>\n{body}\n</main>\n</body>\n</html>\n"
    )


def escaped(text: object) -> str:
    return html.escape(str(text), quote=True)


def section(title: str, content: str) -> str:
    return f"<section>\n<h2>{escaped(title)}</h2>\n{content}\n</section>"


# -------------------------------------------------------------------------------------------------------- the run


def facts(run: Run) -> list[tuple[str, str]]:
    """Return name and value of the attributes of the run that the report lists."""
    about, (chains, draws) = run.attributes, run.shape
    backend, device, now = about.get("backend", ""), about.get("device", ""), datetime.datetime.now(datetime.UTC)
    warm, steps = (
        about.get("warmup_divergences_per_chain", ()),
        ", ".join(f"{each.step_size:.3g}" for each in run.adapted),
    )

    def known(label: str, key: str, shown: Callable[[Any], str] = str) -> list[tuple[str, str]]:
        return [] if about.get(key) in (None, "") else [(label, shown(about[key]))]

    tune = about.get("tuning_steps", "unknown")
    return [
        *known("model", "model"),
        *known("model fingerprint", "model_fingerprint", lambda text: text[:16]),
        *known("kernel", "kernel", in_words),
        ("draws", f"{count(chains, 'chain')} of {count(draws, 'draw')}, {tune} warm-up iterations"),
        *known("seed", "entropy"),
        *known("divergences", "divergences_per_chain", lambda n: f"{sum(n)} after warm-up, {sum(warm)} during warm-up"),
        *known("warm-up", "adaptation"),
        *([("adapted step sizes", steps)] if steps else []),
        *known("sampling time", "sampling_time", "{:.1f} s".format),
        *known("compilation time", "compilation_time", "{:.1f} s".format),
        *known("gradient evaluations", "n_gradient_evaluations", "{:,}".format),
        *known("stopped by", "stopped_by"),
        *known("exact", "exact", lambda yes: "yes" if yes else "no, the chain is approximate (see the warnings)"),
        *known("software", "refhmc_version", lambda version: f"refhmc {version}, {backend}, {device}"),
        ("created", str(about.get("created_at", now.isoformat(timespec="seconds")))),
    ]


def in_words(kernel: str) -> str:
    """Return the kernel, which is JSON, as a short text without options that are None."""
    try:
        return short(json.loads(kernel))
    except (ValueError, RecursionError):
        return str(kernel)


def short(value: object) -> str:
    if isinstance(value, dict):
        given = ", ".join(f"{key}={short(each)}" for key, each in value.items() if key != "name" and each is not None)
        return f"{value.get('name', '')}({given})"
    return f"[{', '.join(map(short, value))}]" if isinstance(value, list) else str(value)


def facts_table(rows: list[tuple[str, str]]) -> str:
    lines = [f'<tr><th scope="row">{escaped(key)}</th><td>{escaped(value)}</td></tr>' for key, value in rows]
    return '<table class="facts">\n' + "\n".join(lines) + "\n</table>"


def warnings_list(texts: list[str]) -> str:
    if not texts:
        return "<p>None.</p>"
    return '<ol class="warnings">\n' + "\n".join(f"<li>{escaped(text)}</li>" for text in texts) + "\n</ol>"


# -------------------------------------------------------------------------------------------------------- the summary


def summary(run: Run, truth: dict[str, tuple[float, float | None]]) -> str:
    """Return the table of the scalars with R-hat and bulk ESS of :mod:`refhmc.numerics.convergence`.

    The column "error / MCSE" is the distance of the mean from the true mean in units of sd / sqrt(ESS).
    """
    values = scalars(run, None, ROWS)
    columns = [
        "mean",
        "sd",
        "5 %",
        "95 %",
        "ESS",
        "R-hat",
        *(["true mean", "true sd", "error / MCSE"] if truth else []),
    ]
    if not values or 0 in run.shape:
        return "<p>No draws.</p>"
    stacked = np.stack(list(values.values()), axis=2)
    with np.errstate(all="ignore"):
        rhat, ess = rhat_and_ess(stacked)
    lines = [row_of(name, each, rhat[k], ess[k], truth) for k, (name, each) in enumerate(values.items())]
    head = "".join(f'<th scope="col">{escaped(each)}</th>' for each in ["", *columns])
    all_of_them = sum(int(np.prod(np.shape(value)[2:])) for value in run.values.values())
    more = f"<p>The first {ROWS} of {all_of_them:,} values.</p>" if all_of_them > ROWS else ""
    note = (
        f"<p>Values marked with ! need attention: R-hat above {LARGE_RHAT}, or an effective sample size (ESS) below {FEW} "
        + "per chain."
        + (" The last column is the error of the mean in Monte Carlo standard errors (MCSE)." if truth else "")
        + "</p>"
    )
    scrolled = '<div class="wide" role="region" aria-label="summary" tabindex="0">'  # also with the keyboard
    body = "\n".join(lines)
    return f"{scrolled}<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody></table></div>\n{note}{more}"


def row_of(name: str, values: np.ndarray, rhat: float, ess: float, truth: dict) -> str:
    """Return the table row of one scalar (chain, draw)."""
    mean, sd = np.mean(values), np.std(values, ddof=1) if values.size > 1 else np.nan
    low, high = np.quantile(values, [0.05, 0.95])
    cells = [
        *(cell(number(each)) for each in (mean, sd, low, high)),
        cell(f"{ess:.0f}" if np.isfinite(ess) else "–", ess < FEW * len(values)),
        cell(f"{rhat:.3f}" if np.isfinite(rhat) else "–", rhat > LARGE_RHAT),
    ]
    if truth:
        true_mean, true_sd = truth.get(name, (np.nan, None))
        error = (mean - true_mean) / (sd / np.sqrt(ess)) if sd > 0 and ess > 0 else np.nan
        cells += [cell(number(true_mean)), cell(number(true_sd)), cell(f"{error:+.1f}" if np.isfinite(error) else "–")]
    return f'<tr><th scope="row">{escaped(name)}</th>{"".join(cells)}</tr>'


def number(value: float | None) -> str:
    return "–" if value is None or not np.isfinite(value) else f"{value:.4g}"


def cell(text: str, marked: bool = False) -> str:
    return f'<td class="mark">! {escaped(text)}</td>' if marked else f"<td>{escaped(text)}</td>"


# -------------------------------------------------------------------------------------------------------- the pictures


def pictures(run: Run, model: Model | None) -> Iterator[Drawn]:
    """Yield the plots for which the run has data."""
    if 0 in run.shape:
        return
    yield Drawn(
        "Trace plots and histograms of the draws, with the energies below",
        "Trace plots and histograms of the draws, with one colour per chain; the bottom row shows the energy. Black lines "
        "are the true means, if they are known. The histograms of chains that agree coincide. If the E-BFMI is below 0.3, "
        "the tails are explored slowly. Reparametrise the model, or use a position-dependent metric.",
        lambda: overview(run, model),
    )
    diverging = run.statistic("diverging")
    if diverging is not None and diverging.any():
        yield Drawn(
            "Scatter plot of two values, with the starts of divergent transitions",
            "Scatter plot of the two values in which the starts of divergent transitions (crosses) are most extreme. A "
            "cluster of crosses shows a region whose curvature is too high for the step size.",
            lambda: pairs(run, *furthest(run, diverging)).figure,
        )
    if run.statistic("solver_iterations") is not None:
        yield Drawn(
            "Solver iterations per step along the draws",
            "Iterations of the implicit solver per step. If many solves fail, use a smaller step size.",
            lambda: solver_iterations(run),
        )
    if run.adapted or run.statistic("step_size", warmup=True) is not None:
        yield Drawn(
            "Step size, acceptance and metric during warm-up",
            "Adaptation during warm-up, with one colour per chain. Very different final step sizes or metrics show that the "
            "chains explored different parts of the distribution. Use a longer warm-up.",
            lambda: adaptation(run),
        )


def furthest(run: Run, diverging: np.ndarray) -> list[str]:
    """Return the two scalars whose divergences start furthest from the mean of all draws, in standard deviations."""
    values = scalars(run, None, ROWS)

    def distance(name: str) -> float:
        starts = before(run, values[name], name, diverging)
        starts, spread = starts[np.isfinite(starts)], np.std(values[name])
        return float(abs(np.mean(starts) - np.mean(values[name])) / spread) if starts.size and spread > 0 else 0.0

    return sorted(values, key=distance, reverse=True)[:2]


def figure(drawn: Drawn) -> str:
    """Return the HTML of a figure with an embedded image."""
    file = io.BytesIO()
    drawn.draw().savefig(file, format="png", dpi=DPI)
    data = base64.b64encode(file.getvalue()).decode("ascii")
    return (
        f'<figure>\n<img alt="{escaped(drawn.alt)}" src="data:image/png;base64,{data}">\n'
        f"<figcaption>{escaped(drawn.caption)}</figcaption>\n</figure>"
    )
