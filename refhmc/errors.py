"""What refhmc raises before sampling begins, and the category of its warnings."""

from __future__ import annotations

from typing import Any


class InitError(ValueError):
    """A chain cannot start: the position, the log density or the gradient there is not finite."""


class ShapeError(ValueError):
    """An array of the wrong shape; the message has the expected and the given one."""


class ModelError(TypeError):
    """A model's function returned something that is not what it stands for."""


class GradientError(ValueError):
    """A derivative is not that of what it stands for (the pre-flight check); the message names it."""


class MetricError(ValueError):
    """A mass matrix that is not symmetric and positive definite."""


class MissingDerivativeError(NotImplementedError):
    """A derivative is needed that the model does not have."""


class MissingArrayImplementationError(NotImplementedError):
    """A model's text on arrays is needed, and it has none; the message names the models that have one."""


class DeviceError(RuntimeError):
    """A GPU is asked for, and there is none that works, or it is lost or has no memory left: then ``.partial`` has the draws
    that were on the host. (``sample`` never goes on with the CPU in its place.)"""

    partial: Any = None


class CheckpointError(ValueError):
    """A checkpoint that is corrupt, belongs to another run, or is being written to by one."""


class CheckpointWarning(UserWarning):
    """What a checkpoint cannot do: tell whether a part of the model is as it was, or keep a second run from its folder."""


class EvaluationError(ArithmeticError):
    """To be raised by a model's own Python function that cannot be evaluated at a position, with the reason.

    Sampling goes on, as at a position of density zero: the transition is a divergence, and the reason, how often and
    where are in a warning and in the result's attribute ``evaluation_failures``. A ZeroDivisionError, OverflowError or
    FloatingPointError counts as one, since compiled code goes on there with inf or NaN. (Any other exception ends the chain.)
    """


class SamplingError(RuntimeError):
    """Sampling stopped on an exception in the user's code; ``.partial`` is the result up to there."""

    partial: Any = None


class WarmupError(SamplingError):
    """Every transition of ``chain`` in warm-up diverged: its draws would all be where it began."""

    def __init__(self, text: str, chain: int | None = None) -> None:
        super().__init__(text)
        self.chain = chain


class WorkerDied(SamplingError):
    """A worker of the executor was lost again and again in one segment of ``chain``, after its iteration ``last_iteration``."""

    def __init__(self, text: str, chain: int | None = None, last_iteration: int | None = None) -> None:
        super().__init__(text)
        self.chain, self.last_iteration = chain, last_iteration


class SaveError(SamplingError):
    """The run is whole, and could not be written to its checkpoint or store at the end; ``.partial`` is the result."""


class ModelWarning(UserWarning):
    """A model is made of another library's without all that this one has, or is another one than a result is of; the text says
    what is left out, or what is different."""


class SamplingWarning(UserWarning):
    """A finished run whose draws deserve a look. The same text is in ``result.warnings``."""


class DiscontinuityWarning(SamplingWarning):
    """The log density jumps, and the kernel is made for smooth ones; the text has two points on either side of a jump."""


class CompileCacheWarning(UserWarning):
    """Compiled code that is damaged, or that somebody else could have written, is not used; it is compiled again."""


class PrecisionWarning(SamplingWarning):
    """The log density or its gradient is of single precision, or as noisy as if it were."""


class PythonModelWarning(UserWarning):
    """Numba could not compile a model's function; it runs as Python, through the same compiled kernels."""


def _see(section: str) -> str:
    """Return the sentence that ends a warning: the address of its section on the page about warnings."""
    return f"See docs/how_to/warnings.md#{section}."


def __getattr__(name: str) -> type[Exception]:
    if name != "MissingTextError":
        raise AttributeError(f"module 'refhmc.errors' has no attribute {name!r}")
    from refhmc._deprecated import warn_of_old_name

    warn_of_old_name("refhmc.errors.MissingTextError", "refhmc.errors.MissingArrayImplementationError")
    return MissingArrayImplementationError
