"""State shared by the examinations of models and metrics: functions by name, and the points of the examination."""

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
from refhmc.check.report import CALL_FAILED, Row
from refhmc.check.subject.foreign import Foreign, NotApplicable, SubjectError, elsewhere, text_of

ROUNDING = 64.0  # allowed units of rounding, times d, times the condition


class DerivativeExamination(Examination):
    """Functions of q, each a claimed derivative of another or derived from it.

    ``names`` are those of the author, ``functions`` the given ones. ``ordinary`` and ``asymmetric`` are the test
    points around the centre of ``frame``. ``dim`` is 0 until it is known. ``broken``: functions that do not answer
    correctly. ``ranks``: an answer of rank r has d^r numbers.
    """

    nowhere = "the functions are not finite at any of the points tried"
    ranks: ClassVar[dict[str, int]]
    order = "ijk"  # order of a third derivative's indices in the author's code

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
        """Bulk of the functions; NotApplicable if it is unknown."""
        if self.known_frame is None:
            raise NotApplicable(self.nowhere)
        return self.known_frame

    def epsilon(self, *keys: str) -> float:
        """Return the rounding unit of the coarsest of these functions."""
        return max((self.functions[key].epsilon for key in keys if key in self.functions), default=2.0**-52)

    def call(self, key: str, *arguments: np.ndarray) -> str:
        """Return a call as a line to paste."""
        return f"{self.names[key]}({', '.join(f'np.array({text_of(a)})' for a in arguments)})"

    def need(self, *keys: str) -> None:
        """Raise NotApplicable unless these functions are given and answer, finite somewhere."""
        for key in keys:
            if key not in self.functions:
                raise NotApplicable(f"no {key} was given")
            if key in self.broken:
                raise NotApplicable(f"{key} does not answer correctly: see the row answers")
        _ = self.frame

    def strictly(self, key: str, *arguments: np.ndarray) -> np.ndarray:
        """Return the answer of a function, d^rank numbers; SubjectError if it is complex for real arguments."""
        answer = self.answer(key, *arguments)
        if answer.dtype.kind == "c" and not any(np.iscomplexobj(x) for x in arguments):
            raise SubjectError(
                f"{self.names[key]} returned a complex number for real arguments", self.call(key, *arguments)
            )
        return answer

    def answer(self, key: str, *arguments: np.ndarray) -> np.ndarray:
        """Return the answer, complex or not."""
        return self.functions[key].vector((self.dim,) * self.ranks[key], *arguments)

    def at(self, key: str) -> Callable[..., np.ndarray]:
        """Return the function of that name: its real part for real arguments, NaN if it raises."""

        def answer(*arguments: np.ndarray) -> np.ndarray:
            try:
                value = self.answer(key, *arguments)
            except SubjectError:
                return np.full((self.dim,) * self.ranks[key], np.nan)
            return value if any(np.iscomplexobj(x) for x in arguments) else value.real

        return answer

    def good(self, q: np.ndarray) -> bool:
        """Return whether q is inside the support and the function finite there."""
        raise NotImplementedError

    def again(self, key: str) -> Foreign:
        """Return the function of that name with a new record of calls."""
        return self.functions[key].another()

    def find_dimension(self, *ways: Callable[[int], Sequence[tuple[int, ...]]]) -> np.ndarray:
        """Find ``dim`` from the points or by trying if it was not given, and return the points, (n, d).

        Each of ``ways`` returns the shapes of answers that should be (d,), (d, d) ..., and raises SubjectError if the functions
        do not accept (d,).
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
                    f"no dimension up to 512 is accepted; pass dim. In one dimension: {first}", first.case
                )
            self.notes.append(f"examined in {self.dim} dimensions (found by trying; pass dim for another)")
        self.settings["dim"] = self.dim
        return as_points(self.points, self.dim)

    def offsets(self, sizes: Iterable[float]) -> list[np.ndarray]:
        """Return random offsets from the centre in units of the scales."""
        return [size * self.rng.standard_normal(self.dim) for size in sizes]

    def look_around(self, offsets: Iterable[np.ndarray], points: np.ndarray, asymmetric: int) -> None:
        """Choose the ordinary and the asymmetric points."""
        self.ordinary += [q for z in offsets if (q := place(self.frame, z, self.good)) is not None]
        self.ordinary += [q for q in points if self.good(q)][:10]
        self.ordinary = self.ordinary or [self.frame.centre]
        ways = (place(self.frame, ascending(self.dim, self.rng), self.good) for _ in range(asymmetric))
        self.asymmetric += [q for q in ways if q is not None]

    def test_points(self, most: int) -> list[np.ndarray]:
        """Return at most ``most`` of the points, asymmetric ones first."""
        found = [*self.asymmetric, *self.ordinary]
        few = [*self.asymmetric[: min(2, most - 1)], *self.ordinary[: max(1, most - 2)]]
        return few if len(found) > most else found

    def finite_nowhere(self, what: str, key: str, points: np.ndarray, count: int = 1) -> Row:
        """Return the row for functions without a frame: ``what`` raises, or is not finite."""
        q = [points[0] if len(points) else np.zeros(self.dim)] * count

        def answers(d: int) -> np.ndarray:
            return self.functions[key].vector((d,) * self.ranks[key], *[np.full(d, 0.25)] * count)

        try:
            value = self.strictly(key, *q)
        except SubjectError as wrong:
            raise elsewhere(wrong, self.dim, answers) from None
        number = float(value) if value.ndim == 0 else None
        return failed(f"{what} was not finite at any point tried", self.call(key, *q), number, severity=CALL_FAILED)

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
        """Return the row of ``key`` as the derivative of ``of``, by ``claim(q)`` or ``claim(q, u)``.

        ``most``: number of tries for a simpler point.
        """
        self.claims[name] = [claim(q) for q in places]

        def case(found: Claim, index: tuple[int, ...]) -> str:
            """Return the simplest point at which that entry is wrong."""
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
    """Call each function once outside the time limits."""
    q = np.zeros(dim)
    pair, matrix = (q, q), (q, np.eye(dim))
    arguments: dict[str, tuple] = {"change": (q, 0, 0.5), "draw_p": (np.random.default_rng(0), q)}
    arguments |= dict.fromkeys(("trace", "metric_trace"), matrix) | dict.fromkeys(("H", "grad_q", "grad_p"), pair)
    for key, function in functions.items():
        with contextlib.suppress(Exception):
            function.function(*arguments.get(key, (q,)))


def least_eigenvalue(G: np.ndarray, epsilon: float) -> tuple[float, float]:
    """Return the least eigenvalue of G with a unit diagonal, and its rounding; (-1, .) if the diagonal is not positive."""
    rounding = ROUNDING * len(G) * epsilon
    diagonal = np.diag(G)
    if not np.all(diagonal > 0):
        return (-1.0 if np.any(diagonal < -rounding * np.abs(G).max()) else 0.0), rounding
    root = np.sqrt(diagonal)
    scaled = G / np.outer(root, root)
    return float(np.linalg.eigvalsh(0.5 * (scaled + scaled.T))[0]), rounding
