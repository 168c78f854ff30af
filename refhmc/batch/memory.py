"""Values of a model at the positions of the chains, kept while they are needed at the same arrays of positions.

The array implementations of metrics and integrators ask a model for its gradient wherever the mathematics has it: at the
end of one step and at the beginning of the next, in the energy and in the force. Nothing is evaluated twice at an array
that is the same object. If an integrator follows the parts of a split model, the whole is their sum (``by_parts``), and a
part that is known is not evaluated again for it. Code that writes to such an array must call :meth:`Remembering.forget`
first.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from refhmc.metrics.base import ArrayModel
from refhmc.numerics.batched import Array

T = TypeVar("T")
POSITIONS = 2  # the start of a step, and the present position


class Remembering:
    """A model's functions on arrays (:mod:`refhmc.models.on_arrays`), each evaluated once at the last positions.

    ``counts`` has the evaluations, for all chains, of the gradient, of the metric (Fisher or Hessian), of its contraction,
    and of a change of L alone. A part's gradient counts as one. ``asked`` is the last position. ``look`` is called before
    each evaluation; an exception in it ends the run.
    """

    by_parts = False
    asked: Array

    def __init__(
        self, text: ArrayModel, counts: dict[str, int] | None = None, look: Callable[[], None] | None = None
    ) -> None:
        self.text, self.dim, self.discontinuous, self.look = text, text.dim, text.discontinuous, look
        self.fisher_levels = getattr(text, "fisher_levels", None)  # which a user's own may lack
        self.at: list[tuple[Array, dict[str, Any]]] = []
        self.constants: dict[str, Any] = {}
        self.counts = dict.fromkeys(("gradient", "metric", "contraction", "change"), 0) if counts is None else counts
        self.parts = [Remembering(part, self.counts, look) for part in text.parts]
        change = getattr(text, "log_density_change", None)
        self.log_density_change = None if change is None else partial(self.counted, "change", "log_density_change")

    def remember(self, name: str, q: Array, compute: Callable[[], T]) -> T:
        """Return ``compute()``, or its earlier result for this ``name`` at this array."""
        self.asked = q
        found = next((known for position, known in self.at if position is q), None)
        if found is None:
            found = {}
            self.at = [*self.at[-(POSITIONS - 1) :], (q, found)]
        if name not in found:
            found[name] = compute()
        return found[name]

    def keep(self, name: str, compute: Callable[[], T]) -> T:
        """Return ``compute()``, or its earlier result for this ``name``, which is the same at all positions of a run."""
        if name not in self.constants:
            self.constants[name] = compute()
        return self.constants[name]

    def forget(self) -> None:
        """Forget all values that depend on positions."""
        self.at = []
        for part in self.parts:
            part.forget()

    def know(self, q: Array, log_density: Array, gradient: Array) -> None:
        """Store values at ``q`` that are known from before."""
        self.remember("value_and_gradient", q, lambda: (log_density, gradient))

    def some(self, q: Array, mask: Array) -> Array:
        """Return the rows of q in the mask, and store what the parts know of them."""
        rows = q[mask]
        for part in self.parts:
            known = next((known for position, known in part.at if position is q), {})
            if "value_and_gradient" in known:
                part.know(rows, *(x[mask] for x in known["value_and_gradient"]))
        return rows

    def counted(self, what: str, name: str, *arguments: Array) -> Array | tuple[Array, Array]:
        """Evaluate a function of the model, and count it."""
        if self.look is not None:
            self.look()
        self.counts[what] += arguments[0].shape[0]
        return getattr(self.text, name)(*arguments)

    def value_and_gradient(self, q: Array) -> tuple[Array, Array]:
        """Return L and dL/dq."""
        whole = self.sum_of_parts if self.by_parts else partial(self.counted, "gradient", "value_and_gradient")
        return self.remember("value_and_gradient", q, lambda: whole(q))

    def sum_of_parts(self, q: Array) -> tuple[Array, Array]:
        """Return the sums of L_m and of dL_m/dq over the parts."""
        values, gradients = zip(*(part.value_and_gradient(q) for part in self.parts), strict=True)
        return sum(values[1:], values[0]), sum(gradients[1:], gradients[0])

    def log_density(self, q: Array) -> Array:
        """Return L."""
        return self.value_and_gradient(q)[0]

    def gradient(self, q: Array) -> Array:
        """Return dL/dq."""
        return self.value_and_gradient(q)[1]

    def hessian(self, q: Array) -> Array:
        """Return the Hessian."""
        return self.remember("hessian", q, lambda: self.counted("metric", "hessian", q))

    def fisher(self, q: Array) -> Array:
        """Return the Fisher metric."""
        return self.remember("fisher", q, lambda: self.counted("metric", "fisher", q))

    def fisher_bands(self, q: Array) -> Array:
        """Return the bands of the Fisher metric."""
        return self.remember("fisher_bands", q, lambda: self.counted("metric", "fisher_bands", q))

    def hessian_contraction(self, q: Array, M: Array) -> Array:
        """Return the contraction of the Hessian's derivative with M."""
        return self.counted("contraction", "hessian_contraction", q, M)

    def fisher_contraction(self, q: Array, M: Array) -> Array:
        """Return the contraction of the Fisher metric's derivative with M."""
        return self.counted("contraction", "fisher_contraction", q, M)
