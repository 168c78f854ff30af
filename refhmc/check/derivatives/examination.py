"""What the examinations of models and of metrics share: functions by their names, and the points where they are looked at."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar

import numpy as np

from refhmc.check.derivatives.claims import Claim, row_of
from refhmc.check.derivatives.points import LARGEST_TRIED, Frame, as_points, ascending, infer_dim, inside_test, place
from refhmc.check.examination import Examination
from refhmc.check.judging import failed, simplest
from refhmc.check.report import MISCONDUCT, Row
from refhmc.check.subject.foreign import Foreign, NotApplicable, SubjectError, elsewhere, text_of

ROUNDING = 64.0  # units of rounding allowed, times d, times the condition


class DerivativeExamination(Examination):
    """Functions of q, each claimed to be a derivative of another or made of it.

    ``names`` are those of the author, ``functions`` the ones that were given. ``ordinary`` and ``asymmetric`` are the test
    points around the centre of ``frame``. ``dim`` is 0 until it is known. ``broken``: functions that do not answer as they
    should. ``ranks``: of the answers, d^rank numbers each.
    """

    nowhere = "no place is known at which the functions are finite"
    ranks: ClassVar[dict[str, int]]
    order = "ijk"  # of a third derivative's indices, as the author has them

    def __init__(
        self, functions: dict[str, Callable | None], support: Any, points: Any, seed: int, like: Any, dim: int | None
    ) -> None:
        said = {key: getattr(f, "__qualname__", key).split(".")[-1] for key, f in functions.items()}
        self.names = {key: key if "<lambda>" in name else name for key, name in said.items()}
        self.functions = {key: Foreign(f, self.names[key], like) for key, f in functions.items() if f is not None}
        first = next(iter(self.functions))
        super().__init__(self.names[first], list(self.functions.values()), seed)
        self.support, self.points, self.like, self.rng = support, points, like, np.random.default_rng(seed)
        self.dim = dim or 0
        self.settings = {} if dim is None else {"dim": dim}
        self.inside = inside_test(support)
        self.known_frame: Frame | None = None
        self.ordinary: list[np.ndarray] = []
        self.asymmetric: list[np.ndarray] = []
        self.claims: dict[str, list[Claim]] = {}
        self.broken: set[str] = set()

    @property
    def frame(self) -> Frame:
        """Where the functions live; NotApplicable where no such place is known."""
        if self.known_frame is None:
            raise NotApplicable(self.nowhere)
        return self.known_frame

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
        _ = self.frame

    def strictly(self, key: str, *arguments: np.ndarray) -> np.ndarray:
        """What the function of that name answers, d^rank numbers; SubjectError where it is complex and was not asked so."""
        answer = self.answer(key, *arguments)
        if answer.dtype.kind == "c" and not any(np.iscomplexobj(x) for x in arguments):
            raise SubjectError(
                f"{self.names[key]} answers a real question with a complex number", self.call(key, *arguments)
            )
        return answer

    def answer(self, key: str, *arguments: np.ndarray) -> np.ndarray:
        """The same, complex or not."""
        return self.functions[key].vector((self.dim,) * self.ranks[key], *arguments)

    def at(self, key: str) -> Callable[..., np.ndarray]:
        """The function of that name, its real part if it is not asked otherwise; NaN where it raises."""

        def answer(*arguments: np.ndarray) -> np.ndarray:
            try:
                value = self.answer(key, *arguments)
            except SubjectError:
                return np.full((self.dim,) * self.ranks[key], np.nan)
            return value if any(np.iscomplexobj(x) for x in arguments) else value.real

        return answer

    def good(self, q: np.ndarray) -> bool:
        """Whether q is a place to look at: inside, and finite there."""
        raise NotImplementedError

    def again(self, key: str) -> Foreign:
        """The function of that name as if it had not been called."""
        return self.functions[key].another()

    def find_dimension(self, *ways: Callable[[int], Sequence[tuple[int, ...]]]) -> np.ndarray:
        """``dim``, from the points or by trial where it was not given; the points, (n, d).

        Each of ``ways`` gives the shapes of answers that ought to be (d,), (d, d) ...; SubjectError where they do not take
        (d,).
        """
        if self.points is not None and not self.dim:
            self.dim = int(np.shape(self.points)[-1])
        complaints: list[SubjectError] = []

        def tried(d: int, shapes: Callable[[int], Sequence[tuple[int, ...]]]) -> Sequence[tuple[int, ...]] | None:
            try:
                return shapes(d)
            except SubjectError as wrong:
                complaints.append(wrong)
                return None

        if not self.dim:
            sizes = (range(1, LARGEST_TRIED + 1), range(LARGEST_TRIED + 1, 513))
            found = (infer_dim(functools.partial(tried, shapes=way), some) for some in sizes for way in ways)
            self.dim = next(filter(None, found), 0)
            if not self.dim:
                first = complaints[0] if complaints else SubjectError("answers of another shape for every dimension")
                raise SubjectError(
                    f"no dimension up to 512 is accepted; give dim=. In one dimension: {first}", first.case
                )
            self.notes.append(f"looked at in {self.dim} dimensions (found by trial; dim= says otherwise)")
        self.settings["dim"] = self.dim
        return as_points(self.points, self.dim)

    def offsets(self, sizes: Iterable[float]) -> list[np.ndarray]:
        """Random ones from the centre, over the scales."""
        return [size * self.rng.standard_normal(self.dim) for size in sizes]

    def look_around(self, offsets: Iterable[np.ndarray], points: np.ndarray, asymmetric: int) -> None:
        """Choose the ordinary and the asymmetric places."""
        self.ordinary += [q for z in offsets if (q := place(self.frame, z, self.good)) is not None]
        self.ordinary += [q for q in points if self.good(q)][:10]
        self.ordinary = self.ordinary or [self.frame.centre]
        ways = (place(self.frame, ascending(self.dim, self.rng), self.good) for _ in range(asymmetric))
        self.asymmetric += [q for q in ways if q is not None]

    def test_points(self, most: int) -> list[np.ndarray]:
        """At most so many of them, asymmetric ones first."""
        found = [*self.asymmetric, *self.ordinary]
        few = [*self.asymmetric[: min(2, most - 1)], *self.ordinary[: max(1, most - 2)]]
        return few if len(found) > most else found

    def finite_nowhere(self, what: str, key: str, points: np.ndarray, count: int = 1) -> Row:
        """The row where no frame was found: ``what`` a function of ``count`` vectors raises, or that it is not finite."""
        q = [points[0] if len(points) else np.zeros(self.dim)] * count

        def answers(d: int) -> np.ndarray:
            return self.functions[key].vector((d,) * self.ranks[key], *[np.full(d, 0.25)] * count)

        try:
            value = self.strictly(key, *q)
        except SubjectError as wrong:
            raise elsewhere(wrong, self.dim, answers) from None
        number = float(value) if value.ndim == 0 else None
        return failed(f"{what} is finite nowhere it was tried", self.call(key, *q), number, severity=MISCONDUCT)

    def claim_row(
        self,
        name: str,
        places: Iterable[np.ndarray],
        key: str,
        of: str,
        claim: Callable,
        most: int = 60,
        said: str = "",
    ) -> Row:
        """The row of a function ``key`` that is claimed to be the derivative of ``of``, by ``claim(q)`` or ``claim(q, u)``.

        ``most``: tries at a simpler place where it is wrong.
        """
        self.claims[name] = [claim(q) for q in places]

        def case(found: Claim, index: tuple[int, ...]) -> str:
            """The simplest place at which that entry is wrong."""
            u = found.directions[index[-1]]
            if np.count_nonzero(u) != 1:
                numbers = f"{found.value[index]:.9g}; differences of {self.names[of]}: {found.truth[index]:.9g}"
                return f"{self.call(key, found.q)} @ np.array({text_of(u)})  # {numbers}"
            entry = index[:-1]

            def fails(q: np.ndarray) -> bool:
                return self.good(q) and bool(claim(q, u[None]).excess()[entry][0] > 1)

            q = simplest(found.q, fails, most)
            final, k = claim(q, u[None]), int(np.argmax(np.abs(u)))
            placed = dict(zip("ijk", (*entry, k), strict=False))
            at = ", ".join(str(placed[letter]) for letter in self.order if letter in placed)
            said, truth = final.value[entry][0], final.truth[entry][0]
            return f"{self.call(key, q)}[{at}]  # {said:.9g}; differences of {self.names[of]}: {truth:.9g}"

        return row_of(self.claims[name], case, said)


def warm_up(functions: dict[str, Foreign], dim: int) -> None:
    """Call each once, off the clock."""
    q = np.zeros(dim)
    pair, matrix = (q, q), (q, np.eye(dim))
    arguments: dict[str, tuple] = {"change": (q, 0, 0.5), "draw_p": (np.random.default_rng(0), q)}
    arguments |= dict.fromkeys(("trace", "metric_trace"), matrix) | dict.fromkeys(("H", "grad_q", "grad_p"), pair)
    for key, function in functions.items():
        with contextlib.suppress(Exception):
            function.function(*arguments.get(key, (q,)))


def least_eigenvalue(G: np.ndarray, epsilon: float) -> tuple[float, float]:
    """The least eigenvalue of G with its diagonal scaled to one, and what rounding makes of a zero; (-1, .) for a
    diagonal that is not positive."""
    rounding = ROUNDING * len(G) * epsilon
    diagonal = np.diag(G)
    if not np.all(diagonal > 0):
        return (-1.0 if np.any(diagonal < -rounding * np.abs(G).max()) else 0.0), rounding
    root = np.sqrt(diagonal)
    scaled = G / np.outer(root, root)
    return float(np.linalg.eigvalsh(0.5 * (scaled + scaled.T))[0]), rounding
