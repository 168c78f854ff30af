"""Exceptions of refhmc, and the categories of its warnings."""

from __future__ import annotations

from typing import Any


class InitError(ValueError):
    """Raised if a chain cannot start, because the position, log density or gradient is not finite."""


class ShapeError(ValueError):
    """Raised if an array has the wrong shape; the message gives the expected and the given shape."""


class ModelError(TypeError):
    """Raised if a model is defined inconsistently, or if one of its functions returns an invalid value."""


class GradientError(ValueError):
    """Raised if a derivative is not that of its function.

    The check before sampling compares derivatives with differences; the message names the derivative and the coordinate.
    """


class MetricError(ValueError):
    """Raised if a mass matrix is not symmetric and positive definite."""


class MissingDerivativeError(NotImplementedError):
    """Raised if a derivative is required that the model does not have."""


class MissingArrayImplementationError(NotImplementedError):
    """Raised if an array implementation is required that the model does not have.

    The message names the models that have one.
    """


class DeviceError(RuntimeError):
    """Raised if a GPU is requested but not available, or is lost or out of memory during a run.

    :func:`refhmc.sample` never continues on the CPU instead.

    Attributes
    ----------
    partial : Result or None
        The draws that were already on the host.
    """

    partial: Any = None


class CheckpointError(ValueError):
    """Raised if a checkpoint is corrupt, belongs to another run, or is in use by another process."""


class CheckpointWarning(UserWarning):
    """Issued if a checkpoint is less safe than usual.

    Either a part of the model cannot be compared with that of the saved run, or the folder cannot be locked.
    """


class EvaluationError(ArithmeticError):
    """Raised by a user's own Python function that cannot be evaluated at a position.

    Raise it with the reason. Sampling continues as at a position with density zero: the transition is a divergence. A
    warning and the result's attribute ``evaluation_failures`` give reason, count and position. A ZeroDivisionError,
    OverflowError or FloatingPointError counts as one, because compiled code continues with inf or NaN. Any other exception
    ends the chain.

    Examples
    --------
    >>> import refhmc
    >>> def log_density(q):
    ...     if q[0] > 100:
    ...         raise refhmc.errors.EvaluationError("the solver does not converge for q[0] above 100")
    ...     return -0.5 * q @ q
    """


class SamplingError(RuntimeError):
    """Raised if an exception in the user's code stops sampling.

    Attributes
    ----------
    partial : Result or None
        The result up to the exception.
    """

    partial: Any = None


class WarmupError(SamplingError):
    """Raised if every warm-up transition of a chain diverged, so that all its draws would equal its start.

    Parameters
    ----------
    text : str
        The message.
    chain : int, optional
        Number of the chain.

    Attributes
    ----------
    chain : int or None
        Number of the chain.
    partial : Result or None
        The result up to the exception.
    """

    def __init__(self, text: str, chain: int | None = None) -> None:
        super().__init__(text)
        self.chain = chain


class WorkerDied(SamplingError):
    """Raised if a worker of the executor was lost repeatedly in the same segment of a chain.

    Parameters
    ----------
    text : str
        The message.
    chain : int, optional
        Number of the chain.
    last_iteration : int, optional
        Last completed iteration of the chain.

    Attributes
    ----------
    chain : int or None
        Number of the chain.
    last_iteration : int or None
        Last completed iteration of the chain.
    partial : Result or None
        The result up to the exception.
    """

    def __init__(self, text: str, chain: int | None = None, last_iteration: int | None = None) -> None:
        super().__init__(text)
        self.chain, self.last_iteration = chain, last_iteration


class SaveError(SamplingError):
    """Raised if a complete run could not be written to its checkpoint or store.

    Attributes
    ----------
    partial : Result or None
        The complete result.
    """


class ModelWarning(UserWarning):
    """Issued if a model from another library lacks some of its parts, or if a result belongs to another model.

    The message names what is left out, or what differs.
    """


class SamplingWarning(UserWarning):
    """Issued if the draws of a finished run have a problem; ``result.warnings`` contains the same message."""


class DiscontinuityWarning(SamplingWarning):
    """Issued if the log density jumps, but the kernel requires a smooth one.

    The message gives two points on either side of a jump.
    """


class CompileCacheWarning(UserWarning):
    """Issued if cached compiled code is damaged or writable by other users; it is compiled again."""


class PrecisionWarning(SamplingWarning):
    """Issued if the log density or its gradient is accurate only to single precision or to the tolerance of a solver."""


class PythonModelWarning(UserWarning):
    """Issued if Numba cannot compile a function of a model, which then runs as Python."""


def _see(section: str) -> str:
    """Return the sentence that ends a warning: the address of its section on the page about warnings."""
    return f"See docs/how_to/warnings.md#{section}."


def __getattr__(name: str) -> type[Exception]:
    if name != "MissingTextError":
        raise AttributeError(f"module 'refhmc.errors' has no attribute {name!r}")
    from refhmc._deprecated import warn_of_old_name

    warn_of_old_name("refhmc.errors.MissingTextError", "refhmc.errors.MissingArrayImplementationError")
    return MissingArrayImplementationError
