"""State shared by the rows of ``check.transition``: the kernel, its target, and the results so far.

A kernel (``subject/transition.py``) on noise w, standard normals or a momentum, has outcomes with probabilities
(``subject/outcomes.py``). A ``Setting`` in ``transitions/balance.py`` has kernel, noise and target in the form of the rows.
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

CLEAR = 3  # number of points that must speak against a kernel


@dataclasses.dataclass
class TransitionExamination(Examination):
    """One kernel under examination: first the arguments of the check, then the results of its rows.

    ``given``: the caller's positions (n, d), or None. ``delta``: the tolerance of the kernel's solver. ``make``,
    ``log_density``, ``gradient``: the construction of the kernel from a density, if known.
    """

    kernel: Foreign
    target: TargetDensity
    dim: int | None
    given: np.ndarray | None
    n_points: int
    delta: float
    seconds: float  # after this time no further point is started
    seed: int
    make: Callable | None
    log_density: Callable | None
    gradient: Callable | None
    dense: bool = False  # whether ``make`` takes an inverse mass matrix
    sphere: bool = False  # whether a kept momentum is a unit vector

    runner: TransitionRunner | None = None
    points: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros((0, 0)))
    setting: Setting | None = None
    remembers: str = ""  # reason why rows that call it out of order do not apply
    pairs: list[Pairing] = dataclasses.field(default_factory=list)
    paired: int = 0  # number of typical points whose moves are among them
    too_probable: list[float] = dataclasses.field(default_factory=list)  # P > e^r, if another reverse move may exist
    one_way: list[Pairing] = dataclasses.field(default_factory=list)  # moves whose reverse is never taken
    refused: Counter[str] = dataclasses.field(default_factory=Counter)  # noises on which it always stays, by their kind
    noises: int = 0  # number of noises with known outcomes
    decides: bool = False
    several: bool = False  # whether a kernel with a kept momentum has several proposals
    copies: bool | None = None
    cost: float = 0.0  # seconds per call

    def __post_init__(self) -> None:
        super().__init__(self.kernel.name, (self.kernel, *self.target.foreign), self.seed)

    def rng(self, *key: int) -> np.random.Generator:
        return np.random.default_rng([self.seed, *key])

    def part(self, share: float) -> float:
        """Return seconds for a part of a row: a share of the points' time, within the time left to the row."""
        return min(share * self.seconds, 0.8 * time_left())

    def need(self) -> tuple[TransitionRunner, Setting]:
        """Return the kernel and its setting; raise NotApplicable if it cannot be examined."""
        if self.runner is None or self.setting is None:
            raise NotApplicable("the kernel did not answer")
        if self.remembers:
            raise NotApplicable(self.remembers)
        return self.runner, self.setting


def moved(found: list[Outcome]) -> Outcome | None:
    """Return the first outcome that is not the start."""
    return next((outcome for outcome in found if outcome.moved), None)


def noise_size(setting: Setting, q: np.ndarray) -> int:
    """Return the size of the noise: the largest number of normals of any outcome."""
    if setting.runner.shape == MOMENTUM:
        return len(q)
    found = setting.outcomes(q, np.random.default_rng(0).standard_normal(64))
    if setting.frees:
        return max(sum(step.key == FREE for step in outcome.path) for outcome in found)
    return max(len(outcome.transition.numbers("normal")) for outcome in found)
