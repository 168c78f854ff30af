"""Named parameters with supports, and the models that they make."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from refhmc._deprecated import renamed_arguments
from refhmc.models.base import Model
from refhmc.parameters.coordinates import Coordinates
from refhmc.parameters.model import FunctionsOfValues, ParametersModel


class Parameters(Coordinates):
    """Named parameters, each with its support.

    The values of all parameters form a named tuple, ``Values``, in the order in which they are given. A parameter with shape
    () is a float in it, and any other an array of its shape. Second derivatives use the values as one row of ``count``
    numbers: entries of an array in C order, one parameter after another. ``at.theta`` is the index of the first entry of
    ``theta``.

    A chain moves in the coordinates (:mod:`refhmc.parameters.supports`), of which there are ``dim``, with ``names``.

    Parameters
    ----------
    parents : mapping of str to sequence of str, optional
        The parameters on which the conditional prior of a parameter depends: ``{"theta": ["mu", "tau"]}``. A parameter that
        is not listed has no parents. ``{}`` states that no parameter has any, and None that they are not known. The metric
        ``Hierarchical`` uses them.
    **supports : Support
        The support of each parameter, by name. A name must be a valid field of a named tuple, and must not be "chain",
        "draw" or "parents".

    Attributes
    ----------
    supports : dict of str to Support
        The supports by name.
    names : list of str
        Names of the coordinates, (dim,).
    dim : int
        Number of coordinates.
    count : int
        Number of values.
    at : named tuple of int
        Index of the first value of each parameter.
    Values : type
        The named tuple of values.
    dims : dict of str to tuple of str
        Names of the axes of the parameters that have them.
    parents : dict of str to tuple of str, or None
        The parents of every parameter, or None if they are not known.

    Raises
    ------
    refhmc.errors.ModelError
        If a support is not a :class:`refhmc.parameters.Support`, or if names are invalid or collide.
    refhmc.errors.ShapeError
        If `parents` contain an unknown name or form a cycle.

    See Also
    --------
    refhmc.Model : A model defined by functions of unconstrained coordinates.

    Examples
    --------
    >>> import refhmc
    >>> from refhmc.parameters import Positive, Real
    >>> parameters = refhmc.Parameters(mu=Real(), tau=Positive(), theta=Real(shape=2, dims="school"))
    >>> parameters.names
    ['mu', 'log_tau', 'theta[0]', 'theta[1]']
    >>> parameters.unconstrain({"mu": 0.5, "tau": 1.0, "theta": [2.0, 3.0]}).tolist()
    [0.5, 0.0, 2.0, 3.0]
    """

    @renamed_arguments(trace="hessian_contraction", fisher_trace="fisher_contraction")
    def model(
        self,
        log_density: Callable,
        gradient: Callable,
        hessian: Callable | None = None,
        third_derivative: Callable | None = None,
        hessian_contraction: Callable | None = None,
        fisher: Callable | None = None,
        fisher_contraction: Callable | None = None,
        data: Any = None,
        *,
        value_and_gradient: Callable | None = None,
        **options: Any,
    ) -> ParametersModel:
        """Return the model with a density of the values, given by plain functions.

        All functions take ``(values, data)``, or ``(values,)`` for a model without data. `values` is a copy, which they may
        overwrite.

        Parameters
        ----------
        log_density : callable
            ``(values, data) -> float``, the logarithm of the density up to a constant, with respect to the measures in
            :mod:`refhmc.parameters.supports`. refhmc adds the log-Jacobians.
        gradient : callable
            ``(values, data)``, the derivatives by the values, each treated as free. It returns a tuple with one entry per
            parameter, in order or as ``parameters.Values(mu=..., tau=...)``, each a number or an array of the parameter's
            shape. A function with a third argument ``out`` (count,), which contains zeros, writes there instead:
            ``out[at.mu] = ...``, with ``at = parameters.at``.
        hessian : callable, optional
            ``(values, data)``, a new symmetric array (count, count), or written to a third argument ``out``:
            ``out[at.mu, at.theta + j] = ...``.
        third_derivative : callable, optional
            ``(values, data)``, the tensor (count, count, count), returned or written as the Hessian is. It requires
            `hessian`.
        hessian_contraction : callable, optional
            ``(values, data, M)`` with a symmetric M (count, count): sum_ab M[a, b] d hessian[a, b] / dx_c, returned or
            written (``out`` after ``M``) as the gradient is. It requires `hessian`, and is used instead of
            `third_derivative`.
        fisher : callable, optional
            ``(values, data)``, a positive definite matrix (count, count), returned or written as the Hessian is. It is the
            metric of :class:`refhmc.metrics.Fisher`, transformed to the coordinates as a tensor.
        fisher_contraction : callable, optional
            ``(values, data, M)``, the contraction of the derivative of `fisher`, as `hessian_contraction`. It requires
            `fisher`.
        data : object, optional
            Data passed to the functions, as in :class:`refhmc.Model`. Lists and tables become arrays.
        value_and_gradient : callable, optional
            ``(values, data, out) -> float``, the log density, with the gradient written to ``out`` (count,), if the two
            share work.
        **options : object
            Further options of :class:`refhmc.Model`. `initial` may also be values by name. `dims` are those of other
            variables, which `generated` computes.

        Returns
        -------
        Model
            The model, with ``parameters`` as attribute.

        Raises
        ------
        refhmc.errors.ModelError
            If a function is not callable or takes other arguments, or if an option follows from the parameters. A wrong
            return value raises at the first call.

        Examples
        --------
        >>> import refhmc
        >>> from refhmc.parameters import Positive
        >>> parameters = refhmc.Parameters(tau=Positive())
        >>> model = parameters.model(lambda values: -values.tau, lambda values: (-1.0,), in_python="example")
        >>> round(float(model.log_density([0.5])), 3)
        -1.149
        """
        derivatives = (hessian, third_derivative, hessian_contraction, fisher, fisher_contraction)
        functions = FunctionsOfValues(log_density, gradient, value_and_gradient, *derivatives)
        return ParametersModel(self, functions, data, options)

    def ode(self, functions: tuple, **arguments: Any) -> Model:
        """Return the posterior of an ODE with these parameters; called by :func:`refhmc.models.ODE`.

        Parameters
        ----------
        functions : tuple of callable
            Right-hand side of the equations and its derivatives.
        **arguments : object
            Arguments of :func:`refhmc.models.ODE`.

        Returns
        -------
        Model
            The posterior.
        """
        from refhmc.parameters.ode import model_of

        return model_of(functions, parameters=self, **arguments)
