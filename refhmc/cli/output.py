"""The output of a run: files, summary, warnings and exit status."""

from __future__ import annotations

import argparse
import pathlib
import sys
import tempfile
from collections.abc import Callable
from typing import TYPE_CHECKING

from refhmc.cli.signatures import path_given
from refhmc.core.matplotlib import import_matplotlib

if TYPE_CHECKING:
    import numpy as np

    from refhmc.compile.compiled import Compilation
    from refhmc.models.base import Model
    from refhmc.models.recommended import Recommended
    from refhmc.sampling.results.result import Result

INTERRUPTED = 130
FEWEST = 4  # draws per chain that a summary needs
SUMMARISED = 1000  # largest dimension with a summary: ArviZ takes a millisecond per coordinate


def add_outputs(parser: argparse.ArgumentParser) -> None:
    """Add the options for the output of a run."""
    output = parser.add_argument_group("output")
    for option, file, text in (
        ("--out", "FILE.nc", "Write the ArviZ result as netCDF."),
        ("--plot", "FILE.png", "Write an overview plot; also .pdf or .svg (needs Matplotlib)."),
        ("--report", "FILE.html", "Write an HTML report (needs Matplotlib)."),
    ):
        output.add_argument(option, type=path_given, metavar=file, help=text)
    output.add_argument("--json", action="store_true", help="Print one JSON object: attributes, summary, warnings.")


def deliver(options: argparse.Namespace, model: Model, advice: Recommended, draw: Callable[[], Result]) -> int:
    """Draw, write ``--out``, ``--plot`` and ``--report``, print the results and return the exit status.

    If the run ends with an exception, a second Ctrl-C included, write and summarise the draws so far before raising it.
    """
    import warnings

    import refhmc

    for path in (options.out, options.plot, options.report):  # fail before the run, not after it
        if path is not None:
            check_writable(path, renamed=path is not options.plot)
    if options.plot is not None or options.report is not None:
        import_matplotlib()
    format = None if options.plot is None else format_of(options.plot)
    failure = None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", refhmc.errors.SamplingWarning)  # printed below, in order
            result = draw()
    except BaseException as error:
        partial: Result | None = getattr(error, "partial", None)
        if partial is None or not partial.groups.get("posterior"):
            raise
        result, failure = partial, error
    if options.out is not None and options.generate is not False:
        result.warnings.extend(not_generated(model, result))
    try:  # write files first: printing may fail
        if options.out is not None:
            write_netcdf(result, options.out)
        if options.plot is not None:
            refhmc.plot.overview(result, model).savefig(options.plot, dpi=120, format=format)
        if options.report is not None:
            refhmc.plot.report(result, options.report, model)
    finally:
        if options.json:
            print_json(model, result)
        else:
            print_result(model, result, advice)
    for what, path in (("Result", options.out), ("Plot", options.plot), ("Report", options.report)):
        if path is not None and not options.json:
            print(f"{what} written to {path}")
    if failure is not None:
        raise failure
    if result.attributes["stopped_by"] == "interrupt":
        return INTERRUPTED
    if not any(result.attributes["draws_per_chain"]) and options.draws != 0:
        print(
            "refhmc: No draws: --max-seconds ended the run during warm-up. Increase --max-seconds or reduce --tune.",
            file=sys.stderr,
        )
        return 1
    return 0


def not_generated(model: Model, result: Result) -> list[str]:
    """Return a warning that names the groups left out of ``--out`` because of ``--store``, if there are any."""
    made = ", ".join([*model.generated.made, *model.generated.data])
    if "store" not in result.attributes or not made:
        return []
    return [
        f"The --out file lacks the groups {made}, because they are not computed with --store. Use --checkpoint DIR instead, "
        "or call refhmc.generate(model, result) in Python."
    ]


def check_writable(path: pathlib.Path, renamed: bool) -> None:
    """Raise ValueError unless a file can be written at `path`.

    `renamed`: whether the file is written under a temporary name and then renamed.
    """
    folder = path.resolve().parent
    if not folder.is_dir():
        raise ValueError(f"{path} must be in an existing directory; {folder} does not exist. Create it first.")
    if path.is_dir():
        raise ValueError(f"{path} is a directory. Give the name of a file.")
    try:
        if path.is_file() and not renamed:
            path.open("ab").close()
        elif renamed or not path.exists():
            tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise ValueError(f"{path} cannot be written: {error.strerror or error}.") from error


def format_of(path: pathlib.Path) -> str:
    """Return the picture format that a file name selects (default PNG). Raises ValueError or ImportError."""
    known = import_matplotlib("matplotlib.backend_bases").FigureCanvasBase.get_supported_filetypes()
    suffix = path.suffix[1:].lower() or "png"
    if suffix not in known:
        raise ValueError(f"--plot must end with a known format ({', '.join(sorted(known))}); got {suffix!r} in {path}.")
    return suffix


def print_result(model: Model, result: Result, advice: Recommended) -> None:
    """Print compilation times, the run, the summary next to the known moments, and the warnings."""
    from refhmc.plot.predictive import regression_data
    from refhmc.sampling.progress import count

    attributes = result.attributes
    print(compilation_report())
    print(
        f"{model.name}: {count(len(attributes['chains']), 'chain')} of {count(result.draws.shape[1], 'draw')} in "
        f"{attributes['sampling_time']:.1f} s, {attributes['n_gradient_evaluations']:,} gradient evaluations, "
        f"seed {attributes['entropy']}"
    )
    print(result.diverged)
    if "log_z" in attributes:
        print(
            f"log Z = {attributes['log_z']:.3f} +- {attributes['log_z_error']:.3f}, barrier {attributes['barrier']:.2f}"
        )
    if advice.why:
        on = [f"on {advice.metric}"] if advice.metric else []
        chosen = " with ".join([" ".join([advice.kernel, *on]), *(f"{name}={value}" for name, value in advice.options)])
        taken = f"{chosen}, because" if advice.kernel else "nuts, although"
        print(
            f"Kernel: {taken} {advice.why}"
            + (" (use --kernel nuts for NUTS)" if advice.kernel not in ("", "nuts") else "")
        )
    if attributes.get("adaptation"):
        print(attributes["adaptation"])
    print(summary_beside_truth(model, result))
    if (data := regression_data(model)) is not None and result.draws.size:
        print(fit_to_data(model, result, *data))
    for text in result.warnings:
        print(f"warning: {text}")


def print_json(model: Model, result: Result) -> None:
    """Print one JSON object with ``attributes``, ``warnings`` and ``summary``.

    ``summary`` maps each variable to ArviZ's columns; it is null if there are too few draws.
    """
    import json

    from refhmc.sampling.results.result import summary_table

    short = min(result.draws.shape[:2]) == 0 or result.draws.shape[1] < FEWEST or model.dim > SUMMARISED
    rows = None if short else json.loads(summary_table(result).to_json(orient="index"))
    print(json.dumps({"attributes": result.attributes, "warnings": result.warnings, "summary": rows}))


def compilation_report() -> str:
    """Return one line on what was compiled in this process and how long it took."""
    from refhmc.compile import compiled
    from refhmc.compile.compile_cache import cache_directory

    fresh = [item for item in compiled.log if not item.from_cache]
    loaded = [item for item in compiled.log if item.from_cache]
    if not fresh:
        return f"Loaded {len(loaded)} compiled functions from the cache in {_total(loaded):.2f} s"
    seconds: dict[str, float] = {}
    for item in fresh:  # the functions of a metric share a title
        seconds[item.title] = seconds.get(item.title, 0.0) + item.seconds
    parts = ", ".join(f"{title} {each:.1f} s" for title, each in seconds.items())
    kept = "Compiled and cached" if cache_directory() else "Compiled"
    return f"{kept} in {_total(fresh):.1f} s: {parts}"


def _total(items: list[Compilation]) -> float:
    return sum(item.seconds for item in items)


def summary_beside_truth(model: Model, result: Result) -> str:
    """Return ArviZ's summary table, with the known mean and standard deviation if the model has them."""
    import numpy as np

    from refhmc.sampling.results.result import summary_table

    if min(result.draws.shape[:2]) == 0 or result.draws.shape[1] < FEWEST:
        return "(No summary: too few draws.)"
    if model.dim > SUMMARISED:
        return f"(No summary: {model.dim:,} coordinates.)"
    table = summary_table(result)
    truth = model.reference
    if truth is not None and truth.mean is not None and len(truth.mean) == len(table):
        table.insert(0, "true mean", np.round(truth.mean, 3))
        if truth.variance is not None:
            table.insert(1, "true sd", np.round(np.sqrt(truth.variance), 3))
    return table.to_string(max_rows=60)


def write_netcdf(result: Result, path: pathlib.Path) -> None:
    """Write the result to a temporary file and rename it, so that a failure leaves an existing file unchanged."""
    from refhmc.sampling.storage.files import replacing

    with replacing(path) as temporary:
        result.to_arviz().to_netcdf(temporary)


def fit_to_data(model: Model, result: Result, X: np.ndarray, y: np.ndarray) -> str:
    """Return a line with errors and coverage of the predictions for the data of the model."""
    from refhmc.plot.predictive import means_and_sds
    from refhmc.uncertainty import coverage, gaussian_negative_log_likelihood, root_mean_squared_error

    mean, sd = means_and_sds(model, result, X)
    return (
        f"Fit to the {len(y)} rows of data: RMSE {root_mean_squared_error(mean, y):.4f}, NLL "
        f"{gaussian_negative_log_likelihood(mean, sd, y):.4f}; {coverage(mean, sd, y, 1):.1%} within one predictive "
        f"standard deviation, {coverage(mean, sd, y, 2):.1%} within two"
    )
