"""SymPy functions that neither overflow nor cancel, and rules that introduce them into plain expressions.

::

    expit(x)        1 / (1 + e^-x)                        d/dx = expit(x) expit(-x)
    softplus(x)     log(1 + e^x) = -log expit(-x)         d/dx = expit(x)
    logaddexp(x, y) log(e^x + e^y)                        d/dx = expit(x - y)
    log1p(x)        log(1 + x)                            d/dx = 1 / (1 + x)
    expm1(x)        e^x - 1                               d/dx = e^x

Their derivatives consist of the same functions. :func:`stable` finds them in an expression written with ``exp`` and ``log``.
Requires SymPy (extra ``sympy``).
"""

from __future__ import annotations

from typing import Any

import sympy
from sympy import Add, Expr, Function, Mul, Pow, exp, log


class expit(Function):
    nargs = 1
    is_real = is_positive = True

    def fdiff(self, argindex: int = 1) -> Expr:
        return expit(self.args[0]) * expit(-self.args[0])

    def _eval_evalf(self, prec: int) -> Expr:
        return (1 / (1 + exp(-self.args[0])))._eval_evalf(prec)


class softplus(Function):
    nargs = 1
    is_real = is_positive = True

    def fdiff(self, argindex: int = 1) -> Expr:
        return expit(self.args[0])

    def _eval_evalf(self, prec: int) -> Expr:
        return log(1 + exp(self.args[0]))._eval_evalf(prec)


class logaddexp(Function):
    nargs = 2
    is_real = True

    def fdiff(self, argindex: int = 1) -> Expr:
        one, other = self.args if argindex == 1 else reversed(self.args)
        return expit(one - other)

    def _eval_evalf(self, prec: int) -> Expr:
        return log(exp(self.args[0]) + exp(self.args[1]))._eval_evalf(prec)


class log1p(Function):
    nargs = 1
    is_real = True

    def fdiff(self, argindex: int = 1) -> Expr:
        return 1 / (1 + self.args[0])

    def _eval_evalf(self, prec: int) -> Expr:
        return log(1 + self.args[0])._eval_evalf(prec)


class expm1(Function):
    nargs = 1
    is_real = True

    def fdiff(self, argindex: int = 1) -> Expr:
        return exp(self.args[0])

    def _eval_evalf(self, prec: int) -> Expr:
        return (exp(self.args[0]) - 1)._eval_evalf(prec)


def stable(expression: Expr) -> Expr:
    """Return the expression with these functions instead of equal plain expressions."""
    for kind, rule in ((Pow, of_power), (Mul, of_product), (Add, of_sum), (log, of_log)):
        expression = expression.replace(lambda e, kind=kind: isinstance(e, kind), rule)
    return expression


def exponents(expression: Expr) -> list[Expr] | None:
    """Return a_1, a_2, ... of e^a_1 + e^a_2 + ..., or None for another sum.

    A positive number counts as the exponential of its logarithm.
    """
    found = []
    for term in Add.make_args(expression):
        factor, rest = term.as_coeff_Mul()
        if not factor.is_positive or not (rest == 1 or isinstance(rest, exp)):
            return None
        found.append(log(factor) + (rest.args[0] if isinstance(rest, exp) else 0))
    return sorted(found, key=lambda a: (not a.is_number, sympy.default_sort_key(a)))


def of_log(expression: Expr) -> Expr:
    """Rewrite log(1 + e^x), log(e^x + e^y + ...), log(1 + x), log of expit(x) and products, log cosh(x), log Gamma(x)."""
    (x,) = expression.args
    factor, rest = x.as_coeff_Mul()
    powers = [each.as_base_exp() for each in Mul.make_args(rest)]
    if factor.is_positive and rest != 1 and all(isinstance(base, expit) for base, _ in powers):
        return log(factor) + Add(*(-power * softplus(-base.args[0]) for base, power in powers))
    if factor.is_positive and isinstance(rest, sympy.cosh):
        (a,) = rest.args
        return log(factor / 2) + a + softplus(-2 * a)
    if factor.is_positive and isinstance(rest, sympy.gamma):
        return log(factor) + sympy.loggamma(rest.args[0])
    if not x.is_Add:
        return expression
    found = exponents(x)
    if found is None:
        one, rest = x.as_coeff_Add()
        return log1p(rest) if one == 1 else expression
    total = found[-1]
    for a in reversed(found[:-1]):
        total = a + softplus(total - a) if a.is_number else logaddexp(a, total)
    return total


def of_power(expression: Expr) -> Expr:
    """Rewrite 1 / (1 + e^x) and its powers."""
    base, power = expression.args
    if not (base.is_Add and power.is_Integer and power.is_negative):
        return expression
    found = exponents(base)
    if found is None or len(found) != 2:
        return expression
    one, other = found
    return exp(power * one) * expit(one - other) ** -power


def of_product(expression: Expr) -> Expr:
    """Rewrite e^x expit(-x) = expit(x) and powers."""
    for f in expression.args:
        base, power = f.as_base_exp()
        if isinstance(base, expit) and power.is_Integer and power.is_positive:
            (x,) = base.args
            for k in range(int(power), 0, -1):
                if exp(-k * x) in expression.args:
                    others = [g for g in expression.args if g not in (f, exp(-k * x))]
                    return of_product(Mul(*others, expit(-x) ** k, base ** (power - k), evaluate=True))
    return expression


def of_sum(expression: Expr) -> Expr:
    """Rewrite 1 - expit(x) = expit(-x), e^x - 1, 1 + tanh(x) = 2 expit(2x), 1 - tanh(x)^2 = 4 expit(2x) expit(-2x)."""
    number, rest = expression.as_coeff_Add()
    if number == -1 and isinstance(rest, exp):
        return expm1(rest.args[0])
    for term in Add.make_args(rest) if abs(number) == 1 else ():
        sign, function = (number * term).as_coeff_Mul()
        base, power = function.as_base_exp()
        x: Any = base.args[0] if base.args else None
        if isinstance(base, expit) and (sign, power) == (-1, 1):
            return number * expit(-x) + (rest - term)
        if isinstance(base, sympy.tanh) and abs(sign) == power == 1:
            return number * 2 * expit(2 * sign * x) + (rest - term)
        if isinstance(base, sympy.tanh) and (sign, power) == (-1, 2):
            return number * 4 * expit(2 * x) * expit(-2 * x) + (rest - term)
    return expression
