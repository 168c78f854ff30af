"""A model: a log density L(q) on R^d, its derivatives written by hand, its data, and its names.

The derivatives are those *of the log density*:

    gradient[i] = dL/dq_i      hessian[i, j] = d^2 L / dq_i dq_j      third_derivative[i, j, k] = d hessian[i, j] / dq_k
    fisher[i, j] = E[-d^2 log p(y | q)] + prior precision             fisher_derivative[i, j, k] = d fisher[i, j] / dq_k
    hessian_contraction(q, M)[k] = sum_ij M[i, j] third_derivative[i, j, k],   fisher_contraction(q, M)[k] likewise

Functions come in one of two protocols, told apart by the number of their arguments without defaults: ``f(q, data)`` returning
a float or a new array, or ``f(q, data, out)`` writing into ``out`` (``hessian_contraction`` takes ``M`` before ``out``). A model without data
may leave ``data`` out, in all of them: ``f(q)`` and ``f(q, out)``.

In some coordinates the log density may jump (an integer embedded in the line by :mod:`refhmc.models.embedding`, the place of a
threshold): those are named by ``discontinuous``, the gradient and all further derivatives are zero in them by convention
(they are those in the smooth coordinates, the others held), and :class:`refhmc.DHMC` moves them one at a time by

    log_density_change(q, data, j, new_value) = L(q with q[j] = new_value) - L(q)
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from refhmc._deprecated import renamed_arguments, renamed_method
from refhmc.core.arguments import array_of_numbers, refuse_masked, whole_number
from refhmc.core.binding import DERIVATIVES, FULL_TENSOR, Core, argument_count, check_arguments, named
from refhmc.core.data import as_data
from refhmc.core.fingerprint import Fingerprint, fingerprint
from refhmc.core.named_axes import SAMPLES, check_storable, coords_of, dims_of
from refhmc.core.split_data import stacked
from refhmc.core.user_text import WithoutData
from refhmc.errors import MissingArrayImplementationError, MissingDerivativeError, ModelError, ShapeError
from refhmc.models.generated import CLOSE, COMPARED, GeneratedQuantities, generated_of
from refhmc.models.on_arrays import WITH_TEXT, SumOnArrays, keep_what_is_freed
from refhmc.models.recommended import Recommended
from refhmc.models.reference import Reference
from refhmc.models.split import gradient_from, shares, sum_of_densities, sum_of_gradients
from refhmc.models.streamed import Sending, StreamedOnArrays


def without_data(functions: Mapping[str, Any], data: Any, first: str = "q") -> dict[str, Any]:
    """The functions of a model whose log density is one of ``first`` alone, as the others are called. Raises ModelError."""
    if data is not None:
        raise ModelError(
            f"data is given, and log_density takes {first} alone (arguments with a default, and *arguments, do not count): "
            f"write log_density({first}, data)"
        )
    for key, function in functions.items():
        if function is not None and "data" in inspect.signature(getattr(function, "py_func", function)).parameters:
            raise ModelError(
                f"log_density takes {first} alone, and {key} takes data: leave data out of all, or of none"
            )
    kept = ("log_density_change",)  # which says by itself whether it takes data
    return {key: f if f is None or key in kept else WithoutData(f) for key, f in functions.items()}


class Model:
    """A log density with its derivatives; your own, or one of :mod:`refhmc.models`.

    Parameters
    ----------
    dim : number of coordinates, at least 1.
    log_density, gradient, hessian, third_derivative, hessian_contraction, fisher, fisher_derivative, fisher_contraction
        Plain functions of ``(q, data)``, or all of ``q`` alone (see the module's text). Only the first two are needed for HMC
        and NUTS. Numba compiles them, and the plain functions that they call, if it can; otherwise (bound methods, objects)
        they run as Python inside the same compiled kernels.
    data : array, number, or tuple (named or not) of them. Lists, and the data frames, series and indexes of pandas, are
        converted to arrays, also in a tuple or a dict: the functions get arrays. A list of arrays of different shapes becomes
        a tuple. Strings and masked entries are rejected. Anything else makes the functions run as Python.
    names : one name per coordinate; ``x[0], x[1], ...`` are gathered into one variable ``x``.
    constrain : ``q -> dict`` of the named values users want to see; default: the coordinates under their names.
    value_and_gradient : ``(q, data, out) -> L`` for models whose log density and gradient share work.
    hessian_diagonal, diagonal_contraction : for refhmc's own models: the Hessian's diagonal into ``out`` (1, d), and sum_i M[0, i]
        d hessian[i, i] / dq for ``M`` (1, d), so that ``DiagonalSoftAbs`` costs O(d).
    room : for refhmc's own models: so many rows, zero at first, come after the data in the copy that each chain on a
        position-dependent metric gets, for the functions to keep there what depends on the position alone.
    discontinuous : indices or names of the coordinates in which the log density jumps, each once; a name without its
        index, ``"N"`` for ``N[0], N[1], ...``, means all of them. The gradient's entries there are not read.
    log_density_change : ``(q, data, j, new_value)`` or ``(q, j, new_value)`` -> the change of the log density when coordinate
        j of ``q`` becomes ``new_value``, -inf where that leaves the support; cheaper than two densities. Without it the
        full density is used.
    fisher_bands : for refhmc's own models: a constant tridiagonal ``fisher``, its two bands into ``out`` (2, d).
    conditionals : for refhmc's own models: :class:`refhmc.models.conditionals.Conditional` written by hand, for Gibbs.
    reference : a :class:`refhmc.Reference`. initial : a start, (d,), or a function that draws one from a generator, used when
        ``sample`` is given none. recommended : a :class:`refhmc.Recommended`, the kernel that ``sample`` takes when it is
        given none.
    n_rows, part : how many rows of data there are, and ``(rows, share) -> Model``, the model on those rows of them, with the
        ``share`` of the log prior: for :meth:`split`.
    outputs : ``(q, X) -> f`` (n, k), what the model says of inputs X (n, ...), for :func:`refhmc.predict`. likelihood : what is
        observed, given f: ``refhmc.models.networks.likelihoods.Gaussian(precision)``, ``Bernoulli()``, ``Softmax()``, or a
        function of q that gives one of these.
    in_python : why the functions are to run as Python, without an attempt to compile them and without a warning. Such a
        function says that it cannot be evaluated by raising :class:`refhmc.errors.EvaluationError`; a ZeroDivisionError,
        OverflowError or FloatingPointError says it too.
    noise : the log density's absolute error, where that is not rounding, for the pre-flight check of the gradient.
    absent : for refhmc's own models: name of a derivative -> why the model has none, which the error then says.
    on_arrays : ``xp -> text``, the model's functions on arrays of positions (..., d) of that namespace of the array API, with
        its data there: an object with the methods of :class:`refhmc.models.on_arrays.TextOnArrays`.
    dims : names of the axes of variables, of ``constrain`` or of ``generated``: ``{"theta": ("school",)}``. coords : labels
        along axes, ``{"school": ["Choate", ...]}``: numbers, strings, ``datetime64``, or of other kinds (``datetime.date``)
        their strings. Both are those of the ArviZ result (:mod:`refhmc.core.named_axes`).
    generated : a :class:`refhmc.GeneratedQuantities`, or a dictionary of its fields: functions of the constrained values and data, from
        which ``sample`` and :func:`refhmc.generate` make the groups ``log_likelihood``, ``posterior_predictive``, ``prior`` ...
        Draws do not depend on these three.

    Functions are given a copy of the position; ``sample`` refuses one that writes to it or to the data. ``out`` holds zeros.

    Raises
    ------
    ShapeError, ModelError : at once for what can be seen at once; a function's wrong result at its first call.
    """

    @renamed_arguments(
        trace="hessian_contraction", fisher_trace="fisher_contraction", diagonal_trace="diagonal_contraction"
    )
    def __init__(
        self,
        dim: int,
        log_density: Callable,
        gradient: Callable,
        hessian: Callable | None = None,
        third_derivative: Callable | None = None,
        hessian_contraction: Callable | None = None,
        fisher: Callable | None = None,
        fisher_derivative: Callable | None = None,
        fisher_contraction: Callable | None = None,
        data: Any = None,
        names: Sequence[str] | None = None,
        constrain: Callable[[np.ndarray], dict] | None = None,
        *,
        value_and_gradient: Callable | None = None,
        hessian_diagonal: Callable | None = None,
        diagonal_contraction: Callable | None = None,
        room: int = 0,
        discontinuous: Sequence[int | str] | None = None,
        log_density_change: Callable | None = None,
        fisher_bands: Callable | None = None,
        conditionals: Sequence = (),
        reference: Reference | None = None,
        initial: Any = None,
        name: str = "model",
        in_python: str = "",
        noise: float = 0.0,
        absent: Mapping[str, str] | None = None,
        n_rows: int = 0,
        part: Callable[[np.ndarray, float], Model] | None = None,
        outputs: Callable | None = None,
        likelihood: Any = None,
        on_arrays: Callable | None = None,
        recommended: Recommended | None = None,
        dims: Mapping[str, Any] | None = None,
        coords: Mapping[str, Any] | None = None,
        generated: GeneratedQuantities | Mapping[str, Any] | None = None,
    ) -> None:
        if hasattr(dim, "supports"):
            raise ShapeError(
                f"dim must be a whole number of at least 1, got {dim!r}; a model of it is made by parameters.model(...)"
            )
        self.dim = whole_number("dim", dim, error=ShapeError)
        self.name = name
        if isinstance(names, str):
            raise ShapeError(f"names must be a sequence of {self.dim} names, got the string {names!r}")
        self.names = [f"q[{i}]" for i in range(self.dim)] if names is None else [str(n) for n in names]
        if len(self.names) != self.dim or len(set(self.names)) != self.dim:
            raise ShapeError(f"names must be {self.dim} different names, got {self.names}")
        check_names(self.names)
        self.reference = reference
        self.recommended = recommended
        self.made_by: tuple[str, dict[str, Any]] | None = (
            None  # constructor and arguments (:mod:`refhmc.models.recipe`)
        )
        self.initial: Any = initial if initial is None or callable(initial) else self._position(initial, "initial")
        refuse_masked("data", data, ModelError)
        self.data = data = as_data("data", data, ModelError)
        self.room = room
        self.in_python, self.noise = in_python, float(noise)
        self._absent = dict(absent or {})
        self.n_rows, self.part, self.outputs, self.likelihood = n_rows, part, outputs, likelihood
        self._functions: dict[str, Any] = {
            "log_density": log_density,
            "value_and_gradient": value_and_gradient,
            "gradient": gradient,
            "hessian": hessian,
            "third_derivative": third_derivative,
            "hessian_contraction": hessian_contraction,
            "fisher": fisher,
            "fisher_derivative": fisher_derivative,
            "fisher_contraction": fisher_contraction,
            "hessian_diagonal": hessian_diagonal,
            "diagonal_contraction": diagonal_contraction,
            "log_density_change": log_density_change,
            "fisher_bands": fisher_bands,
        }
        self.conditionals = tuple(conditionals)
        self.joint: Model | None = None  # of a conditional: the model that its functions are part of
        # Of a conditional at a position: that model, the block's indices, the whole position.
        self.held: tuple[Model, np.ndarray, np.ndarray] | None = None
        if log_density is None:
            raise ModelError("log_density must be a function, got None")
        for key, function in {**self._functions, "constrain": constrain, "on_arrays": on_arrays}.items():
            if function is not None and not callable(function):
                raise ModelError(f"{key} must be a function, got {type(function).__name__}")
        if argument_count(log_density) == 1:
            self._functions = without_data(self._functions, data)
        check_arguments(self._functions)
        if log_density_change is not None and argument_count(log_density_change) not in (3, 4):
            raise ModelError("log_density_change must take (q, data, j, new_value) or (q, j, new_value)")
        self.discontinuous = self._indices(discontinuous)
        self._constrain: Any = constrain
        self.unconstrain: Callable[[Mapping, str], np.ndarray] | None = None  # its inverse, where the model has one
        self._on_arrays = on_arrays
        self.dims = dims_of(dims)
        self.coords = coords_of(coords, self.dims)
        self.generated = generated_of(generated)

    def __repr__(self) -> str:
        has = ", ".join(key for key in DERIVATIVES if self._functions[key] is not None)
        return f"<refhmc model {self.name!r}: {self.dim} coordinates; {has}>"

    def __reduce__(self) -> tuple[Callable, tuple[tuple, dict]]:
        named = ("value_and_gradient", "hessian_diagonal", "diagonal_contraction", "log_density_change", "fisher_bands")
        keys = [k for k in self._functions if k not in named]
        positional = (self.dim, *(self._functions[k] for k in keys), self.data, self.names, self._constrain)
        keywords = {
            **{k: self._functions[k] for k in named},
            "room": self.room,
            "discontinuous": self.discontinuous.tolist(),
            "conditionals": self.conditionals,
            "reference": self.reference,
            "recommended": self.recommended,
            "initial": self.initial,
            "name": self.name,
            "in_python": self.in_python,
            "noise": self.noise,
            "absent": self._absent,
            "n_rows": self.n_rows,
            "part": self.part,
            "outputs": self.outputs,
            "likelihood": self.likelihood,
            "on_arrays": self._on_arrays,
            "dims": self.dims,
            "coords": self.coords,
            "generated": self.generated,
        }
        return _rebuild, (positional, keywords)

    # -- the compiled side --------------------------------------------------------------------------------------

    @functools.cached_property
    def core(self) -> Core:
        """The model as the compiled kernels see it: typed pointers and one matrix of data (``refhmc.core.binding``)."""
        return Core(self)

    def to_compile(self, key: str) -> Any:
        """The text of a user's function for Numba: the function itself, unless it is put together from others."""
        return self._functions[key]

    @property
    def runs_as_python(self) -> str | None:
        """Why the model runs as Python, or None when it is compiled."""
        return self.core.why_python

    def words_at(self, q: np.ndarray) -> str:
        """ ": " and why there is no log density at ``q``, for a compiled model that knows it; else nothing."""
        return ""

    def made_of(self) -> Fingerprint:
        """What the model is made of, part for part: dimension, names, data, and all that its functions reach."""
        if self.held is not None:  # a block of another model, whose own functions are made from those of that one
            joint, indices, q = self.held
            block = fingerprint({"the block": indices, "the values held": q})
            whole = joint.made_of()
            return Fingerprint({**whole.parts, **block.parts}, whole.packages, whole.unknown)
        roots: dict[str, Any] = {"dim": self.dim, "names": self.names, "discontinuous": self.discontinuous}
        if isinstance(self.data, tuple):
            names = getattr(self.data, "_fields", range(len(self.data)))
            label = "data.{}" if hasattr(self.data, "_fields") else "data[{}]"
            roots["data"] = type(self.data)
            roots |= {label.format(name): each for name, each in zip(names, self.data, strict=True)}
        else:
            roots["data"] = self.data
        roots |= {key: function for key, function in self._functions.items() if function is not None}
        roots |= {"constrain": self._constrain, "conditionals": self.conditionals, "the class of the model": type(self)}
        roots |= {} if self._on_arrays is None else {"on_arrays": self._on_arrays}
        return fingerprint(roots)

    def fingerprint(self) -> str:
        """SHA-256 of the model's parts (:mod:`refhmc.core.fingerprint`): what a checkpoint must agree with."""
        return self.made_of().digest

    def split(self, M: int, order: Any = "given") -> SplitModel:
        """The model as the sum of ``M`` parts, each on its share of the data and with 1/M of the log prior.

        ``order``: that of the rows, "given", "random" (the same each time) or an array of the rows; the parts' sizes differ by
        at most one. ``.parts`` are models. Raises ValueError for more parts than rows, NotImplementedError for a model
        that does not say how its data are split.
        """
        if self.part is None:
            raise NotImplementedError(
                f"model {self.name!r} does not say how its data are split: give refhmc.Model(..., n_rows=, part=)"
            )
        return SplitModel([self.part(rows, 1 / M) for rows in shares(self.n_rows, M, order, repr(self.name))], self)

    def on_arrays(self, xp: Any = np) -> Any:
        """The model's text on arrays of positions (..., d), with its data in the namespace ``xp``: its own functions, in
        NumPy, CuPy, JAX ..., not the compiled ones (:class:`refhmc.models.on_arrays.TextOnArrays`).

        Raises :class:`refhmc.errors.MissingArrayImplementationError` for a model that has none.
        """
        if self._on_arrays is None:
            raise MissingArrayImplementationError(
                f"model {self.name!r} has no text on arrays; those with one are made by {', '.join(WITH_TEXT)}; give "
                f"refhmc.Model(..., on_arrays=...)"
            )
        if xp is np:
            keep_what_is_freed()
        return self._on_arrays(xp)

    trace = renamed_method("trace", "hessian_contraction")
    fisher_trace = renamed_method("fisher_trace", "fisher_contraction")

    # -- evaluation ---------------------------------------------------------------------------------------------

    def has(self, derivative: str) -> bool:
        """Whether the model has that derivative (``hessian_contraction`` also by way of ``third_derivative``)."""
        if self._functions[derivative] is not None:
            return True
        full = FULL_TENSOR.get(derivative)
        return full is not None and self._functions[full] is not None

    @property
    def has_diagonals(self) -> bool:
        """Whether the model gives the diagonal of its Hessian by itself, in the core's protocol."""
        return self.core.own and self._functions["hessian_diagonal"] is not None

    def log_density(self, q: np.ndarray) -> float:
        """L(q), up to a constant: a float, -inf outside the support."""
        return float(self.core.log_density(self._position(q)))

    def gradient(self, q: np.ndarray) -> np.ndarray:
        """dL/dq, (d,)."""
        return self._derivative("gradient", q)

    def log_density_change(self, q: np.ndarray, j: int, new_value: float) -> float:
        """L(q with q[j] = new_value) - L(q): by the model's own function if it has one. ``j`` is an index, from 0."""
        if not 0 <= j < self.dim:
            raise ShapeError(f"coordinate of {self.name!r}: expected 0 to {self.dim - 1}, got {j}")
        return self.core.log_density_change(self._position(q).copy(), int(j), float(new_value))

    def hessian(self, q: np.ndarray) -> np.ndarray:
        """Second derivatives of L, (d, d)."""
        return self._derivative("hessian", q)

    def third_derivative(self, q: np.ndarray) -> np.ndarray:
        """Third derivatives of L, (d, d, d): [i, j, k] = d hessian[i, j] / dq[k]."""
        return self._derivative("third_derivative", q)

    def hessian_contraction(self, q: np.ndarray, M: np.ndarray) -> np.ndarray:
        """sum_ij M[i, j] d hessian[i, j] / dq, (d,), without forming the third derivative where the model can."""
        return self._derivative("hessian_contraction", q, M)

    def fisher(self, q: np.ndarray) -> np.ndarray:
        """Fisher information plus prior precision, (d, d)."""
        return self._derivative("fisher", q)

    def fisher_derivative(self, q: np.ndarray) -> np.ndarray:
        """(d, d, d): [i, j, k] = d fisher[i, j] / dq[k]."""
        return self._derivative("fisher_derivative", q)

    def fisher_contraction(self, q: np.ndarray, M: np.ndarray) -> np.ndarray:
        """sum_ij M[i, j] d fisher[i, j] / dq, (d,)."""
        return self._derivative("fisher_contraction", q, M)

    def constrain(self, q: np.ndarray) -> dict[str, np.ndarray]:
        """The named, constrained values at ``q``, (d,) or (..., d)."""
        q = np.asarray(q, dtype=float)
        if q.shape[-1:] != (self.dim,):
            raise ShapeError(f"position of {self.name!r}: expected (..., {self.dim}), got {q.shape}")
        if self._constrain is None:
            return gather_by_name(self.names, q)
        if q.ndim == 1:
            return {key: np.asarray(value) for key, value in self._constrain(q.copy()).items()}
        rows = q.reshape(-1, self.dim)
        if len(rows) == 0:
            shapes = {k: np.shape(v) for k, v in self._constrain(np.zeros(self.dim)).items()}
            return {k: np.zeros(q.shape[:-1] + shape) for k, shape in shapes.items()}
        values = self._constrain_rows(rows)
        return {k: v.reshape(q.shape[:-1] + v.shape[1:]) for k, v in values.items()}

    def _constrain_rows(self, rows: np.ndarray) -> dict[str, np.ndarray]:
        """Of each row; by one call where the function broadcasts: on two rows, and for some of all of them."""
        for several in (rows[:2], rows):
            together = self._constrain_together(several)
            if together is None:
                break
            if len(several) == len(rows):
                return together
        singles = [self._constrain(row.copy()) for row in rows]
        return {key: np.stack([np.asarray(s[key]) for s in singles]) for key in singles[0]}

    def _constrain_together(self, rows: np.ndarray) -> dict[str, np.ndarray] | None:
        """Of all the rows at once; None where that fails, or is not for some of them what it is for each."""
        some = np.linspace(0, len(rows) - 1, min(len(rows), COMPARED)).astype(int)
        singles = [self._constrain(rows[k].copy()) for k in some]
        few = {key: np.stack([np.asarray(s[key]) for s in singles]) for key in singles[0]}
        try:
            together = {key: np.asarray(value) for key, value in self._constrain(rows.copy()).items()}
            alike = together.keys() == few.keys() and all(
                together[k].shape == (len(rows), *few[k].shape[1:])
                and np.allclose(together[k][some], few[k], rtol=CLOSE, atol=0.0, equal_nan=True)
                for k in few
            )
        except Exception:  # written for one position only
            return None
        return together if alike else None

    @property
    def reference_names(self) -> list[str]:
        """The scalar constrained values in the order of ``reference.mean``: ``theta[0], theta[1], ..., mu, tau``."""
        names = []
        for key, value in self.constrain(np.zeros(self.dim)).items():
            indices = np.ndindex(np.shape(value))
            names += [key + "".join(f"[{i}]" for i in index) for index in indices]
        return names

    def _indices(self, coordinates: Sequence[int | str] | None) -> np.ndarray:
        """Indices, in order, of coordinates given by index, name, or name without index. ModelError for one given twice."""
        found: list[int] = []
        for each in coordinates if coordinates is not None else ():
            if isinstance(each, str):
                named = [i for i, name in enumerate(self.names) if each in (name, re.sub(r"\[\d+\]$", "", name))]
                if not named:
                    raise ModelError(f"discontinuous: no coordinate is named {each!r}; there are {self.names}")
                found += named
            else:
                found.append(whole_number("an index of discontinuous", each, 0, self.dim - 1, ModelError))
        twice = [i for i in found if found.count(i) > 1] if len(set(found)) < len(found) else []
        if twice:
            raise ModelError(
                f"discontinuous: {self.names[twice[0]]!r} (coordinate {twice[0]}) is given twice; name it once"
            )
        return np.array(sorted(found), dtype=np.int64)

    def _position(self, q: Any, what: str = "position") -> np.ndarray:
        q = np.ascontiguousarray(array_of_numbers(f"{what} of {self.name!r}", q, ShapeError))
        if q.ndim == 0 and self.dim == 1:
            q = q.reshape(1)
        if q.shape != (self.dim,):
            raise ShapeError(f"{what} of {self.name!r}: expected ({self.dim},), got {q.shape}")
        return q

    def _derivative(self, key: str, q: np.ndarray, *M: Any) -> np.ndarray:
        q = self._position(q)
        M = tuple(np.ascontiguousarray(m, dtype=float) for m in M)
        for m in M:
            if m.shape != (self.dim, self.dim):
                raise ShapeError(f"M of {key}: expected {(self.dim, self.dim)}, got {m.shape}")
        if self._functions[key] is None and self.has(key):  # a trace by way of the full tensor
            return np.einsum("ij,ijk->k", M[0], self._derivative(FULL_TENSOR[key], q))
        self.require(key, f"model.{key}()")
        out = np.zeros((self.dim,) * DERIVATIVES[key][1])
        with named(key, out.shape):
            self.core.in_place(key)(q.copy(), self.core.data, *(m.copy() for m in M), out)
        return out

    def why_absent(self, derivative: str) -> str:
        """Why the model does not have that derivative, as far as that is known; else an empty string."""
        if self.has(derivative):
            return ""
        if len(self.discontinuous) == self.dim:
            return "all its coordinates are discontinuous, and derivatives are those in the smooth coordinates"
        return self._absent.get(derivative, "")

    def require(self, key: str, needed_by: str) -> None:
        """Raise :class:`MissingDerivativeError`, naming it, and why, if the model lacks that derivative."""
        if not self.has(key):
            full = FULL_TENSOR.get(key)
            other = f", or {full}=..., from which it is taken" if full is not None else ""
            more = self.why_absent(key) or f"give refhmc.Model(..., {key}=...){other}"
            raise MissingDerivativeError(f"model {self.name!r} has no {key}, and {needed_by} needs it: {more}")


ONE_GRADIENT = (
    "a split model has its log density and its gradient; take the model that was split for further derivatives"
)


class SplitModel(Model):
    """The sum of ``parts``, models of the same coordinates; made by :meth:`refhmc.Model.split`, or of your own models.

    It has a log density and a gradient: those of the parts, one after another, added up. ``made_alike``: whether the parts are
    shares of one model. Raises ValueError without parts, or where their coordinates differ, ModelError for what is no model.
    """

    def __init__(self, parts: Sequence[Model], whole: Model | None = None) -> None:
        self.parts = tuple(parts)
        if not self.parts:
            raise ValueError("a split model has at least one part")
        self.made_alike = whole is not None
        whole = self.parts[0] if whole is None else whole
        for m, part in enumerate(self.parts):
            if not isinstance(part, Model):
                raise ModelError(f"part {m} must be a refhmc.Model, got {type(part).__name__}")
            if part.names != whole.names:
                raise ValueError(f"part {m} has other coordinates than the first: {part!r} and {whole!r}")
            if len(part.discontinuous):
                raise ValueError(f"part {m} is discontinuous: its parts cannot be followed by their gradients")
        pointers = [part.core.tuple_for_changes for part in self.parts]
        kinds = list(dict.fromkeys((pointer[1], pointer[4]) for pointer in pointers))
        gradients, changes = zip(*kinds, strict=True)
        value_and_gradient = sum_of_gradients(gradients)
        self.whole = whole
        super().__init__(
            whole.dim,
            sum_of_densities(changes),
            gradient_from(value_and_gradient),
            data=stacked([pointer[0] for pointer in pointers], [kinds.index((p[1], p[4])) for p in pointers]),
            names=whole.names,
            constrain=whole.constrain,
            value_and_gradient=value_and_gradient,
            reference=whole.reference,
            initial=whole.initial,
            name=f"{whole.name} in {len(self.parts)} parts",
            noise=max(part.noise for part in self.parts),
            outputs=whole.outputs,
            likelihood=whole.likelihood,
            absent=dict.fromkeys(DERIVATIVES, ONE_GRADIENT),
            # Parts that are a user's own have each its own data.
            dims=whole.dims if self.made_alike else None,
            coords=whole.coords if self.made_alike else None,
            generated=whole.generated if self.made_alike else None,
        )

    def on_arrays(self, xp: Any = np, streamed: bool = False) -> SumOnArrays:
        """The sum of its parts' texts, which are its ``parts``. ``streamed``: a part's data are moved to ``xp`` for each of its
        evaluations, so that those of two parts at a time are there (:mod:`refhmc.models.streamed`)."""
        if not streamed:
            return SumOnArrays([part.on_arrays(xp) for part in self.parts])
        one = Sending([part.on_arrays for part in self.parts], xp).value_and_gradient
        evaluates = [functools.partial(one, m) for m in range(len(self.parts))]
        return SumOnArrays([StreamedOnArrays(evaluate, self.name, self.dim) for evaluate in evaluates])

    def __reduce__(self) -> tuple[Callable, tuple]:
        return SplitModel, (self.parts, self.whole if self.made_alike else None)

    @property
    def runs_as_python(self) -> str | None:
        """Why one of its parts runs as Python, or None when they are compiled."""
        return next(filter(None, (part.runs_as_python for part in self.parts)), None)

    def split(self, M: int, order: Any = "given") -> SplitModel:
        raise NotImplementedError(f"model {self.name!r} is split: split the model that it was made of, or its parts")

    def made_of(self) -> Fingerprint:
        """What its parts are made of."""
        found = [part.made_of() for part in self.parts]
        labelled = {f"part {m}: {label}": text for m, each in enumerate(found) for label, text in each.parts.items()}
        packages = tuple(dict.fromkeys(package for each in found for package in each.packages))
        unknown = tuple(f"part {m}: {label}" for m, each in enumerate(found) for label in each.unknown)
        return Fingerprint(labelled, packages, unknown)


def _rebuild(positional: tuple, keywords: dict[str, Any]) -> Model:
    return Model(*positional, **keywords)


def check_names(names: Sequence[str]) -> None:
    """Raise ShapeError where a coordinate has the name of the variable that another is an entry of: ``x`` beside ``x[1]``."""
    there = set(names)
    for name in names:
        check_storable("names", name, ShapeError)
        if name in SAMPLES:
            raise ShapeError(f"names: a coordinate cannot be called {name!r}, which is an axis of every result")
        base = re.sub(r"\[\d+\]$", "", name)
        if base != name and base in there:
            raise ShapeError(f"names: {name!r} is an entry of the variable {base!r}, which is a coordinate by itself")


def gather_by_name(names: Sequence[str], q: np.ndarray) -> dict[str, np.ndarray]:
    """{"v": ..., "x": ...} from coordinates named v, x[0], x[1], ...: runs ``base[0], base[1], ...`` become vectors."""
    groups: dict[str, list[int]] = {}
    for i, name in enumerate(names):
        match = re.fullmatch(r"(.+)\[(\d+)\]", name)
        base = match[1] if match and int(match[2]) == len(groups.get(match[1], [])) else name
        groups.setdefault(base, []).append(i)
    return {
        base: q[..., indices[0]] if base == names[indices[0]] else q[..., indices] for base, indices in groups.items()
    }
