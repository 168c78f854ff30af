"""Changes of variables as leaps, and free coordinates of matrices and of simplices."""

from __future__ import annotations

import numpy as np

import refhmc.check as rc


def leap_of(forward, inverse):
    """Return a leap that is T where p[0] > 0 and its inverse where p[0] < 0, each with its log Jacobian.

    ``forward(x)`` and ``inverse(y)`` return the image and log |det dT/dx| at x. With F(q, p) = (q, -p) this leap S has
    F S F S = 1 if the inverse is right, and its declared Jacobian is that of T.
    """

    def leap(q, p):
        new, log_det = (inverse if p[0] < 0 else forward)(q)
        new, total = np.asarray(new, dtype=float), float(np.sum(log_det))
        return (new, p, -total if p[0] < 0 else total) if np.isfinite(new).all() else None

    return leap


def examine(leap, image, dim, seconds, name):
    """Check a leap of :func:`leap_of` at normal points and at their images."""
    rng, points = np.random.default_rng(1), []
    for size in (0.3, 0.7, 1.0, 1.5) * 4:
        x, p = size * rng.normal(size=dim), rng.normal(size=dim)
        p[0] = abs(p[0])
        points += [(x, p), (np.asarray(image(x), dtype=float), -p)]
    return rc.leap(leap, dim=dim, returns=("q", "p", "log_det"), points=points, seconds=seconds, name=name)


def unit_simplex(free):
    return np.append(free, 1 - free.sum())


def triangle(n):
    """Return functions that fill a lower triangle with its entries, and read them."""
    rows = np.tril_indices(n)

    def place(free):
        L = np.zeros((n, n))
        L[rows] = free
        return L

    return place, lambda L: np.asarray(L)[rows]


def unit_rows(n):
    """Return functions that fill a lower triangle with rows of unit norm from its entries below the diagonal."""
    rows = np.tril_indices(n, -1)

    def place(free):
        L = np.zeros((n, n))
        L[rows] = free
        return L + np.diag(np.sqrt(1 - (L**2).sum(1)))

    return place, lambda L: np.asarray(L)[rows]


def symmetric(n, unit_diagonal):
    """Return functions that fill a symmetric matrix from its lower triangle, and read that."""
    rows = np.tril_indices(n, -1 if unit_diagonal else 0)

    def place(free):
        L = np.zeros((n, n))
        L[rows] = free
        return L + np.tril(L, -1).T + (np.eye(n) if unit_diagonal else 0)

    return place, lambda M: np.asarray(M)[rows]


WHOLE = (lambda y: y, np.asarray)
SIMPLEX = (unit_simplex, lambda y: np.asarray(y)[:-1])
