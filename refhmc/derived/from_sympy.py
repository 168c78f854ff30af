"""A model of a SymPy expression: gradient, Hessian, third derivative and its contraction as readable generated code.

::

    mu, log_s = sympy.symbols("mu log_s")
    y, (i, n) = sympy.IndexedBase("y"), sympy.symbols("i n", integer=True)
    L = sympy.Sum(-(((y[i] - mu) * sympy.exp(-log_s)) ** 2) / 2 - log_s, (i, 0, n - 1)) - mu**2 / 200 - log_s**2 / 2
    model = refhmc.from_sympy(L, [mu, log_s], data={"y": [2.1, 3.4, 2.9]})
    print(model.source)

Sums over rows of data remain loops; :mod:`refhmc.derived.separable` describes their terms. The code calls ``exp``, ``log``
and functions of refhmc that neither overflow nor cancel (:mod:`refhmc.derived.stable`, also usable in expressions). Numba
compiles it like functions written by hand.
"""

from __future__ import annotations

import hashlib
import linecache
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from refhmc.compile.compiled import jit_anew, jit_of_user
from refhmc.compile.identity import identity_of
from refhmc.derived.model import DerivedModel
from refhmc.errors import ModelError
from refhmc.models.binding.packing import pack

if TYPE_CHECKING:
    from sympy import Expr, IndexedBase

# Options of refhmc.Model that neither follow from the expression nor are functions of its data.
OPTIONS = (
    *("initial", "reference", "recommended", "parents", "dims", "coords", "generated"),
    *("outputs", "likelihood", "on_arrays", "n_rows", "part", "noise"),
)
FUNCTIONS = ("log_density", "gradient", "value_and_gradient", "hessian", "third_derivative", "hessian_contraction")


def from_sympy(
    expression: Expr,
    coordinates: Sequence | None = None,
    *,
    data: Mapping[str | IndexedBase, ArrayLike] | None = None,
    constrain: Callable | None = None,
    name: str = "SymPy model",
    **options: Any,
) -> DerivedModel:
    """Return a model whose log density is a SymPy expression, with derivatives up to third order.

    ``model.source`` is the generated code, with the functions ``log_density``, ``gradient``, ``hessian``,
    ``third_derivative``, ``hessian_contraction`` and ``value_and_gradient``, which the samplers call. The Fisher metric is
    an expectation over data, and is not derived. The variables of the result have the names of the symbols. The code renames
    those that Python does not allow, such as ``lambda_``.

    Parameters
    ----------
    expression : sympy.Expr
        The log density up to a constant. Sums run over rows, as ``sympy.Sum(f(x[i], theta), (i, 0, n - 1))``. A length n
        that is not in `data` is that of the arrays indexed by i.
    coordinates : sequence of sympy.Symbol or sympy.IndexedBase, optional
        Unconstrained coordinates in the order of q, declared real or without assumptions.
        ``sympy.IndexedBase("theta", shape=(8,))`` is a vector of eight. Defaults to all symbols that are not data, in
        alphabetical order.
    data : dict, optional
        Numbers, arrays, lists, or pandas series and frames, by symbols, indexed bases or their names.
    constrain : callable, optional
        Values by name at a position, as in :class:`refhmc.Model`.
    name : str, default "SymPy model"
        Name of the model.
    **options : object
        Further options of :class:`refhmc.Model`, such as `initial`, `parents`, `dims`, `coords` and `generated`.

    Returns
    -------
    Model
        The model, with the generated code as attribute ``source``.

    Raises
    ------
    ImportError
        If SymPy is not installed.
    refhmc.errors.ModelError
        If a symbol is neither coordinate nor data, if a given symbol does not occur, if a coordinate is declared positive or
        integer, if a function has no smooth derivatives, if lengths differ, or if an index leaves its sum or its array.

    Examples
    --------
    >>> import numpy as np, refhmc, sympy
    >>> x = sympy.Symbol("x")
    >>> model = refhmc.from_sympy(-(x**2) / 2, [x])
    >>> model.names, model.has("hessian_contraction")
    (['x'], True)
    """
    try:
        from refhmc.derived.separable import read
        from refhmc.derived.source import module_text
    except ModuleNotFoundError as error:
        raise ImportError(
            'refhmc.from_sympy requires SymPy. Install it with: python -m pip install "refhmc[sympy]"'
        ) from error
    for key in sorted(set(options) - set(OPTIONS)):
        raise ModelError(
            f"{key} is not an option of refhmc.from_sympy. Its options: constrain, name, {', '.join(OPTIONS)}."
        )
    density = read(expression, coordinates, data)
    text = module_text(name, density)
    return from_source(
        text, density.names, tuple(density.data.values()), {"constrain": constrain, "name": name, **options}
    )


def from_source(text: str, names: list[str], data: tuple[np.ndarray, ...], options: dict[str, Any]) -> DerivedModel:
    """Return the model of generated code, from which other processes rebuild it without SymPy."""
    packed = pack(data or None)
    assert packed is not None
    matrix, unpack = packed
    functions = {key: jit_anew(f) for key, f in functions_of(text).items() if key in FUNCTIONS}
    adapted = {key: in_the_core(key, f, unpack, identity_of((text, key, unpack))) for key, f in functions.items()}
    model = DerivedModel(
        len(names),
        **adapted,
        data=matrix,
        names=names,
        known_by={"the generated text": text, "data": data, "constrain": options["constrain"]},
        again=(from_source, (text, names, data, options)),
        **options,
    )
    model.source = text
    return model


def in_the_core(key: str, f: Callable, unpack: Callable, identity: str | None) -> Callable:
    """Return a generated function with the data in one matrix. It writes only to ``out``, and needs no copies."""

    def derivative(q: np.ndarray, data: np.ndarray, out: np.ndarray) -> None:
        f(q, unpack(data), out)

    forms: dict[str, Callable] = {
        "log_density": lambda q, data: f(q, unpack(data)),
        "value_and_gradient": lambda q, data, out: f(q, unpack(data), out),
        "hessian_contraction": lambda q, data, M, out: f(q, unpack(data), M, out),
    }
    return jit_of_user(forms.get(key, derivative), (f, unpack), identity)


def functions_of(text: str) -> dict[str, Callable]:
    """Return what the code defines. Tracebacks and ``inspect.getsource`` find its lines."""
    place = f"<refhmc.from_sympy {hashlib.sha256(text.encode()).hexdigest()[:16]}>"
    linecache.cache[place] = (len(text), None, text.splitlines(keepends=True), place)
    names: dict[str, Any] = {"__name__": "derived_by_refhmc"}
    exec(compile(text, place, "exec"), names)
    return names
