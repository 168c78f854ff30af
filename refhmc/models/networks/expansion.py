"""Derivatives along directions: the rules of Leibniz and of Faà di Bruno.

A quantity x that depends on the weights is stored with its derivatives along up to two directions u and v of the weights::

    (x,)        (x, x_u)        (x, x_u, x_v, x_uv)

The bits of the number of an entry give the directions of the derivative. None stands for zero. Two rules suffice::

    (a b)_k = sum of a_i b_(k - i) over the parts i of k                    Leibniz
    f(x)_u  = f'(x) x_u,    f(x)_uv = f'(x) x_uv + f''(x) x_u x_v           Faà di Bruno

Backpropagation consists of products and functions of one number. With these rules, one implementation computes the gradient
of L, the product of its Hessian with u, and its third derivative contracted with u and v. The first is the R-operator of
Pearlmutter (1994, Fast exact multiplication by the Hessian), the second the R-operator applied twice.

Entries may have leading axes of their own, one entry for each of many directions; they are broadcast.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from refhmc.numerics.batched import Array

Expansion = tuple  # 1, 2 or 4 arrays or None


def constant(x: Array, order: int) -> Expansion:
    """Return the expansion of a quantity that does not depend on the weights, with ``order`` directions."""
    return (x, *(None,) * (2**order - 1))


def linear(f: Callable, x: Expansion) -> Expansion:
    """Apply a linear f entry by entry."""
    return tuple(None if each is None else f(each) for each in x)


def total(terms: Sequence[Array | None]) -> Array | None:
    """Return the sum; None is zero."""
    if len(terms) == 1:
        return terms[0]
    there = [each for each in terms if each is not None]
    result = there[0] if there else None
    for each in there[1:]:
        result = result + each
    return result


def add(*xs: Expansion) -> Expansion:
    """Return the sum, entry by entry."""
    return tuple(total(entries) for entries in zip(*xs, strict=True))


def product(times: Callable, a: Expansion, b: Expansion) -> Expansion:
    """Apply the rule of Leibniz to a bilinear ``times``."""
    if len(a) == 1:
        return (times(a[0], b[0]),)

    def entry(k: int) -> Array | None:
        parts = [(a[i], b[k - i]) for i in range(k + 1) if i & k == i]
        return total([times(x, y) for x, y in parts if x is not None and y is not None])

    return tuple(entry(k) for k in range(len(a)))


def function(derivatives: Sequence[Array], x: Expansion) -> Expansion:
    """Return f(x) of each number. ``derivatives`` are f(x), f'(x) and f''(x) as needed for the directions; None if zero."""
    f, *slopes = derivatives
    if len(x) == 1:
        return (f,)

    def times(*factors: Array | None) -> Array | None:
        result = factors[0]
        for each in factors[1:]:
            result = None if result is None or each is None else result * each
        return result

    if len(x) == 2:
        return f, times(slopes[0], x[1])
    f1, f2 = slopes
    return f, times(f1, x[1]), times(f1, x[2]), total([times(f1, x[3]), times(f2, x[1], x[2])])
