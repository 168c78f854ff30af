"""Matplotlib, an extra of its own: imported when a picture is made."""

from __future__ import annotations

import importlib
from types import ModuleType


def import_matplotlib(module: str = "matplotlib") -> ModuleType:
    """Import a module of Matplotlib. Raises ImportError with what to install."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as missing:
        if (missing.name or "").split(".")[0] != "matplotlib":
            raise
        raise ImportError(
            'Plots require Matplotlib. Install it with: python -m pip install "refhmc[plot]"'
        ) from missing
