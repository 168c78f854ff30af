"""A model written in JAX, under the compositions that samplers use.

A custom derivative or batching rule may be right by itself and wrong in a composition: under ``vmap``, or when it is
differentiated again. From L = logp alone the row computes

    values        vmap(L), which must equal L
    gradients     grad(L), vmap(grad(L)), grad of sum vmap(L), jvp of L; vmap of a given gradient
    Hessians      jacfwd and jacrev of grad(L), vmap of both; vmap of a given Hessian

A gradient is compared with differences of L and a Hessian with differences of the gradient, as in ``derivatives/claims.py``.
The batches have three different points. A composition that JAX cannot compute, such as ``jacfwd`` through a ``custom_vjp``, is
left out and named in a note.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from refhmc.check.derivatives.claims import Claim, claim_at
from refhmc.check.judging import Cases, Measured
from refhmc.check.models.examination import ModelExamination, noise_of_logp, widths_at
from refhmc.check.subject.foreign import Foreign, NotApplicable, SubjectError, text_of

BATCH = 3
PLACES = 2


class Composition(NamedTuple):
    """A function of a batch of positions (n, d) whose answer [k] is a value, gradient or Hessian (``rank``) at position k."""

    name: str
    rank: int
    function: Callable


def composition_row(s: ModelExamination) -> Cases:
    """Yield the errors of compositions of logp and its derivatives in JAX, in units of the allowed error."""
    s.need("logp")
    jax = _jax_of(s)
    places = s.test_points(2 * PLACES)
    batches = [[places[(n + k) % len(places)] for k in range(BATCH)] for n in range(min(PLACES, len(places)))]
    gradient = s.functions["logp"].another(jax.jit(jax.grad(s.functions["logp"].function)))
    truths: dict[tuple, Claim] = {}
    left_out, compared = [], 0
    for made in _compositions(s, jax):
        try:
            answers = [_answers(s, made, batch) for batch in batches]
        except SubjectError as wrong:
            left_out.append(f"{made.name} ({type(wrong.__cause__ or wrong).__name__})")
            continue
        compared += 1
        for batch, values in zip(batches, answers, strict=True):
            for k, q in enumerate(batch):
                if made.rank and (made.rank, q.tobytes()) not in truths:
                    truths[made.rank, q.tobytes()] = _truth(s, made, gradient, [q, *batch[1:]])
                yield _measured(s, made, q, values[k], truths.get((made.rank, q.tobytes())))
    if left_out:
        s.notes.append(f"not supported by JAX, and not compared: {', '.join(left_out)}")
    if not compared:
        raise NotApplicable("JAX cannot trace logp")
    return f"{compared} compositions at {len(batches)} x {BATCH} points; in units of the tolerances above"


def _jax_of(s: ModelExamination) -> Any:
    """Return JAX if logp returns its arrays."""
    jax = sys.modules.get("jax")
    if jax is None or not isinstance(s.functions["logp"].raw(s.frame.centre), jax.Array):
        raise NotApplicable("logp is not a JAX function")
    return jax


def _compositions(s: ModelExamination, jax: Any) -> Iterator[Composition]:
    L = s.functions["logp"].function
    gradient = jax.grad(L)

    def one_by_one(f: Callable) -> Callable:
        compiled = jax.jit(f)
        return lambda Q: [compiled(q) for q in Q]

    def along(q: Any) -> Any:
        return jax.vmap(lambda u: jax.jvp(L, (q,), (u,))[1])(jax.numpy.eye(len(q), dtype=q.dtype))

    yield Composition("jax.vmap(logp)", 0, jax.jit(jax.vmap(L)))
    yield Composition("jax.grad(logp)", 1, one_by_one(gradient))
    yield Composition("jax.vmap(jax.grad(logp))", 1, jax.jit(jax.vmap(gradient)))
    yield Composition(
        "jax.grad(lambda Q: jax.vmap(logp)(Q).sum())", 1, jax.jit(jax.grad(lambda Q: jax.vmap(L)(Q).sum()))
    )
    yield Composition("jax.jvp of logp", 1, one_by_one(along))
    for key, rank in (("grad", 1), ("hess", 2)):
        if key in s.functions:
            yield Composition(f"jax.vmap({key})", rank, jax.jit(jax.vmap(s.functions[key].function)))
    for name, derivative in (("jacfwd", jax.jacfwd), ("jacrev", jax.jacrev)):
        yield Composition(f"jax.{name}(jax.grad(logp))", 2, one_by_one(derivative(gradient)))
        yield Composition(f"jax.vmap(jax.{name}(jax.grad(logp)))", 2, jax.jit(jax.vmap(derivative(gradient))))


def _answers(s: ModelExamination, made: Composition, batch: list[np.ndarray]) -> np.ndarray:
    watched = s.functions["logp"].another(made.function)
    answer = watched.raw(np.array(batch))
    shape = (len(batch), *(s.dim,) * made.rank)
    return watched.array(np.array(answer) if isinstance(answer, list) else answer, shape, "the answer").real


def _truth(s: ModelExamination, made: Composition, gradient: Foreign, batch: list[np.ndarray]) -> Claim:
    """Return the differences at the first position of the batch, with the allowed error."""
    q, widths = batch[0], widths_at(s, batch[0])

    def claimed(x: np.ndarray) -> np.ndarray:
        return _answers(s, made, [x, *batch[1:]])[0]

    u, epsilon = s.directions(np.random.default_rng([s.seed, 12])), s.epsilon("logp")
    if made.rank == 1:
        return claim_at(s.at("logp"), claimed, q, u, s.frame.scales, epsilon=epsilon, claim_epsilon=epsilon, least=1.0)
    lower = s.at("grad") if "grad" in s.functions else functools.partial(gradient.vector, (s.dim,))
    more: dict[str, Any] = {"unit": 1.0 / widths, "epsilon": epsilon, "claim_epsilon": epsilon}
    return claim_at(lower, claimed, q, u, widths, start=0.1, growth=4.0, **more)


def _measured(
    s: ModelExamination, made: Composition, q: np.ndarray, value: np.ndarray, truth: Claim | None
) -> Measured:
    """Return the worst entry of the answer at q, in units of the allowed error."""
    case = f"{made.name} at np.array({text_of(q)})"
    if truth is None:
        right, said = float(np.real(s.at("logp")(q))), float(value)
        allowed = 256 * max(noise_of_logp(s), s.epsilon("logp")) * (1.0 + abs(right))
        return Measured(abs(said - right) / allowed, 1.0, f"{case}  # {said:.9g}; one by one: {right:.9g}")
    claim = truth._replace(value=value @ truth.directions.T)
    excess = claim.excess()
    index = np.unravel_index(int(np.argmax(excess)), excess.shape)
    numbers = f"{claim.value[index]:.9g}; differences: {claim.truth[index]:.9g}"
    return Measured(float(excess[index]), 1.0, f"{case}  # entry {[int(i) for i in index]}: {numbers}")
