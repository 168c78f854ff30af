"""Whether a figure of ours agrees with a published one: standard errors, degrees of freedom, verdicts and their power.

Published x with standard error s, ours y with standard error t, both of means over trials. With the same expectation

    y - x = T + U,    T / sqrt(s^2 + t^2) Student's t with f degrees of freedom,    U uniform on (-r, r)

where f is Welch's, (s^2 + t^2)^2 / (s^4/f_s + t^4/f_t), and r half a unit of the last printed digit. Then

    p = P(|T + U| >= |y - x|),
    a figure differs if p < 1 - (1 - ALARM)^(1/m)    (Sidak: m comparisons of figures that agree give any false alarm with
                                                      probability ALARM),
    told: the true difference at which that happens with probability POWER.

f is one less than the number of trials, of batches, or of the draws that an error comes from. An error that is missing is the
other side's, scaled to the number and length of the trials: if the figures agree, so do the spreads. The same holds for an
error printed as 0.00, which is below r.

Several figures together, as the rows of one setting: u = sign(y - x) Phi^-1(1 - p/2) is standard normal for each, so that
sum u / sqrt(k) is (Stouffer) if they are independent, and sum u / k has at most the variance 1 whatever their dependence.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import math
import re
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import scipy.optimize
import scipy.stats

ALARM = 0.05  # the chance that a table has any false alarm, if everything agrees
POWER = 0.9  # the chance with which the difference told would have been found
PAPER_TRIALS = 10
NODES, WEIGHTS = np.polynomial.legendre.leggauss(200)


@dataclasses.dataclass
class Estimate:
    """A mean over ``n`` trials with its standard error; NaN where too few trials give none.

    ``length``: draws of a trial, in units of the other figure's trials. ``freedom``: degrees of freedom of the error, n - 1
    if None.
    """

    value: float
    error: float
    n: int = PAPER_TRIALS
    length: float = 1.0
    freedom: float | None = None

    def __str__(self) -> str:
        return number(self.value) + ("" if math.isnan(self.error) else f" ± {number(self.error, self.value)}")

    @property
    def degrees(self) -> float:
        """Degrees of freedom of the error."""
        return max(self.n - 1, 1) if self.freedom is None else self.freedom


def over_trials(values) -> Estimate:
    """Mean and standard error of one figure of each trial."""
    x = np.asarray(values, dtype=float)
    error = float(x.std(ddof=1) / math.sqrt(len(x))) if len(x) > 1 else math.nan
    return Estimate(float(x.mean()), error, len(x))


def over_batches(batches) -> Estimate:
    """Mean of (trial, batch) means of stretches of the trials, its error from their spread within the trials.

    For trials of one law whose stretches are longer than the chain remembers: trials * (batches - 1) degrees of freedom.
    """
    x = np.asarray(batches, dtype=float)
    trials, each = x.shape
    variance = np.mean(x.var(axis=1, ddof=1)) / (trials * each)
    return Estimate(float(x.mean()), math.sqrt(variance), trials, freedom=trials * (each - 1))


def number(x: float, beside: float | None = None) -> str:
    """A figure with digits to suit its size, or that of the figure it is the error of."""
    if not math.isfinite(x):
        return "–"
    size = abs(x if beside is None else beside)
    return f"{x:.0f}" if size >= 1000 else f"{x:.1f}" if size >= 20 else f"{x:.3f}"


# ------------------------------------------------------------------------------------------------- one comparison


@functools.cache
def level(comparisons: int) -> float:
    """The p below which one of so many comparisons differs."""
    return 1 - (1 - ALARM) ** (1 / comparisons)


@dataclasses.dataclass
class Comparison:
    """``z``, the difference in standard deviations of T + U; ``p``; and what they follow from."""

    z: float
    p: float
    scale: float
    freedom: float
    rounding: float

    def told(self, comparisons: int) -> float:
        """The difference that one of so many comparisons would have found with probability POWER."""
        noise = self.scale, self.freedom, self.rounding
        least, most = level(comparisons), self.rounding + self.scale * quantile(level(comparisons) / 2, self.freedom)
        if most == 0:
            return 0.0
        limit = scipy.optimize.brentq(lambda c: 2 * above(c, *noise) - least, 0.0, 1.01 * most, xtol=1e-9 * most)

        def missing(d: float) -> float:
            return above(limit - d, *noise) + above(limit + d, *noise) - POWER

        return scipy.optimize.brentq(missing, 0.0, limit + self.rounding + self.scale * quantile(0.05, self.freedom))


def quantile(tail: float, freedom: float) -> float:
    """Student's, the standard normal one for infinitely many degrees of freedom."""
    return float(scipy.stats.t.isf(tail, freedom) if math.isfinite(freedom) else scipy.stats.norm.isf(tail))


def above(x: float, scale: float, freedom: float, rounding: float) -> float:
    """P(T + U > x)."""
    if scale == 0:
        return float(np.clip((rounding - x) / (2 * rounding), 0, 1)) if rounding > 0 else float(x < 0) + 0.5 * (x == 0)
    at = (x - rounding * NODES) / scale if rounding > 0 else np.full(1, x / scale)
    tail = scipy.stats.t.sf(at, freedom) if math.isfinite(freedom) else scipy.stats.norm.sf(at)
    return float(0.5 * WEIGHTS @ tail if rounding > 0 else tail[0])


def compare(ours: Estimate, theirs: Estimate, rounding: float = 0.005) -> Comparison:
    """Our figure with a published one; ``rounding`` is half a unit of its last printed digit, and of its error's."""
    share = theirs.n / (ours.n * ours.length)  # of variances: ours to theirs, if the trials vary alike
    unknown = rounding / math.sqrt(3)
    s, t = math.hypot(theirs.error, unknown), ours.error
    if math.isnan(t):
        t, freedom = s * math.sqrt(share), theirs.degrees
    elif theirs.error < rounding and t / math.sqrt(share) <= unknown:
        s, freedom = t / math.sqrt(share), ours.degrees
    else:
        spread = s**4 / theirs.degrees + t**4 / ours.degrees
        freedom = (s**2 + t**2) ** 2 / spread if spread > 0 else math.inf
    scale, difference = math.hypot(s, t), ours.value - theirs.value
    deviation = math.hypot(scale, unknown)
    z = difference / deviation if deviation > 0 else math.copysign(math.inf, difference) if difference else 0.0
    return Comparison(z, min(2 * above(abs(difference), scale, freedom, rounding), 1.0), scale, freedom, rounding)


def verdict(p: float, comparisons: int) -> str:
    """ "agrees" or "differs" of one p among so many."""
    return "agrees" if p >= level(comparisons) else "differs"


# -------------------------------------------------------------------------------------------------- the line of a page

KINDS = {
    "agrees": ("agrees", "holds", "pass"),
    "differs": ("differs", "does", "fail"),
    "undecided": ("undecided", "not"),
}
WORDS = {  # of one and of several, in the order of KINDS
    "comparisons": (("agrees", "agree"), ("differs", "differ"), ("is undecided", "are undecided")),
    "claims": (("holds", "hold"), ("does not hold", "do not hold"), ("is undecided", "are undecided")),
}


def kind(verdict: str) -> str:
    """Return "agrees", "differs" or "undecided" for a verdict, by its first word."""
    names = {word: name for name, words in KINDS.items() for word in words}
    return names[re.split(r"\W", verdict.lower(), maxsplit=1)[0]]


def tally(verdicts: Iterable[str], unit: str = "comparisons") -> str:
    """Return how many verdicts there are of each kind, for example "3 agree and 1 differs"."""
    counts = collections.Counter(map(kind, verdicts))
    pairs = zip(KINDS, WORDS[unit], strict=True)
    *most, last = [f"{counts[name]} {words[counts[name] > 1]}" for name, words in pairs if counts[name]]
    return " and ".join([*([", ".join(most)] if most else []), last])


def tallies(groups: Mapping[str, Iterable[str]], unit: str = "comparisons") -> str:
    """Return a sentence with the tally of each group of verdicts."""
    said = "; ".join(f"{name}: {tally(verdicts, unit)}" for name, verdicts in groups.items())
    return f"{said[0].upper()}{said[1:]}."


def opening(verdicts: Sequence[str], unit: str = "comparisons", because: str = "") -> str:
    """Return the first line of a page that compares its figures with a paper's.

    The line begins with "Differs" if one verdict differs, with "Undecided" if one is undecided and none differs, and else
    with "Reproduced".

    Parameters
    ----------
    verdicts : sequence of str
        Verdicts of the page, as in its table.
    unit : {"comparisons", "claims"}
        What the verdicts are about.
    because : str
        Further sentences, for example why comparisons are undecided.
    """
    kinds, n = set(map(kind, verdicts)), len(verdicts)
    if kinds == {"agrees"}:
        return line("Reproduced", f"{n} of {n} {unit} {WORDS[unit][0][1]}. {because}")
    if n == 0:
        return line("Undecided", f"no {unit} were made. {because}")
    return line("Differs" if "differs" in kinds else "Undecided", f"of {n} {unit}, {tally(verdicts, unit)}. {because}")


def line(word: str, sentences: str) -> str:
    """Return the first line of a page: "Reproduced", "Differs", "Undecided" or "Found", and why."""
    return f"**{word}**: {sentences.strip()}"


# ------------------------------------------------------------------------------------------------------ several together


@dataclasses.dataclass
class Together:
    """A figure in several rows: ``z`` and ``p`` of all of them, the common ``factor`` of ours to the published."""

    z: float
    p: float
    rows: int
    factor: float
    told: float


def together(
    ours: Sequence[Estimate],
    theirs: Sequence[Estimate],
    found: Sequence[Comparison],
    *,
    independent: bool,
    comparisons: int,
) -> Together:
    """Whether the rows agree together. ``told``: the common relative difference found with probability POWER."""
    k = len(found)
    scores = [math.copysign(scipy.stats.norm.isf(max(c.p, 1e-300) / 2), c.z) for c in found]
    z = sum(scores) / (math.sqrt(k) if independent else k)
    relative = np.array(
        [math.hypot(c.scale, c.rounding / math.sqrt(3)) / x.value for c, x in zip(found, theirs, strict=True)]
    )
    relative = np.maximum(relative, 1e-12)
    ratios = np.array([max(y.value, 1e-300) / x.value for y, x in zip(ours, theirs, strict=True)])
    factor = math.exp(np.average(np.log(ratios), weights=relative**-2))
    reach = scipy.stats.norm.isf(level(comparisons) / 2) + scipy.stats.norm.isf(1 - POWER)
    told = reach / (np.mean(1 / relative) * (math.sqrt(k) if independent else 1))
    return Together(z, float(2 * scipy.stats.norm.sf(abs(z))), k, factor, float(told))


def alarm_text(comparisons: int) -> str:
    """The rule of the verdicts in words."""
    p = level(comparisons)
    return (
        f"Verdicts: a figure differs if its p is below {p:.2g} = 1 - (1 - {ALARM})^(1/{comparisons}) (Sidak), so that "
        f"{comparisons} comparisons of figures that agree give any false alarm with probability {ALARM:.0%}. p is Student's "
        f"with Welch's degrees of freedom, with the rounding of the published figure (`validation/judging.py`): |z| > "
        f"{scipy.stats.t.isf(p / 2, 18):.1f} for 18 of them, {scipy.stats.norm.isf(p / 2):.1f} for many."
    )
