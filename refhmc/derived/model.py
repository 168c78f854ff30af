"""A model made from another library's: known by what that library says of it, and made from it again in other processes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from refhmc.core.fingerprint import Fingerprint, fingerprint
from refhmc.models.base import Model


class DerivedModel(Model):
    """``known_by``: the other library's text of the log density, its constants and its edition, for the fingerprint. ``again``:
    the function and the arguments that make it, which are what is pickled. ``source``: the text generated for it, or none.
    ``approximate``: derivatives that are not exact to rounding, name -> how they are made and how exact they are."""

    source = ""

    def __init__(
        self, *arguments: Any, known_by: Mapping[str, Any], again: tuple[Callable, tuple], **options: Any
    ) -> None:
        super().__init__(*arguments, **options)
        self.known_by, self.again = known_by, again
        self.approximate: dict[str, str] = {}

    def made_of(self) -> Fingerprint:
        return fingerprint({"dim": self.dim, "names": self.names, **self.known_by})

    def __reduce__(self) -> tuple:
        return self.again
