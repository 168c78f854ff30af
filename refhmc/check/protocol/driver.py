"""Checks of a program in any language: ``refhmc check --cmd "./mysampler"``.

The program is asked for its ``capabilities``. Then each of its operations becomes a Python function for the check to which
it belongs:

    step                      integrator     with H = -L + kinetic energy, L of the target, or the program's own dH or logp
    logp, grad, hess          model          with the target that it names as the reference
    partial_grad, grad        minibatch      if the number of parts of its data is given
    metric, dH, momentum      metric         G and dG, H and its gradients, a momentum from normals, as available
    transition (p0, u)        transition     with the same H
    transition (u, bits)      orbit          if it states its tree's "depth", and has step
    transition                sampler        on a target with exact draws

Operations that the program does not have are NOT RUN. A transition that needs more randomness than it received answers
{"id": 1, "ask": "u"} or {"id": 1, "ask": "bit", "log_p": "-0.7"}, and receives the request again with one more number.

The exit status: 0 every check that ran is a PASS, 1 a row failed, 3 a check is undecided or none was run, 4 the program
crashed, or did not answer in time.
"""

from __future__ import annotations

import functools
import inspect
import math
import pathlib
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

import refhmc.check
from refhmc.check import own, targets
from refhmc.check.operations import OPERATIONS
from refhmc.check.protocol import names
from refhmc.check.protocol.messages import BAD_REQUEST, FAILED, NOT_SUPPORTED, Rejection, array, hexes, number
from refhmc.check.protocol.program import Program, ProgramStopped
from refhmc.check.report import FAIL, NOT_RUN, Report, not_run
from refhmc.check.subject.draws import Draws
from refhmc.check.subject.foreign import SECONDS_PER_CALL

PASSED, FAILURE, USAGE, UNDECIDED, STOPPED = 0, 1, 2, 3, 4
MOST_ASKED = 10_000  # largest number of random numbers of one transition
MOST_DIMENSIONS = 100_000
SEED = 20261121
NO_ENERGY = "there is no H: no target is named, and the program has neither dH nor logp"


class Outcome(NamedTuple):
    """The ``reports`` of a program's checks, and its ``stops``, descriptions of crashes and timeouts."""

    reports: tuple[Report, ...]
    stops: tuple[str, ...] = ()

    def status(self, strict: bool = False) -> int:
        """Return the exit status."""
        return STOPPED if self.stops else exit_status(self.reports, strict)

    def __str__(self) -> str:
        parts = [str(report) if _ran(report) else _in_short(report) for report in self.reports]
        return "\n\n".join([*parts, *(f"THE PROGRAM STOPPED: {stop}" for stop in dict.fromkeys(self.stops))])


def exit_status(reports: Sequence[Report], strict: bool = False) -> int:
    """Return 0, 1 or 3 for reports; those in which nothing was run only count if there are no others.

    With ``strict`` any INCONCLUSIVE row gives 3.
    """
    if any(report.status == FAIL for report in reports):
        return FAILURE
    ran = [report for report in reports if _ran(report)]
    decided = all(report.ok and not (strict and report.inconclusive) for report in ran)
    return PASSED if ran and decided else UNDECIDED


def _ran(report: Report) -> bool:
    return any(row.status != NOT_RUN for row in report.rows)


def _in_short(report: Report) -> str:
    return f"refhmc check.{report.check}  {report.subject}  NOT RUN  ({report.rows[0].basis})"


def accepted(function: Callable, options: dict) -> dict:
    """Return the ``options`` that are not None and that are parameters of ``function``."""
    known = inspect.signature(function).parameters
    return {key: value for key, value in options.items() if value is not None and key in known}


def check_program(
    command: str | list[str],
    *,
    what: Sequence[str] | None = None,
    target: str | None = None,
    args: dict | None = None,
    metric: Any = None,
    method: str | None = None,
    parts: int | None = None,
    eps: float | None = None,
    n: int | None = None,
    depth: int | None = None,
    dim: int | None = None,
    claims: str | None = None,
    alpha: float = 1e-6,
    seconds: float = 30.0,
    timeout: float = 10.0,
    seed: int = SEED,
) -> Outcome:
    """Start ``command``, run the checks named in ``what`` (None: all that apply), and end it.

    ``target``, ``args`` and ``metric`` define the reference (``protocol/names.py``) instead of the program itself;
    ``parts`` is added to each request, for a program that splits its data. ``timeout`` is the longest wait for an
    answer, ``seconds`` the budget of each check that has one.
    Raises ValueError if the program cannot be started, or the target or a check is unknown.
    """
    for name in what or ():
        if name not in PREPARED:
            raise ValueError(f"what must consist of {', '.join(PREPARED)}; got {name!r}.")
    with Program(command, timeout) as program, warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            says = _capabilities(program)
        except ProgramStopped:
            return Outcome((), tuple(program.stops))
        try:
            given = {"target": target, "args": args, "metric": metric, "method": method, "parts": parts, "dim": dim}
            remote = Remote(program, says, {**given, "eps": eps, "n": n, "depth": depth})
            tolerance = None if "tolerance" not in says else number(says["tolerance"])
        except (Rejection, OverflowError) as refusal:
            raise ValueError(f"The capabilities of the program are invalid: {refusal}") from None
        options = {"claims": claims or says.get("claims"), "alpha": alpha, "seconds": seconds, "seed": seed}
        options["tolerance"] = tolerance
        reports = []
        for name in what or PREPARED:
            report = _run(name, remote, options, asked_for=what is not None)
            if report is not None:
                reports.append(report)
        return Outcome(tuple(reports), tuple(program.stops))


def _capabilities(program: Program) -> dict:
    """Return the capabilities of the program; empty if it has no such operation."""
    try:
        return program.ask("capabilities")
    except Rejection:
        return {}


class Remote:
    """A program's operations as functions of arrays; a solve that it reports as failed gives NaN.

    ``law``: the reference target, with exact draws if there are any; None: only its own log density is known.
    """

    def __init__(self, program: Program, says: dict, given: dict[str, Any]):
        """Combine the program's capabilities with the caller's settings ``given``, which take precedence unless None."""
        self.program, self.says = program, says
        self.name = str(says.get("name") or pathlib.PurePath(program.words[0]).name)[:60]
        said = {**says, **{key: value for key, value in given.items() if value is not None}}
        target, args, metric, eps, n, depth = (said.get(x) for x in ("target", "args", "metric", "eps", "n", "depth"))
        self.model = None if target is None else names.target(target, args)
        self.law = None if target is None else _law(target, args, self.model)
        self.dim = self._dimension(given.get("dim"))
        self.dtype = np.dtype(str(says.get("precision", "float64")))
        self.eps = None if eps is None else number(eps)
        self.n = None if n is None else int(number(n))
        self.depth = None if depth is None else int(number(depth))
        self.parts = None if said.get("parts") is None else int(number(said["parts"]))
        sent = {"target": target, "args": args, "metric": metric, "method": given.get("method"), "tol": False}
        sent["parts"] = self.parts
        self.common = {key: value for key, value in sent.items() if value is not None}
        self.exact: Any = None  # refhmc's Hamiltonian, if a metric is named
        if self.model is not None and metric is not None:
            self.exact = own.Hamiltonian(self.model, names.metric(metric))
        self._missing: dict[str, str | None] = {}

    def _dimension(self, dim: int | None) -> int:
        said = dim if dim is not None else self.model.dim if self.model is not None else self.says.get("dim")
        if said is None:
            raise Rejection(
                BAD_REQUEST, "the dimension is unknown; pass --target or --dim, or let its capabilities state dim"
            )
        said = number(said)
        if not 1 <= said <= MOST_DIMENSIONS or said != int(said):
            raise Rejection(BAD_REQUEST, f"dim must be an integer from 1 to {MOST_DIMENSIONS}; got {said:g}")
        if self.model is not None and int(said) != self.model.dim:
            raise Rejection(BAD_REQUEST, f"dim must be {self.model.dim}, that of the target; got {said:g}")
        return int(said)

    # -- operations ---------------------------------------------------------------------------------------------------

    def logp(self, q: np.ndarray) -> float:
        return self._ask("logp", "logp", q=q)[0]

    def grad(self, q: np.ndarray) -> np.ndarray:
        return self._ask("grad", "grad", q=q)[0]

    def hess(self, q: np.ndarray) -> np.ndarray:
        return self._ask("hess", "hess", q=q)[0]

    def partial_grad(self, q: np.ndarray) -> np.ndarray:
        """Return the gradients of the parts, (M, d)."""
        return self._ask("partial_grad", "partial_grad", q=q)[0]

    def G(self, q: np.ndarray) -> np.ndarray:
        return self._ask("metric", "G", q=q)[0]

    def dG(self, q: np.ndarray) -> np.ndarray:
        return self._ask("metric", "dG", q=q, derivative=True)[0]

    def energy(self, q: np.ndarray, p: np.ndarray) -> float:
        return self._ask("dH", "H", q=q, p=p)[0]

    def dH(self, q: np.ndarray, p: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return (dH/dq, dH/dp)."""
        dHdq, dHdp = self._ask("dH", "dHdq", "dHdp", q=q, p=p)
        return dHdq, dHdp

    def step(self, q: np.ndarray, p: np.ndarray, eps: float, n: int) -> tuple[np.ndarray, np.ndarray]:
        new_q, new_p = self._ask("step", "q", "p", q=q, p=p, eps=float(eps), n=int(n))
        return new_q, new_p

    def transition(self, q: np.ndarray, *, p0: np.ndarray, u: Any) -> np.ndarray:
        """Return one transition on a given momentum and uniform(s); IndexError if it needs more of them."""
        answer = self._request("transition", q=q, p0=p0, u=np.atleast_1d(u), **self._steps())
        if "ask" in answer:
            raise IndexError(f"the transition asks for another {answer['ask']}")
        return self._numbers(answer, "transition", "q")

    def kernel(self, rng: np.random.Generator, q: np.ndarray) -> np.ndarray:
        """Return one transition on the randomness of a NumPy generator."""
        p0 = self.momentum(rng, q)
        return self._conversation(q, p0, rng.random, lambda log_p: rng.random() < math.exp(log_p))

    def draw_p(self, rng: np.random.Generator, q: np.ndarray) -> np.ndarray:
        """Return a momentum that the program computes from standard normals."""
        return self._ask("momentum", "p", q=q, normals=rng.standard_normal(self.dim))[0]

    def tree(self, draws: Draws, q: np.ndarray, p: np.ndarray) -> np.ndarray:
        """Return one transition on a given momentum and the randomness of a :class:`refhmc.check.Draws`."""
        return self._conversation(q, p, draws.uniform, draws.flip)

    # -- requests -----------------------------------------------------------------------------------------------------

    def _conversation(self, q: np.ndarray, p0: np.ndarray, uniform: Callable, flip: Callable) -> np.ndarray:
        u: list[float] = []
        bits: list[int] = []
        if not self.says.get("asks"):  # a program that does not ask receives the number of uniforms that it states
            u = [float(uniform()) for _ in range(int(self.says.get("uniforms", 1)))]
        while len(u) + len(bits) < MOST_ASKED:
            answer = self._request("transition", q=q, p0=p0, u=np.array(u), bits=bits, **self._steps())
            asked = answer.get("ask")
            if asked == "u":
                u.append(float(uniform()))
            elif asked == "bit":
                bits.append(int(flip(min(number(answer.get("log_p", math.log(0.5))), 0.0))))
            else:
                return self._numbers(answer, "transition", "q")
        raise RuntimeError(f"one transition asked for more than {MOST_ASKED} numbers")

    def _steps(self) -> dict:
        fields = {"eps": self.eps, "n": self.n, "depth": self.depth}
        return {key: value for key, value in fields.items() if value is not None}

    def _request(self, op: str, **fields: Any) -> dict:
        coded = {
            key: hexes(value) if isinstance(value, (np.ndarray, float)) else value for key, value in fields.items()
        }
        return self.program.ask(op, **self.common, **coded)

    def _ask(self, op: str, *wanted: str, **fields: Any) -> list:
        """Return these fields of the answer; NaN if it reports a failure."""
        try:
            answer = self._request(op, **fields)
        except Rejection as refusal:
            if refusal.code != FAILED:
                raise
            ranks = [OPERATIONS[op].ranks[name] for name in wanted]
            return [np.full((self.dim,) * rank, np.nan) if rank else self.dtype.type(np.nan) for rank in ranks]
        return [self._numbers(answer, op, name) for name in wanted]

    def _numbers(self, answer: dict, op: str, name: str) -> Any:
        if name not in answer:
            raise ValueError(f"the answer to {op!r} has no field {name!r}")
        value = array(answer[name]).astype(self.dtype)
        return value[()] if OPERATIONS[op].ranks[name] == 0 and value.shape == () else value

    def missing(self, op: str, function: Callable, *arguments: Any) -> str | None:
        """Return why an operation cannot be examined, or None, by its list of operations and by one request."""
        listed = self.says.get("ops")
        if isinstance(listed, list) and op not in listed:
            return f"the program has no {op}"
        if op not in self._missing:
            self._missing[op] = None
            try:
                function(*arguments)
            except Rejection as refusal:
                if refusal.code == NOT_SUPPORTED:
                    self._missing[op] = f"the program has no {op}: {refusal}"
            except (ValueError, IndexError, ProgramStopped):  # it exists, and the checks report the fault
                pass
        return self._missing[op]

    def gives(self, op: str, field: str, **fields: Any) -> bool:
        """Return whether the answer to ``op`` has ``field``."""
        try:
            return field in self._request(op, **fields)
        except (Rejection, ProgramStopped):
            return False

    def hamiltonian(self) -> Callable | None:
        """Return H of the target with the kinetic energy of :meth:`kinetic`, or the program's own; None if it has none."""
        q, p = self.somewhere(), np.zeros(self.dim)
        if self.exact is not None:
            return self.exact.energy
        if self.model is not None:
            log_density = (self.law or self.model).log_density
            return lambda q, p: self.kinetic(q, p) - float(log_density(q))
        if self.missing("dH", self.energy, q, p) is None:
            return self.energy
        if self.missing("logp", self.logp, q) is None:
            return lambda q, p: self.kinetic(q, p) - self.logp(q)
        return None

    def kinetic(self, q: np.ndarray, p: np.ndarray) -> float:
        """Return p' G^-1 p / 2 + log det G / 2 with the program's own metric, or p'p / 2 if it has none."""
        if not self.has_metric():
            return 0.5 * float(p @ p)
        root = np.linalg.cholesky(self.G(q).astype(float))
        return 0.5 * float(np.sum(np.linalg.solve(root, p) ** 2)) + float(np.sum(np.log(np.diag(root))))

    def momentum(self, rng: np.random.Generator, q: np.ndarray) -> np.ndarray:
        """Return a momentum with the distribution that H implies."""
        if self.exact is not None:
            return self.exact.draw_momentum(q, rng)
        z = rng.standard_normal(self.dim)
        return np.linalg.cholesky(self.G(q).astype(float)) @ z if self.has_metric() else z

    def has_metric(self) -> bool:
        """Return whether the program has a metric of its own."""
        return self.missing("metric", self.G, self.somewhere()) is None

    def somewhere(self) -> np.ndarray:
        """Return a point for trial requests."""
        return np.full(self.dim, 0.25)


def _law(target: Any, args: dict | None, model: Any) -> targets.Target | None:
    """Return the target with exact draws, or None."""
    if not args:
        try:
            return targets.from_name(target)
        except ValueError:
            pass
    try:
        return targets.resolve(model)
    except TypeError:
        return None


# ---------------------------------------------------------------------------------------------------------- the checks


def _run(name: str, remote: Remote, options: dict, asked_for: bool) -> Report | None:
    """Return the report of a check; if it cannot be run, a report with the reason, or None if it was not requested."""
    arguments, found, why = PREPARED[name](remote)
    if why is None:
        function = getattr(refhmc.check, name)
        seconds = max(SECONDS_PER_CALL, 2 * remote.program.seconds)
        given = {"dim": remote.dim, "name": remote.name, "eps": remote.eps, "seconds_per_call": seconds}
        return function(*arguments, **accepted(function, {**given, **options, **found}))
    if not asked_for and name in ("minibatch", "orbit"):
        return None
    return Report(name, remote.name, {}, options["seed"], (not_run(name, why),))


Prepared = tuple[tuple, dict, str | None]  # arguments of a check, its options, and why it cannot be run


def _prepare_model(remote: Remote) -> Prepared:
    q = remote.somewhere()
    why = remote.missing("logp", remote.logp, q)
    derivatives = {"grad": remote.grad, "hess": remote.hess}
    has = {op: f for op, f in derivatives.items() if why is None and remote.missing(op, f, q) is None}
    return (remote.logp,), {**has, "reference": remote.law or remote.model}, why


def _prepare_minibatch(remote: Remote) -> Prepared:
    why: str | None = "the number of parts is not given"
    if remote.parts is not None:
        q = remote.somewhere()
        why = remote.missing("partial_grad", remote.partial_grad, q) or remote.missing("grad", remote.grad, q)
    parts = [functools.partial(_row_of, remote.partial_grad, m) for m in range(remote.parts or 0)]
    return (), {"full": remote.grad, "parts": parts}, why


def _row_of(f: Callable[[np.ndarray], np.ndarray], m: int, q: np.ndarray) -> np.ndarray:
    return f(q)[m]


def _prepare_metric(remote: Remote) -> Prepared:
    q, p = remote.somewhere(), np.ones(remote.dim)
    has_G, has_H = remote.has_metric(), remote.missing("dH", remote.energy, q, p) is None
    options: dict[str, Any] = {"dG": None, "logp": remote.law or remote.model}
    if options["logp"] is None and remote.missing("logp", remote.logp, q) is None:
        options["logp"] = remote.logp
    if has_G and remote.gives("metric", "dG", q=q, derivative=True):
        options["dG"] = remote.dG
    if has_H:
        options |= {"H": remote.energy, "dH": remote.dH if remote.gives("dH", "dHdq", q=q, p=p) else None}
    if remote.missing("momentum", remote.draw_p, np.random.default_rng(0), q) is None:
        options["draw_p"] = remote.draw_p
    why = None if has_G or has_H else "the program has neither metric nor dH"
    return (remote.G if has_G else None,), options, why


def _prepare_integrator(remote: Remote) -> Prepared:
    why = _no_step(remote)
    return (remote.step,), {"H": None if why else remote.hamiltonian()}, why


def _prepare_transition(remote: Remote) -> Prepared:
    why = _no_transition(remote)
    H = None if why else remote.hamiltonian()
    return (remote.transition, H), {}, why or (None if H else NO_ENERGY)


def _prepare_orbit(remote: Remote) -> Prepared:
    why = _no_step(remote) if remote.depth is not None else "the depth of its tree is not given"
    H = None if why else remote.hamiltonian()
    options = {"H": H, "depth": remote.depth, "eps": remote.eps or 0.1, "threshold": remote.says.get("threshold")}
    return (remote.tree, lambda q, p, eps: remote.step(q, p, eps, 1)), options, why or (None if H else NO_ENERGY)


def _prepare_sampler(remote: Remote) -> Prepared:
    why = _no_transition(remote) or ("no target with exact draws is named" if remote.law is None else None)
    return (remote.kernel,), {"target": remote.law}, why


def _no_step(remote: Remote) -> str | None:
    return remote.missing("step", remote.step, remote.somewhere(), np.zeros(remote.dim), 0.01, 1)


def _no_transition(remote: Remote) -> str | None:
    q = remote.somewhere()
    return remote.missing("transition", lambda: remote.transition(q, p0=np.zeros(remote.dim), u=0.5))


PREPARED: dict[str, Callable[[Remote], Prepared]] = {
    "model": _prepare_model,
    "minibatch": _prepare_minibatch,
    "metric": _prepare_metric,
    "integrator": _prepare_integrator,
    "transition": _prepare_transition,
    "orbit": _prepare_orbit,
    "sampler": _prepare_sampler,
}
