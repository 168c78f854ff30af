"""Non-reversible parallel tempering: replicas at several temperatures, which swap their positions with their neighbours.

Replica k = 0, ..., m has the density, with 0 = b_0 < b_1 < ... < b_m = 1, a normalised reference r and the target pi::

    pi_k(q) proportional to r(q)^(1 - b_k) pi(q)^b_k,      V(q) = log pi(q) - log r(q)

Replica k = m, ..., K does the same with 1 = b_m > ... > b_K = 0 and a second reference. One iteration moves the product of
these densities in two steps, each of which keeps it::

    explore   q_k ~ the reference, independent of the past, for b_k = 0;  q_k <- one transition of the kernel on pi_k otherwise
    swap      for each k = i mod 2, i mod 2 + 2, ... below K, in iteration i:  exchange q_k and q_{k+1} with probability
              min(1, exp((b_{k+1} - b_k) (V(q_k) - V(q_{k+1}))))

Even and odd pairs alternate. Each swap keeps the product, but their alternation is not reversible: a replica that is accepted
keeps its direction, so that it passes K temperatures in about K iterations, where random pairs need K^2. A mode that was found
at a small b comes to b = 1 in this way, and every visit of b = 0 forgets the mode. The draw is q_m after the swaps.

With the rejection probabilities s_k of the pairs of a leg, from a reference to the target, Lambda = sum_k s_k estimates the
communication barrier, which does not depend on their number if it is large. Replicas make about
1 / (2 + 2 sum_k s_k / (1 - s_k)) round trips per iteration. This is largest if all s_k are equal. Warm-up therefore chooses the
b_k so that the piecewise linear interpolation of b_k -> s_0 + ... + s_{k-1} has equal increments. It does so after rounds of
growing lengths. Syed, Bouchard-Cote, Deligiannidis and Doucet (2022) derive these results; about 2 Lambda pairs are best.

Both references are normal with independent coordinates. The first one stays as it is given. It should cover all modes, and is
far from the target. At the ends of the rounds, except the last two, warm-up fits the second one to the draws at b = 1. It is
near to the target, so that its leg has a low barrier, but it may miss a mode that those draws have not met yet. The first leg
brings such modes to the target all the same. Surjanovic, Syed, Bouchard-Cote and Campbell (2022) propose both legs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numba
import numpy as np
from numba import types as nb
from numpy.typing import ArrayLike

from refhmc.compile.compiled import jit
from refhmc.core import types
from refhmc.core.arguments import array_of_numbers, whole_number
from refhmc.core.randomness import bernoulli
from refhmc.core.records import WHOLE, one, record_type
from refhmc.core.registry import registry
from refhmc.kernels.autostep import AutoStep
from refhmc.kernels.drhmc import DRHMC
from refhmc.kernels.ghmc import GHMC
from refhmc.kernels.gist import GIST
from refhmc.kernels.hmc import HMC
from refhmc.kernels.malt import MALT
from refhmc.kernels.mams import MAMS
from refhmc.kernels.nuts import NUTS
from refhmc.kernels.options import Kernel, check_kernel, named
from refhmc.kernels.walnuts import WALNUTS

OF_RUNGS = registry({each.__name__: each for each in (AutoStep, DRHMC, GHMC, GIST, HMC, MALT, MAMS, NUTS, WALNUTS)})
FIRST_POWER = 3.0  # b_k = (k / K)^3 at first: near b = 0 the density changes fastest
# Ends of the rounds of warm-up, as shares of it. The second reference is fitted at all of them except the last two.
ROUNDS = (0.05, 0.1, 0.2, 0.35, 0.5, 0.65, 0.8)
LEAST_REJECTION = 1e-3  # so that no two temperatures become equal
LOG_2PI = math.log(2 * math.pi)

# ``iteration``: swaps so far; ``target``: the place m of the target; ``count``: iterations of this round.
LADDER_RECORD = record_type({"iteration": WHOLE, "target": WHOLE, "count": WHOLE})
# Replicas (K + 1, 3d + 1), rows q, mean and standard deviation of the reference of the leg, b; log pi (K + 1,); the numbers of
# the replicas at each temperature (K + 1,); sums of rejection probabilities (K,); mean and scatter (2, d) of the positions of
# the target; workspace (2, K + 1); ends of the rounds; the record.
LADDER = nb.Tuple(
    (
        *(types.MATRIX, types.VECTOR, types.INTEGERS, types.VECTOR, types.MATRIX, types.MATRIX, types.INTEGERS),
        numba.from_dtype(LADDER_RECORD),
    )
)


@dataclass(frozen=True, eq=False)
class Tempered:
    """Non-reversible parallel tempering, for targets with several modes, with an estimate of log Z.

    Each chain has replicas at inverse temperatures 0 = b_0 < ... < b_m = 1, on the densities ::

        pi_b(q) proportional to r(q)^(1 - b) pi(q)^b

    between a normal reference r and the target pi, and others at 1 = b_m > ... > b_K = 0 between the target and a second
    reference, which warm-up fits to the draws. One iteration draws the replicas at b = 0 from their references, makes one
    transition of `kernel` for each of the others, and then swaps neighbours with probability
    ``min(1, exp((b_{k+1} - b_k) (V(q_k) - V(q_{k+1}))))``, V = log pi - log r. Even and odd pairs alternate. The draw is the
    position at b_m = 1.

    Parameters
    ----------
    kernel : kernel or str
        Kernel of each replica, such as ``NUTS()``, or its name. Step size and metric are adapted at each temperature. The
        metric must not depend on the position, and ``"auto"`` is an adapted ``Diagonal()``.
    rungs : int, default 10
        Number m of pairs between the first reference and the target. An iteration costs m transitions for them. About twice
        the attribute ``barrier`` of the result is best.
    learned_rungs : int, default 5
        Number K - m of pairs between the target and the second reference, which cost K - m - 1 transitions. With 0, there is no
        second reference.
    reference_mean : float or array_like of shape (d,), default 0.0
        Mean of the first reference, in unconstrained coordinates.
    reference_scale : float or array_like of shape (d,), default 5.0
        Standard deviations of the first reference. They should cover all modes.

    Raises
    ------
    ValueError
        If `rungs`, `learned_rungs` or the reference is invalid, or if `kernel` is an unknown name.
    TypeError
        If `kernel` is not a kernel of one transition that follows gradients of the whole density on a constant metric.

    See Also
    --------
    NUTS : For targets with one mode, at a fraction of the cost.

    Notes
    -----
    The first reference finds the modes. If replicas seldom pass between it and the target (``round_trips``, and a warning), a
    chain may miss a mode, although the second reference gives it many independent draws from the others. Its shares and its
    log Z then differ from those of other chains, which R-hat and ``log_z_error`` show. Modes of very different widths, in many
    dimensions, have very different shares at b < 1, so that few replicas bring the narrow ones. Use more rungs and more draws.

    The statistics are those of `kernel` at the target, and arrays over the temperatures: ``inverse_temperature`` (b) and
    ``replica`` (the number of the replica after the swaps, the index process), and for each pair ``log_ratio`` and
    ``next_log_ratio`` (V at both positions, before the swaps).

    The attributes of the result are ``log_z`` and ``log_z_error``, ``barrier`` (between the first reference and the target),
    ``swap_rejection`` of each pair, ``round_trips`` between the first reference and the target per chain, and ``ladder``, the
    temperatures of each chain. ``log_z`` is the logarithm of the integral of exp(log density) over the unconstrained
    coordinates. For a posterior this is the log marginal likelihood, up to the constants that the model's log density omits.

    References
    ----------
    - Syed, Bouchard-Cote, Deligiannidis and Doucet (2022), Non-reversible parallel tempering: a scalable highly parallel MCMC
      scheme, JRSS B 84.
    - Surjanovic, Syed, Bouchard-Cote and Campbell (2022), Parallel tempering with a variational reference, NeurIPS 35.
    - Bennett (1976), Efficient estimation of free energy differences from Monte Carlo data, J. Comput. Phys. 22.

    Examples
    --------
    >>> import math, refhmc
    >>> model = refhmc.models.Gaussian([3.0], [[1.0]])  # without the constant of the density
    >>> kernel = refhmc.Tempered(refhmc.NUTS(), rungs=4, learned_rungs=2)
    >>> result = refhmc.sample(model, kernel, random_seed=1, progressbar=False, raw=True)
    >>> error = result.attributes["log_z"] - 0.5 * math.log(2 * math.pi)
    >>> abs(error) < 5 * result.attributes["log_z_error"]
    True
    """

    name = "tempered"
    kernel: Any
    rungs: int = 10
    learned_rungs: int = 5
    reference_mean: ArrayLike = 0.0
    reference_scale: ArrayLike = 5.0

    def __post_init__(self) -> None:
        kernel = self.kernel
        if isinstance(kernel, str):
            word, kernel = kernel, named(kernel, "kernel", OF_RUNGS)
            if kernel is None:
                raise ValueError(f'kernel must be a kernel or its name, such as "nuts"; got {word!r}.')
        check_kernel(kernel, "kernel")
        if getattr(kernel, "jumping", False) or getattr(kernel, "minibatches", False):
            raise TypeError(
                f"kernel of Tempered must follow the gradient of the whole log density; got {type(kernel).__name__}. Use "
                "refhmc.NUTS() or refhmc.HMC()."
            )
        if getattr(kernel.metric, "position_dependent", False):
            raise TypeError(
                f"kernel of Tempered must have a metric that does not depend on the position; got {kernel.metric!r}. Use "
                "refhmc.metrics.Diagonal()."
            )
        set_to = {"kernel": kernel, "rungs": whole_number("rungs", self.rungs)}
        set_to["learned_rungs"] = whole_number("learned_rungs", self.learned_rungs, least=0)
        for name in ("reference_mean", "reference_scale"):
            values = array_of_numbers(name, getattr(self, name))
            if values.ndim > 1 or not np.isfinite(values).all():
                raise ValueError(f"{name} must be a finite number or one per coordinate; got {values!r}.")
            set_to[name] = float(values) if values.ndim == 0 else values
        if not np.all(np.asarray(set_to["reference_scale"]) > 0):
            raise ValueError(f"reference_scale must be positive; got {self.reference_scale!r}.")
        for name, value in set_to.items():
            object.__setattr__(self, name, value)

    @property
    def blocks(self) -> Mapping[str, Kernel]:
        """The kernel of each replica except the first; all coordinates are moved together.

        The last of the second leg is drawn from its reference. It is a block all the same, for its statistics.
        """
        return {f"rung{k + 1}": self.kernel for k in range(self.rungs + self.learned_rungs)}


class Ladder:
    """State of the replicas of a chain, as plain arrays."""

    ARRAYS = ("replicas", "log_density", "places", "rejections", "moments", "record")

    def __init__(self, kernel: Tempered, dim: int, tune: int) -> None:
        for name in ("reference_mean", "reference_scale"):
            if np.ndim(getattr(kernel, name)) and np.shape(getattr(kernel, name)) != (dim,):
                raise ValueError(
                    f"{name} must be a number or have shape ({dim},); got {np.shape(getattr(kernel, name))}."
                )
        m, n = kernel.rungs, kernel.learned_rungs
        K, self.target = m + n, m
        self.replicas = np.zeros((K + 1, 3 * dim + 1))
        self.replicas[:, dim : 2 * dim], self.replicas[:, 2 * dim : -1] = kernel.reference_mean, kernel.reference_scale
        self.replicas[: m + 1, -1] = (np.arange(m + 1) / m) ** FIRST_POWER
        self.replicas[m + 1 :, -1] = (np.arange(n)[::-1] / max(n, 1)) ** FIRST_POWER
        self.log_density, self.rejections, self.moments = np.zeros(K + 1), np.zeros(K), np.zeros((2, dim))
        self.places, self.workspace = np.arange(K + 1, dtype=np.int64), np.zeros((2, K + 1))
        self.rounds = np.unique([int(share * tune) for share in ROUNDS if share * tune >= 2]).astype(np.int64)
        self.record = one(LADDER_RECORD)
        self.record.target = m

    def start(self, q: np.ndarray) -> None:
        """Set the positions of all replicas."""
        self.replicas[:, : len(q)] = q

    @property
    def position(self) -> np.ndarray:
        """The position of the target, a view."""
        return self.replicas[self.target, : self.moments.shape[1]]

    @property
    def in_loop(self) -> tuple:
        """The state as ``LADDER``."""
        arrays = self.replicas, self.log_density, self.places, self.rejections, self.moments
        return (*arrays, self.workspace, self.rounds, self.record[0])


@jit
def log_reference(q: np.ndarray, row: np.ndarray) -> float:
    """Return log r(q) of the reference in the row of a replica."""
    d, total = row.shape[0] // 3, 0.0
    for i in range(d):
        z = (q[i] - row[d + i]) / row[2 * d + i]
        total -= 0.5 * z * z + math.log(row[2 * d + i]) + 0.5 * LOG_2PI
    return total


@jit
def draw_from_reference(rng: np.random.Generator, row: np.ndarray, q: np.ndarray) -> None:
    """Draw the position of a replica from r, and copy it to `q`."""
    d = q.shape[0]
    for i in range(d):
        row[i] = row[d + i] + row[2 * d + i] * rng.standard_normal()
        q[i] = row[i]


@jit
def set_log_density(ladder: tuple, k: int, value: float) -> None:
    """Set log pi of a replica, from (1 - b) log r + b log pi for b > 0, and from log pi for b = 0."""
    row = ladder[0][k]
    b = row[row.shape[0] - 1]
    of_target = value if b == 0 else (value - (1 - b) * log_reference(row, row)) / b
    ladder[1][k] = -math.inf if math.isnan(of_target) else of_target


@jit
def log_ratios(ladder: tuple, k: int) -> tuple[float, float]:
    """Return V of replicas k and k + 1, with the reference of their leg."""
    replicas, log_density = ladder[0], ladder[1]
    row = replicas[k] if k < ladder[7].target else replicas[k + 1]
    return log_density[k] - log_reference(replicas[k], row), log_density[k + 1] - log_reference(replicas[k + 1], row)


@jit
def swap_probability(b: float, V: float, next_b: float, next_V: float) -> float:
    """Return min(1, exp((b' - b) (V - V'))), and 0 if both V are -inf."""
    change = (next_b - b) * (V - next_V)
    if change >= 0:
        return 1.0
    return math.exp(change) if change < 0 else 0.0


@jit
def swap_neighbours(ladder: tuple, randomness: tuple, stats: np.ndarray) -> None:
    """Swap the even or the odd pairs, and write V before, and the numbers of the replicas after the swaps."""
    replicas, log_density, places, rejections, _, _, _, record = ladder
    K, last = rejections.shape[0], replicas.shape[1] - 1
    for k in range(K):
        b, next_b = replicas[k, last], replicas[k + 1, last]
        V, next_V = log_ratios(ladder, k)
        stats[k].inverse_temperature, stats[k].log_ratio, stats[k].next_log_ratio = next_b, V, next_V
        rejections[k] += 1 - swap_probability(b, V, next_b, next_V)
    for k in range(record.iteration % 2, K, 2):
        accept = swap_probability(replicas[k, last], stats[k].log_ratio, replicas[k + 1, last], stats[k].next_log_ratio)
        if bernoulli(randomness, accept):
            exchange(ladder, k)
    for k in range(K):
        stats[k].replica = places[k + 1]
    stats[record.target - 1].lp = log_density[record.target]


@jit
def exchange(ladder: tuple, k: int) -> None:
    """Exchange the positions of replicas k and k + 1, with what belongs to them."""
    replicas, log_density, places, _, moments, _, _, _ = ladder
    for i in range(moments.shape[1]):
        replicas[k, i], replicas[k + 1, i] = replicas[k + 1, i], replicas[k, i]
    log_density[k], log_density[k + 1] = log_density[k + 1], log_density[k]
    places[k], places[k + 1] = places[k + 1], places[k]


@jit
def learn_ladder(ladder: tuple) -> None:
    """Learn from an iteration of warm-up, and at the end of a round adapt the temperatures and the second reference."""
    replicas, _, _, rejections, moments, workspace, rounds, record = ladder
    record.iteration += 1
    n, m = rounds.shape[0], record.target
    if n == 0 or record.iteration > rounds[n - 1]:
        return
    record.count += 1
    for i in range(moments.shape[1]):
        change = replicas[m, i] - moments[0, i]
        moments[0, i] += change / record.count
        moments[1, i] += change * (replicas[m, i] - moments[0, i])
    for k in range(n):
        if record.iteration == rounds[k]:
            equalise(replicas, rejections, record.count, 0, m, workspace)
            equalise(replicas, rejections, record.count, m, rejections.shape[0], workspace)
            if k + 2 < n:
                fit_reference(replicas[m + 1 :], moments, record.count)
            rejections[:] = 0.0
            moments[:] = 0.0
            record.count = 0


@jit
def equalise(
    replicas: np.ndarray, rejections: np.ndarray, count: int, first: int, stop: int, workspace: np.ndarray
) -> None:
    """Change the temperatures of a leg so that, by linear interpolation, all its pairs have the same rejection probability.

    The pairs are `first` to `stop` - 1. `workspace` (2, K + 1) is overwritten.
    """
    n, last, old, barrier = stop - first, replicas.shape[1] - 1, workspace[0], workspace[1]
    barrier[0] = 0.0
    for k in range(n + 1):
        old[k] = replicas[first + k, last]
    for k in range(n):
        barrier[k + 1] = barrier[k] + max(rejections[first + k] / count, LEAST_REJECTION)
    k = 0
    for j in range(1, n):
        sought = barrier[n] * j / n
        while barrier[k + 1] < sought:
            k += 1
        share = (sought - barrier[k]) / (barrier[k + 1] - barrier[k])
        replicas[first + j, last] = old[k] + share * (old[k + 1] - old[k])


@jit
def fit_reference(replicas: np.ndarray, moments: np.ndarray, count: int) -> None:
    """Fit the reference of replicas to `count` positions of the target."""
    d = moments.shape[1]
    for i in range(d):
        scale = math.sqrt(moments[1, i] / count)
        if scale > 0:
            for k in range(replicas.shape[0]):
                replicas[k, d + i], replicas[k, 2 * d + i] = moments[0, i], scale
