"""The commands ``models``, ``warmup`` and ``info``."""

from __future__ import annotations

import argparse
import os

import refhmc


def run_models(options: argparse.Namespace) -> int:
    """Run ``refhmc models``: print name, dimension and source of the reference values of each model."""
    for name, make in (refhmc.models.by_name() | refhmc.models.networks_by_name()).items():
        model = make()
        known = model.reference.source if model.reference is not None else "no reference values"
        print(f"{name:24s} d = {model.dim:<4d} {known}")
    return 0


def run_warmup(options: argparse.Namespace) -> int:
    """Run ``refhmc warmup``: compile the core and every built-in model."""
    from refhmc.cli.precompile import compile_everything
    from refhmc.compile.compile_cache import cache_directory

    for done, total, title, seconds in compile_everything():
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
