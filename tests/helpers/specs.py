"""The checked arguments of a run that is not started."""

from __future__ import annotations

import inspect

import refhmc
from refhmc.backends import as_backend
from refhmc.sampling.checks.arguments import checked
from refhmc.sampling.spec import RunSpec


def spec(model, kernel, **options):
    """Return the record of ``refhmc.sample(model, kernel, **options)``."""
    arguments = inspect.signature(refhmc.sample).bind(model, kernel, **options)
    arguments.apply_defaults()
    given = arguments.arguments
    given.pop("unknown")
    return checked(RunSpec(**given | {"backend": as_backend(given["backend"])}))
