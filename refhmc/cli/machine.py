"""The commands ``models``, ``warmup`` and ``info``."""

from __future__ import annotations

import argparse
import os

import refhmc
from refhmc.cli.model import add_model_options, model_named, split_model
from refhmc.cli.parts import add_parts, make_kernel


def run_models(options: argparse.Namespace) -> int:
    """Run ``refhmc models``: print name, dimension and source of the reference values of each model."""
    for name, make in (refhmc.models.by_name() | refhmc.models.networks_by_name()).items():
        model = make()
        known = model.reference.source if model.reference is not None else "no reference values"
        print(f"{name:24s} d = {model.dim:<4d} {known}")
    return 0


def add_warmup(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``refhmc warmup``: those of ``refhmc sample`` that determine what is compiled."""
    parser.usage = "%(prog)s [options] [MODEL]"
    parser.description = (
        "Compile what `refhmc sample` and `refhmc.sample` need for a model and a method, and cache it. Without any argument, "
        "compile every kernel, metric, integrator and built-in model, which takes minutes."
    )
    text = "Model as for `refhmc sample` (default, if an option is given: gaussian)."
    parser.add_argument("model", nargs="?", metavar="MODEL", help=text)
    add_model_options(parser)
    add_parts(parser, ("kernel", "metric", "integrator"))


def run_warmup(options: argparse.Namespace) -> int:
    """Run ``refhmc warmup``: compile what the options name, or everything."""
    from refhmc.cli.precompile import all_tasks, compile_all, tasks_of
    from refhmc.compile.compile_cache import cache_directory

    if all(value is None for name, value in vars(options).items() if name != "run"):
        tasks = all_tasks()
    else:
        model = split_model(options, model_named(options.model or "gaussian", options.widths))
        tasks = tasks_of(make_kernel(options, model), model)
    for done, total, title, seconds in compile_all(tasks):
        print(f"[{done}/{total}] {title}: {seconds:.1f} s", flush=True)
    print(f"Cached in {cache_directory() or 'this process only'}")
    return 0


def run_info(options: argparse.Namespace) -> int:
    """Run ``refhmc info``: print what a bug report needs."""
    import platform
    from importlib.metadata import PackageNotFoundError, version

    print(f"refhmc {refhmc.__version__}, Python {platform.python_version()}, {platform.platform()}")
    for package in ("numpy", "scipy", "numba", "arviz", "arviz-base", "xarray", "rich", "cupy"):
        try:
            print(f"{package} {version(package)}")
        except PackageNotFoundError:
            print(f"{package} not installed")
    print(f"processors {os.cpu_count()}")
    try:
        from refhmc.compile.compile_cache import cache_directory
    except ImportError as missing:
        print(f"compile cache none: {missing}")
    else:
        print(f"compile cache {cache_directory() or 'none'}")
    return 0
