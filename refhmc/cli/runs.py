"""The commands ``sample``, ``resume`` and ``report``: their arguments, and what they run."""

from __future__ import annotations

import argparse
import pathlib
import warnings
from typing import TYPE_CHECKING

import refhmc
from refhmc.cli.model import add_model_options, model_named, split_model
from refhmc.cli.output import add_outputs, check_writable, deliver
from refhmc.cli.parts import add_parts, advice_taken, make_backend, make_kernel
from refhmc.cli.signatures import add_options, given, path_given
from refhmc.models.recommended import Recommended
from refhmc.sampling.resume import model_of, resume
from refhmc.sampling.sample import sample

if TYPE_CHECKING:
    import xarray

    from refhmc.plot.runs import RunLike


def learned(warmup: str | None) -> str | xarray.DataTree | None:
    """Return the value of ``warmup``: "stan", or the result in a netCDF file.

    Raises ValueError if the file does not exist.
    """
    if warmup is None or warmup == "stan":
        return warmup
    if not pathlib.Path(warmup).is_file():
        raise ValueError(f"--warmup must be stan or a file written by --out; the file {warmup!r} does not exist.")
    from refhmc.core.arviz import read_tree

    return read_tree(pathlib.Path(warmup))


def add_sample(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``refhmc sample``."""
    parser.usage = "%(prog)s [options] MODEL"
    parser.add_argument("model", metavar="MODEL", help="Name from `refhmc models`, or FILE.py:NAME of a refhmc.Model.")
    add_model_options(parser)
    add_options(parser.add_argument_group("run"), sample)
    add_outputs(parser)
    add_parts(parser)


def run_sample(options: argparse.Namespace) -> int:
    """Run ``refhmc sample``."""
    model = split_model(options, model_named(options.model, options.widths))
    if options.generate is not None and options.out is None:
        raise ValueError("--generate selects groups of the --out file; got no --out. Add --out FILE.nc.")
    if options.generate and options.store is not None:
        raise ValueError(
            "--generate must not be used with --store, because it computes the groups in memory. Use --checkpoint DIR "
            "instead of --store DIR, or omit --generate and call refhmc.generate(model, result) in Python."
        )
    arguments = given(options, sample) | {
        "model": model,
        "kernel": make_kernel(options, model),
        "backend": make_backend(options),
        "warmup": learned(options.warmup),
        "generate": options.generate if options.out is not None else False,
        "raw": True,
    }
    return deliver(options, model, advice_taken(options, model), lambda: refhmc.sample(**arguments))


def add_resume(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``refhmc resume``."""
    parser.usage = "%(prog)s [options] FOLDER [MODEL]"
    parser.add_argument("path", type=path_given, metavar="FOLDER", help="Folder of --checkpoint or --store.")
    text = "Model of the run, with its --widths and --split, unless it is a built-in one with defaults."
    parser.add_argument("model", nargs="?", metavar="MODEL", help=text)
    add_model_options(parser)
    add_options(parser.add_argument_group("run"), resume)
    add_outputs(parser)


def run_resume(options: argparse.Namespace) -> int:
    """Run ``refhmc resume``: continue a run or extend it, then report as ``refhmc sample`` does."""
    named = model_of(options.path) if options.model is None else model_named(options.model, options.widths)
    model = split_model(options, named)
    arguments = given(options, resume) | {
        "model": model,
        "warmup": learned(options.warmup),
        "generate": options.generate if options.out is not None else False,
        "raw": True,
    }
    return deliver(options, model, Recommended(), lambda: refhmc.resume(**arguments))


def add_report(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``refhmc report``."""
    parser.add_argument(
        "result",
        metavar="RESULT_OR_MODEL",
        help="File of --out, or a model as for `refhmc sample`, which is sampled with its recommended kernel.",
    )
    parser.add_argument(
        "--out", type=path_given, metavar="FILE.html", help="Default: next to the result, or MODEL.html."
    )
    text = "Model of the file, for its known moments, unless it is a built-in one with defaults."
    parser.add_argument("--model", help=text)
    add_options(parser, sample, only=("draws", "tune", "chains", "random_seed", "progressbar"))


def run_report(options: argparse.Namespace) -> int:
    """Run ``refhmc report``: write the report of a file, or of a model that is sampled first."""
    path = pathlib.Path(options.result)
    if path.is_dir():
        raise ValueError(
            f"RESULT_OR_MODEL must be a file or a model; got the folder {path}. For a saved run of N draws per chain, use "
            f"refhmc resume {path} --draws N --report FILE.html."
        )
    saved = path.is_file() and path.suffix != ".py"
    name = options.model if saved else options.result
    model = None if name is None else model_named(name)
    out = options.out or (path.with_suffix(".html") if saved else pathlib.Path(f"{name.rpartition(':')[2]}.html"))
    check_writable(out, renamed=True)
    result: RunLike = path
    if not saved:
        arguments = given(options, sample) | {"model": model, "save_warmup": True, "raw": True}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", refhmc.errors.SamplingWarning)  # the report lists them
            result = refhmc.sample(**arguments)
    print(f"Report written to {refhmc.plot.report(result, out, model)}")
    return 0
