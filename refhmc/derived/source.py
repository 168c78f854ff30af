"""The source code of a density and its derivatives (:mod:`refhmc.derived.separable`), for Numba.

Each function unpacks coordinates and data by name, then handles the groups of terms: first those without rows, then one loop
per kind of row. A loop contains the data and variables of the row (``theta_i`` is ``theta[i]``), common subexpressions t0,
t1, ... and the additions to ``out``. Before it, c0, c1, ... are what does not depend on the row. The lower triangle of
symmetric arrays is computed, then mirrored. M_a_b is the part of M at the places of the variables a and b, and d_a_b is the
second derivative by them if it is used at several places.
"""

from __future__ import annotations

import itertools
import re
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import sympy
from sympy import Expr, Symbol
from sympy.printing.precedence import PRECEDENCE
from sympy.printing.pycode import PythonCodePrinter

from refhmc.derived.separable import FUNCTIONS, TAKEN, Density, Group, Variable, Weights, derivatives, orders

WIDTH = 100
LONG = 2000  # most characters of a formula in the docstring
HEADS = {
    "log_density": ("q, data", "L(q)"),
    "gradient": ("q, data, out", "out[j] = dL / dq_j"),
    "value_and_gradient": ("q, data, out", "L(q), and out[j] = dL / dq_j"),
    "hessian": ("q, data, out", "out[j, k] = d^2 L / dq_j dq_k"),
    "third_derivative": ("q, data, out", "out[j, k, l] = d^3 L / dq_j dq_k dq_l"),
    "hessian_contraction": ("q, data, M, out", "out[l] = sum_jk M[j, k] d^3 L / dq_j dq_k dq_l"),
}
ORDER = {"log_density": 0, "gradient": 1, "hessian": 2, "third_derivative": 3}
HOMES = {
    "math": ("erf", "erfc", "gamma", "lgamma", "pi"),
    "refhmc.numerics.polygamma": ("polygamma",),
    "refhmc.numerics.transforms": ("expit", "softplus"),
}


class Printer(PythonCodePrinter):
    """SymPy's Python printer, with plain names of functions."""

    def __init__(self) -> None:
        super().__init__({"fully_qualified_modules": False, "allow_unknown_functions": True})

    def _print_call(self, e: Expr) -> str:
        return f"{FUNCTIONS[e.func]}({', '.join(map(self._print, e.args))})"

    def _print_Exp1(self, e: Expr) -> str:
        return repr(float(e))

    def _print_Pow(self, e: Expr, rational: bool = False) -> str:
        if e.exp.is_Integer and e.exp.is_negative:  # Numba calls a library function for negative powers
            return f"1/{self.parenthesize(1 / e, PRECEDENCE['Mul'])}"
        return super()._print_Pow(e, rational)


for function in FUNCTIONS:
    setattr(Printer, f"_print_{function.__name__}", Printer._print_call)

code = Printer().doprint


def module_text(name: str, density: Density) -> str:
    """Return the source of all functions, with the formula and the imports."""
    writer = Writer(density)
    functions = [writer.function(key) for key in HEADS]
    words = set(re.findall(r"\w+", "\n".join(functions)))
    vectors = [str(c.symbol) + ("" if c.size is None else f" ({c.size},)") for c in density.coordinates]
    about = f"Coordinates q: {', '.join(vectors)}." + (f" Data: {', '.join(density.data)}." if density.data else "")
    name = name.replace('"', "'")
    shown = density.formula if len(density.formula) < LONG else f"{density.formula[:LONG]} ..."
    formula = textwrap.fill(f"L = {shown}", WIDTH, initial_indent="    ", subsequent_indent="        ")
    homes = {name: home for home, names in HOMES.items() for name in names}
    known = sorted(word for word in words & {*FUNCTIONS.values(), "sqrt", "pi"} if word != "abs")
    imports = [
        f"from {home} import {', '.join(names)}"
        for home in ("math", "numpy", *list(HOMES)[1:])
        if (names := [each for each in known if homes.get(each, "numpy") == home])
    ]
    raw = "r" if "\\" in name + density.formula else ""
    head = f'{raw}"""{name}: made by refhmc.from_sympy.\n\n{formula}\n\n{textwrap.fill(about, WIDTH)}\n"""\n\n'
    return head + "".join(f"{line}\n" for line in imports) + ("\n\n" if imports else "\n") + "\n\n".join(functions)


class Output(NamedTuple):
    """A number added at the places of ``key``, or to L if there are none."""

    key: tuple[Variable, ...]
    value: Expr


class Writer:
    def __init__(self, density: Density) -> None:
        self.density = density
        self.static = all(not g.loops and not any(v.loop for v in g.variables) for g in density.groups)
        self.names = {*TAKEN, *density.data, *density.lengths, *(str(c.symbol) for c in density.coordinates)}
        for g in density.groups:
            self.names |= {str(loop.index) for loop in g.loops} | {str(name) for name, _ in g.reads}
            self.names |= {str(v.symbol) for v in g.variables} | {str(v.loop.index) for v in g.variables if v.loop}

    # -- functions

    def function(self, key: str) -> str:
        arguments, summary = HEADS[key]
        body: list[str] = []
        self.temporaries = 0
        self.constants: Iterator[int] = itertools.count()
        has_value = key in ("log_density", "value_and_gradient")
        begun = False
        for group in self.density.groups:
            plain = self.is_plain(group)
            if has_value and not begun and not plain:
                body.append("L = 0.0")
            lines = self.of_group(group, self.outputs(key, group), plain)
            # Read each entry of M once.
            body += [line for line in lines if not (line.startswith("M_") and "M[" in line and line in body)]
            begun = True
        body += self.mirrored(ORDER.get(key, 1))
        body += ["return L"] if has_value else []
        axes = ORDER.get(key, 1)
        text = "\n".join(body)
        if axes and len(set(re.findall(r"out\[[\d, ]+\](?= = )", text))) < self.density.dim**axes:
            body.insert(0, "out[:] = 0.0")
        lines = [*self.unpacked(text), *body]
        return "\n".join(
            [f"def {key}({arguments}):", f'    """{summary}"""', *("    " + line for line in broken(lines)), ""]
        )

    def unpacked(self, text: str) -> list[str]:
        """Return lines that unpack the coordinates and data used in the code."""
        words, lines = set(re.findall(r"[^\W\d]\w*", text)), []
        lengths = {name: taken for name, taken in self.density.lengths.items() if name in words}
        words |= set(re.findall(r"[^\W\d]\w*", " ".join(lengths.values())))
        coordinates = self.density.coordinates
        left = [str(c.symbol) for c in coordinates]
        if words & set(left):
            if len(left) == 1 and coordinates[0].size is not None:
                lines.append(f"{left[0]} = q")
            elif all(c.size is None for c in coordinates):
                lines.append(f"{unpacking(left)} = q")
            else:
                right = [f"q[{c.start}]" if c.size is None else f"q[{c.start}:{c.stop}]" for c in coordinates]
                lines.append(f"{', '.join(left)} = {', '.join(right)}")
        if words & set(self.density.data):
            lines.append(f"{unpacking(list(self.density.data))} = data")
        return lines + [f"{name} = {taken}" for name, taken in lengths.items()]

    def mirrored(self, axes: int) -> list[str]:
        if self.static or axes < 2:
            return []
        names = self.fresh("jkl", axes)
        ends = [str(self.density.dim), names[0] if axes == 2 else f"{names[0]} + 1", f"{names[1]} + 1"]
        heads = [f"for {index} in range({end}):" for index, end in zip(names, ends, strict=False)]
        here, *others = (f"out[{', '.join(p)}]" for p in itertools.permutations(names))
        return nested(heads, [f"{' = '.join(others)} = {here}"])

    def fresh(self, letters: str, count: int, avoid: Iterable[str] = ()) -> list[str]:
        """Return unused names of indices."""
        taken = {
            *self.density.data,
            *self.density.lengths,
            *map(str, (c.symbol for c in self.density.coordinates)),
            *avoid,
        }
        taken |= TAKEN
        return [each for each in (*letters, *(f"{letters[0]}{m}" for m in range(9))) if each not in taken][:count]

    # -- derivatives of a group

    def outputs(self, key: str, group: Group) -> list[Output]:
        if key == "hessian_contraction":
            return self.contracted(group)
        of = ["log_density", "gradient"] if key == "value_and_gradient" else [key]
        return [Output(*each) for one in of for each in derivatives(group, ORDER[one]).items()]

    def contracted(self, group: Group) -> list[Output]:
        """Return sum_ab M_ab f_abc by c, with symbols for the M_ab."""
        self.pairs: dict[Symbol, tuple[Variable, Variable]] = {}
        totals: Weights = {}
        for key, weight in derivatives(group, 3).items():
            for c in dict.fromkeys(key):
                rest = list(key)
                rest.remove(c)
                name = Symbol(self.own("M", rest), real=True)
                self.pairs[name] = (rest[0], rest[1])
                totals[(c,)] = totals.get((c,), sympy.Integer(0)) + name * weight
        return [Output(key, totals[key]) for key in sorted(totals, key=lambda key: group.variables.index(key[0]))]

    # -- groups

    def is_plain(self, group: Group) -> bool:
        """Return whether all places are known and different, so that numbers are assigned, not added."""
        return not group.loops and not any(v.loop for v in group.variables) and group is self.density.groups[0]

    def of_group(self, group: Group, outputs: list[Output], plain: bool) -> list[str]:
        if not outputs:
            return []
        values = [each.value for each in outputs]
        used = set().union(*(each.free_symbols for each in values))
        pairs = {name: pair for name, pair in getattr(self, "pairs", {}).items() if name in used}
        used |= {v.symbol for each in outputs for v in each.key if v.loop is None}
        indices = {loop.index for loop in group.loops}
        before: list[str] = []
        within: list[str] = []
        of_row = set(indices)  # symbols that depend on the row

        def place(symbol: Symbol, depends: set, lines: list[str]) -> None:
            if depends & indices:
                of_row.add(symbol)
            (within if depends & indices else before).extend(lines)

        for name, value in group.reads:
            if name in set().union(*(each.free_symbols for each in values)):
                place(name, value.atoms(Symbol), [f"{name} = {code(value)}"])
        in_values = set().union(*(each.free_symbols for each in values))
        for v in group.variables:
            if v.symbol in in_values and v.loop is not None:
                place(v.symbol, v.value.atoms(Symbol), self.total(v))
            elif v.symbol in in_values and v.value != v.symbol:
                place(v.symbol, v.value.atoms(Symbol), [f"{v.symbol} = {code(v.value)}"])
        for name, pair in pairs.items():
            depends = set().union(*((v.place.atoms(Symbol) | v.coefficient.atoms(Symbol)) for v in pair))
            place(name, depends, self.of_M(name, pair))
        if group.loops:
            values, hoisted = self.hoisted(values, of_row)
            assigned = self.shared([*hoisted], [*hoisted.values()])
            in_turn = dict(zip([name for name, _ in assigned if name in hoisted], hoisted, strict=True))
            before += [f"{in_turn.get(name, name)} = {code(value.xreplace(in_turn))}" for name, value in assigned]
            values = [value.xreplace(in_turn) for value in values]
        common, values = self.common(values)
        within += [f"{name} = {code(value)}" for name, value in common]
        for each, value in zip(outputs, values, strict=True):
            within += self.put(each.key, value, plain)
        for loop in reversed(group.loops):
            within = [over(loop.index, loop.first, loop.last), *("    " + line for line in within)]
        return before + within

    def own(self, letter: str, key: Sequence[Variable]) -> str:
        """Return an unused name ``M_mu_eta`` for M and the variables mu and eta."""
        name = "_".join([letter, *(str(v.symbol) for v in key)])
        while name in self.names:
            name += "_"
        return name

    def common(self, values: list[Expr]) -> tuple[list[tuple[Symbol, Expr]], list[Expr]]:
        """Return common subexpressions by name, and the values in terms of them; negated names get none."""
        names = self.numbered("t", itertools.count(self.temporaries))
        found, values = sympy.cse(values, symbols=names, order="canonical")
        swap: dict[Symbol, Expr] = {}
        kept: list[tuple[Symbol, Expr]] = []
        names = self.numbered("t", itertools.count(self.temporaries))
        for name, value in found:
            value = value.xreplace(swap)
            swap[name] = value if (-value).is_Symbol else next(names)
            if swap[name] != value:
                kept.append((swap[name], value))
        self.temporaries = int(str(kept[-1][0])[1:]) + 1 if kept else self.temporaries
        return kept, [value.xreplace(swap) for value in values]

    def numbered(self, letter: str, numbers: Iterator[int]) -> Iterator[Symbol]:
        """Yield t0, t1, ..., without names that the code uses."""
        return (Symbol(name, real=True) for m in numbers if (name := f"{letter}{m}") not in self.names)

    def shared(self, names: list[Symbol], values: list[Expr]) -> list[tuple[Symbol, Expr]]:
        """Return lines for the values by name, after their common subexpressions."""
        common, values = self.common(values)
        shared = {name for name, _ in common}
        same = {value: name for name, value in zip(names, values, strict=True) if value in shared}
        own = [(name, value) for name, value in zip(names, values, strict=True) if value not in shared]
        return [(same.get(name, name), value.xreplace(same)) for name, value in [*common, *own]]

    def hoisted(self, values: list[Expr], of_row: set) -> tuple[list[Expr], dict[Symbol, Expr]]:
        """Return the values with symbols for costly parts that do not depend on the row."""
        found: dict[Expr, Symbol] = {}

        def constant(e: Expr) -> Expr:
            if not e.has(sympy.Function, sympy.Pow) or not e.free_symbols:
                return e
            if e not in found:
                found[e] = next(self.numbered("c", self.constants))
            return found[e]

        def visit(e: Expr) -> Expr:
            if not (e.free_symbols & of_row):
                factor, rest = e.as_coeff_Mul()
                return factor * constant(rest)
            if e.is_Add or e.is_Mul:
                fixed = [each for each in e.args if not (each.free_symbols & of_row)]
                others = [visit(each) for each in e.args if each.free_symbols & of_row]
                return e.func(visit(e.func(*fixed)), *others) if fixed else e.func(*others)
            return e.func(*map(visit, e.args)) if e.args else e

        return [visit(each) for each in values], {symbol: e for e, symbol in found.items()}

    def total(self, v: Variable) -> list[str]:
        """Return lines that compute the value of a linear form."""
        assert v.loop is not None
        return [f"{v.symbol} = 0.0", over(*v.loop), f"    {v.symbol} += {code(v.value)}"]

    # -- places

    def slots(self, order: Sequence[Variable], restrict: bool) -> tuple[list[str], list[str], list[str]]:
        """Return the loops over the places of forms, the places and the coefficients, for variables in an order."""
        heads: list[str] = []
        places: list[str] = []
        coefficients: list[str] = []
        taken: list[str] = []
        last: tuple[Variable, Symbol] | None = None
        for v in order:
            if v.loop is None:
                places.append(code(v.place))
                coefficients.append("1")
                last = None
                continue
            letters = str(v.loop.index) + "jklmn"
            name = next(n for n in self.fresh(letters, 20, [*taken]) if n not in taken and self.free_index(n, v, order))
            taken.append(name)
            index = Symbol(name, integer=True)
            swap = {v.loop.index: index}
            end = v.loop.last
            if restrict and last is not None and last[0] is v and not (v.place - v.loop.index).has(v.loop.index):
                end = last[1]
            heads.append(over(index, v.loop.first, end))
            places.append(code(v.place.xreplace(swap)))
            coefficients.append(code(v.coefficient.xreplace(swap)))
            last = (v, index)
        return heads, places, coefficients

    def free_index(self, name: str, v: Variable, order: Sequence[Variable]) -> bool:
        """Return whether an index of this name hides none of the enclosing loops."""
        assert v.loop is not None
        if name == str(v.loop.index):
            return True
        indices = {str(loop.index) for g in self.density.groups if v in g.variables for loop in g.loops}
        return name not in indices and name not in {str(u.loop.index) for u in order if u.loop and u is not v}

    def put(self, key: tuple[Variable, ...], value: Expr, plain: bool) -> list[str]:
        """Return lines that assign or add the value at the places of the variables in the key."""
        sign = "=" if plain else "+="
        if not plain and not value.is_Add and value.could_extract_minus_sign():
            sign, value = "-=", -value
        if not key:
            return [f"L {sign} {code(value)}"]
        if self.static:
            every = sorted(tuple(code(v.place) for v in order) for order in orders(key))
            return [" = ".join(f"out[{', '.join(each)}]" for each in every) + f" = {code(value)}"]
        kept = [
            o for o in orders(key) if not any(below(o[r], o[s]) for r in range(len(o)) for s in range(r + 1, len(o)))
        ]
        lines: list[str] = []
        looped = any(v.loop for v in key)
        if (looped or len(kept) > 1) and not value.is_Atom:
            name = self.own("d", key)
            lines.append(f"{name} = {code(value)}")
            value = Symbol(name, real=True)
        for o in kept:
            heads, places, coefficients = self.slots(o, restrict=True)
            weighed = times(code(value), *coefficients) if any(c != "1" for c in coefficients) else code(value)
            at = f"out[{', '.join(places)}] {sign} {weighed}"
            lines += nested(heads, [at])
        return lines

    def of_M(self, name: Symbol, pair: tuple[Variable, Variable]) -> list[str]:
        """Return lines for M_ab: the entries of M at the places of a and b, times their coefficients, and those of b and a."""
        if not any(v.loop for v in pair):
            terms = [f"M[{', '.join(code(v.place) for v in order)}]" for order in orders(pair)]
            return [f"{name} = {' + '.join(terms)}"]
        lines = [f"{name} = 0.0"]
        for order in orders(pair):
            heads, places, coefficients = self.slots(order, restrict=False)
            entry, (first, second) = f"M[{', '.join(places)}]", coefficients
            if len(heads) == 2:  # one index first: shorter sums
                inner = next(self.numbered("m", itertools.count()))
                row = [f"{inner} = 0.0", heads[1], f"    {inner} += {times(entry, second)}"]
                lines += nested(heads[:1], [*row, f"{name} += {times(str(inner), first)}"])
            else:
                lines += nested(heads, [f"{name} += {times(entry, first, second)}"])
        return lines


def times(*factors: str) -> str:
    return "*".join(in_product(each) for each in factors if each != "1")


def unpacking(names: list[str]) -> str:
    return ", ".join(names) if len(names) > 1 else f"({names[0]},)"


def below(a: Variable, b: Variable) -> bool:
    """Return whether the place of a is known to precede that of b."""
    if a.of.start != b.of.start:
        return a.of.start < b.of.start
    apart = sympy.expand(b.place - a.place)
    return a.loop is None and b.loop is None and bool(apart.is_Integer and apart > 0)


def over(index: Symbol, first: Expr, last: Expr) -> str:
    begin = "" if first == 0 else f"{code(first)}, "
    return f"for {index} in range({begin}{code(last + 1)}):"


def nested(heads: Sequence[str], lines: Sequence[str]) -> list[str]:
    found = ["    " * len(heads) + line for line in lines]
    return ["    " * depth + head for depth, head in enumerate(heads)] + found


def in_product(text: str) -> str:
    """Add brackets to a sum, a quotient or a signed expression."""
    return text if re.fullmatch(r"[\w.]+(\[[^\[\]]*\])?|\w+\([^()]*\)", text) else f"({text})"


def broken(lines: Iterable[str]) -> list[str]:
    """Split long lines at blanks within brackets."""
    found: list[str] = []
    for line in lines:
        indent = line[: len(line) - len(line.lstrip())]
        adds = next((each for each in (" += ", " -= ") if each in line), "")
        left, equals, right = line.partition(adds) if adds else line.rpartition(" = ")
        if len(line) <= WIDTH or not equals or "    for " in line:
            found.append(line)
            continue
        inner = textwrap.wrap(right, WIDTH - len(indent) - 4, break_long_words=False, break_on_hyphens=False)
        found += [f"{left}{equals}(", *(f"{indent}    {each}" for each in inner), f"{indent})"]
    return found
