"""One transition of a kernel, with its randomness in our hands: is the target its law?

The kernel (:mod:`refhmc.check.played`) is called many times on the same numbers but one. From that come, without a look
inside, the probability of each of its outcomes (:mod:`refhmc.check.decisions`: the uniform at which its mind changes) and
the density of its moves (:mod:`refhmc.check.balance`), and so

    detailed balance    pi(q) phi(w) P / |dq'/dw| is the same for the way there and the way back
    acceptance          P = min(1, e^r), r the log ratio of both sides without P; another rule that is in balance passes too
    rejection           an outcome that does not follow the proposal is the start
    stateless           nothing of the calls before is in the answer
    nan energy          a proposal at which the log density is NaN (or -inf) is not taken
    shift invariance    the log density's constant does not matter

A kernel that is not reversible need not be wrong. FAIL is said of detailed balance where all noise enters every move, there is
one way back only and it does not match, and the kernel decides; where it never decides, only after a test of stationarity.
"""

from __future__ import annotations

import copy
import math
import time
import types
from collections.abc import Callable, Sequence

import numpy as np
import scipy.optimize

from refhmc.check import adapters
from refhmc.check.balance import Pairing, Setting, pair
from refhmc.check.decisions import FREE, LOWER, UPPER, WHOLE, Leaf, answers
from refhmc.check.foreign import (
    SECONDS_PER_CALL,
    Check,
    Foreign,
    Misconduct,
    NotApplicable,
    Undecided,
    call_text,
    examine,
)
from refhmc.check.laws import Law, inverse_mass, law_of, typical_points
from refhmc.check.played import GENERATOR, MOMENTUM, TINY, Player, find_player, parameters
from refhmc.check.report import (
    FAIL,
    INCONCLUSIVE,
    PASS,
    WRONG_LAW,
    Report,
    Row,
    inconclusive,
    judged,
    not_run,
)
from refhmc.check.stationarity import GOAL, LIMIT, ROUGH, Integral, bet_on_reversal, integrate_reversal, weigh_moves

DIMENSIONS = (2, 3, 4, 5, 6, 7, 8, 9, 10, 1)
SLOW_COPY, SLOW_CALL = 2e-3, 3e-3  # seconds
FAR = 5.0
CLEAR = 3  # so many points must speak against a kernel
FALSE_ALARM = (
    "deterministic checks: a correct subject passes whatever the seed; 'stationarity', where it is run: at most 1e-6"
)


def transition(
    kern,
    H=None,
    *,
    dim: int | None = None,
    log_density: Callable | None = None,
    gradient: Callable | None = None,
    make: Callable | None = None,
    points=None,
    n_points: int = 8,
    delta: float = 0.0,
    seconds: float = 20.0,
    seed: int = 20261121,
    like=None,
    name: str | None = None,
    seconds_per_call: float | None = SECONDS_PER_CALL,
) -> Report:
    """Whether a kernel leaves the law of ``H`` invariant, from single transitions on given randomness.

    kern : ``kern(q, p0=, u=)``, ``kernel(draws, q)``, ``kernel(rng, q)`` or, with a momentum that is kept,
        ``kernel(draws, q, p)`` (see :mod:`refhmc.check.played`), or one of refhmc's kernels. q, p0 (d,), u a number in [0, 1).
    H : the energy H(q, p), a refhmc Hamiltonian or model, a target with ``log_density``, or the log density of q.
        For ``kern(q, p0=, u=)`` the momentum has the law exp(-H(q, .)); a standard normal where only a log density is given.
    dim : found from H, or by trying, if left out. points : (n, d) positions to start from.
    make : ``make(log_density, gradient) -> kern``, so that the density can be tampered with; with ``log_density`` and
        ``gradient``, or those of H. delta : the tolerance of the kernel's implicit solver.
    seconds : time after which no further point is begun.

    Returns a :class:`~refhmc.check.Report`. Raises TypeError if ``kern`` is not callable or H describes no law.
    """
    if callable(getattr(kern, "transition", None)) and hasattr(kern, "statistics"):
        kern = adapters.refhmc_kernel(getattr(H, "model", H), kern)
    subject = Foreign(kern, name, like)
    law = law_of(H, log_density, like)
    case = _Case(subject, law, dim, points, n_points, delta, seconds, seed, seconds_per_call)
    base = log_density or getattr(H, "log_density", None) or getattr(getattr(H, "model", None), "log_density", None)
    slope = gradient or getattr(H, "gradient", None) or getattr(getattr(H, "model", None), "gradient", None)
    checks: list[Check] = [
        ("answers", lambda: _answers(case)),
        ("deterministic given randomness", lambda: _deterministic(case)),
        ("stateless", lambda: _stateless(case)),
        ("detailed balance", lambda: _balance(case)),
        ("momentum flip", lambda: _momentum_flip(case)),
        ("zero-length", lambda: _zero_length(case)),
        ("overflow", lambda: _overflow(case)),
        ("nan energy", lambda: _nan_energy(case, make, base, slope)),
        ("shift invariance", lambda: _shift(case, make, base, slope)),
    ]
    return examine(
        "transition",
        subject.name,
        checks,
        settings={"dim": case.dim or "?", "n_points": n_points},
        seed=seed,
        foreign=(subject, *law.foreign),
        notes=lambda: case.notes,
        diagnose=lambda rows: _diagnose(case, rows),
        seconds_per_call=seconds_per_call,
        false_alarm=FALSE_ALARM,
    )


class _Case:
    """What the rows of one report share: the subject, its target, and what was found out so far."""

    def __init__(self, kernel: Foreign, law: Law, dim, points, n_points, delta, seconds, seed, seconds_per_call):
        self.kernel, self.law, self.dim = kernel, law, law.dim if dim is None else int(dim)
        self.given = None if points is None else np.atleast_2d(np.asarray(points, dtype=float))
        if self.given is not None:
            self.dim = self.given.shape[1]
        self.n_points, self.delta, self.seconds, self.seed = n_points, float(delta), seconds, seed
        self.player: Player | None = None
        self.points = np.zeros((0, 0))
        self.setting: Setting | None = None
        self.remembers = ""  # why the rows that call it out of order do not apply
        self.notes: list[str] = []
        self.pairs: list[Pairing] = []
        self.decides = False
        self.copies: bool | None = None
        self.cost = 0.0  # seconds a call

    def rng(self, *key: int) -> np.random.Generator:
        return np.random.default_rng([self.seed, *key])

    def need(self) -> tuple[Player, Setting]:
        if self.player is None or self.setting is None:
            raise NotApplicable("it did not answer")
        if self.remembers:
            raise NotApplicable(self.remembers)
        return self.player, self.setting


# ------------------------------------------------------------------------------------------------------ the first calls


def _answers(case: _Case) -> Row:
    """Finds the shape, the dimension and the points; the row is about a finite position of the right shape."""
    case.dim, case.player = _find(case)
    player = case.player
    case.notes.append(f"called as {player.shape}" + (", with a momentum that is kept" if player.keeps_momentum else ""))
    case.points = (
        typical_points(case.law.log_pi, case.dim, max(case.n_points, 4), case.rng(1))
        if case.given is None
        else case.given
    )
    case.setting = _setting(case, player, case.points[0])
    bad, began = "", time.monotonic()
    for k, q in enumerate(case.points):
        z = case.rng(2, k).standard_normal(case.dim)
        script = {"normal": list(case.setting.normals(z)), "uniform": [0.5]}
        got = player.play(q, script, seed=k, p=z)
        if not np.isfinite(got.q).all():
            bad = call_text(player.kernel.name, [q])
    case.cost = (time.monotonic() - began) / len(case.points)
    if bad:
        return Row("answers", FAIL, basis="a position that is not finite, from a finite one", case=bad)
    return Row("answers", PASS, basis=f"positions ({case.dim},)")


def _find(case: _Case) -> tuple[int, Player]:
    if case.dim is not None:
        start = 0.1 * np.ones(case.dim) if case.given is None else case.given[0]
        return case.dim, find_player(case.kernel, start)
    first: Exception | None = None
    for dim in DIMENSIONS:
        try:
            start = 0.1 + 0.1 * np.arange(dim)
            case.law.log_pi(start)
            return dim, find_player(case.kernel, start)
        except (Misconduct, Undecided) as wrong:
            if "did not come back" in str(wrong):
                raise
            first = first or wrong
    assert first is not None
    raise first


def _setting(case: _Case, player: Player, q) -> Setting:
    """The law of the noise, which noise it is, and which way its uniform decides."""
    assert case.dim is not None
    log_pi, energy, dim = case.law.log_pi, case.law.energy, case.dim
    root = np.eye(dim)
    if player.shape == MOMENTUM and energy is not None:
        mass = np.linalg.inv(inverse_mass(energy, q))
        if np.isfinite(mass).all() and np.linalg.eigvalsh(mass)[0] > 0:
            root = np.linalg.cholesky(mass)

        def log_noise(q, w):
            return -energy(q, w)

    else:

        def log_noise(q, w):
            return log_pi(q) - 0.5 * w @ w

    frees = (
        player.recorded and player.shape != MOMENTUM and not any(x.kind == "normal" for x in player.play(q, p=q).asked)
    )
    return Setting(player, log_pi, log_noise, root, frees, TINY, case.seed, case.delta)


def _deterministic(case: _Case) -> Row:
    player, setting = case.need()
    for k, q in enumerate(case.points[:3]):
        z = case.rng(3, k).standard_normal(case.dim)
        script = {"normal": list(setting.normals(z)), "uniform": [0.3]}
        first, second = (player.play(q, script, seed=k, p=z) for _ in range(2))
        if not np.array_equal(first.q, second.q, equal_nan=True):
            case.remembers = "two calls on the same numbers differ"
            numbers = sum(np.size(x.answer) for x in first.asked)
            why = "two calls on the same numbers differ, and it asked for no number: it has randomness of its own"
            if numbers == 0 or player.shape == MOMENTUM:
                if player.shape == MOMENTUM:
                    why = "two calls on the same q, p0 and u differ: it has randomness, or a memory, of its own"
                return inconclusive("deterministic given randomness", why)
            why = "two calls on the same numbers differ: it remembers (let it take and return what it keeps: q, p) or draws"
            return inconclusive("deterministic given randomness", why + " elsewhere")
    return Row("deterministic given randomness", PASS)


# ---------------------------------------------------------------------------------------------------------------- memory


def _stateless(case: _Case) -> Row:
    """Does the call before matter? With histories as they occur in a chain, then with jumps; each on a fresh copy of the
    kernel where it can be copied.
    """
    if case.player is None or case.setting is None:
        raise NotApplicable("it did not answer")
    player, setting = case.player, case.setting
    if player.keeps_momentum:
        return not_run("stateless", "a momentum is kept, and handed over")
    jump = "the call before, from elsewhere, matters: it takes q for the point it left off at"
    for k, (q, chains, elsewhere) in enumerate(_histories(case, player, setting)):
        z = 1.6 * case.rng(4, k).standard_normal(64)
        plain = _after(case, player, chains[0])
        scripts = _probes(case, setting._replace(play=plain), q, z)
        seen = [[_after(case, player, chain)(q, x, seed).q for x, seed in scripts] for chain in chains]
        again = [plain(q, x, seed).q for x, seed in scripts]
        if not np.array_equal(seen[0], again, equal_nan=True):
            case.remembers = "it remembers more than the last call"
            why = "it remembers more than the last call (a momentum kept inside?): let it take and return q and p"
            return inconclusive("stateless", why)
        other = next(
            (c for c, s in zip(chains, seen, strict=True) if not np.array_equal(seen[0], s, equal_nan=True)), None
        )
        if other is not None:
            case.remembers = "its answer depends on the call before"
            return _memory(case, q, z[: _noise_size(setting, q)], chains[0], other)
        jumped = [_after(case, player, elsewhere)(q, x, seed).q for x, seed in scripts]
        if not np.array_equal(seen[0], jumped, equal_nan=True):
            case.remembers = jump
            return inconclusive("stateless", jump + "; within a chain nothing was found against it")
    return Row("stateless", PASS, basis="the same answers, just below and above its thresholds, after other calls")


History = list[tuple[np.ndarray, dict]]


def _histories(case: _Case, player: Player, setting: Setting) -> list[tuple[np.ndarray, list[History], History]]:
    """For some points q that the kernel came to: the call that led there, alone and with rejected ones after it; a jump."""
    found = []
    for k, start in enumerate(case.points[: 1 if case.cost > SLOW_CALL else 3]):
        rng = case.rng(5, k)
        arrive = _call(setting, rng.standard_normal(case.dim), TINY)
        q = _fresh(case, player).play(start, arrive, setting.seed).q
        if not np.isfinite(q).all():
            continue
        chains: list[History] = [[(start, arrive)]]
        for scale in (1.0, 1.3, 1.6, 2.0, 2.5, 3.0):
            z = scale * rng.standard_normal(case.dim)
            for u in (1 - TINY, TINY):
                stay = _call(setting, z, u)
                stays = np.array_equal(_after(case, player, [(start, arrive)])(q, stay, setting.seed).q, q)
                if stays and len(chains) < 3:
                    chains.append([(start, arrive), (q, stay)])
        far = case.points[(k + 1) % len(case.points)]
        found.append((q, chains, [(far, _call(setting, rng.standard_normal(case.dim), TINY))]))
    return found


def _call(setting: Setting, z, u: float) -> dict:
    """The script of a call on the noise ``z`` that answers ``u`` to what decides."""
    script = {"uniform": [u], "exponential": [-math.log(u)], "flip": [u < 0.5]}
    return {**script, **({} if setting.frees else {"normal": list(setting.normals(z))})}


def _after(case: _Case, player: Player, history: History):
    """``play`` with the calls of ``history`` before each, on a fresh copy of the kernel."""
    seed = case.seed

    def play(q, script, at):
        copy = _fresh(case, player)
        for start, before in history:
            copy.play(start, before, seed)
        return copy.play(q, script, at)

    return play


def _fresh(case: _Case, player: Player) -> Player:
    """A copy of the kernel with all that it keeps; the kernel itself where that cannot be copied, or not quickly."""
    if case.copies is None:
        case.copies = _copies_quickly(player.kernel.function)
    if not case.copies:
        return player
    copied = _copy_of(player.kernel.function)
    kernel = Foreign(copied, player.kernel.name)
    kernel.convert = player.kernel.convert
    return player._replace(kernel=kernel)


def _copies_quickly(function) -> bool:
    times = []
    for _ in range(3):
        began = time.perf_counter()
        try:
            if _copy_of(function) is function:
                return False
        except Exception:
            return False
        times.append(time.perf_counter() - began)
    return min(times) <= SLOW_COPY


def _copy_of(function):
    if isinstance(function, types.FunctionType):
        if not function.__closure__:
            return function
        cells = tuple(types.CellType(copy.deepcopy(cell.cell_contents)) for cell in function.__closure__)
        made = types.FunctionType(
            function.__code__, function.__globals__, function.__name__, function.__defaults__, cells
        )
        made.__kwdefaults__ = function.__kwdefaults__
        return made
    return copy.deepcopy(function)


def _probes(case: _Case, setting: Setting, q, z) -> list[tuple[dict, int]]:
    """Scripts (and seeds) that lead to each outcome, and just below and just above each threshold; else random ones."""
    try:
        z = z[: _noise_size(setting, q)]
        found = setting.leaves(q, z)
    except Undecided:
        return [(_several(case, setting, k), k) for k in range(6)]
    paths = [leaf.path for leaf in found]
    for leaf in found:
        if leaf.decisions == 1 and leaf.path[-1].key == LOWER:
            for u in (leaf.probability * (1 - 1e-9), leaf.probability * (1 + 1e-9)):
                answer = -math.log(u) if leaf.path[-1].kind == "exponential" else u
                paths.append((*leaf.path[:-1], leaf.path[-1]._replace(answer=answer)))
    normals = {} if setting.frees else {"normal": list(setting.normals(z))}
    return [({**answers(path, z if setting.frees else None), **normals}, setting.seed) for path in paths]


def _several(case: _Case, setting: Setting, k: int) -> dict:
    """Random numbers for a kern(q, p0=, u=) that wants several uniforms; the others draw theirs from the seed."""
    if setting.player.shape != MOMENTUM:
        return {}
    rng = case.rng(16, k)
    return {
        "normal": list(setting.normals(rng.standard_normal(setting.player.dim))),
        "uniform": list(rng.random(setting.player.uniforms)),
    }


def _memory(case: _Case, q, z, one: History, other: History) -> Row:
    """The call before matters: for the decision alone, or for the proposal too? The former cannot be right.

    A momentum of the call before that is part of this one's can be made up for by other noise, and then the decision is the
    same. An old gradient can be made up for as well, but the decision is not.
    """
    assert case.player is not None
    assert case.setting is not None
    first, second = (case.setting._replace(play=_after(case, case.player, h)) for h in (one, other))
    spelt = call_text(case.kernel.name, [q]) + f"  # after one call, or another, from {other[0][0].tolist()}"
    why = "the same proposal from the same q is accepted with another probability after another call of the same chain"
    moves = False
    for k in range(6):
        x = z if k == 0 else 1.6 * case.rng(17, k).standard_normal(len(z))
        a, b = _moved(first.leaves(q, x)), _moved(second.leaves(q, x))
        if a is not None and b is not None and not np.array_equal(a.played.q, b.played.q):
            moves = True
            b = _made_up_for(second, q, x, a, b)
            if b is None:
                continue
        change = abs((0.0 if a is None else a.probability) - (0.0 if b is None else b.probability))
        if change > 1e-6:
            return Row("stateless", FAIL, change, 1e-6, why, WRONG_LAW, spelt)
    case.remembers = "its proposal depends on the call before" if moves else "its answer depends on the call before"
    return inconclusive("stateless", case.remembers + " (a momentum kept inside?)")


def _made_up_for(setting: Setting, q, z, a: Leaf, b: Leaf) -> Leaf | None:
    """The outcome of ``setting`` on noise with which it makes the move ``a``; None if there is none."""

    def gap(x):
        return setting.gone(q, x, b.path) - a.played.q

    solved = scipy.optimize.root(gap, z, method="hybr", options={"xtol": 1e-12}).x
    reached = np.abs(gap(solved)).max() <= 1e-9 * (1 + np.abs(q).max())
    return _moved(setting.leaves(q, solved)) if reached else None


def _moved(found: list[Leaf]) -> Leaf | None:
    return next((leaf for leaf in found if leaf.moved), None)


# ------------------------------------------------------------------------------------------------------ detailed balance


def _balance(case: _Case) -> list[Row]:
    player, setting = case.need()
    if player.keeps_momentum:
        return [_extended_acceptance(case), not_run("detailed balance", "a momentum is kept: see 'momentum flip'")]
    try:
        rows = _pair_all(case, setting)
    except Undecided as reason:
        rows = [inconclusive("detailed balance", str(reason))]
    if rows[-1].status == INCONCLUSIVE and not any(row.status == FAIL for row in rows):
        rows.append(_stationarity(case, case.setting or setting))
    return rows


def _pair_all(case: _Case, setting: Setting) -> list[Row]:
    """Pairs moves with their ways back at ``n_points`` points; at more of them where some speak against the kernel."""
    outcomes = [_outcomes_at(case, setting, k) for k in range(min(case.n_points, 4))]
    end = _accepting_end([found for _, _, found in outcomes])
    if end != setting.takes:
        setting = case.setting = setting._replace(takes=end)
        outcomes = []
    began, rng = time.monotonic(), case.rng(6)
    for k in range(16 * case.n_points):
        against = len({x.z.tobytes() for x in case.pairs if x.state == "mismatch"})
        holding = sum(x.state == "match" for x in case.pairs)
        undecided = (k > 0 and holding < CLEAR) or not case.decides or bool(_never_held(case))
        enough = (16 if 0 < against < CLEAR else 4 if undecided else 1) * case.n_points
        if k >= enough or (k >= CLEAR and time.monotonic() - began > case.seconds):
            break
        if k >= len(outcomes):
            outcomes.append(_outcomes_at(case, setting, k))
        q, z, found = outcomes[k]
        if k >= case.n_points and not case.decides and not any(leaf.decisions for leaf in found):
            continue  # looked at only to see whether it ever decides
        case.decides = case.decides or any(leaf.decisions for leaf in found)
        for leaf in _different(found, setting.rounding(q))[:4]:
            case.pairs.append(pair(setting, q, z, leaf, found, rng))
    if not case.pairs:
        raise Undecided("it moved from none of the points")
    return [_acceptance_row(case), _rejection_row(case, outcomes), _balance_row(case)]


def _outcomes_at(case: _Case, setting: Setting, k: int) -> tuple[np.ndarray, np.ndarray, list[Leaf]]:
    """The k-th point and noise, with every outcome."""
    q = case.points[k % len(case.points)]
    z = (1.0, 1.6, 1.0, 2.2)[k % 4] * case.rng(7, k).standard_normal(_noise_size(setting, q))
    return q, z, setting.leaves(q, z)


def _noise_size(setting: Setting, q) -> int:
    """How many numbers the noise has: the most normals that any outcome asks for."""
    if setting.player.shape == MOMENTUM:
        return len(q)
    found = setting.leaves(q, np.random.default_rng(0).standard_normal(64))
    if setting.frees:
        return max(sum(step.key == FREE for step in leaf.path) for leaf in found)
    return max(len(leaf.played.numbers("normal")) for leaf in found)


def _accepting_end(all_found: Sequence[list[Leaf]]) -> float:
    """The end of [0, 1) at which the last decision lets the proposal through."""
    votes = [0, 0]
    for found in all_found:
        for leaf in found:
            if leaf.moved and leaf.path and leaf.decisions == 1:
                votes[leaf.path[-1].key == UPPER] += leaf.path[-1].key != WHOLE
    return 1 - TINY if votes[1] > votes[0] else TINY


def _different(found: list[Leaf], rounding: float) -> list[Leaf]:
    """One leaf for each point the kernel may move to."""
    kept: list[Leaf] = []
    for leaf in sorted(found, key=lambda x: -x.probability):
        if leaf.moved and not any(np.abs(leaf.played.q - other.played.q).max() <= rounding for other in kept):
            kept.append(leaf)
    return kept


def _point(case: _Case, x: Pairing) -> str:
    """A call as text: from where, on which noise, and the least uniform."""
    assert case.setting is not None
    noise = case.setting.normals(x.z)
    if case.player is not None and case.player.shape == MOMENTUM:
        return f"{case.kernel.name}({x.q.tolist()}, p0={noise.tolist()}, u=...)"
    kind = "uniform" if case.setting.frees else "normal"
    values = [float(0.5 * math.erfc(-v / math.sqrt(2))) for v in x.z] if case.setting.frees else noise.tolist()
    source = f"Draws(script={{{kind!r}: {values}}})"
    if case.player is not None and case.player.shape == GENERATOR:
        source = f"as_generator({source})"
    return f"{case.kernel.name}({source}, {x.q.tolist()})"


def _orbit_like(case: _Case) -> bool:
    """Whether every move depends on all of its noise: then nothing was updated in parts, which need not be reversible."""
    frees = case.setting is not None and case.setting.frees
    few = all(frees or sum(step.key == FREE for step in x.leaf.path) <= 2 for x in case.pairs)
    return few and all(x.full for x in case.pairs)


def _balance_row(case: _Case) -> Row:
    pairs = case.pairs
    matched = [x for x in pairs if x.state == "match"]
    wrong = [x for x in pairs if x.state == "mismatch"]
    unclear = [x for x in pairs if x.state == "open"]
    if matched:  # where some hold, one that is off by far is rather a way back that was missed
        unclear += [x for x in wrong if x.mismatch > FAR]
        wrong = [x for x in wrong if x.mismatch <= FAR]
    basis = "1e-7 + differences' errors, root and precision, x |J^-1|"
    if wrong and len({x.z.tobytes() for x in wrong}) >= CLEAR and _orbit_like(case) and case.decides:
        worst = max(wrong, key=lambda x: x.mismatch if math.isfinite(x.mismatch) else 1e3)
        smallest = min(wrong, key=lambda x: float(np.abs(x.q).sum() + np.abs(x.z).sum()))
        number = min(worst.mismatch, 1e3)
        basis = f"log of both sides at {len(wrong)} of {len(pairs)} moves; {basis}"
        return Row("detailed balance", FAIL, number, worst.tolerance, basis, WRONG_LAW, _point(case, smallest))
    if wrong:
        if not case.decides:
            why = (
                "does not hold, and it never decides: either a kernel that is right but not reversible, or a wrong one"
            )
        elif not _orbit_like(case):
            why = "does not hold: it updates in parts, which may be right and not reversible: see check.sampler"
        else:
            why = f"does not hold at {len(wrong)} of {len(pairs)} moves, too few to judge"
        return inconclusive("detailed balance", why, max(min(x.mismatch, 1e3) for x in wrong))
    never = _never_held(case)
    if len(matched) >= CLEAR and len(matched) >= 2 * len(unclear) and not never:
        worst = max(matched, key=lambda x: x.mismatch / x.tolerance)
        if unclear:
            case.notes.append(
                f"detailed balance: {len(matched)} moves hold, {len(unclear)} have no answer: {unclear[0].why}"
            )
        return Row("detailed balance", PASS, worst.mismatch, worst.tolerance, f"{len(matched)} moves; {basis}")
    why = (never or unclear)[0].why if never or unclear else "too few moves"
    return inconclusive("detailed balance", f"{len(matched)} of {len(pairs)} moves hold, none is refuted: {why}")


def _decisions(x: Pairing) -> tuple:
    """The kind of an outcome: what was decided on the way to it."""
    return tuple(step.key for step in x.leaf.path if step.key not in (FREE, WHOLE))


def _never_held(case: _Case) -> list[Pairing]:
    """Moves of a kind (taken; left, and yet moved; ...) of which none was found in balance."""
    held = {_decisions(x) for x in case.pairs if x.state == "match"}
    return [x for x in case.pairs if x.state != "match" and _decisions(x) not in held]


def _acceptance_row(case: _Case) -> Row:
    """P against min(1, e^r): one decision, one proposal."""
    known = [x for x in case.pairs if math.isfinite(x.r) and x.state != "open"]
    if not known:
        return inconclusive("acceptance", "no move with a known way back")
    if any(x.leaf.decisions > 1 for x in known) or len({x.leaf.path[-1:] and x.leaf.path[-1].key for x in known}) > 2:
        return not_run("acceptance", "more than one decision: detailed balance is judged for each outcome")
    gaps = [(abs(x.probability - min(1.0, math.exp(min(x.r, 0.0)))), x) for x in known]
    gap, worst = max(gaps, key=lambda item: item[0] / item[1].tolerance)
    basis = f"by bisection, against min(1, e^r) at {len(known)} moves"
    if all(g <= x.tolerance for g, x in gaps):
        return Row("acceptance", PASS, gap, worst.tolerance, basis)
    if all(x.state == "match" for x in known):
        rule = "Barker's rule" if _fits(known, lambda x: 1 / (1 + math.exp(-x.r))) else "another rule than Metropolis's"
        return Row("acceptance", PASS, basis=f"{rule}; it is in detailed balance")
    if not case.decides or not _orbit_like(case):
        return inconclusive("acceptance", "it is not min(1, e^r); whether that is wrong, the other rows say", gap)
    if len({x.z.tobytes() for x in known if x.state == "mismatch"}) < CLEAR:
        return inconclusive("acceptance", "it is not min(1, e^r) at too few moves to judge", gap)
    return Row("acceptance", FAIL, gap, worst.tolerance, basis, WRONG_LAW, _point(case, worst))


def _fits(known: list[Pairing], formula: Callable[[Pairing], float]) -> bool:
    """Whether the acceptance probabilities are those of a formula, where they are not all the same."""
    try:
        return all(abs(x.probability - formula(x)) <= max(10 * x.tolerance, 1e-6) for x in known)
    except (OverflowError, ValueError):
        return False


def _rejection_row(case: _Case, outcomes) -> Row:
    """An outcome other than the proposal must be the start, or a move in its own right."""
    assert case.setting is not None
    stays = [(q, leaf) for q, _, found in outcomes for leaf in found if leaf.decisions and not leaf.moved]
    if stays:
        gaps = [float(np.abs(leaf.played.q - q).max()) for q, leaf in stays]
        q = stays[int(np.argmax(gaps))][0]
        limit = case.setting.rounding(q) if max(gaps) > 0 else 0.0
        return Row("rejection returns the start", PASS, max(gaps), limit, f"{len(stays)} times; rounding")
    if not case.decides:
        return not_run("rejection returns the start", "nothing was rejected")
    # It decides, and moves both ways. Is one of the two no move in its own right?
    groups: dict[tuple, list[Pairing]] = {}
    for x in case.pairs:
        if x.leaf.decisions == 1:
            groups.setdefault(_decisions(x), []).append(x)
    bad = [g for g in groups.values() if sum(x.state == "mismatch" for x in g) >= CLEAR and all(x.full for x in g)]
    thresholds = {round(x.probability, 9) for x in case.pairs}
    if bad and len(groups) >= 2 and len(thresholds) > len(groups) and _orbit_like(case):
        x = min(bad[-1], key=lambda y: y.probability)
        assert x.to is not None
        gap = float(np.abs(x.to - x.q).max())
        why = "what it gives when it rejects is neither the start nor in balance as a move"
        return Row("rejection returns the start", FAIL, gap, 0.0, why, WRONG_LAW, _point(case, x))
    return not_run("rejection returns the start", "every outcome is a move")


def _stationarity(case: _Case, setting: Setting) -> Row:
    """Where detailed balance decides nothing: does one transition keep the law?"""
    assert case.dim is not None
    suspicion = ""
    held = [] if setting.frees else [FREE]  # a number held at one value: then it is not the kernel that is looked at
    broken = next(
        (x for x in case.pairs if x.state == "mismatch" and x.full and not any(s.key in held for s in x.leaf.path)),
        None,
    )
    if broken is not None and not case.decides:
        whole: list[Integral] = []
        size, path = len(broken.z), broken.leaf.path
        for x in integrate_reversal(setting, case.points, path, size, case.rng(8), 0.5 * case.seconds):
            gap, tolerance = abs(x.value - 1), ROUGH + 4 * x.error
            basis = "|E e^r - 1| for moves that end at one point, by quadrature; 1e-4 and its error"
            if tolerance < 0.5 and (gap if x.complete else x.value - 1) > tolerance:
                return Row("stationarity", FAIL, gap, tolerance, basis, WRONG_LAW, call_text(case.kernel.name, [x.at]))
            whole.append(x)
        if len(whole) > 1 and all(x.complete and x.error <= ROUGH for x in whole):
            gap = max(abs(x.value - 1) for x in whole)
            return Row("stationarity", PASS, gap, 10 * ROUGH, f"|E e^r - 1| by quadrature, at {len(whole)} points")
        wealth = bet_on_reversal(setting, case.points, broken.leaf.path, len(broken.z), case.rng(8), 0.3 * case.seconds)
        text = f"wealth of a bet that E e^r > 1 for moves to {np.round(wealth.at, 3).tolist()}; mean {wealth.mean:.4g}"
        basis = f"{text}; {wealth.moves} moves"
        if wealth.value >= GOAL:
            at = call_text(case.kernel.name, [wealth.at])
            return Row("stationarity", FAIL, wealth.value, GOAL, basis, WRONG_LAW, at, "<")
        suspicion = basis if wealth.value > 100 else ""
    try:
        found = weigh_moves(_mover(case, setting), case.law.log_pi, case.dim, case.rng(15), 0.3 * case.seconds)
    except Misconduct as wrong:
        if "did not come back" in str(wrong):
            raise
        return inconclusive("stationarity", f"from a point in the tails: {wrong}")
    if math.isnan(found.z):
        return inconclusive("stationarity", f"the weights of {found.moves} moves are too uneven")
    if found.z >= LIMIT:
        basis = f"z of the mean change of {found.what} in {found.moves} weighted moves"
        return Row("stationarity", FAIL, found.z, LIMIT, basis, WRONG_LAW, f"{case.kernel.name}: {found.moves} moves")
    if suspicion:
        return inconclusive("stationarity", suspicion)
    basis = f"largest z of {found.moves} weighted moves, which would have shown a change of {found.least:.2g} sd a move"
    return Row("stationarity", PASS, found.z, LIMIT, basis)


def _mover(case: _Case, setting: Setting) -> Callable:
    """``move(x, seed)`` with fresh randomness; the momentum of a kern(q, p0=, u=) from its law at x."""
    player, energy = setting.player, case.law.energy

    def move(x, seed):
        script = None
        if player.shape == MOMENTUM and energy is not None:
            mass = np.linalg.inv(inverse_mass(energy, x))
            z = np.random.default_rng(seed).standard_normal(len(x))
            script = {"normal": list(np.linalg.cholesky(mass) @ z)}
            seed += 1
        return player.play(x, script, seed).q

    return move


# ----------------------------------------------------------------------------------------------------- a momentum that is kept


def _extended_leaves(case: _Case, setting: Setting, q, p, z) -> list[Leaf]:
    assert case.player is not None
    player = case.player
    return setting._replace(play=lambda q, script, seed: player.play(q, script, seed, p)).leaves(q, z)


def _two_ways(case: _Case, setting: Setting, q, p, z) -> tuple[Leaf, Leaf] | None:
    """(taken, rejected), or None if only one of them occurs or there is no momentum in the answer."""
    found = _extended_leaves(case, setting, q, p, z)
    taken, left = _moved(found), next((leaf for leaf in found if not leaf.moved), None)
    if taken is None or left is None or taken.played.p is None or left.played.p is None:
        return None
    return taken, left


def _known(leaf: Leaf) -> np.ndarray:
    assert leaf.played.p is not None
    return leaf.played.p


def _many(case: _Case):
    """(k, point), again and again: a rejection is needed, which may be rare."""
    return ((k, case.points[k % len(case.points)]) for k in range(8 * case.n_points))


def _extended_acceptance(case: _Case) -> Row:
    """P = min(1, exp(H(q, p) - H(q', p'))) with the momenta it returns; H is even in p."""
    _, setting = case.need()
    energy = case.law.energy
    standard = energy is None
    if energy is None:

        def energy(q, p):
            return -case.law.log_pi(q) + 0.5 * p @ p

    gaps: list[tuple[float, float, np.ndarray]] = []
    for k, q in _many(case):
        p, z = case.rng(9, k).standard_normal((2, len(q)))
        if len(gaps) >= case.n_points:
            break
        both = _two_ways(case, setting, q, p, z)
        if both is None:
            continue
        taken, left = both
        case.decides = True
        before, after = energy(q, _known(left)), energy(taken.played.q, _known(taken))
        r, size = before - after, 1 + abs(before)
        tolerance = 1e-10 + 256 * case.kernel.epsilon * size + 10 * case.delta * size
        rules = [abs(taken.probability - rule) for rule in (min(1.0, math.exp(min(r, 0.0))), 1 / (1 + math.exp(-r)))]
        gaps.append((min(rules), tolerance, q))
    if len(gaps) < CLEAR:
        return inconclusive("acceptance", f"it both took and rejected the proposal at {len(gaps)} points only")
    gap, tolerance, q = max(gaps, key=lambda g: g[0] / g[1])
    if gap <= tolerance:
        return Row("acceptance", PASS, gap, tolerance, f"by bisection, at {len(gaps)} points; rounding of H")
    if standard:
        return inconclusive(
            "acceptance", "it is not min(1, exp(-dH)) with p'p/2 for the kinetic energy: hand in H", gap
        )
    return Row(
        "acceptance", FAIL, gap, tolerance, "by bisection; rounding of H", WRONG_LAW, call_text(case.kernel.name, [q])
    )


def _momentum_flip(case: _Case) -> Row:
    """Taken moves keep the direction and rejected ones turn it, or the other way round; see Horowitz (1991)."""
    player, setting = case.need()
    if not player.keeps_momentum:
        return _returned_momentum(case, player, setting)
    d = len(case.points[0])
    votes: list[tuple[float, float]] = []
    kept: list[float] = []
    for k, q in _many(case):
        p, z = case.rng(9, k).standard_normal((2, d))
        if len(votes) >= case.n_points or len(kept) >= 2 * case.n_points:
            break
        both = _two_ways(case, setting, q, p, z)
        if both is None:
            continue
        taken, left = both

        def momentum(p, z, q=q, path=left.path):
            script = {"normal": list(z), **{s.kind: [s.answer] for s in path}}
            return player.play(q, script, setting.seed, p).p

        by_p = np.array([(momentum(p + e, z) - left.played.p) for e in 1e-3 * np.eye(d)]).T / 1e-3
        by_z = np.array([(momentum(p, z + e) - left.played.p) for e in 1e-3 * np.eye(d)]).T / 1e-3
        if not np.isfinite(by_p).all() or abs(np.linalg.det(by_z)) < 1e-12:
            continue
        alpha = np.trace(by_p) / d
        kept.append(abs(alpha))
        if abs(alpha) < 1e-6:
            continue
        votes.append((math.copysign(1.0, alpha), _direction(case, setting, q, (p, z), taken, left, by_p, by_z, alpha)))
    if kept and max(kept) < 1e-6:
        return Row("momentum flip", PASS, basis="the momentum is drawn anew each time: its sign does not matter")
    decided = [(s, t) for s, t in votes if t]
    if len(decided) < CLEAR:
        return inconclusive("momentum flip", f"the directions could be told at {len(decided)} points only")
    wrong = [s == t for s, t in decided]
    how = {True: "keeps", False: "turns"}
    text = f"a move taken {how[decided[0][1] > 0]} the momentum's direction, a rejection {how[decided[0][0] > 0]} it"
    case.notes.append(text)
    if all(wrong):
        return Row(
            "momentum flip",
            FAIL,
            basis=f"{text}: one of the two must turn it",
            case=call_text(case.kernel.name, [case.points[0]]),
        )
    return (
        Row("momentum flip", PASS, basis=text)
        if not any(wrong)
        else inconclusive("momentum flip", "now this, now that")
    )


def _direction(case: _Case, setting: Setting, q, start, taken: Leaf, left: Leaf, by_p, by_z, alpha) -> float:
    """+1 if the momentum returned with a move taken points along it, -1 if against it, 0 if that cannot be told.

    Set out from its end with noise that makes the momentum minus (or plus) the one returned: which leads back?
    """
    assert case.player is not None
    to, p_end = taken.played.q, taken.played.p
    assert p_end is not None
    assert left.played.p is not None
    # A rejection gives s (A p + B z) with s = sign(alpha), known at (p, z).
    gaps = []
    for goal in (-p_end, p_end):
        z = start[1] + np.linalg.solve(
            by_z, math.copysign(1.0, alpha) * goal - left.played.p - by_p @ (p_end - start[0])
        )
        script = {"normal": list(z), **{s.kind: [s.answer] for s in taken.path}}
        gaps.append(np.abs(case.player.play(to, script, setting.seed, p_end).q - q).max())
    small = 1e-6 * (1 + np.abs(to - q).max())
    return 1.0 if gaps[0] < small < gaps[1] else -1.0 if gaps[1] < small < gaps[0] else 0.0


def _returned_momentum(case: _Case, player: Player, setting: Setting) -> Row:
    """Which momentum a kern(q, p0=, u=) returns, for whoever keeps it."""
    if player.shape != MOMENTUM:
        return not_run("momentum flip", "no momentum is kept")
    for k, q in enumerate(case.points):
        z = case.rng(10, k).standard_normal(len(q))
        p0 = setting.normals(z)
        stay = next((x for x in setting.leaves(q, z) if not x.moved), None)
        if stay is None or stay.played.p is None:
            continue
        same, turned = (np.array_equal(stay.played.p, s * p0) for s in (1, -1))
        text = "p0" if same else "-p0" if turned else "neither p0 nor -p0"
        case.notes.append(f"after a rejection it returns {text} as the momentum")
        return Row(
            "momentum flip",
            PASS,
            basis=f"returns {text} after a rejection; p0 is handed in anew, so it does not matter",
        )
    return not_run("momentum flip", "no momentum is returned")


# ------------------------------------------------------------------------------------------------------- faults and limits


def _zero_length(case: _Case) -> Row:
    """A trajectory of next to no length has no energy error: it is taken."""
    player, setting = case.need()
    step = next(
        (x for x in ("eps", "step_size", "epsilon", "stepsize") if x in parameters(player.kernel.function)), None
    )
    if step is None:
        return not_run("zero-length", "it takes no step size (eps=, step_size=)")
    kernel = Foreign(lambda *a, **k: player.kernel.function(*a, **{**k, step: 1e-9}), player.kernel.name)
    kernel.convert = player.kernel.convert
    short = setting._replace(player=player._replace(kernel=kernel))
    least, at = 1.0, case.points[0]
    for k, q in enumerate(case.points):
        found = short.leaves(q, case.rng(11, k).standard_normal(len(q)))
        taken = sum(leaf.probability for leaf in found if leaf.moved)
        if taken < least:
            least, at = taken, q
    basis = f"the probability to take a trajectory with {step}=1e-9"
    case_text = call_text(player.kernel.name, {"q": at, step: 1e-9})
    if least >= 1 - 1e-6:
        return judged("zero-length", least, 1 - 1e-6, basis, relation=">=")
    # A rejection is the proper thing only where it is no proposal at all.
    return judged("zero-length", least, 1 - 1e-6, basis, relation=">=", case=case_text, severity=WRONG_LAW)


def _overflow(case: _Case) -> Row:
    """Noise so large that energies overflow: what comes of a NaN that is no fault of the density's?"""
    player, setting = case.need()
    if not case.decides or setting.frees:
        return not_run("overflow", "it does not decide on normals")
    q = case.points[0]
    for size in (1e80, 1e160, 1e200):
        got = _gone_astray(case, player, setting, q, size)
        if got is not None:
            why = f"on normals of size {size:g} it goes where the log density is {got[1]}: it takes a NaN energy"
            return inconclusive("overflow", why + "; wrong wherever the density gives one (see make=)")
    return Row("overflow", PASS, basis="normals up to 1e200 lead nowhere without a finite density")


def _gone_astray(case: _Case, player: Player, setting: Setting, q, size: float, key: int = 0):
    """(where, log density, u) if noise of ``size`` leads to a point without a finite density."""
    z = size * case.rng(12, key).standard_normal(64)
    w = setting.normals(z[: len(q)]) if player.shape == MOMENTUM else z
    for u in (TINY, 0.5, 1 - TINY):
        script = {"normal": list(w), "uniform": [u], "exponential": [-math.log(u)]}
        with np.errstate(all="ignore"):
            try:
                got = player.play(q, script, setting.seed, p=z[: len(q)]).q
            except Misconduct:
                continue  # it refuses
            if np.array_equal(got, q):
                continue
            value = case.law.log_pi(got) if np.isfinite(got).all() else math.nan
        if not math.isfinite(value):
            return got, value, u
    return None


def _made(case: _Case, make, base, slope) -> tuple[Callable, Callable | None]:
    if make is None:
        raise NotApplicable("needs make=, a function of (log_density, gradient) that gives the kernel")
    if base is None:
        raise NotApplicable("needs log_density= beside make=")
    return base, slope


def _rebuilt(player: Player, make, log_density, gradient) -> Player:
    kernel = make(log_density, gradient)
    foreign = Foreign(kernel, player.kernel.name)
    foreign.convert = player.kernel.convert
    return player._replace(kernel=foreign)


def _nan_energy(case: _Case, make, base, slope) -> Row:
    """The log density is NaN, or -inf, next to the proposal, or its gradient is NaN there: it must not be taken.

    Without ``make`` it is looked for proposals that leave the support by themselves.
    """
    player, setting = case.need()
    for k, q in enumerate(case.points if case.decides and not setting.frees else []):
        for size in (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0):
            got = _gone_astray(case, player, setting, q, size, 100 + k)
            if got is not None:
                why = f"it went to {got[0].tolist()}, where the log density is {got[1]}"
                text = f"{call_text(player.kernel.name, [q])}  # normals {size:g} times as large, u={got[2]!r}"
                return Row("nan energy", FAIL, basis=why, severity=WRONG_LAW, case=text)
    base, slope = _made(case, make, base, slope)
    raised, tried = "", 0
    for k, q in enumerate(case.points[:4]):
        z = case.rng(13, k).standard_normal(_noise_size(setting, q))
        proposal = _moved(setting.leaves(q, z))
        if proposal is None:
            continue
        to = proposal.played.q
        radius = 1e-6 * np.abs(to - q).max()

        def spoiled(f, bad, to=to, radius=radius):
            def g(x, *more):
                value = f(x, *more)
                return value if np.abs(np.asarray(x, dtype=float) - to).max() > radius else bad + 0.0 * value

            return g

        faults = [
            ("log density is nan", spoiled(base, math.nan), slope),
            ("log density is -inf", spoiled(base, -math.inf), slope),
        ]
        if slope is not None:
            faults.append(("gradient is nan", base, spoiled(slope, math.nan)))
        for what, log_density, gradient in faults:
            spoilt = _rebuilt(player, make, log_density, gradient)
            for u in (TINY, 0.5, 1 - TINY):
                try:
                    with np.errstate(all="ignore"):
                        got = spoilt.play(q, _deciding(setting, proposal, z, u), setting.seed, p=z).q
                except Misconduct as wrong:
                    raised = str(wrong)
                    continue
                tried += 1
                if (what[0] == "l" and np.abs(got - to).max() <= radius) or not np.isfinite(got).all():
                    text = f"{call_text(player.kernel.name, [q])}  # proposal {to.tolist()}, u={u!r}"
                    why = f"a proposal at which the {what} was taken"
                    return Row("nan energy", FAIL, basis=why, severity=WRONG_LAW, case=text)
    if raised and tried == 0:
        return inconclusive("nan energy", f"it stops: {raised}")
    if not tried:
        raise Undecided("there was no proposal to spoil")
    if raised:
        case.notes.append(f"nan energy: {raised}")
    return Row("nan energy", PASS, basis=f"NaN and -inf at the proposal, {tried} times not taken")


def _deciding(setting: Setting, leaf: Leaf, z, u: float) -> dict:
    """The script of ``leaf`` with ``u`` for its decisions; its flips and choices are left to the kernel's probabilities."""
    kept = [s for s in leaf.path if s.kind not in ("flip", "choice") or s.key == FREE]
    path = tuple(
        s if s.key == FREE else s._replace(answer=-math.log(u) if s.kind == "exponential" else u) for s in kept
    )
    script = answers(path, z if setting.frees else None)
    return script if setting.frees else {**script, "normal": list(setting.normals(z))}


def _shift(case: _Case, make, base, slope) -> Row:
    """log pi + 1e4 and - 1e4: the same outcomes, the same probabilities."""
    base, slope = _made(case, make, base, slope)
    player, setting = case.need()
    worst, at = 0.0, case.points[0]
    for k, q in enumerate(case.points[:3]):
        z = case.rng(14, k).standard_normal(_noise_size(setting, q))
        plain = setting.leaves(q, z)
        for shift in (1e4, -1e4):

            def log_density(x, shift=shift):
                return base(x) + shift

            other = setting._replace(player=_rebuilt(player, make, log_density, slope)).leaves(q, z)
            for leaf in [*plain, *other]:
                near = 1e-9 * (1 + np.abs(q).max())
                chances = [
                    sum(x.probability for x in found if np.abs(x.played.q - leaf.played.q).max() <= near)
                    for found in (plain, other)
                ]
                if not abs(chances[0] - chances[1]) <= worst:
                    worst, at = abs(chances[0] - chances[1]), q
    tolerance = 64 * case.kernel.epsilon * 1e4
    text = f"{call_text(player.kernel.name, [at])}  # log density shifted by 1e4"
    return judged("shift invariance", worst, tolerance, "change of a probability; rounding of 1e4", case=text)


# -------------------------------------------------------------------------------------------------------------- diagnosis


def _diagnose(case: _Case, rows: dict[str, Row]) -> list[str]:
    failed = {name for name, row in rows.items() if row.status == FAIL}
    said = []
    if "stateless" in failed:
        said.append("an energy, gradient or momentum of an earlier transition is used in this one")
    if "nan energy" in failed or "overflow" in failed:
        said.append("the acceptance lets NaN through: compare so that a NaN rejects, and do not clamp it to 1")
    if "rejection returns the start" in failed:
        said.append("a rejection must give the start of the trajectory, not a state of it")
    if "shift invariance" in failed:
        said.append("it exponentiates a log density before it takes the difference of two")
    if "momentum flip" in failed:
        said.append("with a momentum that is kept, a rejection must turn it round")
    known = [x for x in case.pairs if math.isfinite(x.r) and x.state != "open"]
    if failed & {"detailed balance", "acceptance", "stationarity"} and known:
        said += _pattern(case, known)
    return said


def _pattern(case: _Case, known: list[Pairing]) -> list[str]:
    """Which wrong rule gives the probabilities that were found."""
    log_pi = case.law.log_pi

    def clipped(value: float) -> float:
        return min(1.0, math.exp(min(value, 0.0)))

    def target_only(x: Pairing) -> float:
        return log_pi(x.leaf.played.q) - log_pi(x.q)

    half_squares = [(0.5 * float(x.z @ x.z), 0.5 * float(x.q @ x.q)) for x in known]
    kinetic = {id(x): h for x, h in zip(known, half_squares, strict=True)}
    formulas: list[tuple[str, Callable[[Pairing], float]]] = [
        ("it always accepts", lambda x: 1.0),
        ("the sign of the energy difference is wrong: it accepts with min(1, exp(+dH))", lambda x: clipped(-x.r)),
        (
            "the logarithm of the uniform lacks its minus: only downhill moves are taken",
            lambda x: max(0.0, 1 - math.exp(min(-x.r, 0.0))),
        ),
        (
            "only the target's ratio decides: the kinetic energy, or the proposal's density, is left out",
            lambda x: clipped(target_only(x)),
        ),
        (
            "the initial energy has the kinetic energy of the position in place of the momentum",
            lambda x: clipped(x.r + kinetic[id(x)][1] - kinetic[id(x)][0]),
        ),
        ("the initial energy lacks its kinetic energy", lambda x: clipped(x.r - kinetic[id(x)][0])),
        ("half of the energy difference decides", lambda x: clipped(0.5 * x.r)),
        ("twice the energy difference decides", lambda x: clipped(2 * x.r)),
        ("it accepts downhill moves only", lambda x: float(x.r >= 0)),
        ("it takes half of the moves, whatever their energy", lambda x: 0.5),
    ]
    fitting = [text for text, formula in formulas if _fits(known, formula)]
    return fitting[:1] or [
        "the ratio of the acceptance does not belong to the proposal that is made, or to this target"
    ]
