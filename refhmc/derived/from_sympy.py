"""A model of a SymPy expression: gradient, Hessian, third derivative and its contraction as a text that can be read.

    mu, log_s = sympy.symbols("mu log_s")
    y, (i, n) = sympy.IndexedBase("y"), sympy.symbols("i n", integer=True)
    L = sympy.Sum(-(((y[i] - mu) * sympy.exp(-log_s)) ** 2) / 2 - log_s, (i, 0, n - 1)) - mu**2 / 200 - log_s**2 / 2
    model = refhmc.from_sympy(L, [mu, log_s], data={"y": [2.1, 3.4, 2.9]})
    print(model.source)

Sums over rows of data stay loops; what may stand in them is said in :mod:`refhmc.derived.separable`. The text calls
``exp``, ``log`` and functions of refhmc that neither overflow nor cancel (:mod:`refhmc.derived.stable`, which has them for
expressions, too). Numba compiles it as it compiles functions written by hand.
"""

from __future__ import annotations

import hashlib
import linecache
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from refhmc.core.binding import pack
from refhmc.core.compiled import jit_anew, jit_of_user
from refhmc.core.identity import identity_of
from refhmc.derived.model import DerivedModel
from refhmc.errors import ModelError

# Those of refhmc.Model that do not follow from the expression, and are no functions of its data.
OPTIONS = (
    *("initial", "reference", "recommended", "dims", "coords", "generated"),
    *("outputs", "likelihood", "on_arrays", "n_rows", "part", "noise"),
)
FUNCTIONS = ("log_density", "gradient", "value_and_gradient", "hessian", "third_derivative", "hessian_contraction")


def from_sympy(
    expression: Any,
    coordinates: Sequence | None = None,
    *,
    data: Mapping[str, Any] | None = None,
    constrain: Callable | None = None,
    name: str = "SymPy model",
    **options: Any,
) -> DerivedModel:
    """A model whose log density is a SymPy expression, up to a constant, with derivatives to third order.

    ``coordinates``: symbols in the order of q, which are unconstrained, and declared real or nothing;
    ``sympy.IndexedBase("theta", shape=(8,))`` is a vector of eight. By default all symbols that are not data, in the order of
    the alphabet. ``data``: numbers, arrays, lists, or series and frames of pandas, by symbols and indexed bases or their
    names. Sums run over rows, as ``sympy.Sum(f(x[i], theta), (i, 0, n - 1))``; a length n that is not in ``data`` is that of
    what is indexed by i.
    ``constrain``, ``name`` and ``options`` (``initial``, ``dims``, ``coords``, ``generated``, ...) as of :class:`refhmc.Model`.

    The model's variables have the symbols' names; in the text those that Python cannot have are others (``lambda_``).

    ``model.source`` is the generated text: ``log_density``, ``gradient``, ``hessian``, ``third_derivative``, ``hessian_contraction``, and
    ``value_and_gradient``, which the samplers call. The Fisher metric is an expectation over data, and is not derived.

    Raises ImportError without SymPy. ModelError, saying what is wrong, for symbols that are neither coordinates nor data, for
    what the expression does not have, for coordinates that are declared positive or whole, for functions without smooth
    derivatives, lengths that differ, and an index that leaves its sum or its array.
    """
    try:
        from refhmc.derived.separable import read
        from refhmc.derived.source import module_text
    except ModuleNotFoundError as error:
        raise ImportError('refhmc.from_sympy needs SymPy: python -m pip install "refhmc[sympy]"') from error
    for key in sorted(set(options) - set(OPTIONS)):
        raise ModelError(
            f"{key} is not an option of refhmc.from_sympy; options are constrain, name, {', '.join(OPTIONS)}"
        )
    density = read(expression, coordinates, data)
    text = module_text(name, density)
    return from_source(
        text, density.names, tuple(density.data.values()), {"constrain": constrain, "name": name, **options}
    )


def from_source(text: str, names: list[str], data: tuple[np.ndarray, ...], options: dict[str, Any]) -> DerivedModel:
    """The model of a generated text: what other processes make it from, without SymPy."""
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


def in_the_core(key: str, f: Any, unpack: Any, identity: str | None) -> Callable:
    """A function of the text with the data in one matrix. It writes to ``out`` alone, and needs no copies."""

    def derivative(q: np.ndarray, data: np.ndarray, out: np.ndarray) -> None:
        f(q, unpack(data), out)

    forms: dict[str, Callable] = {
        "log_density": lambda q, data: f(q, unpack(data)),
        "value_and_gradient": lambda q, data, out: f(q, unpack(data), out),
        "hessian_contraction": lambda q, data, M, out: f(q, unpack(data), M, out),
    }
    return jit_of_user(forms.get(key, derivative), (f, unpack), identity)


def functions_of(text: str) -> dict[str, Any]:
    """What the text defines. Tracebacks and ``inspect.getsource`` find its lines."""
    place = f"<refhmc.from_sympy {hashlib.sha256(text.encode()).hexdigest()[:16]}>"
    linecache.cache[place] = (len(text), None, text.splitlines(keepends=True), place)
    names: dict[str, Any] = {"__name__": "derived_by_refhmc"}
    exec(compile(text, place, "exec"), names)
    return names
