"""A log density as a sum of terms in few variables each, and the derivatives of this sum.

::

    L(q) = sum_g sum_i f_g(v_1, ..., v_k; data_i)

A *term* f_g is an expression in its *variables* v_a. A variable is a coordinate, an entry of a vector of coordinates whose
index depends on the row (``theta[i]``, ``x[i - 1]``, ``theta[group[i]]``), or a linear form such as ``Sum(X[i, j] * beta[j],
(j, 0, d - 1))``. All are linear in q: v_a = sum_s c_as q_s, where s runs over the places p_a (one, or those of the form).
With the sums over g and i implied ::

    gradient: f_a at p_a        hessian: f_ab at (p_a, p_b)        third: f_abc at (p_a, p_b, p_c)        each times the c's
    hessian_contraction(M): sum_ab f_abc M_ab at p_c,        M_ab = sum_st c_as c_bt M_st

f_a, f_ab and f_abc are SymPy's derivatives by the variables. There are few of them, whatever the number of rows and
coordinates. (Griewank and Toint 1982 call this partial separability.)
"""

from __future__ import annotations

import itertools
import keyword
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import sympy
from numpy.typing import ArrayLike
from sympy import Basic, Expr, Function, Indexed, IndexedBase, Sum, Symbol

from refhmc.core.data import from_table
from refhmc.derived.stable import expit, expm1, log1p, logaddexp, softplus, stable
from refhmc.errors import ModelError

# SymPy functions available to generated code, with their names in NumPy, Python's ``math`` or refhmc.
FUNCTIONS: dict[type[Function], str] = {
    **{getattr(sympy, name): name for name in ("exp", "log", "sin", "cos", "tan", "sinh", "cosh", "tanh")},
    **{getattr(sympy, f"a{name}"): f"arc{name}" for name in ("sin", "cos", "tan", "sinh", "cosh", "tanh")},
    **{sympy.Abs: "abs", sympy.erf: "erf", sympy.erfc: "erfc", sympy.gamma: "gamma", sympy.loggamma: "lgamma"},
    **{sympy.polygamma: "polygamma", expit: "expit", softplus: "softplus", logaddexp: "logaddexp"},
    **{log1p: "log1p", expm1: "expm1"},
}
# SymPy's assumptions that imply others, strongest first.
TELLING = (
    *("prime", "composite", "zero", "even", "odd", "positive", "negative", "nonnegative", "nonpositive", "integer"),
    *("rational", "irrational", "nonzero", "imaginary", "infinite"),
)
NOT_SMOOTH = (sympy.Abs, sympy.sign, sympy.Heaviside, sympy.Piecewise, sympy.Max, sympy.Min, sympy.floor, sympy.ceiling)
# Names that the generated code uses itself.
TAKEN = {*FUNCTIONS.values(), "q", "data", "out", "M", "L", "sqrt", "pi", "np", "range", "len"}


class Loop(NamedTuple):
    """The range of ``index`` from ``first`` to ``last``, both included."""

    index: Symbol
    first: Expr
    last: Expr


class Coordinate(NamedTuple):
    """A coordinate, or a vector of ``size``, at ``start`` in q, with ``symbol`` in the code and the user's ``name``."""

    symbol: Symbol | IndexedBase
    start: int
    size: int | None
    name: str

    @property
    def stop(self) -> int:
        return self.start + (1 if self.size is None else self.size)


class Variable(NamedTuple):
    """``coefficient`` q[``place``], summed over ``loop`` if that is not None, and ``of``, the coordinate it belongs to."""

    symbol: Symbol
    value: Expr
    of: Coordinate
    place: Expr
    coefficient: Expr = sympy.Integer(1)
    loop: Loop | None = None


class Group(NamedTuple):
    """One term per turn of the ``loops``, outermost first, or one without loops; ``reads`` are its data."""

    loops: tuple[Loop, ...]
    term: Expr
    variables: tuple[Variable, ...]
    reads: tuple[tuple[Symbol, Expr], ...]


class Density(NamedTuple):
    """The parts of a density; ``lengths`` maps the name of a number of rows to the code that takes it from the data."""

    formula: str
    coordinates: tuple[Coordinate, ...]
    data: dict[str, np.ndarray]
    lengths: dict[str, str]
    groups: tuple[Group, ...]

    @property
    def dim(self) -> int:
        return self.coordinates[-1].stop

    @property
    def names(self) -> list[str]:
        """The names of the coordinates: ``mu``, ``theta[0]``, ``theta[1]``, ..."""
        found = []
        for c in self.coordinates:
            found += [c.name] if c.size is None else [f"{c.name}[{j}]" for j in range(c.size)]
        return found


# ------------------------------------------------------------------------------------------------------------- reading


def read(
    expression: object, coordinates: Sequence | None, data: Mapping[str | IndexedBase, ArrayLike] | None
) -> Density:
    """Return the density of an expression. Raises ModelError or ShapeError for invalid expressions or data."""
    if not isinstance(expression, Expr) or isinstance(expression, sympy.MatrixExpr):
        raise ModelError(f"expression must be a scalar SymPy expression; got {type(expression).__name__}.")
    if expression.has(sympy.I, sympy.zoo, sympy.nan, sympy.oo, -sympy.oo):
        raise ModelError(f"expression must be a finite real number for real coordinates; got {expression}.")
    if not isinstance(data, Mapping | None):
        raise ModelError(f"data must be a dictionary of numbers and arrays by name; got {type(data).__name__}.")
    given = {str(key.label if isinstance(key, IndexedBase) else key): value for key, value in (data or {}).items()}
    clean, renamed = renaming(expression, given)
    values = {renamed.get(name, name): value for name, value in given.items()}
    original = {new: name for name, new in renamed.items()}
    indices = {str(each) for s in clean.atoms(Sum) for each, *_ in s.limits}
    for name in sorted(indices & {str(each) for each in clean.free_symbols}):
        raise ModelError(
            f"expression must not contain the index {original.get(name, name)} of a Sum outside this Sum. Move the term into "
            "the Sum, or rename one of the two."
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
        raise ModelError(
            f"data must not contain coordinates; got {listing(both)}. Remove it from data or from coordinates."
        )
    unknown = sorted(free - known - set(values) - lengths)
    if unknown:
        raise ModelError(
            f"expression must consist of coordinates ({listing(sorted(known))}) and data "
            f"({listing(sorted(values)) or 'none given'}); {listing(unknown)} is neither."
        )
    absent = sorted((known | set(values)) - free)
    if absent:
        what = "coordinates" if set(absent) & known else "data"
        raise ModelError(
            f"expression must contain all {what}; it lacks {listing(absent)}. Remove it, or correct its name."
        )
    reader = Reader(all_coordinates, values, lengths, clean)
    return reader.density(clean, str(expression))


def check_assumptions(expression: Expr, coordinates: Sequence | Basic | None, names: set[str]) -> None:
    """Raise ModelError for a coordinate with assumptions beyond real: SymPy has used them to simplify."""
    given = coordinates if isinstance(coordinates, list | tuple) else [coordinates]
    declared = [each for each in given if isinstance(each, Symbol | IndexedBase)]
    real = Symbol("x", real=True).assumptions0
    for each in sorted((*declared, *expression.atoms(Symbol, IndexedBase)), key=str):
        name = str(each.label if isinstance(each, IndexedBase) else each)
        declared_so = {key: is_so for key, is_so in each.assumptions0.items() if real.get(key) is not is_so}
        if (
            name not in names or not declared_so or is_index(name, expression)
        ):  # the reader reports a misplaced index in more detail
            continue
        word = next((key for key in TELLING if declared_so.get(key)), None)
        word = word or next(
            (f"not {key}" for key in reversed(TELLING) if key in declared_so), "with other assumptions than real"
        )
        advice = f"Write {name} = exp(log_{name}) and add the log-Jacobian log_{name}, or use refhmc.Parameters"
        if word != "positive":
            advice = f"Write {name} as a function of a real symbol and add the log-Jacobian, or use refhmc.Parameters"
        if declared_so.get("integer"):
            advice = "Sum it out, or write the density as a refhmc.Model with `discontinuous` for refhmc.DHMC"
        raise ModelError(f"coordinates must be real and unconstrained; {name} is declared {word}. {advice}.")


def names_in(expression: Basic) -> set[str]:
    """Return the names of symbols and of indexed bases, including indices."""
    return {str(each) for each in expression.atoms(Symbol)}


def renaming(expression: Expr, data: Mapping[str, ArrayLike]) -> tuple[Expr, dict[str, str]]:
    """Return the expression with real symbols whose names are valid and unique in Python, and the renamed names."""
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
                f"expression must not contain two symbols named {name} with different assumptions. Create the symbol once."
            )
    integers = {str(each) for s in expression.atoms(Sum) for limit in s.limits for each in limit[0].atoms(Symbol)}

    def clean(e: Basic) -> Basic:
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
    """Return the coordinates in order, with their places; by default those found, in alphabetical order."""
    bases = {str(base.label): base for base in expression.atoms(IndexedBase)}
    if coordinates is None:
        names: list[tuple[str, IndexedBase | None]] = [(name, bases.get(name)) for name in sorted(found)]
    else:
        given = coordinates if isinstance(coordinates, list | tuple) else [coordinates]
        names = []
        for each in given:
            label = str(each.label if isinstance(each, IndexedBase) else each)
            name = renamed.get(label, label)
            names.append((name, each if isinstance(each, IndexedBase) else bases.get(name)))
    if not names:
        raise ModelError("expression must contain a coordinate to sample; all its symbols are data.")
    original = {new: name for name, new in renamed.items()}
    if len({name for name, _ in names}) < len(names):
        raise ModelError(
            f"coordinates must be different symbols; got {[original.get(name, name) for name, _ in names]}."
        )
    placed, start = [], 0
    for name, base in names:
        size, label = None, original.get(name, name)
        if base is not None:
            if base.shape is None or len(base.shape) != 1 or not base.shape[0].is_Integer:
                raise ModelError(
                    f"coordinates: {label}, which has an index and is not in data, must have a length. Write "
                    f"IndexedBase({label!r}, shape=(8,)), with one index."
                )
            size = int(base.shape[0])
        kind = Symbol(name, real=True) if base is None else IndexedBase(name, shape=base.shape)
        placed.append(Coordinate(kind, start, size, label))
        start = placed[-1].stop
    return tuple(placed)


class Reader:
    """Splits an expression into groups of terms."""

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
                    f"data: {name} must have an index in the expression; got an array of shape {self.data[name].shape}. Write "
                    f"IndexedBase({name!r})[i] in a Sum over i."
                )

    # -- data and their lengths

    def length(self, name: str, expression: Expr) -> tuple[int, str]:
        """Return the number of rows that an index runs over up to ``name`` - 1, and the code that takes it from the data."""
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
                f"expression: the limit {name} of a sum must be in data, or follow from it. Let the sum run to {name} - 1 over "
                "rows of data."
            )
        if len(set(found.values())) > 1:
            given = ", ".join(f"{text} is {n}" for text, n in sorted(found.items()))
            raise ModelError(f"data: {name} must be the same number of rows in all arrays; got {given}.")
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
            raise ModelError(
                f"data: {name} must have one index per axis; got {len(each.indices)} in {each} for {axes} axes."
            )

    def examine_places(self, expression: Expr, loops: Sequence[Loop]) -> None:
        """Raise ModelError if an index leaves its array: compiled code would read other memory."""
        rows = self.rows(loops)
        for each in sorted(expression.atoms(Indexed), key=str):
            name = str(each.base.label)
            shape = (self.coordinates[name].size,) if name in self.coordinates else self.data[name].shape
            for at, n in zip(each.indices, shape, strict=True):
                places = np.asarray(self.evaluate(at, rows))
                if places.size and not (places.min() >= 0 and places.max() < n):
                    worst = places.min() if places.min() < 0 else places.max()
                    raise ModelError(
                        f"expression: an index of {name} must lie in [0, {n - 1}]; {each} reads {name}[{worst}] for "
                        + ", ".join(f"{i} = {first} ... {last}" for i, first, last in loops)
                        + "."
                    )

    def rows(self, loops: Sequence[Loop]) -> dict[str, np.ndarray]:
        """Return the values of the indices in all turns of the loops."""
        rows: dict[str, np.ndarray] = {}
        for index, first, last in loops:
            begin, end = self.evaluate(first, rows), self.evaluate(last, rows)
            n = len(next(iter(rows.values()))) if rows else 1
            many, begin = np.broadcast_to(np.maximum(0, end - begin + 1), n), np.broadcast_to(begin, n)
            rows = {name: np.repeat(values, many) for name, values in rows.items()}
            starts = np.repeat(np.cumsum(many) - many, many)
            rows[str(index)] = np.arange(many.sum()) - starts + np.repeat(begin, many)
        return rows

    def evaluate(self, expression: Expr, rows: Mapping[str, np.ndarray]) -> int | np.ndarray:
        """Return an index as integers, from indices of loops, lengths and integers in the data."""
        if expression.is_Integer:
            return int(expression)
        if isinstance(expression, Symbol):
            name = str(expression)
            value = rows[name] if name in rows else self.lengths.get(name, self.data.get(name))
            if value is not None and np.asarray(value).dtype.kind == "i":
                return value
        if isinstance(expression, Indexed) and str(expression.base.label) in self.data:
            array = self.data[str(expression.base.label)]
            places = tuple(self.evaluate(at, rows) for at in expression.indices)
            for at, n in zip(places, array.shape, strict=True):
                if np.size(at) and not (np.min(at) >= 0 and np.max(at) < n):
                    raise ModelError(f"expression: {expression} must stay inside its array, which has {n} entries.")
            if array.dtype.kind == "i":
                return array[places]
        if expression.is_Add or expression.is_Mul:
            total, *others = (self.evaluate(each, rows) for each in expression.args)
            for each in others:
                total = total + each if expression.is_Add else total * each
            return total
        raise ModelError(
            f"expression: the index or limit {expression} must consist of indices of the enclosing sums, lengths, and integers "
            "in data."
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
        """Yield the terms that add up to e times the factor, each with its loops."""
        if isinstance(e, Sum) and not (loops and self.is_form(e)):
            inner = tuple(Loop(*limit) for limit in reversed(e.limits))
            if any(index in [each.index for each in loops] for index, *_ in inner):
                raise ModelError(
                    f"expression: a sum inside another over {inner[0].index} must have its own index; got {e}."
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
                f"expression must be a sum of terms; got a function of a sum over rows, {e}. Inside a function, a Sum must be "
                "linear in coordinates, such as Sum(X[i, j] * beta[j], (j, 0, d - 1)). Write out other sums."
            )

    def has_no_rows(self, e: Expr) -> bool:
        """Return whether each sum in it is a linear form; the forms get their names in this order."""
        return all([self.is_form(s) for s in sorted(e.atoms(Sum), key=str)])

    def is_form(self, e: Sum) -> bool:
        return bool(self.forms_of(e))

    def forms_of(self, e: Sum) -> list[Variable]:
        """Return the linear forms of a sum over one index, one per coordinate in it, or none if it is not linear."""
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
        """Return the name of an entry of a vector or of data, the same in every group."""
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
        """Return coordinates and entries of vectors, in order."""
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
                    raise ModelError(f"expression: a sum inside another must have its own index; got {s}.")
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
                    f"expression must be smooth; {kind.__name__} of a coordinate is not. Use a smooth function (sqrt(x**2 + e) "
                    "for |x|), or write the density as a refhmc.Model with `discontinuous` for refhmc.DHMC."
                )
            if kind not in FUNCTIONS:
                known = ", ".join(sorted(each.__name__ for each in FUNCTIONS))
                raise ModelError(f"expression: the function {kind} must be one of sqrt, {known}.")
        known_nodes = (sympy.Add, sympy.Mul, sympy.Pow, sympy.Function, Symbol, sympy.Number, sympy.NumberSymbol)
        for e in sympy.preorder_traversal(term):
            if not isinstance(e, known_nodes):
                raise ModelError(f"expression must not contain {type(e).__name__}; got {e}.")


def names_without_index(expression: Expr) -> set[str]:
    """Return the names of symbols that do not belong to an indexed base."""
    if isinstance(expression, Symbol):
        return {str(expression)}
    inner = expression.indices if isinstance(expression, Indexed) else expression.args
    return set().union(*map(names_without_index, inner))


def flat(entry: Expr) -> str:
    """Return ``theta_group_i`` for theta[group[i]], ``x_i_minus_1`` for x[i - 1]."""
    text = str(entry).replace("-", " minus ").replace("+", " plus ")
    return "_".join(re.findall(r"\w+", text))


def is_index(name: str, expression: Expr) -> bool:
    """Return whether the data of this name occur in an index or a limit."""
    indices = [at for each in expression.atoms(Indexed) for at in each.indices]
    ends = [end for s in expression.atoms(Sum) for _, *ends in s.limits for end in ends]
    return any(name in names_in(each) for each in (*indices, *ends))


def as_array(name: str, value: ArrayLike, whole: bool) -> np.ndarray:
    array = np.asarray(from_table(f"data: {name}", value, ModelError))
    if array.dtype.kind not in "iufb" or array.ndim > 3:
        raise ModelError(f"data: {name} must be a real number or an array of these with at most 3 axes; got {value!r}.")
    if whole:
        if array.dtype.kind == "f" and not (array == np.round(array)).all():
            raise ModelError(f"data: {name} must be integers, because it is used as an index; got other numbers.")
        return array.astype(np.int64)
    array = array.astype(float)
    if not np.isfinite(array).all():
        raise ModelError(
            f"data: {name} must be finite. Remove rows with missing values, or make these values coordinates."
        )
    return array


# --------------------------------------------------------------------------------------------------------- derivatives

Weights = dict[tuple[Variable, ...], Expr]


def derivatives(group: Group, order: int) -> Weights:
    """Return f_a, f_ab or f_abc by (a), (a, b) or (a, b, c) in the order of the variables, without zeros."""
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
            raise ModelError(f"expression must have smooth derivatives; SymPy finds none of {group.term}.")
    return found


def orders(key: Sequence[Variable]) -> list[tuple[Variable, ...]]:
    """Return the different orders of these variables."""
    return list(dict.fromkeys(itertools.permutations(key)))
