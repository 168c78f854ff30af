"""A model: a log density L(q) on R^d with derivatives, data and names.

The derivatives are those of the log density::

    gradient[i] = dL/dq_i
    hessian[i, j] = d^2 L / dq_i dq_j
    third_derivative[i, j, k] = d hessian[i, j] / dq_k
    hessian_contraction(q, M)[k] = sum_ij M[i, j] third_derivative[i, j, k]
    fisher[i, j] = E[-d^2 log p(y | q) / dq_i dq_j] + prior precision
    fisher_derivative[i, j, k] = d fisher[i, j] / dq_k
    fisher_contraction(q, M)[k] = sum_ij M[i, j] fisher_derivative[i, j, k]

A function follows one of two protocols, which are distinguished by the number of arguments without defaults. ``f(q, data)``
returns a float or a new array. ``f(q, data, out)`` writes into ``out``; contractions take ``M`` before ``out``. A model
without data may leave ``data`` out of all its functions: ``f(q)`` and ``f(q, out)``.

The log density may jump in some coordinates, such as an integer embedded in the line (:mod:`refhmc.models.embedding`) or
the position of a threshold. The argument ``discontinuous`` names them. By convention the gradient and all further
derivatives are zero in these coordinates. :class:`refhmc.DHMC` moves them one at a time with::

    log_density_change(q, data, j, new_value) = L(q with q[j] = new_value) - L(q)
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from refhmc._deprecated import renamed_arguments, renamed_method
from refhmc.compile.fingerprint import Fingerprint, fingerprint
from refhmc.core.arguments import array_of_numbers, refuse_masked, whole_number
from refhmc.core.data import as_data
from refhmc.core.hierarchy import parents_of, variable_of
from refhmc.core.named_axes import coords_of, dims_of
from refhmc.core.split_data import stacked
from refhmc.errors import MissingArrayImplementationError, MissingDerivativeError, ModelError, ShapeError
from refhmc.models.binding.core import Core
from refhmc.models.binding.functions import (
    DERIVATIVES,
    SOURCE,
    Functions,
    argument_count,
    check_arguments,
    without_data,
)
from refhmc.models.generated import GeneratedQuantities, generated_of
from refhmc.models.on_arrays import WITH_TEXT, ArrayImplementation, SumOnArrays, keep_what_is_freed
from refhmc.models.recommended import Recommended
from refhmc.models.reference import Reference
from refhmc.models.split import shares, sum_of_densities, sum_of_gradients
from refhmc.models.streamed import Sending, StreamedOnArrays
from refhmc.models.variables import check_names, constrained_rows, gather_by_name, indices_of

if TYPE_CHECKING:
    from refhmc.models.networks.likelihoods import Likelihood


class Required:
    """The default of arguments that must be given, so that a missing one is reported with the alternatives."""

    def __repr__(self) -> str:
        return "<required>"


REQUIRED: Any = Required()


def levels_of(levels: Sequence[int] | np.ndarray, dim: int) -> np.ndarray:
    """Return ``fisher_levels`` as an array (d,) of whole numbers. Raises ShapeError or ModelError."""
    found = np.asarray(levels)
    if found.shape != (dim,):
        raise ShapeError(f"fisher_levels must have shape ({dim},); got {found.shape}.")
    if found.dtype.kind not in "iu" or found.min() < 0:
        raise ModelError(f"fisher_levels must be whole numbers of at least 0; got {found.tolist()}.")
    return found


def check_given(**arguments: object) -> None:
    """Raise ModelError, which names the other ways to create a model, for the first argument that is missing."""
    missing = [name for name, value in arguments.items() if value is REQUIRED]
    if missing:
        raise ModelError(
            f"{missing[0]} must be given: refhmc.Model needs dim, log_density and gradient. Write the gradient by hand, use "
            "refhmc.from_jax, refhmc.from_sympy or refhmc.from_pymc, which derive it, or use "
            "refhmc.Parameters(...).model for named parameters."
        )


class Model:
    """A log density with its derivatives, data and names.

    The models of :mod:`refhmc.models` are of this class, too. HMC and NUTS need `log_density` and `gradient` only. Numba
    compiles the functions, and the plain functions that they call, if it can. Otherwise (bound methods, objects) they run as
    Python inside the same compiled kernels.

    Functions take ``(q, data)`` and return the result, or take ``(q, data, out)`` and write it into ``out``, which holds
    zeros. A model without data may leave ``data`` out of all its functions. Functions get a copy of the position; ``sample``
    rejects a function that writes to the position or to the data.

    Parameters
    ----------
    dim : int
        Number of coordinates d, at least 1.
    log_density : callable
        Function of ``(q, data)`` that returns the log density L at ``q``, an array of shape (d,), as a float. L is defined up
        to a constant and is -inf outside the support.
    gradient : callable
        Function of ``(q, data)`` that returns dL/dq, of shape (d,). It may be left out if `value_and_gradient` is given.
    hessian : callable, optional
        Function of ``(q, data)`` that returns the second derivatives of L, of shape (d, d).
    third_derivative : callable, optional
        Function of ``(q, data)`` that returns the third derivatives of L, of shape (d, d, d). If it is missing,
        `hessian_contraction` is called d (d + 1) / 2 times.
    hessian_contraction : callable, optional
        Function of ``(q, data, M)`` that returns ``sum_ij M[i, j] d hessian[i, j] / dq``, of shape (d,). If it is missing,
        `third_derivative` is used.
    fisher : callable, optional
        Function of ``(q, data)`` that returns the Fisher information plus the prior precision, of shape (d, d).
    fisher_derivative : callable, optional
        Function of ``(q, data)`` that returns the derivatives of `fisher`, of shape (d, d, d). If it is missing,
        `fisher_contraction` is called d (d + 1) / 2 times.
    fisher_contraction : callable, optional
        Function of ``(q, data, M)`` that returns ``sum_ij M[i, j] d fisher[i, j] / dq``, of shape (d,). If it is missing,
        `fisher_derivative` is used.
    data : array_like, float or tuple, optional
        Data that all functions get. Lists, and the data frames, series and indexes of pandas, are converted to arrays,
        also inside a tuple or a dictionary. A list of arrays of different shapes becomes a tuple. Strings and masked
        entries are rejected. With data of any other type the functions run as Python.
    names : sequence of str, optional
        One name per coordinate. ``x[0], x[1], ...`` are gathered into one variable ``x``. Defaults to ``q[0], q[1], ...``.
    constrain : callable, optional
        Function of ``q`` that returns a dictionary of named values for users. Defaults to the coordinates by name.
    value_and_gradient : callable, optional
        Function of ``(q, data, out)`` that returns L and writes the gradient into ``out``, if both share work.
    hessian_diagonal : callable, optional
        For built-in models: function that writes the diagonal of the Hessian into ``out``, of shape (1, d), so that
        `DiagonalSoftAbs` costs O(d).
    diagonal_contraction : callable, optional
        For built-in models: function that writes ``sum_i M[0, i] d hessian[i, i] / dq`` for ``M`` of shape (1, d).
    scratch_rows : int, default 0
        For built-in models: number of rows that follow the data in the copy of each chain on a position-dependent metric.
        They are zero at first. The functions store terms there that depend on the position only.
    discontinuous : sequence of int or str, optional
        Indices or names of the coordinates in which the log density jumps, each once. A name without an index, ``"N"`` for
        ``N[0], N[1], ...``, stands for all of its coordinates. The gradient in these coordinates is ignored.
    log_density_change : callable, optional
        Function of ``(q, data, j, new_value)`` or ``(q, j, new_value)`` that returns the change of the log density if
        coordinate ``j`` of ``q`` becomes ``new_value``. It is -inf if that leaves the support. Give the function if it is
        cheaper than two densities.
    fisher_bands : callable, optional
        For built-in models: function that writes the two bands of a constant tridiagonal `fisher` into ``out`` (2, d).
    bordered_fisher : callable, optional
        For built-in models whose `fisher` is tridiagonal except for the row and the column j of `fisher_border`: function that
        writes the diagonal, the entries next to it and row j into ``out`` (3, d). The entries [1, j - 1], [1, j] and [2, j]
        are 0. `Fisher` then costs O(d).
    bordered_contraction : callable, optional
        For built-in models: function that writes ``sum_ri M[r, i] d bordered_fisher[r, i] / dq`` for ``M`` of shape (3, d).
    fisher_border : int, optional
        For built-in models: the coordinate j of `bordered_fisher`.
    fisher_levels : sequence of int, optional
        Level of each coordinate, from 0, if `fisher` is block diagonal by level and each block depends only on coordinates of
        lower levels. The metric ``Fisher`` then works with the explicit integrator ``BlockLeapfrog``.
    parents : mapping of str to sequence of str, optional
        The variables on which the conditional prior of a variable depends: ``{"theta": ["mu", "log_tau"]}``. The names are
        those of the coordinates, without indices. A variable that is not listed has no parents. ``{}`` states that no
        variable has any, and None that they are not known. The metric ``Hierarchical`` uses them.
    conditionals : sequence, optional
        For built-in models: hand-written distributions of blocks of coordinates given the others, for :class:`refhmc.Gibbs`.
    reference : Reference, optional
        Known moments and exact draws.
    initial : array_like or callable, optional
        A starting point of shape (d,), or a function that draws one from a ``numpy.random.Generator``. ``sample`` uses it
        if it is given no other.
    name : str, default "model"
        Name in messages and results.
    in_python : str, default ""
        Why the functions must run as Python. If it is not empty, they are not compiled, and no warning is given. Such a
        function raises :class:`refhmc.errors.EvaluationError` if it cannot be evaluated at a position; a ZeroDivisionError,
        OverflowError or FloatingPointError is treated in the same way.
    noise : float, default 0.0
        Absolute error of the log density if it exceeds rounding error, for the check of the gradient before sampling.
    absent : mapping of str to str, optional
        For built-in models: reasons why the model lacks derivatives, by name. The error message includes them.
    n_rows : int, default 0
        Number of rows of data, for :meth:`split`.
    part : callable, optional
        Function of ``(rows, share)`` that returns the model on these rows of the data, with this share of the log prior, for
        :meth:`split`.
    outputs : callable, optional
        Function of ``(q, X)`` that returns the prediction ``f``, of shape (n, k), for inputs X of shape (n, ...). It is used
        by :func:`refhmc.predict`.
    likelihood : object or callable, optional
        Distribution of observations given ``f``: ``Gaussian(precision)``, ``Bernoulli()`` or ``Softmax()`` of
        ``refhmc.models.networks.likelihoods``, or a function of ``q`` that returns one of these.
    on_arrays : callable, optional
        Function of a namespace of the array API that returns the array implementation of the model. This is an object with
        the methods of ``refhmc.models.on_arrays.ArrayImplementation``, with its data in that namespace.
    recommended : Recommended, optional
        The kernel that ``sample`` uses if it is given none.
    dims : mapping, optional
        Names of the axes of variables, of `constrain` or of `generated`, as in PyMC: ``{"theta": ("school",)}``.
    coords : mapping, optional
        Labels along axes, as in PyMC: ``{"school": ["Choate", ...]}``. Labels are numbers, strings or ``datetime64``; other
        objects are converted to strings.
    generated : GeneratedQuantities or mapping, optional
        Functions of the constrained values and data, for the groups ``log_likelihood``, ``posterior_predictive``, ``prior``
        and so on of the result. Draws do not depend on `generated`, `dims` and `coords`.

    Attributes
    ----------
    dim : int
        Number of coordinates.
    names : list of str
        One name per coordinate.
    data : object
        The data that the functions get.
    reference : Reference or None
        Known moments and exact draws.
    discontinuous : ndarray of int
        Indices of the coordinates in which the log density jumps.
    parents : dict of str to tuple of str, or None
        The parents of every variable, or None if they are not known.

    Raises
    ------
    TypeError
        If `dim`, `log_density` or `gradient` is missing.
    refhmc.errors.ShapeError
        If `dim`, `names`, `initial` or `parents` do not fit each other, or if `parents` form a cycle.
    refhmc.errors.ModelError
        If an argument is of the wrong kind. A wrong result of a function is reported at its first call.

    See Also
    --------
    refhmc.from_jax : Derive the gradient by JAX.
    refhmc.from_sympy : Derive all derivatives by SymPy.
    refhmc.from_pymc : Use a model of PyMC.
    refhmc.Parameters : Name parameters and their supports.

    Examples
    --------
    A standard normal distribution in two dimensions, with its gradient by hand:

    >>> import refhmc
    >>> model = refhmc.Model(2, lambda q: -0.5 * (q @ q), lambda q: -q, names=["a", "b"])
    >>> model.log_density([1.0, 2.0]), model.gradient([1.0, 2.0]).tolist()
    (-2.5, [-1.0, -2.0])
    >>> result = refhmc.sample(model, random_seed=1, progressbar=False, raw=True)
    >>> result.posterior["a"].shape
    (4, 1000)
    """

    @renamed_arguments(
        trace="hessian_contraction",
        fisher_trace="fisher_contraction",
        diagonal_trace="diagonal_contraction",
        room="scratch_rows",
    )
    def __init__(
        self,
        dim: int = REQUIRED,
        log_density: Callable = REQUIRED,
        gradient: Callable | None = REQUIRED,
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
        scratch_rows: int = 0,
        discontinuous: Sequence[int | str] | None = None,
        log_density_change: Callable | None = None,
        fisher_bands: Callable | None = None,
        bordered_fisher: Callable | None = None,
        bordered_contraction: Callable | None = None,
        fisher_border: int | None = None,
        fisher_levels: Sequence[int] | np.ndarray | None = None,
        parents: Mapping[str, str | Sequence[str]] | None = None,
        conditionals: Sequence = (),
        reference: Reference | None = None,
        initial: ArrayLike | Callable[[np.random.Generator], ArrayLike] | None = None,
        name: str = "model",
        in_python: str = "",
        noise: float = 0.0,
        absent: Mapping[str, str] | None = None,
        n_rows: int = 0,
        part: Callable[[np.ndarray, float], Model] | None = None,
        outputs: Callable | None = None,
        likelihood: Likelihood | Callable[[np.ndarray], Likelihood] | None = None,
        on_arrays: Callable | None = None,
        recommended: Recommended | None = None,
        dims: Mapping[str, str | Sequence[str]] | None = None,
        coords: Mapping[str, Iterable] | None = None,
        generated: GeneratedQuantities | Mapping[str, object] | None = None,
    ) -> None:
        if gradient is REQUIRED and value_and_gradient is not None:
            gradient = None
        check_given(dim=dim, log_density=log_density, gradient=gradient)
        if hasattr(dim, "supports"):
            raise ShapeError(
                f"dim must be a whole number of at least 1; got {dim!r}. "
                "Use parameters.model(...) to create a model of these parameters."
            )
        self.dim = whole_number("dim", dim, error=ShapeError)
        self.name = name
        if isinstance(names, str):
            raise ShapeError(f"names must be a sequence of {self.dim} names; got the string {names!r}.")
        self.names = [f"q[{i}]" for i in range(self.dim)] if names is None else [str(n) for n in names]
        if len(self.names) != self.dim or len(set(self.names)) != self.dim:
            raise ShapeError(f"names must be {self.dim} different names; got {self.names}.")
        check_names(self.names)
        self.reference = reference
        self.recommended = recommended
        self.made_by: tuple[str, dict[str, object]] | None = (
            None  # constructor and arguments (:mod:`refhmc.models.recipe`)
        )
        self.initial: np.ndarray | Callable[[np.random.Generator], ArrayLike] | None = (
            initial if initial is None or callable(initial) else self._position(initial, "initial")
        )
        refuse_masked("data", data, ModelError)
        self.data = data = as_data("data", data, ModelError)
        self.scratch_rows = scratch_rows
        self.in_python, self.noise = in_python, float(noise)
        self._absent = dict(absent or {})
        self.n_rows, self.part, self.outputs, self.likelihood = n_rows, part, outputs, likelihood
        self.functions = Functions(
            log_density=log_density,
            value_and_gradient=value_and_gradient,
            gradient=gradient,
            hessian=hessian,
            third_derivative=third_derivative,
            hessian_contraction=hessian_contraction,
            fisher=fisher,
            fisher_derivative=fisher_derivative,
            fisher_contraction=fisher_contraction,
            hessian_diagonal=hessian_diagonal,
            diagonal_contraction=diagonal_contraction,
            log_density_change=log_density_change,
            fisher_bands=fisher_bands,
            bordered_fisher=bordered_fisher,
            bordered_contraction=bordered_contraction,
        )
        self.fisher_levels = None if fisher_levels is None else levels_of(fisher_levels, self.dim)
        self.fisher_border = fisher_border
        self.parents = None if parents is None else parents_of(parents, map(variable_of, self.names))
        self.conditionals = tuple(conditionals)
        self.joint: Model | None = None  # for a conditional: the joint model
        # For a conditional at a position: the joint model, the indices of the block, the full position.
        self.held: tuple[Model, np.ndarray, np.ndarray] | None = None
        if log_density is None:
            raise ModelError("log_density must be a function; got None.")
        if gradient is None and value_and_gradient is None:
            raise ModelError("gradient must be a function, unless value_and_gradient is given; got None.")
        for key, function in {**self.functions._asdict(), "constrain": constrain, "on_arrays": on_arrays}.items():
            if function is not None and not callable(function):
                raise ModelError(f"{key} must be a function; got {type(function).__name__}.")
        if argument_count(log_density) == 1:
            self.functions = Functions(**without_data(self.functions._asdict(), data))
        check_arguments(self.functions._asdict())
        if log_density_change is not None and argument_count(log_density_change) not in (3, 4):
            raise ModelError("log_density_change must take (q, data, j, new_value) or (q, j, new_value).")
        self.discontinuous = indices_of(discontinuous, self.names)
        self._constrain: Any = constrain
        self.unconstrain: Callable[[Mapping, str], np.ndarray] | None = None  # the inverse of constrain, if known
        self._on_arrays = on_arrays
        self.dims = dims_of(dims)
        self.coords = coords_of(coords, self.dims)
        self.generated = generated_of(generated)

    def __repr__(self) -> str:
        has = ", ".join(key for key in DERIVATIVES if self.has(key))
        return f"<refhmc model {self.name!r}: {self.dim} coordinates; {has}>"

    def __reduce__(self) -> tuple[Callable, tuple[dict]]:
        keywords = {
            **self.functions._asdict(),
            "dim": self.dim,
            "data": self.data,
            "names": self.names,
            "constrain": self._constrain,
            "scratch_rows": self.scratch_rows,
            "discontinuous": self.discontinuous.tolist(),
            "fisher_levels": self.fisher_levels,
            "fisher_border": self.fisher_border,
            "parents": self.parents,
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
        return _rebuild, (keywords,)

    # -- compiled functions -------------------------------------------------------------------------------------

    @functools.cached_property
    def core(self) -> Core:
        """The compiled form of the model: typed pointers and one matrix of data."""
        return Core(
            self.functions,
            self.data,
            dim=self.dim,
            name=self.name,
            to_compile=self.to_compile,
            in_python=self.in_python,
            scratch_rows=self.scratch_rows,
        )

    @property
    def to_compile(self) -> Functions:
        """The functions that Numba compiles: those given, unless a subclass composes them from others."""
        return self.functions

    @property
    def runs_as_python(self) -> str | None:
        """The reason why the model runs as Python, or None if it is compiled."""
        return self.core.why_python

    def words_at(self, q: np.ndarray) -> str:
        """Return why the log density does not exist at a position, as the end of a message.

        Parameters
        ----------
        q : ndarray of shape (d,)
            Position.

        Returns
        -------
        str
            A colon and the reason, or an empty string if there is none.
        """
        return self.core.failures().words_at(q)

    def made_of(self) -> Fingerprint:
        """Return the fingerprint of the model, part by part.

        Returns
        -------
        Fingerprint
            Dimension, names, data, and everything that the functions refer to.
        """
        if self.held is not None:  # a block of a joint model, whose functions derive from those of that model
            joint, indices, q = self.held
            block = fingerprint({"the block": indices, "the values held": q})
            whole = joint.made_of()
            return Fingerprint({**whole.parts, **block.parts}, whole.packages, whole.unknown)
        roots: dict[str, object] = {"dim": self.dim, "names": self.names, "discontinuous": self.discontinuous}
        if isinstance(self.data, tuple):
            names = getattr(self.data, "_fields", range(len(self.data)))
            label = "data.{}" if hasattr(self.data, "_fields") else "data[{}]"
            roots["data"] = type(self.data)
            roots |= {label.format(name): each for name, each in zip(names, self.data, strict=True)}
        else:
            roots["data"] = self.data
        roots |= {key: function for key, function in self.functions._asdict().items() if function is not None}
        roots |= {"constrain": self._constrain, "conditionals": self.conditionals, "the class of the model": type(self)}
        optional: dict[str, object] = {"on_arrays": self._on_arrays, "fisher_levels": self.fisher_levels}
        optional |= {"parents": self.parents, "fisher_border": self.fisher_border}
        roots |= {key: value for key, value in optional.items() if value is not None}
        return fingerprint(roots)

    def fingerprint(self) -> str:
        """Return a hash of all parts of the model, which a checkpoint must match.

        Returns
        -------
        str
            SHA-256 digest in hexadecimal.

        Examples
        --------
        >>> import refhmc
        >>> refhmc.models.Funnel(3).fingerprint() == refhmc.models.Funnel(3).fingerprint()
        True
        """
        return self.made_of().digest

    def split(self, M: int, order: str | ArrayLike = "given") -> SplitModel:
        """Return the model as a sum of parts, each on a share of the data.

        With the data y in M parts ::

            L = sum_m L_m,      L_m(q) = log p(q) / M + log p(y_m | q)

        Parameters
        ----------
        M : int
            Number of parts, at most the number of rows of data. The sizes of the parts differ by at most one row.
        order : {"given", "random"} or array_like of int, default "given"
            Order of the rows before they are divided. "random" is the same order each time. An array lists all rows once.

        Returns
        -------
        SplitModel
            The sum. Its attribute ``parts`` holds the models.

        Raises
        ------
        ValueError
            If there are more parts than rows, or `order` is not an order of the rows.
        NotImplementedError
            If the model does not define how its data are split.

        References
        ----------
        A. D. Cobb and B. Jalaian (2021), Scaling Hamiltonian Monte Carlo inference for Bayesian neural networks with symmetric
        splitting, eq. 6.

        Examples
        --------
        >>> import refhmc
        >>> split = refhmc.models.BreastCancer().split(4)
        >>> [part.n_rows for part in split.parts]
        [50, 50, 50, 50]
        """
        if self.part is None:
            raise NotImplementedError(
                f"Model {self.name!r} does not define how its data are split. Give refhmc.Model(..., n_rows=, part=)."
            )
        return SplitModel([self.part(rows, 1 / M) for rows in shares(self.n_rows, M, order, repr(self.name))], self)

    def on_arrays(self, xp: ModuleType = np) -> ArrayImplementation:
        """Return the array implementation of the model.

        It evaluates many positions at once with the functions of NumPy, CuPy, JAX or another namespace of the array API. It
        does not use the compiled functions.

        Parameters
        ----------
        xp : module, default numpy
            Namespace of the array API. The data of the model are moved there.

        Returns
        -------
        object
            Functions on arrays of positions (..., d): ``value_and_gradient``, ``log_density``, ``gradient``, and those of
            ``hessian``, ``hessian_contraction``, ``fisher`` and ``fisher_contraction`` that the implementation has.

        Raises
        ------
        refhmc.errors.MissingArrayImplementationError
            If the model has none.

        Examples
        --------
        >>> import numpy as np
        >>> import refhmc
        >>> functions = refhmc.models.Funnel(2).on_arrays()
        >>> functions.log_density(np.zeros((5, 3))).shape
        (5,)
        """
        if self._on_arrays is None:
            raise MissingArrayImplementationError(
                f"Model {self.name!r} has no array implementation. Give refhmc.Model(..., on_arrays=...), or use a "
                f"model that has one: {', '.join(WITH_TEXT)}."
            )
        if xp is np:
            keep_what_is_freed()
        return self._on_arrays(xp)

    trace = renamed_method("trace", "hessian_contraction")
    fisher_trace = renamed_method("fisher_trace", "fisher_contraction")

    # -- evaluation ---------------------------------------------------------------------------------------------

    def has(self, derivative: str) -> bool:
        """Return whether the model has a derivative.

        Parameters
        ----------
        derivative : str
            Name of a method, such as "hessian" or "fisher_contraction". It may be computed from another one: a contraction
            from the full derivative or the reverse, and the gradient from `value_and_gradient`.

        Returns
        -------
        bool
            Whether the method can be called.

        Examples
        --------
        >>> import refhmc
        >>> refhmc.models.Funnel(2).has("hessian"), refhmc.models.GARCH().has("fisher_derivative")
        (True, False)
        """
        given = getattr(self.functions, derivative) is not None
        return given or (self.functions.has(derivative) and derivative not in self._absent)

    @property
    def has_diagonals(self) -> bool:
        """Whether the model has a compiled function for the diagonal of its Hessian."""
        return self.core.has_diagonals

    def log_density(self, q: np.ndarray) -> float:
        """Return the log density L(q) up to a constant.

        Parameters
        ----------
        q : array_like of shape (d,)
            Position.

        Returns
        -------
        float
            L(q), -inf outside the support.
        """
        return float(self.core.log_density(self._position(q)))

    def gradient(self, q: np.ndarray) -> np.ndarray:
        """Return the gradient dL/dq.

        Parameters
        ----------
        q : array_like of shape (d,)
            Position.

        Returns
        -------
        ndarray of shape (d,)
            Derivatives of the log density, zero in discontinuous coordinates.
        """
        return self._derivative("gradient", q)

    def log_density_change(self, q: np.ndarray, j: int, new_value: float) -> float:
        """Return L(q with q[j] = new_value) - L(q).

        Parameters
        ----------
        q : array_like of shape (d,)
            Position.
        j : int
            Index of the coordinate, from 0.
        new_value : float
            New value of the coordinate.

        Returns
        -------
        float
            The change of the log density, by the model's own function if it has one.

        Raises
        ------
        refhmc.errors.ShapeError
            If `j` is not an index of a coordinate.

        Examples
        --------
        >>> import refhmc
        >>> refhmc.models.Funnel(1).log_density_change([0.0, 0.0], 0, 3.0)
        1.0
        """
        if not 0 <= j < self.dim:
            raise ShapeError(f"j must be a coordinate of {self.name!r}, 0 to {self.dim - 1}; got {j}.")
        return self.core.log_density_change(self._position(q).copy(), int(j), float(new_value))

    def hessian(self, q: np.ndarray) -> np.ndarray:
        """Return the second derivatives of the log density.

        Parameters
        ----------
        q : array_like of shape (d,)
            Position.

        Returns
        -------
        ndarray of shape (d, d)
            Entry [i, j] is d^2 L / dq_i dq_j.

        Raises
        ------
        refhmc.errors.MissingDerivativeError
            If the model has no Hessian.
        """
        return self._derivative("hessian", q)

    def third_derivative(self, q: np.ndarray) -> np.ndarray:
        """Return the third derivatives of the log density.

        Parameters
        ----------
        q : array_like of shape (d,)
            Position.

        Returns
        -------
        ndarray of shape (d, d, d)
            Entry [i, j, k] is d hessian[i, j] / dq_k.

        Raises
        ------
        refhmc.errors.MissingDerivativeError
            If the model has no third derivatives.
        """
        return self._derivative("third_derivative", q)

    def hessian_contraction(self, q: np.ndarray, M: np.ndarray) -> np.ndarray:
        """Return the contraction of the third derivatives with a matrix.

        The result is ::

            sum_ij M[i, j] d hessian[i, j] / dq

        Models that can compute it without the full third derivative do so.

        Parameters
        ----------
        q : array_like of shape (d,)
            Position.
        M : array_like of shape (d, d)
            Matrix, not necessarily symmetric.

        Returns
        -------
        ndarray of shape (d,)
            The contraction.

        Raises
        ------
        refhmc.errors.MissingDerivativeError
            If the model has neither the contraction nor the third derivatives.
        refhmc.errors.ShapeError
            If `M` has another shape.
        """
        return self._derivative("hessian_contraction", q, M)

    def fisher(self, q: np.ndarray) -> np.ndarray:
        """Return the Fisher information plus the prior precision.

        Entry [i, j] is ::

            E[-d^2 log p(y | q) / dq_i dq_j] + prior precision

        Parameters
        ----------
        q : array_like of shape (d,)
            Position.

        Returns
        -------
        ndarray of shape (d, d)
            The Fisher metric.

        Raises
        ------
        refhmc.errors.MissingDerivativeError
            If the model has no Fisher metric.
        """
        return self._derivative("fisher", q)

    def fisher_derivative(self, q: np.ndarray) -> np.ndarray:
        """Return the derivatives of the Fisher metric.

        Parameters
        ----------
        q : array_like of shape (d,)
            Position.

        Returns
        -------
        ndarray of shape (d, d, d)
            Entry [i, j, k] is d fisher[i, j] / dq_k.

        Raises
        ------
        refhmc.errors.MissingDerivativeError
            If the model does not have them.
        """
        return self._derivative("fisher_derivative", q)

    def fisher_contraction(self, q: np.ndarray, M: np.ndarray) -> np.ndarray:
        """Return the contraction of the derivatives of the Fisher metric with a matrix.

        The result is ::

            sum_ij M[i, j] d fisher[i, j] / dq

        Parameters
        ----------
        q : array_like of shape (d,)
            Position.
        M : array_like of shape (d, d)
            Matrix, not necessarily symmetric.

        Returns
        -------
        ndarray of shape (d,)
            The contraction.

        Raises
        ------
        refhmc.errors.MissingDerivativeError
            If the model has neither the contraction nor the derivatives of the Fisher metric.
        refhmc.errors.ShapeError
            If `M` has another shape.
        """
        return self._derivative("fisher_contraction", q, M)

    def constrain(self, q: np.ndarray) -> dict[str, np.ndarray]:
        """Return the named, constrained values at one or many positions.

        Parameters
        ----------
        q : array_like of shape (d,) or (..., d)
            Positions.

        Returns
        -------
        dict of str to ndarray
            The values of each variable, with the leading axes of `q`.

        Raises
        ------
        refhmc.errors.ShapeError
            If the last axis of `q` does not have length d.

        Examples
        --------
        >>> import numpy as np
        >>> import refhmc
        >>> values = refhmc.models.LinearRegression().constrain(np.zeros((10, 5)))
        >>> {name: value.shape for name, value in values.items()}
        {'beta': (10, 4), 'sigma': (10,)}
        """
        q = np.asarray(q, dtype=float)
        if q.shape[-1:] != (self.dim,):
            raise ShapeError(f"q must have shape (..., {self.dim}) for {self.name!r}; got {q.shape}.")
        if self._constrain is None:
            return gather_by_name(self.names, q)
        if q.ndim == 1:
            return {key: np.asarray(value) for key, value in self._constrain(q.copy()).items()}
        rows = q.reshape(-1, self.dim)
        if len(rows) == 0:
            shapes = {k: np.shape(v) for k, v in self._constrain(np.zeros(self.dim)).items()}
            return {k: np.zeros(q.shape[:-1] + shape) for k, shape in shapes.items()}
        values = constrained_rows(self._constrain, rows)
        return {k: v.reshape(q.shape[:-1] + v.shape[1:]) for k, v in values.items()}

    @property
    def reference_names(self) -> list[str]:
        """The names of the scalar constrained values, in the order of ``reference.mean``."""
        names = []
        for key, value in self.constrain(np.zeros(self.dim)).items():
            indices = np.ndindex(np.shape(value))
            names += [key + "".join(f"[{i}]" for i in index) for index in indices]
        return names

    def _position(self, q: object, what: str = "position") -> np.ndarray:
        q = np.ascontiguousarray(array_of_numbers(f"{what} of {self.name!r}", q, ShapeError))
        if q.ndim == 0 and self.dim == 1:
            q = q.reshape(1)
        if q.shape != (self.dim,):
            raise ShapeError(f"{what} of {self.name!r} must have shape ({self.dim},); got {q.shape}.")
        return q

    def _derivative(self, key: str, q: np.ndarray, *M: np.ndarray) -> np.ndarray:
        q = self._position(q)
        M = tuple(np.ascontiguousarray(m, dtype=float) for m in M)
        for m in M:
            if m.shape != (self.dim, self.dim):
                raise ShapeError(f"M must have shape {(self.dim, self.dim)} in {key}; got {m.shape}.")
        if key == "gradient" and self.functions.gradient is None:
            return self.core.value_and_gradient(q)[1]
        self.require(key, f"model.{key}()")
        return self.core.derivative(key, q, *M)

    def why_absent(self, derivative: str) -> str:
        """Return why the model does not have a derivative, if that is known.

        Parameters
        ----------
        derivative : str
            Name of a method, such as "fisher".

        Returns
        -------
        str
            The reason, or an empty string if the model has the derivative or the reason is not known.
        """
        if self.has(derivative):
            return ""
        if len(self.discontinuous) == self.dim:
            return "all its coordinates are discontinuous, and derivatives exist in smooth coordinates only"
        return self._absent.get(derivative, "" if self.joint is None else self.joint.why_absent(derivative))

    def _how_to_give(self, derivatives: Sequence[str]) -> str:
        """Return how a user adds derivatives that the model lacks, or what to use instead, without a period."""
        if self.joint is not None:
            return self.joint._how_to_give(derivatives)
        if self.made_by is not None:
            return f"it is not defined for refhmc.models.{self.made_by[0]}; {self._without(derivatives)}"
        return f"give refhmc.Model(..., {arguments_for(derivatives)}"

    def _without(self, derivatives: Sequence[str]) -> str:
        """Return which metric to use instead of one that needs these derivatives."""
        if derivatives[0].startswith("fisher") and self.has("hessian") and self.has("hessian_contraction"):
            return "use refhmc.metrics.SoftAbs(), which needs the Hessian instead"
        return "use a metric that needs only the gradient, such as refhmc.metrics.Dense()"

    def require(self, key: str | Sequence[str], needed_by: str) -> None:
        """Raise an error if the model lacks a derivative.

        Parameters
        ----------
        key : str or sequence of str
            Name of a method, such as "hessian", or several names.
        needed_by : str
            What needs the derivative, for the message.

        Raises
        ------
        refhmc.errors.MissingDerivativeError
            If the model lacks a derivative. The message names all that it lacks, with the reason or the remedy.
        """
        missing = [each for each in ([key] if isinstance(key, str) else key) if not self.has(each)]
        if missing:
            more = next(filter(None, map(self.why_absent, missing)), "") or self._how_to_give(missing)
            raise MissingDerivativeError(
                f"Model {self.name!r} has no {' and no '.join(missing)}, which {needed_by} needs: {more}."
            )


def arguments_for(derivatives: Sequence[str], known: Collection[str] = DERIVATIVES) -> str:
    """Return the arguments that define derivatives, ``hessian=...)``, and those from which they can be computed."""
    sources = {key: source for key in derivatives if (source := SOURCE.get(key)) in known}
    others = [f", or {source}=..., from which {key} is computed" for key, source in sources.items()]
    return f"{', '.join(f'{key}=...' for key in derivatives)}){''.join(others)}"


ONE_GRADIENT = "a split model has a log density and a gradient only; use the original model for further derivatives"


class SplitModel(Model):
    """The sum of models of the same coordinates.

    It has a log density and a gradient, the sums over the parts. :meth:`refhmc.Model.split` creates one from the data of a
    single model; you can also give your own parts.

    Parameters
    ----------
    parts : sequence of Model
        The terms of the sum, without discontinuous coordinates.
    whole : Model, optional
        The model of which the parts are shares. Its names, axes and generated quantities are kept. Defaults to the first part.

    Attributes
    ----------
    parts : tuple of Model
        The terms of the sum.
    made_alike : bool
        Whether the parts are shares of one model.

    Raises
    ------
    ValueError
        If `parts` is empty, if the coordinates differ, or if one part is discontinuous.
    refhmc.errors.ModelError
        If a part is not a :class:`refhmc.Model`.

    Examples
    --------
    >>> import refhmc
    >>> prior = refhmc.models.Gaussian(0.0, [[4.0]])
    >>> likelihood = refhmc.models.Gaussian(1.0, [[0.5]])
    >>> model = refhmc.models.SplitModel([prior, likelihood])
    >>> model.log_density([1.0]) == prior.log_density([1.0]) + likelihood.log_density([1.0])
    True
    """

    def __init__(self, parts: Sequence[Model], whole: Model | None = None) -> None:
        self.parts = tuple(parts)
        if not self.parts:
            raise ValueError("parts must have at least one model; got none.")
        self.made_alike = whole is not None
        whole = self.parts[0] if whole is None else whole
        for m, part in enumerate(self.parts):
            if not isinstance(part, Model):
                raise ModelError(f"part {m} must be a refhmc.Model; got {type(part).__name__}.")
            if part.names != whole.names:
                raise ValueError(f"part {m} must have the coordinates of the first part; got {part!r} and {whole!r}.")
            if len(part.discontinuous):
                raise ValueError(
                    f"part {m} must not be discontinuous, because integrators of split models follow gradients."
                )
        pointers = [part.core.tuple_for_changes for part in self.parts]
        kinds = list(dict.fromkeys((pointer[1], pointer[4]) for pointer in pointers))
        gradients, changes = zip(*kinds, strict=True)
        self.whole = whole
        super().__init__(
            whole.dim,
            sum_of_densities(changes),
            value_and_gradient=sum_of_gradients(gradients),
            data=stacked([pointer[0] for pointer in pointers], [kinds.index((p[1], p[4])) for p in pointers]),
            names=whole.names,
            constrain=whole.constrain,
            parents=whole.parents,
            reference=whole.reference,
            initial=whole.initial,
            name=f"{whole.name} in {len(self.parts)} parts",
            noise=max(part.noise for part in self.parts),
            outputs=whole.outputs,
            likelihood=whole.likelihood,
            absent={key: ONE_GRADIENT for key in DERIVATIVES if key != "gradient"},
            # Parts that users give have data of their own.
            dims=whole.dims if self.made_alike else None,
            coords=whole.coords if self.made_alike else None,
            generated=whole.generated if self.made_alike else None,
        )

    def on_arrays(self, xp: ModuleType = np, streamed: bool = False) -> SumOnArrays:
        """Return the array implementation, the sum of those of the parts.

        Parameters
        ----------
        xp : module, default numpy
            Namespace of the array API.
        streamed : bool, default False
            Move the data of a part to `xp` for each of its evaluations. The data of two parts are then there at a time.

        Returns
        -------
        object
            Functions on arrays of positions (..., d). Its attribute ``parts`` holds those of the parts.
        """
        if not streamed:
            return SumOnArrays([part.on_arrays(xp) for part in self.parts])
        one = Sending([part.on_arrays for part in self.parts], xp).value_and_gradient
        evaluates = [functools.partial(one, m) for m in range(len(self.parts))]
        return SumOnArrays([StreamedOnArrays(evaluate, self.name, self.dim) for evaluate in evaluates])

    def __reduce__(self) -> tuple[Callable, tuple]:
        return SplitModel, (self.parts, self.whole if self.made_alike else None)

    @property
    def runs_as_python(self) -> str | None:
        """The reason why one of its parts runs as Python, or None if all are compiled."""
        return next(filter(None, (part.runs_as_python for part in self.parts)), None)

    def split(self, M: int, order: str | ArrayLike = "given") -> SplitModel:
        """Raise an error, because the model is already split.

        Parameters
        ----------
        M : int
            Ignored.
        order : str or array_like
            Ignored.

        Returns
        -------
        SplitModel
            Never.

        Raises
        ------
        NotImplementedError
            Always.
        """
        raise NotImplementedError(
            f"Model {self.name!r} is already split. Split the original model into more parts, or split its parts."
        )

    def made_of(self) -> Fingerprint:
        """Return the fingerprint of the parts.

        Returns
        -------
        Fingerprint
            The fingerprints of all parts, with the number of the part in each label.
        """
        found = [part.made_of() for part in self.parts]
        labelled = {f"part {m}: {label}": text for m, each in enumerate(found) for label, text in each.parts.items()}
        packages = tuple(dict.fromkeys(package for each in found for package in each.packages))
        unknown = tuple(f"part {m}: {label}" for m, each in enumerate(found) for label in each.unknown)
        return Fingerprint(labelled, packages, unknown)


def _rebuild(keywords: dict[str, Any]) -> Model:
    return Model(**keywords)
