"""Classes by the names they give themselves: what the command line, the protocol and the golden vectors call them.

A metric, an integrator or a kernel says ``name``; the ``__init__`` of its room, which imports it, needs to say no more.
"""

from __future__ import annotations

import dataclasses
from typing import Any

AUTO = "auto"  # a kernel's word for None, what it takes by itself


class Registry(dict[str, Any]):
    """Name -> class. A hyphen stands for an underscore: "generalized-leapfrog" is "generalized_leapfrog"."""

    def __missing__(self, name: str) -> Any:
        if "-" not in name:
            raise KeyError(name)
        return self[name.replace("-", "_")]

    def made_alone(self) -> list[str]:
        """The names of those that need no argument."""
        return self.made_with()

    def made_with(self, *arguments: str) -> list[str]:
        """The names of those that need no argument but these."""
        return [name for name, kind in self.items() if set(required(kind)) <= set(arguments)]


def registry(namespace: dict[str, Any]) -> Registry:
    """Of the classes in a module's namespace that have a ``name``."""
    classes = [each for each in namespace.values() if isinstance(each, type) and hasattr(each, "name")]
    return Registry({each.name: each for each in classes})


def options(kind: Any) -> list[str]:
    """The arguments that a class takes, in their order."""
    return [field.name for field in dataclasses.fields(kind)]


def required(kind: Any) -> list[str]:
    """Those of them that it cannot do without."""
    return [field.name for field in dataclasses.fields(kind) if field.default is dataclasses.MISSING]
