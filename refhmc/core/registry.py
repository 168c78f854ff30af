"""Classes by name, for the command line, the protocol and the golden vectors.

A metric, integrator or kernel defines ``name``. The ``__init__`` of its package imports it, and nothing else is needed.
"""

from __future__ import annotations

import dataclasses

AUTO = "auto"  # stands for None, the default of a kernel


class Registry(dict[str, type]):
    """Classes by name. A hyphen stands for an underscore: "generalized-leapfrog" is "generalized_leapfrog"."""

    def __missing__(self, name: str) -> type:
        if "-" not in name:
            raise KeyError(name)
        return self[name.replace("-", "_")]

    def made_with(self, *arguments: str) -> list[str]:
        """Return the names of the classes that require no arguments other than these."""
        return [name for name, kind in self.items() if set(required(kind)) <= set(arguments)]


def registry(namespace: dict[str, object]) -> Registry:
    """Return the classes in a module's namespace that have a ``name``."""
    classes = [each for each in namespace.values() if isinstance(each, type) and hasattr(each, "name")]
    return Registry({each.name: each for each in classes})


def options(kind: type) -> list[str]:
    """Return the arguments of a class, in order."""
    return [field.name for field in dataclasses.fields(kind)]


def required(kind: type) -> list[str]:
    """Return the required arguments of a class."""
    return [field.name for field in dataclasses.fields(kind) if field.default is dataclasses.MISSING]
