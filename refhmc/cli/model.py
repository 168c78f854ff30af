"""The model that a command names: a built-in one, or one of a Python file."""

from __future__ import annotations

import argparse
import contextlib
import os
import pathlib
import sys
import traceback
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from refhmc.models.base import Model


def add_model_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that change a built-in model."""
    parser.add_argument(
        "--widths", metavar="N,N,...", help="Widths of the hidden layers of a network (default: 100,100)."
    )
    parser.add_argument(
        "--split", type=int, metavar="M", help="Split the data into M parts, for integrators and kernels."
    )


def split_model(options: argparse.Namespace, model: Model) -> Model:
    """Return the model in the number of parts of --split, if it is given."""
    return model if options.split is None else model.split(options.split)


def model_named(name: str, widths: str | None = None) -> Model:
    """Return the model of ``FILE.py:NAME``, or the built-in one with this name and these layer widths."""
    import refhmc

    path, colon, inside = name.rpartition(":")
    if colon and path.endswith(".py"):
        if widths is not None:
            raise ValueError(f"--widths belongs to the built-in networks; got the model {name}.")
        return model_of_file(pathlib.Path(path), inside)
    known, networks = refhmc.models.by_name(), refhmc.models.networks_by_name()
    if name not in known | networks:
        raise ValueError(f"MODEL must be FILE.py:NAME or one of {', '.join(known | networks)}; got {name!r}.")
    if widths is None:
        return (known | networks)[name]()
    if name not in networks:
        raise ValueError(f"--widths belongs to {' and '.join(networks)}; got the model {name}.")
    if not all(each.strip().isdecimal() for each in widths.split(",")):
        raise ValueError(f"--widths must be integers separated by commas; got {widths!r}.")
    return networks[name]([int(each) for each in widths.split(",")])


def model_of_file(path: pathlib.Path, name: str) -> Model:
    """Return the model called `name` in a Python file, or the model that the function of that name returns.

    As with ``python FILE.py``, the file's folder is first in ``sys.path`` while it runs. Any exception that the file raises
    becomes a ValueError with the line number.
    """
    import importlib.util

    import refhmc

    if not path.is_file():
        raise ValueError(f"MODEL must name an existing file; {path} does not exist.")
    module_name = name_of_module(path)
    spec = importlib.util.spec_from_file_location(module_name, path)
    module = importlib.util.module_from_spec(spec)  # type: ignore[arg-type]
    sys.modules[module_name] = module  # so that pickle finds its functions by name
    sys.path.insert(0, str(path.resolve().parent))
    try:
        spec.loader.exec_module(module)  # type: ignore[union-attr]
        there, found = hasattr(module, name), getattr(module, name, None)
        found = found if isinstance(found, refhmc.Model) or not callable(found) else found()
    except (Exception, SystemExit) as error:
        sys.modules.pop(module_name, None)
        said = next(iter(str(error).splitlines()), "")
        raise ValueError(f"MODEL: {path}{line_in(path, error)}: {type(error).__name__}: {said}") from error
    finally:
        with contextlib.suppress(ValueError):  # the file may have removed it
            sys.path.remove(str(path.resolve().parent))
    if not there:
        raise ValueError(f"MODEL must be the name of an object in {path}; {name!r} is not defined there.")
    if not isinstance(found, refhmc.Model):
        raise ValueError(
            f"{path}:{name} is neither a refhmc.Model nor a function that returns one (got {type(found).__name__})."
        )
    return found


def name_of_module(path: pathlib.Path) -> str:
    """Return a module name for the file: its stem, unless this would hide another module."""
    import importlib.util

    try:
        there = importlib.util.find_spec(path.stem) if path.stem.isidentifier() else None
    except ValueError:  # find_spec("__main__")
        return f"model_file_{path.stem}"
    own = there is None or pathlib.Path(there.origin or "").resolve() == path.resolve()
    return path.stem if own else f"model_file_{path.stem}"


def line_in(path: pathlib.Path, error: BaseException) -> str:
    """Return ``, line 12`` for the line of the file that raised the error, or an empty string."""
    file = os.path.abspath(path)
    if isinstance(error, SyntaxError) and error.filename == file:
        return f", line {error.lineno}"
    lines = [line for frame, line in traceback.walk_tb(error.__traceback__) if frame.f_code.co_filename == file]
    return f", line {lines[-1]}" if lines else ""
