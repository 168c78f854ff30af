"""The four schemes of Cobb and Jalaian (2021) side by side: chains, their acceptance, the program's chain, the verdicts.

    full HMC, naive split        the leapfrog, its gradient whole and as a sum over the parts: one law
    randomised split             one random order of the parts for each trajectory
    symmetric split              the paper's Algorithm 1

A chain starts from random weights by PyTorch's rule; the parts are a random division drawn for each chain, as by a shuffling
DataLoader. All schemes of one chain have the same start and division. Acceptance counts all transitions, burn-in included, as
the authors' program does (1 - num_rejected / num_samples).

Naive split and full HMC are one map to round-off (tests/integrators/test_splits.py): in the reduced protocols of tables 2 and
3 one run speaks for both.

**The program's chain** is another in two cases (hamiltorch b250f92 to e4a383c, October 2020 to August 2021; source):

- *reset*: after a rejection during burn-in it goes back to the very first weights (mended in 0d7d7f3).
- *not restored*: its split integrators add to positions in place, and the position that is moved shares memory with the sample
  recorded last. On the CPU, or with store_on_GPU=True, the default, a rejected trajectory is so not taken back. With
  store_on_GPU=False on a GPU, as in the authors' notebook, the record is a copy and the chain is restored.

Which of them the tables are of is not said.
"""

from __future__ import annotations

import time
import warnings
from typing import Any, NamedTuple

import numpy as np

import refhmc
from refhmc.core.point import GRADIENT, LOG_DENSITY, Q
from refhmc.dynamics.assemble import make_dynamics
from refhmc.integrators import Leapfrog, NaiveSplit, RandomizedSplit, SymmetricSplit
from refhmc.integrators.parts import KNOWN
from refhmc.metrics import Diagonal, Identity
from validation import cobb_program, common, judging
from validation.comparing import paired, verdict
from validation.judging import Estimate, compare, level, over_trials

RIGHT, RESET, NOT_RESTORED = "right", "reset", "not restored"
MATTERS = 0.15  # the difference in acceptance that a comparison has to be able to tell
FULL, NAIVE, RANDOM, SYMMETRIC = "full", "naive", "randomised", "symmetric"
INTEGRATORS = {FULL: Leapfrog(), NAIVE: NaiveSplit(), RANDOM: RandomizedSplit(), SYMMETRIC: SymmetricSplit()}


class Setting(NamedTuple):
    """``mass``: the diagonal of M is this number."""

    parts: int
    step_size: float
    n_steps: int
    mass: float = 1.0


def kernel(setting: Setting, scheme: str, dim: int) -> refhmc.HMC:
    metric = Identity() if setting.mass == 1 else Diagonal(np.full(dim, 1 / setting.mass))
    return refhmc.HMC(
        step_size=setting.step_size, n_steps=setting.n_steps, metric=metric, integrator=INTEGRATORS[scheme]
    )


class Run(NamedTuple):
    """``draws`` (n, d), of each whether it was ``accepted`` and with what ``probability`` (n,), seconds of the processor."""

    draws: np.ndarray
    accepted: np.ndarray
    probability: np.ndarray
    seconds: float

    def figures(self, burn: int) -> dict[str, Any]:
        """Acceptance of all transitions, of those after ``burn`` and of each tenth of the chain; ESS after ``burn``."""
        rates = {"acceptance": float(self.accepted.mean()), "after": float(self.accepted[burn:].mean())}
        tenths = [float(part.mean()) for part in np.array_split(self.accepted, 10) if len(part)]
        return {**rates, "tenths": tenths, "size": mean_size(self.draws[burn:]), "seconds": self.seconds}

    def probabilities(self) -> dict[str, float]:
        """The same of a run that is too short to be counted."""
        rate = float(self.probability.mean())
        return {"acceptance": rate, "after": rate, "size": np.nan, "seconds": self.seconds}


def chain(model: Any, setting: Setting, scheme: str, draws: int, seed: tuple[int, ...], rule: str = RIGHT) -> Run:
    """One chain from random weights, by Metropolis' rule or one of the program's."""
    rng = np.random.default_rng(seed)
    start, order = model.initial(rng), rng.permutation(model.n_rows)
    split = model if scheme == FULL else model.split(setting.parts, order=order)
    if rule == RIGHT:
        return transitions(split, setting, scheme, start, draws, seed)
    return program(split, setting, scheme, start, draws, seed, rule)


def transitions(model: Any, setting: Setting, scheme: str, start: np.ndarray, draws: int, seed: tuple[int, ...]) -> Run:
    """``draws`` of them from ``start``."""
    begin = time.process_time()
    options = {"draws": draws, "tune": 0, "chains": 1, "initvals": start, "progressbar": False, "raw": True}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of too few draws
        result = refhmc.sample(model, kernel(setting, scheme, model.dim), random_seed=seed, preflight=False, **options)
    accepted, probability = (
        np.asarray(result.sample_stats[key], dtype=float)[0] for key in ("is_accepted", "acceptance_rate")
    )
    return Run(result.draws[0], accepted, probability, time.process_time() - begin)


def program(
    model: Any, setting: Setting, scheme: str, start: np.ndarray, draws: int, seed: tuple[int, ...], rule: str
) -> Run:
    """``NOT_RESTORED``: on from the end of each trajectory, accepted or not; ``RESET``: after a rejection from ``start``.

    By the loop of :mod:`validation.cobb_program`.
    """
    begin, rng, of = time.process_time(), np.random.default_rng(seed), kernel(setting, scheme, model.dim)
    dynamics = make_dynamics(model, of.metric, of.integrator)
    dynamics.compile(model.name)
    z = np.zeros((dynamics.point_rows, model.dim))
    z[Q] = start
    z[LOG_DENSITY, 0], z[GRADIENT] = model.core.value_and_gradient(start)
    recorded, counts = np.zeros((1 + setting.n_steps, model.dim)), np.zeros(4, np.int64)
    work, own, scratch = dynamics.work(), dynamics.own(), np.zeros((3, model.dim))
    options = (setting.step_size, setting.n_steps, 1, *cobb_program.Rule(restores=False))
    ends, accepted = np.zeros((draws, model.dim)), np.zeros(draws)
    for n in range(draws):
        if scheme == RANDOM:
            own[KNOWN.n_vectors :].ravel()[: setting.parts] = rng.permutation(setting.parts)
        cobb_program.run(dynamics.pointers, dynamics.model, rng, z, work, own, scratch, *options, recorded, counts)
        ends[n], accepted[n] = z[Q], counts[cobb_program.ACCEPTED]
        counts[:] = 0
        if rule == RESET and not accepted[n]:
            z[Q] = start
            z[LOG_DENSITY, 0], z[GRADIENT] = model.core.value_and_gradient(start)
    return Run(ends, accepted, accepted, time.process_time() - begin)


def mean_size(draws: np.ndarray, most: int = 1000) -> float:
    """Mean of ArviZ's bulk effective sample size over the weights, ``most`` of them at most, evenly spaced."""
    chosen = np.unique(np.linspace(0, draws.shape[1] - 1, most).astype(int))
    return float(np.mean(common.effective_sizes(draws[None][:, :, chosen])))


# ------------------------------------------------------------------------------------------------------------- verdicts


def printed(line: dict) -> Estimate:
    """Mean over chains with its error, from the printed standard deviation of the chains."""
    n = int(line["n_chains"])
    return Estimate(line["acc_rate"], line["acc_rate_sd"] / n**0.5, n)


def beside(rates: dict[str, list[float]], paper: dict[str, dict]) -> dict[str, dict]:
    """Acceptance of each scheme beside the printed one: p, what would be told, verdict."""
    found = {}
    for scheme, values in rates.items():
        ours, theirs = over_trials(values), printed(paper[scheme])
        c = compare(ours, theirs)
        found[scheme] = {"ours": ours, "paper": theirs, "p": c.p, "told": c.told(len(rates))}
        found[scheme]["verdict"] = verdict(c.p, found[scheme]["told"], MATTERS, len(rates))
    return found


def orders(rates: dict[str, list[float]], paper: dict[str, dict]) -> list[dict]:
    """Of each pair of schemes, the one printed higher first: whether ours agree, by Student's t of the chains' differences.

    Chain k of each scheme has the start, the division and the seed of chain k of the others: the chains go in pairs. Naive
    split, which is full HMC to round-off, has no pair of its own.
    """
    names = sorted((name for name in rates if name != NAIVE), key=lambda name: -paper[name]["acc_rate"])
    pairs = [(a, b) for i, a in enumerate(names) for b in names[i + 1 :] if paper[a]["acc_rate"] > paper[b]["acc_rate"]]
    rows = []
    for a, b in pairs:
        differences = np.subtract(rates[a], rates[b])
        ours, p = over_trials(differences), paired(differences)
        sure = p < level(len(pairs))
        word = "undecided" if not sure else "holds" if ours.value > 0 else "does not hold"
        row = {"pair": f"{a} > {b}", "ours": ours, "above": int(np.sum(differences > 0)), "chains": len(differences)}
        rows.append({**row, "p": p, "verdict": word, "paper": paper[a]["acc_rate"] - paper[b]["acc_rate"]})
    return rows


def order_verdict(rows: list[dict]) -> str:
    """PASS if no pair is contradicted and the symmetric split is above all others for sure, FAIL if one is."""
    wrong = [row["pair"] for row in rows if row["verdict"] == "does not hold"]
    if wrong:
        return f"FAIL: the order of the table does not hold ({', '.join(wrong)})"
    unsure = [row["pair"] for row in rows if row["verdict"] == "undecided" and row["pair"].startswith(SYMMETRIC)]
    if unsure:
        return f"UNDECIDED: {', '.join(unsure)} is within Monte Carlo error"
    rest = [row["pair"] for row in rows if row["verdict"] == "undecided"]
    return "PASS: the order of the table holds" + (
        f"; within Monte Carlo error: {', '.join(rest)}" if rest else " for every pair"
    )


def report(
    found: dict[str, list[dict]],
    paper: dict[str, dict],
    others: dict[str, dict[str, list[float]]],
    undecided: str = "",
) -> tuple[str, dict]:
    """A run in words: each scheme's figures beside the printed, the order; acceptance by the program's rules, ``others``.

    ``undecided``: why the printed rates are no target, where they are not; the order is.
    """
    rates = {scheme: [run["acceptance"] for run in runs] for scheme, runs in found.items()}
    rows, compared = beside(rates, paper), orders(rates, paper)
    if undecided:
        rows = {scheme: {**row, "p": None, "told": None, "verdict": "UNDECIDED"} for scheme, row in rows.items()}
    header = [
        "scheme",
        "acceptance",
        "printed",
        "p",
        "told",
        "verdict",
        "without burn-in",
        "mean ESS",
        "printed",
        "CPU s",
    ]
    body = []
    for scheme, runs in found.items():
        row = rows[scheme]
        p, told = ("–" if row[key] is None else f"{row[key]:.2g}" for key in ("p", "told"))
        after, size, seconds = (
            over_trials([run[key] for run in runs if np.isfinite(run[key])] or [np.nan])
            for key in ("after", "size", "seconds")
        )
        figures = [after, size, f"{paper[scheme]['mean_ess']:.1f}", f"{seconds.value:.0f}"]
        body.append([scheme, row["ours"], row["paper"], p, told, row["verdict"], *figures])
    words = undecided or "; ".join(f"{scheme} {row['verdict']}" for scheme, row in rows.items())
    parts = [f"The printed acceptance rates: {words}.", common.markdown(header, body)]
    lines = [
        [row["pair"], row["ours"], f"{row['above']} of {row['chains']}", f"{row['paper']:.2f}", f"{row['p']:.2g}"]
        + [row["verdict"]]
        for row in compared
    ]
    said = f"p by Student's t of the chains' differences, decided below {level(len(compared)):.2g} (Sidak, 5 % for all)"
    parts += [
        f"Differences of acceptance, in the printed order; {said}:",
        common.markdown(["pair", "ours", "in chains", "printed", "p", "verdict"], lines),
    ]
    data = {"rows": rows, "orders": compared, "verdict": order_verdict(compared), "runs": found}
    if others:
        lines, data["program"] = [], {}
        for rule, of_schemes in others.items():
            again = beside(of_schemes, paper)
            lines += [[rule, name, row["ours"], row["paper"], row["verdict"]] for name, row in again.items()]
            data["program"][rule] = again
        parts += ["The program's chains at the same settings:"]
        parts += [common.markdown(["chain", "scheme", "acceptance", "printed", "verdict"], lines)]
    return "\n\n".join(parts), data


def opening(data: dict) -> str:
    """Return the first line of the page for the contents of its JSON file."""
    if "orders" not in data:
        return judging.opening([], because="The paper's table was not available.")
    groups = {
        "acceptance rates": [row["verdict"] for row in data["rows"].values()],
        "the printed order of the schemes": [row["verdict"] for row in data["orders"]],
        "orders of the scores": [row["verdict"] for row in data.get("claims", [])],
    }
    groups = {name: verdicts for name, verdicts in groups.items() if verdicts}
    reduced = "" if data["command"]["full"] else " The protocol is reduced."
    return judging.opening(
        [word for words in groups.values() for word in words], because=f"{judging.tallies(groups)}{reduced}"
    )


def alone(found: dict[str, list[dict]]) -> str:
    """Ours, where there is no printed table."""
    rates = {scheme: over_trials([run["acceptance"] for run in runs]) for scheme, runs in found.items()}
    words = "; ".join(f"{scheme} {rate}" for scheme, rate in rates.items())
    return f"UNDECIDED: the paper's table is not here. Acceptance: {words}."


def paper_rows(name: str) -> dict[str, dict] | None:
    """The lines of a table by scheme."""
    table = common.paper_table(name)
    return table and {
        scheme: next(line for line in table if str(line["scheme"]).lower().startswith(scheme[:3]))
        for scheme in INTEGRATORS
    }
