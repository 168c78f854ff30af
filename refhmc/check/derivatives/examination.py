"""What the examinations of models and of metrics share: functions by their names, and the points where they are looked at."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from refhmc.check.derivatives.claims import Claim
from refhmc.check.derivatives.points import Frame
from refhmc.check.examination import Examination
from refhmc.check.subject.foreign import Foreign, NotApplicable, text_of


class DerivativeExamination(Examination):
    """Functions of q, each claimed to be a derivative of another or made of it.

    ``names`` are those of the author, ``functions`` the ones that were given. ``ordinary`` and ``asymmetric`` are the test
    points around the centre of ``frame``. ``broken``: functions that do not answer as they should.
    """

    nowhere = "no place is known at which the functions are finite"

    def __init__(self, functions: dict[str, Callable | None], support, points, seed: int, like):
        said = {key: getattr(f, "__qualname__", key).split(".")[-1] for key, f in functions.items()}
        self.names = {key: key if "<lambda>" in name else name for key, name in said.items()}
        self.functions = {key: Foreign(f, self.names[key], like) for key, f in functions.items() if f is not None}
        first = next(iter(self.functions))
        super().__init__(self.names[first], list(self.functions.values()), seed)
        self.support, self.points, self.like, self.rng = support, points, like, np.random.default_rng(seed)
        self.dim: int | None = None
        self.frame: Frame | None = None
        self.ordinary: list[np.ndarray] = []
        self.asymmetric: list[np.ndarray] = []
        self.claims: dict[str, list[Claim]] = {}
        self.broken: set[str] = set()

    def epsilon(self, *keys: str) -> float:
        """The unit of rounding of the coarsest of these functions."""
        return max((self.functions[key].epsilon for key in keys if key in self.functions), default=2.0**-52)

    def call(self, key: str, *arguments: np.ndarray) -> str:
        """A call as a line to paste."""
        return f"{self.names[key]}({', '.join(f'np.array({text_of(a)})' for a in arguments)})"

    def need(self, *keys: str) -> None:
        """NotApplicable unless these functions are given and answer, somewhere finite."""
        for key in keys:
            if key not in self.functions:
                raise NotApplicable(f"no {key} was given")
            if key in self.broken:
                raise NotApplicable(f"{key} does not answer as it should: see the row answers")
        if self.frame is None:
            raise NotApplicable(self.nowhere)
