"""One transition of a kernel of any shape on given randomness: the same numbers give the same answer.

    kern(q, p0=, u=)      the momentum (d,) and the uniform (or several) of one transition are handed in
    kernel(draws, q)      it asks a :class:`refhmc.check.Draws`
    kernel(rng, q)        it asks a NumPy generator, behind which there is one
    kernel(draws, q, p)   the same, with a momentum that is kept from transition to transition; gives (q, p)

Which of them it is is found by its parameters' names, then by trying.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from refhmc.check.subject.answers import read_position
from refhmc.check.subject.draws import Draws, Question, Unscripted
from refhmc.check.subject.foreign import DIMENSIONS, Foreign, NotApplicable, SubjectError, elsewhere
from refhmc.check.subject.shapes import CALL_ERRORS, CallShape, first_working, parameters, required

MOMENTUM, DRAWS, GENERATOR = "kern(q, p0=, u=)", "kernel(draws, q)", "kernel(rng, q)"
TINY = 2.0**-43
MANY = 64  # uniforms handed to a kern(q, p0=, u=) that wants more than one


class Transition(NamedTuple):
    """Where a kernel went, the momentum it returned if it did, and what it asked."""

    q: np.ndarray
    p: np.ndarray | None
    asked: list[Question]

    def numbers(self, kind: str) -> np.ndarray:
        """All the numbers of a kind that were given out, in order."""
        return np.concatenate([np.zeros(0), *(np.ravel(x.answer) for x in self.asked if x.kind == kind)])


class TransitionRunner(NamedTuple):
    """``kernel``, called in the shape ``call``, in ``dim`` dimensions; a kern(q, p0=, u=) is handed so many ``uniforms``.

    Not ``recorded``: it takes the bit generator out of NumPy's, so that only the seed is in our hands.
    """

    kernel: Foreign
    call: CallShape
    dim: int
    uniforms: int = 1
    recorded: bool = True

    @property
    def shape(self) -> str:
        """The shape of its call, in words."""
        return MOMENTUM if "u" in self.call.named else GENERATOR if self.call.generator else DRAWS

    @property
    def keeps_momentum(self) -> bool:
        """Whether it is given the momentum that it gave at the transition before."""
        return "p" in self.call.order

    def run(self, q: Any, script: dict[str, Any] | None = None, seed: int = 0, p: Any = None) -> Transition:
        """One transition from ``q`` on the answers of ``script`` (kind -> answers), then those of the seed."""
        if not self.recorded:
            return self.with_generator(np.random.default_rng(seed), q, p)
        draws, u = Draws(np.random.default_rng(seed), script), None
        if self.shape == MOMENTUM:
            p, u = draws.normal(self.dim), np.array([draws.uniform() for _ in range(self.uniforms)])
        return self._run(draws, q, p, u if self.uniforms > 1 or u is None else float(u[0]), draws.asked)

    def with_generator(self, rng: np.random.Generator, q: Any, p: Any = None) -> Transition:
        """One transition with NumPy's own generator ``rng``; nothing is recorded (a Draws shape: from ``rng``)."""
        if self.shape == MOMENTUM:
            raise NotApplicable(f"a {MOMENTUM} has no generator")
        return self._run(self.call.source(rng), q, p, None, [])

    def _run(self, source: Any, q: Any, p: Any, u: Any, asked: list[Question]) -> Transition:
        q = np.array(q, dtype=float)
        p = None if p is None else np.array(p, dtype=float)
        answer = self.call.call(self.kernel, draws=source, q=q, p=p, u=u)
        return Transition(*read_position(self.kernel, answer, (self.dim,), [q]), asked)


def find_runner(kernel: Foreign, q: np.ndarray) -> TransitionRunner:
    """The shape of a kernel, by its parameters and by calls from ``q``; SubjectError if none gives a position."""
    dim = len(q)
    if {"p0", "u"} <= set(parameters(kernel.function)):
        momentum = CallShape(("q",), {"p": "p0", "u": "u"})
        attempts = [TransitionRunner(kernel, momentum, dim, uniforms) for uniforms in (1, MANY)]
    else:
        order = ("draws", "q", "p") if len(required(kernel.function)) == 3 else ("draws", "q")
        # A generator's normal(3) means something else than that of Draws, which refuses a generator's size=.
        draws, generator = CallShape(order), CallShape(order, generator=True)
        attempts = [TransitionRunner(kernel, shape, dim) for shape in (draws, generator)]
        attempts.append(TransitionRunner(kernel, generator, dim, recorded=False))
    of_the_shape = (*CALL_ERRORS, IndexError, ValueError, Unscripted)
    runner, _ = first_working(
        attempts,
        lambda runner: runner.run(q, p=np.ones(dim)),
        kernel,
        goes_on=lambda wrong: isinstance(wrong.__cause__, of_the_shape),
    )
    return runner


def find_dimension(
    kernel: Foreign, dim: int | None, start: Callable[[int], np.ndarray], *others: Foreign
) -> tuple[int, TransitionRunner]:
    """``dim``, or else the first dimension d in which the kernel answers from ``start(d)``; and how it is called.

    ``others``: what else is called, and forgets the dimensions tried before.
    """

    def found(d: int) -> TransitionRunner:
        return find_runner(kernel, start(d))

    try:
        tried = DIMENSIONS if dim is None else (dim,)
        return first_working(tried, found, kernel, *others, goes_on=lambda wrong: True)
    except SubjectError as wrong:
        raise elsewhere(wrong, dim, found) from wrong.__cause__
