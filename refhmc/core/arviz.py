"""Whichever ArviZ is installed."""

from __future__ import annotations

import importlib
import warnings
from typing import Any


def import_arviz() -> Any:
    """ArviZ, or ``arviz_base`` alone: imported when a result is made, since it takes seconds."""
    for name in ("arviz", "arviz_base"):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # ArviZ 0.23 announces its successor at import
                return importlib.import_module(name)
        except ModuleNotFoundError as missing:
            if missing.name != name:
                raise
    raise ImportError("an ArviZ result needs ArviZ: pip install arviz (or take the arrays with raw=True)")
