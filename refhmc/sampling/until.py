"""A stopping rule: chains draw until effective sample sizes, R-hat and standard errors are good enough.

All chains make n_1 draws, and the rule is checked on them. If it is not met, they make n_2 > n_1 draws in all, and so on, up to
a limit. The effective sample size grows like n and the standard error of a mean like n^-1/2, so that

    n_{k+1} = n_k min(2, max(1.2, 1.1 F)),    F = max(wanted ESS / ESS, (standard error / wanted one)^2)

F is 1.5 if only R-hat is too high. A rule that looks at the draws stops more often where they happen to look good. The size of
this effect is measured in ``validation/results/stopping.md``.

The draws are those of a run of as many draws without a rule. When to stop depends on the draws only, so that a run with a seed
can be repeated and resumed. Vats, Flegal and Jones (2019), Biometrika 106, 321-337, consider related rules, which end when the
standard errors are small relative to the posterior's own spread.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from refhmc.core.arguments import is_number, whole_number
from refhmc.models.base import Model
from refhmc.numerics.convergence import FEWEST, ess, ess_of_mean, rhat, tail_ess

LEAST_GROWTH, MOST_GROWTH, MARGIN, FOR_RHAT = 1.2, 2.0, 1.1, 1.5
COLUMNS = 2000  # beyond so many coordinates, an even selection of them


class Drawn(NamedTuple):
    """Draws that a rule is checked on.

    ``shape`` is (chain, draw, d), ``coordinates(columns)`` returns some coordinates (chain, draw, k), and ``values(name)`` a
    variable (chain, draw, ...).
    """

    shape: tuple[int, ...]
    coordinates: Callable[[np.ndarray], np.ndarray]
    values: Callable[[str], np.ndarray]


class Shortfall(NamedTuple):
    """A condition that is not met, in words, and by what factor more draws should meet it."""

    text: str
    factor: float


@dataclass(frozen=True, kw_only=True)
class Until:
    """Stopping rule: draw until the draws are good enough, or until there are `max_draws`.

    The rule is checked when each chain has made the `draws` of :func:`refhmc.sample`, and then every time that their number has
    grown by a factor between 1.2 and 2, depending on what is missing. All conditions must hold.

    Parameters
    ----------
    ess : float, default 400
        Least effective sample size of all chains together, bulk and tail, of each unconstrained coordinate. None leaves the
        condition out.
    rhat : float, default 1.01
        Largest R-hat of each unconstrained coordinate. None leaves the condition out, as one chain does.
    mcse : dict of str to float, optional
        Largest Monte Carlo standard error of the mean of each named variable, as in ``{"mu": 0.01}``. If a variable has
        several entries, the largest error counts.
    max_draws : int, default 10000
        Most draws per chain. If the rule is not met then, there is a warning.

    Raises
    ------
    ValueError
        If a number is out of range, if all conditions are None, or, when `refhmc.sample` is called, if a name in `mcse` is not
        a variable of the model or if `max_draws` is less than `draws`.
    TypeError
        If an argument has another type.

    See Also
    --------
    sample : Its argument `until` takes the rule.

    Notes
    -----
    The draws are those of a run of as many draws without a rule. With more than 2,000 coordinates, an even selection of 2,000
    is checked. A rule stops more often where the draws happen to look good; ``docs/guide/long_runs.md`` has measurements of
    this bias. No rule sees a part of the distribution that all chains have missed.

    References
    ----------
    - Vats, Flegal and Jones (2019), Multivariate output analysis for Markov chain Monte Carlo, Biometrika 106, 321-337.
    - Vehtari, Gelman, Simpson, Carpenter and Buerkner (2021), Rank-normalization, folding, and localization: an improved R-hat
      for assessing convergence of MCMC, Bayesian Analysis 16, 667-718, for the three measures.

    Examples
    --------
    >>> import refhmc
    >>> rule = refhmc.Until(ess=400, mcse={"tau": 0.2}, max_draws=5000)
    >>> model, options = refhmc.models.EightSchools(), {"random_seed": 1, "progressbar": False, "raw": True}
    >>> result = refhmc.sample(model, draws=100, until=rule, **options)
    >>> 100 < result.draws.shape[1] < 5000, result.attributes["until_unmet"]
    (True, [])
    """

    ess: float | None = 400.0
    rhat: float | None = 1.01
    mcse: Mapping[str, float] | None = None
    max_draws: int = 10_000

    def __post_init__(self) -> None:
        for name, least in (("ess", 0.0), ("rhat", 1.0)):
            value = getattr(self, name)
            if value is not None and not (is_number(value) and least < value < math.inf):
                raise ValueError(f"{name} must be a number above {least:g}, or None; got {value!r}.")
        whole_number("max_draws", self.max_draws)
        if self.mcse is not None and not isinstance(self.mcse, Mapping):
            raise TypeError(f"mcse must map names of variables to numbers; got {self.mcse!r}.")
        for name, value in (self.mcse or {}).items():
            if not isinstance(name, str) or not (is_number(value) and 0 < value < math.inf):
                raise ValueError(f"mcse must map names of variables to positive numbers; got {name!r}: {value!r}.")
        if self.ess is None and self.rhat is None and not self.mcse:
            raise ValueError("Until needs a condition; got None for ess and rhat, and no mcse.")

    def as_json(self) -> dict[str, object]:
        """Return the arguments as JSON.

        Returns
        -------
        dict
            The arguments of this rule.
        """
        mcse = None if self.mcse is None else {name: float(value) for name, value in self.mcse.items()}
        numbers = {"ess": self.ess, "rhat": self.rhat}
        floats = {name: None if value is None else float(value) for name, value in numbers.items()}
        return {**floats, "mcse": mcse, "max_draws": int(self.max_draws)}


def in_memory(model: Model, q: np.ndarray) -> Drawn:
    """Return the draws `q` (chain, draw, d) for a check."""

    def coordinates(columns: np.ndarray) -> np.ndarray:
        return q if len(columns) == q.shape[2] else q[:, :, columns]

    return Drawn(q.shape, coordinates, lambda name: model.constrain(q)[name])


def unmet(rule: Until, names: Sequence[str], draws: Drawn) -> list[Shortfall]:
    """Return the conditions that the draws do not meet; `names` (d,) are those of the coordinates.

    A measure that is not defined, because of too few draws or of values that are not finite, does not meet its condition.
    """
    chains, n, d = draws.shape
    if n < FEWEST:
        return [Shortfall(f"{n} draws per chain are too few", MOST_GROWTH)]
    columns = np.unique(np.linspace(0, d - 1, min(d, COLUMNS)).astype(int))
    x, found = draws.coordinates(columns), []
    if rule.ess is not None:
        for kind, sizes in (("bulk", ess(x)), ("tail", tail_ess(x))):
            if not (sizes >= rule.ess).all():
                worst = int(np.argmin(np.nan_to_num(sizes, nan=-np.inf)))
                text = f"{kind} ESS {sizes[worst]:.0f} of {rule.ess:g} ({names[columns[worst]]})"
                found.append(Shortfall(text, rule.ess / sizes[worst]))
    if rule.rhat is not None and chains > 1:
        ratios = rhat(x)
        if not (ratios <= rule.rhat).all():
            worst = int(np.argmax(np.nan_to_num(ratios, nan=np.inf)))
            text = f"R-hat {ratios[worst]:.3f}, allowed {rule.rhat:g} ({names[columns[worst]]})"
            found.append(Shortfall(text, FOR_RHAT))
    for name, most in (rule.mcse or {}).items():
        values = np.asarray(draws.values(name), dtype=float).reshape(chains, n, -1)
        with np.errstate(all="ignore"):
            errors = values.std(axis=(0, 1), ddof=1) / np.sqrt(ess_of_mean(values))
        if not (errors <= most).all():
            error = float(np.max(np.nan_to_num(errors, nan=np.inf)))
            found.append(Shortfall(f"standard error {error:.3g}, allowed {most:g} ({name})", (error / most) ** 2))
    return found


def check_names(rule: Until, variables: Iterable[str]) -> None:
    """Raise ValueError for a name in ``mcse`` that is not among the model's `variables`."""
    for name in rule.mcse or {}:
        if name not in variables:
            raise ValueError(f"mcse of until must name variables of the model ({', '.join(variables)}); got {name!r}.")


def next_number(draws: int, missing: list[Shortfall], most: int) -> int:
    """Return the number of draws at which to check the rule again."""
    factors = [each.factor if each.factor > 0 else MOST_GROWTH for each in missing]  # also a NaN
    return min(most, math.ceil(draws * min(MOST_GROWTH, max(LEAST_GROWTH, MARGIN * max(factors)))))
