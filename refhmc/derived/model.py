"""A model built from another library's model: fingerprinted by its definition there, and rebuilt from it in other processes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from refhmc.compile.fingerprint import Fingerprint, fingerprint
from refhmc.models.base import Model

NO_FISHER = (
    "the Fisher information is an expectation over data, which cannot be derived from the log density. Use "
    "refhmc.metrics.SoftAbs(), which needs the Hessian instead"
)


class DerivedModel(Model):
    """A model built from another library's model.

    Attributes
    ----------
    known_by : dict
        The other library's definition of the log density, its constants and its version, for the fingerprint.
    again : tuple
        The function and the arguments that rebuild the model; these are pickled.
    source : str
        The generated source code, or an empty string.
    approximate : dict of str to str
        Derivatives that are not exact to rounding: how they are computed, and how exact they are, by name.
    """

    source = ""

    def __init__(
        self, *arguments: Any, known_by: Mapping[str, object], again: tuple[Callable, tuple], **options: Any
    ) -> None:
        lacks_fisher = options.get("fisher") is None
        absent = dict.fromkeys(("fisher", "fisher_derivative", "fisher_contraction"), NO_FISHER) if lacks_fisher else {}
        super().__init__(*arguments, **{"absent": absent, **options})
        self.known_by, self.again = known_by, again
        self.approximate: dict[str, str] = {}

    def made_of(self) -> Fingerprint:
        parents = {} if self.parents is None else {"parents": self.parents}
        return fingerprint({"dim": self.dim, "names": self.names, **parents, **self.known_by})

    def __reduce__(self) -> tuple:
        return self.again
