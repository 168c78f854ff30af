"""Precision, central differences, simulated rounding, and the little linear algebra that is needed.

**Precision.** ``with digits(D)`` aims at D correct digits after three differences: their width is h = 10^-(D/2 + 8), whose
truncation error h^2 lies 16 digits below D, and the working precision has D digits left where h^3 has been divided by
(where fewer differences are taken of each other, it may be less).

**Differences**, with f_i = f(q + h e_i), f_-i = f(q - h e_i) and so on:

    D_i     = (f_i - f_-i) / 2h                     D_ii  = (f_i - 2 f + f_-i) / h^2
    D_ij    = sum over signs s t f_{si,tj} / 4h^2   D_iii = (f_2i - 2 f_i + 2 f_-i - f_-2i) / 2h^3
    D_iij   = sum over t of t (f_{i,tj} - 2 f_tj + f_{-i,tj}) / 2h^3
    D_ijk   = sum over signs s t u f_{si,tj,uk} / 8h^3

**Simulated rounding** (Monte Carlo arithmetic; Parker 1997). A record's tolerance says how far correct code in double
precision may be off. It is found by running the record again, in multi-precision, with inputs, data and what is computed on
the way perturbed at random by up to a rounding unit u = 2^-53: each number by u of itself, (d, d) matrices that go through
an eigenvalue or linear solver by d u of their largest entry, since no such solver promises more. The largest deviation of a
few such runs, times a safety factor for longer chains of operations than ours, is the tolerance.
"""

from __future__ import annotations

import contextlib
import random
from itertools import product

from mpmath import mp, mpf

UNIT = mpf(2) ** -53
DIGITS = 60

_present: list[int] = []


@contextlib.contextmanager
def digits(wanted: int, differences: int = 3):
    """Aim at ``wanted`` correct digits after so many differences of differences."""
    with mp.workdps(wanted + differences * (wanted // 2 + 8) + 12):
        _present.append(wanted)
        try:
            yield
        finally:
            _present.pop()


def wanted_digits():
    """What the innermost :func:`digits` aims at."""
    return _present[-1]


def width():
    """The differences' width h at the present precision."""
    return mpf(10) ** -(wanted_digits() // 2 + 8)


# ------------------------------------------------------------------------------------------------------ differences


def along(f, q, k):
    """df/dq_k; f returns a number or nested lists of them."""
    h = width()
    there = [f([x + (s * h if i == k else 0) for i, x in enumerate(q)]) for s in (1, -1)]
    return combine(lambda a, b: (a - b) / (2 * h), *there)


def combine(f, *values):
    """f of the corresponding numbers of nested lists of one shape."""
    if isinstance(values[0], list):
        return [combine(f, *parts) for parts in zip(*values, strict=True)]
    return f(*values)


def tensors(f, q, order):
    """[f, gradient, Hessian, third derivative] at q as far as ``order``."""
    d, h, known = len(q), width(), {}

    def at(*moves):
        """f at q moved by h in +-(i + 1) for each of ``moves``."""
        moves = tuple(sorted(moves))
        if moves not in known:
            x = list(q)
            for m in moves:
                x[abs(m) - 1] += h if m > 0 else -h
            known[moves] = f(x)
        return known[moves]

    def signed(indices):
        total = mpf(0)
        for signs in product((1, -1), repeat=len(indices)):
            sign = 1 if signs.count(-1) % 2 == 0 else -1
            total += sign * at(*(s * i for s, i in zip(signs, indices, strict=True)))
        return total / (2 * h) ** len(indices)

    def second(i, j):
        return (at(i) - 2 * at() + at(-i)) / h**2 if i == j else signed((i, j))

    def third(i, j, k):
        i, j, k = sorted((i, j, k))
        if i == j == k:
            return (at(i, i) - 2 * at(i) + 2 * at(-i) - at(-i, -i)) / (2 * h**3)
        if i != j != k:
            return signed((i, j, k))
        twice, once = (i, k) if i == j else (k, i)
        return sum(s * (at(twice, s * once) - 2 * at(s * once) + at(-twice, s * once)) for s in (1, -1)) / (2 * h**3)

    axes = range(1, d + 1)
    result = [at()]
    if order >= 1:
        result.append([signed((i,)) for i in axes])
    if order >= 2:
        result.append(symmetric(second, d, 2))
    if order >= 3:
        result.append(symmetric(third, d, 3))
    return result


def symmetric(entry, d, rank):
    """Nested lists of entry(i, ...), indices from 1, each set of indices evaluated once."""
    known = {}

    def value(indices):
        key = tuple(sorted(indices))
        if key not in known:
            known[key] = entry(*key)
        return known[key]

    if rank == 2:
        return [[value((i, j)) for j in range(1, d + 1)] for i in range(1, d + 1)]
    return [[[value((i, j, k)) for k in range(1, d + 1)] for j in range(1, d + 1)] for i in range(1, d + 1)]


# ------------------------------------------------------------------------------------------------- simulated rounding


class Exact:
    """No rounding."""

    def __call__(self, x):
        """One rounded number."""
        return x

    def each(self, values):
        """Nested lists, each number rounded."""
        return combine(self, values)

    def matrix(self, M):
        """A symmetric matrix, rounded as eigenvalue and linear solvers do it: relative to its largest entry."""
        return M

    def solved(self, x):
        """The solution of an implicit equation, as a solver leaves it."""
        return x

    def __init__(self):
        self.solutions: list = []
        self.known: list = []

    def remember(self, solution):
        """Keep the solution of an equation for :meth:`follow`."""
        self.solutions.append(solution)

    def recall(self):
        """What was found for this equation in the run that is followed, None without one."""
        return self.known.pop(0) if self.known else None

    def follow(self, other):
        """Begin each equation with the other run's solution."""
        self.known = list(other.solutions)
        return self

    def mark(self):
        """Where the random signs stand; ``reset`` puts them back, so that an equation is the same while it is solved."""

    def reset(self, mark):
        """To where :meth:`mark` was."""


def either_sign(rng):
    """Between a half and one, of either sign: errors of equal size would cancel each other half of the time."""
    return (0.5 + 0.5 * rng.random()) * (1 if rng.random() < 0.5 else -1)


class Rounding(Exact):
    """Relative perturbations of up to ``unit``."""

    def __init__(self, seed: str, unit=UNIT):
        super().__init__()
        self.rng, self.unit = random.Random(seed), unit

    def factor(self):
        return either_sign(self.rng)

    def __call__(self, x):
        return x * (1 + self.factor() * self.unit)

    def matrix(self, M):
        size = self.unit * len(M) * max(abs(x) for row in M for x in row)
        noise = symmetric(lambda i, j: self.factor() * size, len(M), 2)
        return combine(lambda x, e: x + e, M, noise)

    def solved(self, x):
        return self.each(x)

    def mark(self):
        return self.rng.getstate()

    def reset(self, mark):
        self.rng.setstate(mark)


class Unsolved(Exact):
    """Implicit equations solved to about ``delta`` in every coordinate; otherwise exact."""

    def __init__(self, seed: str, delta):
        super().__init__()
        self.rng, self.delta = random.Random(seed), delta

    def solved(self, x):
        return [v + self.delta * either_sign(self.rng) for v in x]


# -------------------------------------------------------------------------------------------------- linear algebra


def dot(a, b):
    return mp.fdot(a, b)


def times(M, x):
    return [dot(row, x) for row in M]


def matmul(A, B):
    columns = transpose(B)
    return [[dot(row, column) for column in columns] for row in A]


def transpose(M):
    return [list(column) for column in zip(*M, strict=True)]


def identity(d):
    return [[mpf(int(i == j)) for j in range(d)] for i in range(d)]


def inverse(M):
    """Gauss-Jordan with the largest pivot."""
    d = len(M)
    rows = [list(row) + unit for row, unit in zip(M, identity(d), strict=True)]
    for k in range(d):
        pivot = max(range(k, d), key=lambda i: abs(rows[i][k]))
        rows[k], rows[pivot] = rows[pivot], rows[k]
        rows[k] = [x / rows[k][k] for x in rows[k]]
        for i in range(d):
            if i != k and rows[i][k] != 0:
                factor = rows[i][k]
                rows[i] = [x - factor * y for x, y in zip(rows[i], rows[k], strict=True)]
    return [row[d:] for row in rows]


def log_det(M):
    """Of a symmetric positive definite matrix, from its pivots."""
    rows, total = [list(row) for row in M], mpf(0)
    for k in range(len(rows)):
        total += mp.log(rows[k][k])
        for i in range(k + 1, len(rows)):
            factor = rows[i][k] / rows[k][k]
            rows[i] = [x - factor * y for x, y in zip(rows[i], rows[k], strict=True)]
    return total


def eigen(M):
    """Eigenvalues, and eigenvectors as rows."""
    values, vectors = mp.eigsy(mp.matrix(M))
    d = len(M)
    return [values[i] for i in range(d)], [[vectors[j, i] for j in range(d)] for i in range(d)]


def newton(image, start, noise):
    """Solve x = image(x), to all digits.

    At 18 digits first, with the Jacobian J of the start, then with that of the solution, which at full precision gains 8
    digits in each iteration. A solution is only taken where plain iteration would find it too, and quickly: where J^16 is
    below 0.5^16. A run with simulated rounding starts from the solution that the exact one found.
    """
    mark = noise.mark()

    def residual(x):
        noise.reset(mark)
        return [a - b for a, b in zip(x, image(x), strict=True)]

    far = 2 * (1 + max(map(abs, start)))

    def refine(x, B, least, most):
        for _ in range(most):
            change = times(B, residual(x))
            if not max(map(abs, change)) < far:
                break
            x = [a - b for a, b in zip(x, change, strict=True)]
            if max(map(abs, change)) <= least * (1 + max(map(abs, x))):
                return x
        raise ArithmeticError("no solution found")

    known = noise.recall()
    if known is None:
        with digits(18):
            x = refine(list(start), jacobian_inverse(residual, start), mpf(10) ** -6, 30)
            B = jacobian_inverse(residual, x, radius=0.5)
            x = refine(x, B, mpf(10) ** -16, 5)
    else:
        x, B = known
    x = refine(x, B, mpf(10) ** -(wanted_digits() + 4), 30)
    noise.remember((x, B))
    return noise.solved(x)


def jacobian_inverse(residual, x, radius=None):
    """Of 1 - J by one-sided differences; ArithmeticError where the spectral radius of J may exceed ``radius``."""
    step = mpf(10) ** -10
    here, columns = residual(x), []
    for k in range(len(x)):
        there = residual([v + (step if i == k else 0) for i, v in enumerate(x)])
        columns.append([(a - b) / step for a, b in zip(there, here, strict=True)])
    M = transpose(columns)
    if radius is not None:
        power = [[u - m for u, m in zip(*rows, strict=True)] for rows in zip(identity(len(x)), M, strict=True)]
        for _ in range(4):
            power = matmul(power, power)
        if max(abs(v) for row in power for v in row) > mpf(radius) ** 16:
            raise ArithmeticError("plain iteration would not solve this")
    return inverse(M)
