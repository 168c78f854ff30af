"""One transition of a kernel on given randomness: the same numbers give the same answer.

    kern(q, p0=, u=)      receives the momentum (d,) and the uniform number(s) of one transition
    kernel(draws, q)      takes its randomness from a :class:`refhmc.check.Draws`
    kernel(rng, q)        takes it from a NumPy generator, which is an interface to such an object
    kernel(draws, q, p)   the same, with a momentum that is kept from transition to transition; returns (q, p)

The signature is found from the names of the parameters, then by trying.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from refhmc.check.subject.answers import field, read_position
from refhmc.check.subject.draws import Draws, Question, Unscripted
from refhmc.check.subject.foreign import DIMENSIONS, Foreign, NotApplicable, SubjectError, elsewhere
from refhmc.check.subject.shapes import CALL_ERRORS, CallShape, first_working, parameters, required

MOMENTUM, DRAWS, GENERATOR = "kern(q, p0=, u=)", "kernel(draws, q)", "kernel(rng, q)"
TINY = 2.0**-43
MANY = 64  # number of uniforms for a kern(q, p0=, u=) that takes more than one


class Transition(NamedTuple):
    """End of a transition, the returned momentum or None, the recorded questions, and the positions on the way, if returned."""

    q: np.ndarray
    p: np.ndarray | None
    asked: list[Question]
    path: np.ndarray | None = None

    def numbers(self, kind: str) -> np.ndarray:
        """Return all the numbers of a kind that were given out, in order."""
        return np.concatenate([np.zeros(0), *(np.ravel(x.answer) for x in self.asked if x.kind == kind)])


class TransitionRunner(NamedTuple):
    """``kernel``, called with the signature ``call`` in ``dim`` dimensions; a kern(q, p0=, u=) receives ``uniforms`` numbers.

    If not ``recorded``, it extracts the bit generator of NumPy's interface, so that only the seed is controlled. With
    ``sphere`` a kept momentum is a unit vector, and each one is divided by its length first.
    """

    kernel: Foreign
    call: CallShape
    dim: int
    uniforms: int = 1
    recorded: bool = True
    sphere: bool = False

    @property
    def shape(self) -> str:
        """Signature of its call, in words."""
        return MOMENTUM if "u" in self.call.named else GENERATOR if self.call.generator else DRAWS

    @property
    def keeps_momentum(self) -> bool:
        """Whether it receives the momentum that it returned at the previous transition."""
        return "p" in self.call.order

    def run(self, q: Any, script: dict[str, Any] | None = None, seed: int = 0, p: Any = None) -> Transition:
        """Make one transition from ``q`` on the answers of ``script`` (kind -> answers), then those of the seed."""
        if not self.recorded:
            return self.with_generator(np.random.default_rng(seed), q, p)
        draws, u = Draws(np.random.default_rng(seed), script), None
        if self.shape == MOMENTUM:
            p, u = draws.normal(self.dim), np.array([draws.uniform() for _ in range(self.uniforms)])
        return self._run(draws, q, p, u if self.uniforms > 1 or u is None else float(u[0]), draws.asked)

    def with_generator(self, rng: np.random.Generator, q: Any, p: Any = None) -> Transition:
        """Make one transition with NumPy's own generator ``rng``, without recording."""
        if self.shape == MOMENTUM:
            raise NotApplicable(f"a {MOMENTUM} has no generator")
        return self._run(self.call.source(rng), q, p, None, [])

    def _run(self, source: Any, q: Any, p: Any, u: Any, asked: list[Question]) -> Transition:
        q = np.array(q, dtype=float)
        p = None if p is None else np.array(p, dtype=float) / (np.linalg.norm(p) if self.sphere else 1.0)
        answer = self.call.call(self.kernel, draws=source, q=q, p=p, u=u)
        return Transition(*read_position(self.kernel, answer, (self.dim,), [q]), asked, self._path(answer))

    def _path(self, answer: Any) -> np.ndarray | None:
        """Return the positions between the start and the proposal, shape (n - 1, dim), or None."""
        path = field(answer, ("path",))
        return None if path is None else np.reshape(self.kernel.array(path, None, "the path"), (-1, self.dim))


def find_runner(kernel: Foreign, q: np.ndarray) -> TransitionRunner:
    """Return the signature of a kernel, by its parameters and by calls from ``q``; SubjectError if none works."""
    dim = len(q)
    if {"p0", "u"} <= set(parameters(kernel.function)):
        momentum = CallShape(("q",), {"p": "p0", "u": "u"})
        attempts = [TransitionRunner(kernel, momentum, dim, uniforms) for uniforms in (1, MANY)]
    else:
        order = ("draws", "q", "p") if len(required(kernel.function)) == 3 else ("draws", "q")
        # normal(3) of a generator has another meaning than that of Draws, which rejects a generator's size=.
        draws, generator = CallShape(order), CallShape(order, generator=True)
        attempts = [TransitionRunner(kernel, shape, dim) for shape in (draws, generator)]
        attempts.append(TransitionRunner(kernel, generator, dim, recorded=False))
    of_the_shape = (*CALL_ERRORS, IndexError, ValueError, Unscripted)
    runner, _ = first_working(
        attempts,
        lambda runner: runner.run(q, p=np.ones(dim) / dim**0.5),
        kernel,
        goes_on=lambda wrong: isinstance(wrong.__cause__, of_the_shape),
    )
    return runner


def find_dimension(
    kernel: Foreign, dim: int | None, start: Callable[[int], np.ndarray], *others: Foreign
) -> tuple[int, TransitionRunner]:
    """Return ``dim``, or the first dimension d in which the kernel answers from ``start(d)``, and its signature.

    ``others`` are further foreign functions, which forget the dimensions tried before.
    """

    def found(d: int) -> TransitionRunner:
        return find_runner(kernel, start(d))

    try:
        tried = DIMENSIONS if dim is None else (dim,)
        return first_working(tried, found, kernel, *others, goes_on=lambda wrong: True)
    except SubjectError as wrong:
        raise elsewhere(wrong, dim, found) from wrong.__cause__
