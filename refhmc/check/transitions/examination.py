"""What the rows of ``check.transition`` share: the kernel, its target, and what was found out so far.

A kernel (``subject/transition.py``) on noise w, standard normals or a momentum, has outcomes, each with its probability
(``subject/outcomes.py``); a ``Setting`` in ``transitions/balance.py`` is kernel, noise and target as the rows look at them.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable

import numpy as np

from refhmc.check.examination import Examination
from refhmc.check.subject.foreign import Foreign, NotApplicable, time_left
from refhmc.check.subject.outcomes import FREE, Outcome
from refhmc.check.subject.target import TargetDensity
from refhmc.check.subject.transition import MOMENTUM, TransitionRunner
from refhmc.check.transitions.balance import Pairing, Setting

CLEAR = 3  # so many points must speak against a kernel


@dataclasses.dataclass
class TransitionExamination(Examination):
    """One kernel under examination: first what it was called with, then what the rows found.

    ``given``: the caller's positions (n, d), or None; ``delta``: the tolerance of the kernel's solver; ``make``,
    ``log_density``, ``gradient``: how the kernel is made of a density, and of which, where that is known.
    """

    kernel: Foreign
    target: TargetDensity
    dim: int | None
    given: np.ndarray | None
    n_points: int
    delta: float
    seconds: float  # after which no further point is begun
    seed: int
    make: Callable | None
    log_density: Callable | None
    gradient: Callable | None

    runner: TransitionRunner | None = None
    points: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros((0, 0)))
    setting: Setting | None = None
    remembers: str = ""  # why the rows that call it out of order do not apply
    pairs: list[Pairing] = dataclasses.field(default_factory=list)
    too_probable: list[float] = dataclasses.field(default_factory=list)  # P > e^r, where another way back may exist
    one_way: list[Pairing] = dataclasses.field(default_factory=list)  # moves whose way back is never taken
    refused: Counter[str] = dataclasses.field(
        default_factory=Counter
    )  # noises on which it always stays, by what they are
    noises: int = 0  # at which all outcomes are known
    decides: bool = False
    copies: bool | None = None
    cost: float = 0.0  # seconds a call

    def __post_init__(self) -> None:
        super().__init__(self.kernel.name, (self.kernel, *self.target.foreign), self.seed)

    def rng(self, *key: int) -> np.random.Generator:
        return np.random.default_rng([self.seed, *key])

    def part(self, share: float) -> float:
        """Seconds for a part of a row: a share of what points have, within what is left to the row."""
        return min(share * self.seconds, 0.8 * time_left())

    def need(self) -> tuple[TransitionRunner, Setting]:
        """The kernel and its setting; NotApplicable where it cannot be examined."""
        if self.runner is None or self.setting is None:
            raise NotApplicable("it did not answer")
        if self.remembers:
            raise NotApplicable(self.remembers)
        return self.runner, self.setting


def moved(found: list[Outcome]) -> Outcome | None:
    """The first outcome that is not the start."""
    return next((outcome for outcome in found if outcome.moved), None)


def noise_size(setting: Setting, q: np.ndarray) -> int:
    """How many numbers the noise has: the most normals that any outcome asks for."""
    if setting.runner.shape == MOMENTUM:
        return len(q)
    found = setting.outcomes(q, np.random.default_rng(0).standard_normal(64))
    if setting.frees:
        return max(sum(step.key == FREE for step in outcome.path) for outcome in found)
    return max(len(outcome.transition.numbers("normal")) for outcome in found)
