"""Call signatures of foreign functions: arguments by meaning, in the order of the function.

The name of a parameter indicates its meaning (``NAMES``). If the names do not suffice, one :class:`CallShape` after the other
is tried with :func:`first_working`.

    step(q, p, eps, n)    CallShape(("q", "p", "eps", "n"))
    kernel(draws, q)      CallShape(("draws", "q"))
    kernel(rng, q)        CallShape(("draws", "q"), generator=True)
    kern(q, p0=, u=)      CallShape(("q",), {"p": "p0", "u": "u"})
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, TypeVar

import numpy as np

from refhmc.check.subject.draws import Draws, as_generator
from refhmc.check.subject.foreign import Foreign, Inconclusive, SubjectError

A = TypeVar("A")
T = TypeVar("T")

NAMES = {
    "draws": "draws draw rng generator gen random random_state randomness rand prng source stream state_rng rnd key",
    "q": "q q0 x x0 z0 theta position pos current start point params",
    "p": "p p0 r r0 v v0 mom momentum momenta velocity rho0",
    "eps": "eps epsilon step_size stepsize dt h eps0",
    "depth": "depth max_depth max_treedepth max_tree_depth maxdepth max_doublings tree_depth j_max",
    "leap": "leap leapfrog integrator integrate leapfrog_step map",
    "target": "target model logp log_density log_prob logpdf log_p density hamiltonian energy H",
    "n": "n n_steps nsteps n_step steps num_steps l L n_leapfrog num_leapfrog_steps",
}
MEANING = {name: meaning for meaning, names in NAMES.items() for name in names.split()}
GENERATORS = {"rng", "generator", "gen", "random_state", "prng", "rnd"}  # names for NumPy's generator
RANDOMNESS = {*NAMES["draws"].split(), "rng_key", "seed"}  # names for any source of random numbers
CALL_ERRORS = (AttributeError, TypeError)  # exceptions of a function that is called with a wrong signature


def parameters(function: Callable) -> dict[str, inspect.Parameter]:
    """Return a function's parameters by name; empty if they are unknown."""
    try:
        return dict(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return {}


def positional(function: Callable) -> list[inspect.Parameter]:
    """Return the parameters that can be given by position."""
    by_position = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [x for x in parameters(function).values() if x.kind in by_position]


def required(function: Callable) -> list[inspect.Parameter]:
    """Return the positional parameters without a default."""
    return [x for x in positional(function) if x.default is x.empty]


def takes_any(function: Callable) -> bool:
    """Return whether the number of positional arguments is unknown or unlimited."""
    told = parameters(function).values()
    return not told or any(x.kind == x.VAR_POSITIONAL for x in told)


def needed_by(function: Callable) -> int | None:
    """Return the number of required positional arguments, or None if it is unknown."""
    return None if takes_any(function) else len(required(function))


def meaning_of(name: str) -> str | None:
    """Return the meaning of a parameter's name, a key of ``NAMES``."""
    return MEANING.get(name, MEANING.get(name.lower()))


def meanings(function: Callable) -> dict[str, inspect.Parameter]:
    """Return the function's parameters by their meaning: "q" -> the parameter, ..."""
    found: dict[str, inspect.Parameter] = {}
    for parameter in parameters(function).values():
        meaning = meaning_of(parameter.name)
        if meaning is not None and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            found.setdefault(meaning, parameter)
    return found


def wants_generator(function: Callable) -> bool:
    """Return whether one of its parameters has a name for NumPy's generator."""
    return any(name.lower() in GENERATORS for name in parameters(function))


class CallShape(NamedTuple):
    """Meanings of the positional arguments in their ``order``, and of keyword arguments with the ``named`` parameter.

    With ``generator`` the function uses NumPy's interface for random numbers.
    """

    order: tuple[str, ...]
    named: dict[str, str] = {}  # noqa: RUF012
    generator: bool = False

    def call(self, foreign: Foreign, **values: Any) -> Any:
        """Call it with ``values`` by meaning; None is left out."""
        if self.generator and isinstance(values.get("draws"), Draws):
            values["draws"] = as_generator(values["draws"])
        by_name = {name: values[m] for m, name in self.named.items() if values.get(m) is not None}
        return foreign.raw(*(values[m] for m in self.order if values[m] is not None), **by_name)

    def source(self, rng: np.random.Generator) -> np.random.Generator | Draws:
        """Return randomness from ``rng`` that is not recorded."""
        return rng if self.generator else Draws(rng)


def step_shape(function: Callable) -> tuple[CallShape, bool | None]:
    """Return the signature of step([draws], q, p, eps, n), and whether it takes n (None: to be found by trying)."""
    if takes_any(function):
        return CallShape(("q", "p", "eps", "n")), None
    told = positional(function)
    first = told[0].name.lower() if told else ""
    random = first == "draws" or first in GENERATORS
    told = told[random:]
    counts = len(told) > 3 and (told[3].default is told[3].empty or meaning_of(told[3].name) == "n")
    return CallShape(("draws",) * random + ("q", "p", "eps", "n"), generator=first in GENERATORS), counts


def order_of_two(function: Callable, last: bool = False) -> tuple[str, ...]:
    """Return the order of randomness and a state by the parameters' names; ``last``: randomness second if in doubt."""
    names = [p.name for p in parameters(function).values() if p.default is p.empty]
    if len(names) == 1 and names[0] not in RANDOMNESS:
        return ("q",)
    first = bool(names) and names[0] in RANDOMNESS
    second = len(names) > 1 and names[1] in RANDOMNESS
    return ("q", "draws") if second or (last and not first) else ("draws", "q")


def first_working(
    attempts: Iterable[A],
    works: Callable[[A], T],
    *foreign: Foreign,
    goes_on: Callable[[Exception], bool] = lambda wrong: not isinstance(wrong, Inconclusive),
) -> tuple[A, T]:
    """Return the first attempt at which ``works`` succeeds, and its result; ``foreign`` forget the other attempts.

    If all fail, raise the first error that is not about the call itself, or else the first error. An error for which
    ``goes_on`` is false is raised immediately.
    """
    errors: list[Exception] = []
    for attempt in attempts:
        try:
            found = works(attempt)
        except (SubjectError, Inconclusive) as wrong:
            if not goes_on(wrong):
                raise
            errors.append(wrong)
        else:
            for f in foreign if errors else ():
                f.forget()
            return attempt, found
    raise next((wrong for wrong in errors if not isinstance(wrong.__cause__, CALL_ERRORS)), errors[0])
