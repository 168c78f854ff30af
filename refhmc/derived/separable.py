"""A log density as sums of terms in few variables each, and the derivatives of such a sum.

    L(q) = sum_g sum_i f_g(v_1, ..., v_k; data_i)

A *term* f_g is an expression in its *variables* v_a. A variable is a coordinate, an entry of a vector of coordinates whose
index depends on the row (``theta[i]``, ``x[i - 1]``, ``theta[group[i]]``), or a linear form, as
``Sum(X[i, j] * beta[j], (j, 0, d - 1))``. All of them are linear in q: v_a = sum_s c_as q_s, where s runs over the places p_a
(one, or those of the form). So, the sums over g and i understood,

    gradient: f_a at p_a        hessian: f_ab at (p_a, p_b)        third: f_abc at (p_a, p_b, p_c)        each times the c's
    trace(M): sum_ab f_abc M_ab at p_c,        M_ab = sum_st c_as c_bt M_st

f_a, f_ab, f_abc are SymPy's derivatives by the variables, few however many rows and coordinates there are. (Griewank and Toint
1982 call this partial separability.)
"""

from __future__ import annotations

import itertools
import keyword
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import sympy
from sympy import Expr, Indexed, IndexedBase, Sum, Symbol

from refhmc.core.data import from_table
from refhmc.derived.stable import expit, expm1, log1p, logaddexp, softplus, stable
from refhmc.errors import ModelError

# SymPy's functions that a text can have, by their names in NumPy, Python's ``math`` or refhmc.
FUNCTIONS: dict[Any, str] = {
    **{getattr(sympy, name): name for name in ("exp", "log", "sin", "cos", "tan", "sinh", "cosh", "tanh")},
    **{getattr(sympy, f"a{name}"): f"arc{name}" for name in ("sin", "cos", "tan", "sinh", "cosh", "tanh")},
    **{sympy.Abs: "abs", sympy.erf: "erf", sympy.erfc: "erfc", sympy.gamma: "gamma", sympy.loggamma: "lgamma"},
    **{sympy.polygamma: "polygamma", expit: "expit", softplus: "softplus", logaddexp: "logaddexp"},
    **{log1p: "log1p", expm1: "expm1"},
}
# Assumptions of SymPy's that imply others, the strongest first.
TELLING = (
    *("prime", "composite", "zero", "even", "odd", "positive", "negative", "nonnegative", "nonpositive", "integer"),
    *("rational", "irrational", "nonzero", "imaginary", "infinite"),
)
NOT_SMOOTH = (sympy.Abs, sympy.sign, sympy.Heaviside, sympy.Piecewise, sympy.Max, sympy.Min, sympy.floor, sympy.ceiling)
# Names that the generated text has of its own.
TAKEN = {*FUNCTIONS.values(), "q", "data", "out", "M", "L", "sqrt", "pi", "np", "range", "len"}


class Loop(NamedTuple):
    """``index`` from ``first`` to ``last``, both included."""

    index: Symbol
    first: Expr
    last: Expr


class Coordinate(NamedTuple):
    """A coordinate, or a vector of ``size`` of them, from ``start`` on in q. ``symbol``: the text's; ``name``: the user's."""

    symbol: Any  # a Symbol or an IndexedBase
    start: int
    size: int | None
    name: str

    @property
    def stop(self) -> int:
        return self.start + (1 if self.size is None else self.size)


class Variable(NamedTuple):
    """``coefficient`` q[``place``], summed over ``loop`` where that is not None. ``of``: the coordinate it belongs to."""

    symbol: Symbol
    value: Expr
    of: Coordinate
    place: Expr
    coefficient: Expr = sympy.Integer(1)
    loop: Loop | None = None


class Group(NamedTuple):
    """One term for each turn of the ``loops``, the first being the outermost; for no loops, one. ``reads``: the data in it."""

    loops: tuple[Loop, ...]
    term: Expr
    variables: tuple[Variable, ...]
    reads: tuple[tuple[Symbol, Expr], ...]


class Density(NamedTuple):
    """``lengths``: number of rows by its name, with the text that takes it from the data."""

    formula: str
    coordinates: tuple[Coordinate, ...]
    data: dict[str, Any]
    lengths: dict[str, str]
    groups: tuple[Group, ...]

    @property
    def dim(self) -> int:
        return self.coordinates[-1].stop

    @property
    def names(self) -> list[str]:
        """``mu``, ``theta[0]``, ``theta[1]``, ..."""
        found = []
        for c in self.coordinates:
            found += [c.name] if c.size is None else [f"{c.name}[{j}]" for j in range(c.size)]
        return found


# ------------------------------------------------------------------------------------------------------------- reading


def read(expression: Any, coordinates: Sequence | None, data: Mapping[str, Any] | None) -> Density:
    """The density that the expression is. Raises ModelError for what is not understood, ShapeError for data that do not fit."""
    if not isinstance(expression, Expr) or isinstance(expression, sympy.MatrixExpr):
        raise ModelError(f"expression must be a SymPy expression of a number, got {type(expression).__name__}")
    if expression.has(sympy.I, sympy.zoo, sympy.nan, sympy.oo, -sympy.oo):
        raise ModelError(f"expression must be a finite real number for real coordinates, got {expression}")
    if not isinstance(data, Mapping | None):
        raise ModelError(f"data must be a dictionary of numbers and arrays by name, got {type(data).__name__}")
    given = {str(key.label if isinstance(key, IndexedBase) else key): value for key, value in (data or {}).items()}
    clean, renamed = renaming(expression, given)
    values = {renamed.get(name, name): value for name, value in given.items()}
    original = {new: name for name, new in renamed.items()}
    indices = {str(each) for s in clean.atoms(Sum) for each, *_ in s.limits}
    for name in sorted(indices & {str(each) for each in clean.free_symbols}):
        raise ModelError(
            f"expression: {original.get(name, name)} is the index of a Sum, and stands outside of it, too: write what it "
            "belongs to within the Sum, or give one of the two another name"
        )
    free = names_in(clean) - indices
    lengths = {name for s in clean.atoms(Sum) for _, *ends in s.limits for name in names_in(sympy.Tuple(*ends))}
    lengths -= indices | set(values)
    all_coordinates = listed(coordinates, free - set(values) - lengths, clean, renamed)
    check_assumptions(expression, coordinates, {c.name for c in all_coordinates})
    known = {str(c.symbol) for c in all_coordinates}

    def listing(names: list[str]) -> str:
        return ", ".join(original.get(name, name) for name in names)

    both = sorted(known & set(values))
    if both:
        raise ModelError(f"data: {listing(both)} is a coordinate as well; a symbol is one of the two")
    unknown = sorted(free - known - set(values) - lengths)
    if unknown:
        raise ModelError(
            f"expression: {listing(unknown)} is neither a coordinate ({listing(sorted(known))}) nor in data "
            f"({listing(sorted(values)) or 'none is given'})"
        )
    absent = sorted((known | set(values)) - free)
    if absent:
        what = "the density does not depend on it" if set(absent) & known else "the expression does not have it"
        raise ModelError(f"expression: {listing(absent)} is given, but {what}: leave it out, or correct its name")
    reader = Reader(all_coordinates, values, lengths, clean)
    return reader.density(clean, str(expression))


def check_assumptions(expression: Expr, coordinates: Any, names: set[str]) -> None:
    """Raise ModelError for a coordinate that is declared to be more than real: SymPy has simplified under what it is told."""
    given = coordinates if isinstance(coordinates, list | tuple) else [coordinates]
    declared = [each for each in given if isinstance(each, Symbol | IndexedBase)]
    real = Symbol("x", real=True).assumptions0
    for each in sorted((*declared, *expression.atoms(Symbol, IndexedBase)), key=str):
        name = str(each.label if isinstance(each, IndexedBase) else each)
        told = {key: is_so for key, is_so in each.assumptions0.items() if real.get(key) is not is_so}
        if name not in names or not told or is_index(name, expression):  # of an index out of place the reader says more
            continue
        word = next((key for key in TELLING if told.get(key)), None)
        word = word or next((f"not {key}" for key in reversed(TELLING) if key in told), "otherwise than real")
        advice = f"write {name} = exp(log_{name}) and add the Jacobian log_{name}, or use refhmc.Parameters"
        if word != "positive":
            advice = f"write {name} as a function of a real symbol and add its Jacobian, or use refhmc.Parameters"
        if told.get("integer"):
            advice = "sum it out, or write the density as a refhmc.Model with `discontinuous`, for refhmc.DHMC"
        raise ModelError(f"coordinates: {name} is declared {word}; coordinates are real and unconstrained: {advice}")


def names_in(expression: Any) -> set[str]:
    """The names of symbols and of indexed bases, those of indices included."""
    return {str(each) for each in expression.atoms(Symbol)}


def renaming(expression: Expr, data: Mapping[str, Any]) -> tuple[Expr, dict[str, str]]:
    """The expression with real symbols whose names a Python text can have, each its own; and those that are renamed."""
    renamed: dict[str, str] = {}
    symbols = sorted(expression.atoms(Symbol), key=str)
    names = {str(each) for each in symbols}
    for name in sorted(names):
        new = re.sub(r"\W", "_", name).strip("_") or "x"
        new = f"x{new}" if new[0].isdigit() else new
        while keyword.iskeyword(new) or new in TAKEN or (new != name and new in names | set(renamed.values())):
            new += "_"
        if new != name:
            renamed[name] = new
    twice = sorted(name for name in names if sum(str(each) == name for each in symbols) > 1)
    labels = {str(base.label) for base in expression.atoms(IndexedBase)}
    for name in twice:
        kinds = {bool(s.is_integer) for s in symbols if str(s) == name}
        if len(kinds) > 1 and name not in labels:
            raise ModelError(
                f"expression: there are two symbols named {name} with different assumptions; make it once, and use that"
            )
    integers = {str(each) for s in expression.atoms(Sum) for limit in s.limits for each in limit[0].atoms(Symbol)}

    def clean(e: Any) -> Any:
        if isinstance(e, Symbol):
            name = str(e)
            kind = {"integer": True} if name in integers else {"real": True}
            return Symbol(renamed.get(name, name), **kind)
        if isinstance(e, IndexedBase):
            name = str(e.label)
            return IndexedBase(renamed.get(name, name), shape=e.shape)
        if isinstance(e, Indexed):
            return Indexed(clean(e.base), *map(clean, e.indices))
        if isinstance(e, Sum):
            return Sum(clean(e.function), *(sympy.Tuple(*map(clean, limit)) for limit in e.limits))
        return e.func(*map(clean, e.args)) if e.args else e

    return clean(expression), renamed


def listed(coordinates: Sequence | None, found: set[str], expression: Expr, renamed: dict) -> tuple[Coordinate, ...]:
    """The coordinates in their order, with their places; by default those found, in the order of the alphabet."""
    bases = {str(base.label): base for base in expression.atoms(IndexedBase)}
    if coordinates is None:
        names: list[tuple[str, Any]] = [(name, bases.get(name)) for name in sorted(found)]
    else:
        given = coordinates if isinstance(coordinates, list | tuple) else [coordinates]
        names = []
        for each in given:
            label = str(each.label if isinstance(each, IndexedBase) else each)
            name = renamed.get(label, label)
            names.append((name, each if isinstance(each, IndexedBase) else bases.get(name)))
    if not names:
        raise ModelError("expression: it has no symbol that is not data; there is nothing to sample")
    original = {new: name for name, new in renamed.items()}
    if len({name for name, _ in names}) < len(names):
        raise ModelError(
            f"coordinates: each is to be named once, got {[original.get(name, name) for name, _ in names]}"
        )
    placed, start = [], 0
    for name, base in names:
        size, label = None, original.get(name, name)
        if base is not None:
            if base.shape is None or len(base.shape) != 1 or not base.shape[0].is_Integer:
                raise ModelError(
                    f"coordinates: {label} has an index, and is not in data. A vector of coordinates says its length: "
                    f"IndexedBase({label!r}, shape=(8,)), with one index"
                )
            size = int(base.shape[0])
        kind = Symbol(name, real=True) if base is None else IndexedBase(name, shape=base.shape)
        placed.append(Coordinate(kind, start, size, label))
        start = placed[-1].stop
    return tuple(placed)


class Reader:
    """Takes an expression apart."""

    def __init__(self, coordinates: tuple[Coordinate, ...], data: dict, lengths: set[str], expression: Expr) -> None:
        self.coordinates = {str(c.symbol): c for c in coordinates}
        self.data = {name: as_array(name, value, is_index(name, expression)) for name, value in data.items()}
        self.indices = {str(limit[0]) for s in expression.atoms(Sum) for limit in s.limits}
        self.lengths: dict[str, int] = {}
        self.taken_from: dict[str, str] = {}
        for name in sorted(lengths):
            self.lengths[name], self.taken_from[name] = self.length(name, expression)
        for each in sorted(expression.atoms(Indexed), key=str):
            self.examine(each)
        for name in sorted(names_without_index(expression) & set(self.data)):
            if self.data[name].ndim:
                raise ModelError(
                    f"data: {name} is an array of shape {self.data[name].shape}, and has no index in the expression; write "
                    f"IndexedBase({name!r})[i] in a Sum over i"
                )

    # -- data and their lengths

    def length(self, name: str, expression: Expr) -> tuple[int, str]:
        """How many there are of what an index runs over to ``name`` - 1; and the text that takes it from the data."""
        found: dict[str, int] = {}
        for s in expression.atoms(Sum):
            for index, *ends in s.limits:
                if ends[-1] != Symbol(name, real=True) - 1:
                    continue
                for each in s.function.atoms(Indexed):
                    for axis, at in enumerate(each.indices):
                        if at == index:
                            found |= self.length_of(str(each.base.label), axis)
        if not found:
            raise ModelError(
                f"expression: {name}, in the limits of a sum, is not known: let the sum run to {name} - 1 over rows of "
                "data, or give it in data"
            )
        if len(set(found.values())) > 1:
            given = ", ".join(f"{text} is {n}" for text, n in sorted(found.items()))
            raise ModelError(f"data: {name} is the number of rows, of which there must be equally many: {given}")
        text, n = next((each for each in sorted(found.items()) if not each[0].isdigit()), next(iter(found.items())))
        return n, text

    def length_of(self, name: str, axis: int) -> dict[str, int]:
        if name in self.coordinates:
            size = self.coordinates[name].size
            return {} if size is None else {str(size): size}
        array = self.data[name]
        return {f"{name}.shape[{axis}]": array.shape[axis]} if axis < array.ndim else {}

    def examine(self, each: Indexed) -> None:
        name = str(each.base.label)
        axes = 1 if name in self.coordinates else self.data[name].ndim
        if len(each.indices) != axes:
            raise ModelError(f"data: {each} has {len(each.indices)} indices, {name} has {axes} axes")

    def examine_places(self, expression: Expr, loops: Sequence[Loop]) -> None:
        """Raise ModelError where an index leaves its array: compiled code would read what lies beside it."""
        rows = self.rows(loops)
        for each in sorted(expression.atoms(Indexed), key=str):
            name = str(each.base.label)
            shape = (self.coordinates[name].size,) if name in self.coordinates else self.data[name].shape
            for at, n in zip(each.indices, shape, strict=True):
                places = np.asarray(self.evaluate(at, rows))
                if places.size and not (places.min() >= 0 and places.max() < n):
                    worst = places.min() if places.min() < 0 else places.max()
                    raise ModelError(
                        f"expression: {each} reads {name}[{worst}], of which there are {n}, counted from 0; the sum runs over "
                        + ", ".join(f"{i} = {first} ... {last}" for i, first, last in loops)
                    )

    def rows(self, loops: Sequence[Loop]) -> dict[str, np.ndarray]:
        """The values of the indices in all turns of the loops."""
        rows: dict[str, np.ndarray] = {}
        for index, first, last in loops:
            begin, end = self.evaluate(first, rows), self.evaluate(last, rows)
            n = len(next(iter(rows.values()))) if rows else 1
            many, begin = np.broadcast_to(np.maximum(0, end - begin + 1), n), np.broadcast_to(begin, n)
            rows = {name: np.repeat(values, many) for name, values in rows.items()}
            starts = np.repeat(np.cumsum(many) - many, many)
            rows[str(index)] = np.arange(many.sum()) - starts + np.repeat(begin, many)
        return rows

    def evaluate(self, expression: Expr, rows: Mapping[str, np.ndarray]) -> Any:
        """An index in whole numbers: of loops' indices, lengths, whole numbers in the data."""
        if expression.is_Integer:
            return int(expression)
        if isinstance(expression, Symbol):
            name = str(expression)
            value: Any = rows[name] if name in rows else self.lengths.get(name, self.data.get(name))
            if value is not None and np.asarray(value).dtype.kind == "i":
                return value
        if isinstance(expression, Indexed) and str(expression.base.label) in self.data:
            array = self.data[str(expression.base.label)]
            places = tuple(self.evaluate(at, rows) for at in expression.indices)
            for at, n in zip(places, array.shape, strict=True):
                if np.size(at) and not (np.min(at) >= 0 and np.max(at) < n):
                    raise ModelError(f"expression: {expression} leaves its array, of which there are {n}")
            if array.dtype.kind == "i":
                return array[places]
        if expression.is_Add or expression.is_Mul:
            total, *others = (self.evaluate(each, rows) for each in expression.args)
            for each in others:
                total = total + each if expression.is_Add else total * each
            return total
        raise ModelError(
            f"expression: the index or limit {expression} must be made of indices of the sums around it, lengths and whole "
            "numbers in data"
        )

    # -- sums

    def density(self, expression: Expr, formula: str) -> Density:
        self.forms: dict[Sum, list[Variable]] = {}
        self.named: dict[Expr, Symbol] = {}
        self.given_away: set[str] = set()
        merged: dict[tuple[Loop, ...], Expr] = {}
        for loops, term in self.terms(expression, sympy.Integer(1), ()):
            merged[loops] = merged.get(loops, sympy.Integer(0)) + term
        groups = [self.group(loops, term) for loops, term in sorted(merged.items(), key=lambda item: len(item[0]) > 0)]
        coordinates = tuple(self.coordinates.values())
        return Density(formula, coordinates, self.data, self.taken_from, tuple(groups))

    def terms(self, e: Expr, factor: Expr, loops: tuple[Loop, ...]) -> Iterator[tuple[tuple[Loop, ...], Expr]]:
        """The terms of which e times the factor is the sum, each with its loops."""
        if isinstance(e, Sum) and not (loops and self.is_form(e)):
            inner = tuple(Loop(*limit) for limit in reversed(e.limits))
            if any(index in [each.index for each in loops] for index, *_ in inner):
                raise ModelError(
                    f"expression: a sum within another over {inner[0].index} needs an index of its own: {e}"
                )
            yield from self.terms(e.function, factor, loops + inner)
        elif e.is_Add and e.has(Sum):
            for each in e.args:
                yield from self.terms(each, factor, loops)
        elif self.has_no_rows(e):
            yield loops, factor * e
        elif e.is_Mul and sum(not self.has_no_rows(each) for each in e.args) == 1:
            others = [each for each in e.args if self.has_no_rows(each)]
            (rows,) = [each for each in e.args if each not in others]
            yield from self.terms(rows, factor * sympy.Mul(*others), loops)
        else:
            raise ModelError(
                f"expression: a log density is a sum of terms, and here is a function of a sum over rows: {e}. "
                "Within another function a Sum must be linear in coordinates, as Sum(X[i, j] * beta[j], (j, 0, d - 1)); "
                "write others out"
            )

    def has_no_rows(self, e: Expr) -> bool:
        """Whether each sum in it is a linear form. (They are named in this order.)"""
        return all([self.is_form(s) for s in sorted(e.atoms(Sum), key=str)])

    def is_form(self, e: Sum) -> bool:
        return bool(self.forms_of(e))

    def forms_of(self, e: Sum) -> list[Variable]:
        """The linear forms that a sum over one index is, one for each coordinate in it; none where it is not linear."""
        if e in self.forms:
            return self.forms[e]
        self.forms[e] = []
        if len(e.limits) == 1 and not e.function.has(Sum):
            entries = self.coordinates_in(e.function)
            stand_ins = {entry: sympy.Dummy() for entry in entries}
            term = e.function.xreplace(stand_ins)
            coefficients = {entry: sympy.diff(term, each) for entry, each in stand_ins.items()}
            linear = not any(c.has(*stand_ins.values()) for c in coefficients.values())
            if entries and linear and term.xreplace(dict.fromkeys(stand_ins.values(), sympy.Integer(0))) == 0:
                self.forms[e] = [self.form(entry, c, Loop(*e.limits[0])) for entry, c in coefficients.items()]
        return self.forms[e]

    def form(self, entry: Expr, coefficient: Expr, loop: Loop) -> Variable:
        place = self.place(entry)
        return Variable(self.new_name("eta"), coefficient * entry, place[0], place[1], coefficient, loop)

    def name_of(self, entry: Expr) -> Symbol:
        """What an entry of a vector or of data is called, in every group."""
        if entry not in self.named:
            self.named[entry] = self.new_name(flat(entry))
        return self.named[entry]

    def new_name(self, name: str) -> Symbol:
        k, found = 0, name
        while found in {*self.given_away, *self.coordinates, *self.data, *self.lengths, *self.indices}:
            k, found = k + 1, f"{name}_{k}"
        self.given_away.add(found)
        return Symbol(found, real=True)

    # -- terms

    def coordinates_in(self, e: Expr) -> list[Expr]:
        """Coordinates and entries of vectors, in their order."""
        found = [s for s in e.atoms(Symbol) if str(s) in self.coordinates and self.coordinates[str(s)].size is None]
        found += [s for s in e.atoms(Indexed) if str(s.base.label) in self.coordinates]
        return sorted(found, key=lambda s: (self.place(s)[0].start, str(s)))

    def place(self, entry: Expr) -> tuple[Coordinate, Expr]:
        if isinstance(entry, Symbol):
            c = self.coordinates[str(entry)]
            return c, sympy.Integer(c.start)
        c = self.coordinates[str(entry.base.label)]
        return c, c.start + entry.indices[0]

    def group(self, loops: tuple[Loop, ...], term: Expr) -> Group:
        variables: list[Variable] = []
        for s in sorted(term.atoms(Sum), key=str):
            forms = self.forms_of(s)
            for each in forms:
                stand_ins = {e: sympy.Dummy() for e in each.coefficient.atoms(Indexed)}
                self.examine_functions(each.coefficient.xreplace(stand_ins), [])
                assert each.loop is not None
                if each.loop.index in [loop.index for loop in loops]:
                    raise ModelError(f"expression: the sum within another needs an index of its own: {s}")
                self.examine_places(each.value, (*loops, each.loop))
            variables += forms
            term = term.xreplace({s: sympy.Add(*(each.symbol for each in forms))})
        self.examine_places(term, loops)
        entries = self.coordinates_in(term)
        names: dict[Expr, Symbol] = {}
        for entry in entries:
            names[entry] = entry if isinstance(entry, Symbol) else self.name_of(entry)
        variables = [Variable(names[e], e, *self.place(e)) for e in entries] + variables
        term = term.xreplace({e: s for e, s in names.items() if e != s})
        inner = [each for each in term.atoms(Indexed)]
        reads = [(self.name_of(each), each) for each in sorted(inner, key=str)]
        outermost = {each: name for name, each in reads}
        term = stable(term.xreplace(outermost))
        self.examine_functions(term, [v.symbol for v in variables])
        used = term.atoms(Symbol)
        return Group(loops, term, tuple(variables), tuple(each for each in reads if each[0] in used))

    def examine_functions(self, term: Expr, symbols: list[Symbol]) -> None:
        for kind in sorted({e.func for e in term.atoms(sympy.Function, *NOT_SMOOTH)}, key=str):
            depends = any(e.func is kind and e.has(*symbols) for e in term.atoms(kind))
            if kind in NOT_SMOOTH and depends:
                raise ModelError(
                    f"expression: {kind.__name__} of a coordinate has no smooth derivatives. Write it smoothly (sqrt(x**2 + e) "
                    "for |x|), or the density as a refhmc.Model with `discontinuous`, for refhmc.DHMC"
                )
            if kind not in FUNCTIONS:
                known = ", ".join(sorted(each.__name__ for each in FUNCTIONS))
                raise ModelError(f"expression: the function {kind} is not known; known are sqrt, {known}")
        known_nodes = (sympy.Add, sympy.Mul, sympy.Pow, sympy.Function, Symbol, sympy.Number, sympy.NumberSymbol)
        for e in sympy.preorder_traversal(term):
            if not isinstance(e, known_nodes):
                raise ModelError(f"expression: {type(e).__name__} is not understood: {e}")


def names_without_index(expression: Expr) -> set[str]:
    """The names of the symbols that stand for themselves, not for an indexed base."""
    if isinstance(expression, Symbol):
        return {str(expression)}
    inner = expression.indices if isinstance(expression, Indexed) else expression.args
    return set().union(*map(names_without_index, inner))


def flat(entry: Expr) -> str:
    """``theta_group_i`` for theta[group[i]], ``x_i_minus_1`` for x[i - 1]"""
    text = str(entry).replace("-", " minus ").replace("+", " plus ")
    return "_".join(re.findall(r"\w+", text))


def is_index(name: str, expression: Expr) -> bool:
    """Whether the data of that name are used as an index or a limit."""
    indices = [at for each in expression.atoms(Indexed) for at in each.indices]
    ends = [end for s in expression.atoms(Sum) for _, *ends in s.limits for end in ends]
    return any(name in names_in(each) for each in (*indices, *ends))


def as_array(name: str, value: Any, whole: bool) -> np.ndarray:
    array = np.asarray(from_table(f"data: {name}", value, ModelError))
    if array.dtype.kind not in "iufb" or array.ndim > 3:
        raise ModelError(
            f"data: {name} must be a number or an array of real numbers with at most 3 axes, got {value!r}"
        )
    if whole:
        if array.dtype.kind == "f" and not (array == np.round(array)).all():
            raise ModelError(f"data: {name} is used as an index, and must hold whole numbers")
        return array.astype(np.int64)
    array = array.astype(float)
    if not np.isfinite(array).all():
        raise ModelError(f"data: {name} must be finite; leave rows out that are missing, or make them coordinates")
    return array


# --------------------------------------------------------------------------------------------------------- derivatives

Weights = dict[tuple[Variable, ...], Expr]


def derivatives(group: Group, order: int) -> Weights:
    """f_a, f_ab or f_abc by (a), (a, b) or (a, b, c) in the variables' order, without those that are zero."""
    found: Weights = {(): group.term}
    for _ in range(order):
        later: Weights = {}
        for key, weight in found.items():
            first = group.variables.index(key[-1]) if key else 0
            for v in group.variables[first:]:
                further = sympy.factor_terms(sympy.diff(weight, v.symbol))
                further = stable(further) if further.has(sympy.tanh) else further
                if further != 0:
                    later[(*key, v)] = further
        found = later
    for weight in found.values():
        if weight.has(sympy.Derivative, sympy.Subs, sympy.DiracDelta, sympy.sign, sympy.Heaviside):
            raise ModelError(f"expression: SymPy knows no smooth derivative of {group.term}")
    return found


def orders(key: Sequence[Variable]) -> list[tuple[Variable, ...]]:
    """The different orders of these variables."""
    return list(dict.fromkeys(itertools.permutations(key)))
