"""Coupled HMC: pairs of chains that meet, unbiased estimates of means, and a measured bound on burn-in.

A pair (X, Y) starts from two independent draws of the same distribution. X first makes L transitions alone, the lag. From then
on both move together, X from iteration t to t + 1 and Y from t - L to t - L + 1, each by the same kernel: with probability
1 - g a transition of HMC, with probability g a step of random-walk Metropolis.

    HMC          both chains have the same momentum, the same jitter and the same uniform in their decisions
    random walk  x* = x + s R z,  y* = y + s R (z - 2 e e'z),  e = (x - y) / |x - y| in the metric of R,  R R' = M^-1
                 y* = x*  instead if  u < min(1, N(z + d) / N(z)),  d = R^-1 (x - y) / s;  N is the standard normal density
                 both are accepted with the same uniform, u' < pi(x*) / pi(x) and u' < pi(y*) / pi(y)

The random walk's proposals are equal with the largest possible probability, 1 - TV = erfc(|d| / sqrt(8)). It is the maximal
coupling with reflected residuals, which needs one vector of normals and no loop. Chains that have met stay equal. With the
meeting time tau = min {t >= L: X_t = Y_(t-L)}, the means of h over the target distribution pi are

    H_(k:m) = 1/(m-k+1) sum_(t=k..m) h(X_t)  +  sum_(t=k+L..tau-1) w_t (h(X_t) - h(Y_(t-L)))
    w_t     = (floor((t-k) / L) - ceil(max(L, t-m) / L) + 1) / (m-k+1)

whose expectation is the mean, whatever the starts, k, m and L. The distribution after t transitions has from pi the distance

    TV(pi_t, pi) <= E max(0, ceil((tau - L - t) / L)).

Heng and Jacob (2019), Unbiased Hamiltonian Monte Carlo with couplings, Biometrika 106: the mixture and the shared momentum.
Jacob, O'Leary and Atchade (2020), JRSS B 82: H_(k:m) for L = 1 (eq. 2.1), couplings of Metropolis (sec. 4). Biswas, Jacob and
Vanetti (2019), NeurIPS: the lag and the bound (theorem 2.5). Bou-Rabee, Eberle and Zimmer (2020): the reflected residuals.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from refhmc.batch.memory import Remembering
from refhmc.core.arguments import positive, whole_number
from refhmc.errors import SamplingWarning, ShapeError
from refhmc.integrators.defaults import resolve
from refhmc.kernels.hmc import HMC
from refhmc.kernels.hmc import transition as hmc
from refhmc.models.model_on_arrays import ModelOnArrays
from refhmc.sampling.chains.chain import make_plan
from refhmc.sampling.chains.initialization import Initvals, check_start, given_starts, random_start
from refhmc.sampling.checks.seed import Seed, entropy_of

if TYPE_CHECKING:
    from refhmc.models.base import Model


class Coupled(NamedTuple):
    """Result of :func:`coupled`.

    Parameters
    ----------
    meeting_times : ndarray of int, shape (pairs,)
        First iteration t with X_t = Y_(t - lag); -1 for a pair that did not meet.
    mean : ndarray, shape (k,)
        Unbiased estimates of the means, averaged over the pairs; NaN if a pair did not meet.
    standard_error : ndarray, shape (k,)
        Standard errors of `mean`, from the variances between the independent pairs.
    estimates : ndarray, shape (pairs, k)
        Unbiased estimates of each pair.
    total_variation : ndarray, shape (T,)
        Estimated bounds on the total variation distance between the target distribution and that of a chain after
        t = 0, ..., T - 1 transitions. The last one is 0. NaN, with T = 1, if a pair did not meet.
    total_variation_error : ndarray, shape (T,)
        Standard errors of `total_variation`.
    unmet : int
        Number of pairs that did not meet.
    n_gradients : int
        Number of gradients of all pairs.
    lag : int
        Lag between the chains of a pair.
    """

    meeting_times: np.ndarray
    mean: np.ndarray
    standard_error: np.ndarray
    estimates: np.ndarray
    total_variation: np.ndarray
    total_variation_error: np.ndarray
    unmet: int
    n_gradients: int
    lag: int


class Mixture(NamedTuple):
    """Kernel of a pair, with the ``root`` R of M^-1, and scale and share of the random walk."""

    H: Any
    step: Callable
    options: dict[str, Any]
    root: np.ndarray
    walk_size: float
    walk_share: float

    def __call__(self, z: np.ndarray, normals: np.ndarray, uniforms: np.ndarray) -> np.ndarray:
        """Move n pairs, z (2, n, d), or n single chains, z (1, n, d), on random numbers (n, d) and (n, 4).

        The uniforms choose the kernel, then jitter step size and length for HMC, or decide whether the proposals are equal
        for the walk; the last one used is that of the Metropolis decisions.
        """
        new, walks = z.copy(), uniforms[:, 0] < self.walk_share
        for rows, move in ((walks, self.walk), (~walks, self.hmc)):
            if rows.any():
                new[:, rows] = move(z[:, rows], normals[rows], uniforms[rows, 1:])
        return new

    def hmc(self, z: np.ndarray, normals: np.ndarray, uniforms: np.ndarray) -> np.ndarray:
        """Make a transition of HMC, with the same random numbers in both chains."""
        p = self.H.draw_momentum(z, np.broadcast_to(normals, z.shape))
        return hmc(self.H, self.step, z, p, np.broadcast_to(uniforms, (*z.shape[:2], 3)), **self.options).q

    def walk(self, z: np.ndarray, normals: np.ndarray, uniforms: np.ndarray) -> np.ndarray:
        """Make a step of random-walk Metropolis, with maximally coupled proposals."""
        proposals = self.proposals(z, normals, uniforms[:, 0])
        log_ratio = self.H.model.log_density(proposals) - self.H.model.log_density(z)
        return np.where((np.log(uniforms[:, 1]) < log_ratio)[..., None], proposals, z)

    def proposals(self, z: np.ndarray, normals: np.ndarray, u: np.ndarray) -> np.ndarray:
        """Return the proposals of the random walk, of the shape of z."""
        first = z[0] + self.walk_size * normals @ self.root.T
        if len(z) == 1:
            return first[None]
        d = np.linalg.solve(self.root, (z[0] - z[1]).T).T / self.walk_size
        along, squared = np.sum(d * normals, axis=1), np.sum(d * d, axis=1)
        equal = np.log(u) < -along - squared / 2
        reflected = normals - d * (2 * along / np.where(squared > 0, squared, 1.0))[:, None]
        return np.stack([first, np.where(equal[:, None], first, z[1] + self.walk_size * reflected @ self.root.T)])


def coupled(
    model: Model,
    kernel: HMC,
    *,
    pairs: int = 100,
    burn_in: int = 100,
    iterations: int = 1000,
    lag: int = 1,
    quantity: Callable[[np.ndarray], np.ndarray] | None = None,
    max_iterations: int = 10_000,
    walk_share: float = 0.05,
    walk_size: float = 1e-3,
    initvals: Initvals | Callable[[np.random.Generator], np.ndarray] | None = None,
    random_seed: Seed | None = None,
) -> Coupled:
    """Run pairs of HMC chains until they meet, and return unbiased estimates of means.

    Both chains of a pair use the same momenta and uniforms. Now and then a random walk with maximally coupled proposals makes
    them equal, and they stay equal from then on::

        H_(k:m) = 1/(m-k+1) sum_(t=k..m) h(X_t)  +  sum_(t=k+L..tau-1) w_t (h(X_t) - h(Y_(t-L)))
        w_t     = (floor((t-k) / L) - ceil(max(L, t-m) / L) + 1) / (m-k+1)
        TV(pi_t, pi) <= E max(0, ceil((tau - L - t) / L))

    Here tau is the meeting time, L the `lag`, k the `burn_in` and m the `iterations`. The first sum is the usual average, and
    the second one removes its bias. The last line bounds the distance from the target distribution after t transitions.

    Parameters
    ----------
    model : Model
        Model with a differentiable density.
    kernel : HMC
        ``HMC(step_size=..., n_steps=...)`` with a constant metric and an explicit integrator. Nothing is adapted: a metric
        without values is the identity. Jitters of step size and length are shared by the chains of a pair.
    pairs : int, default 100
        Number of independent pairs, at least 2.
    burn_in : int, default 100
        First iteration k of the average. Choose a large quantile of the meeting times.
    iterations : int, default 1000
        Last iteration m of the average, at least `burn_in`. Choose several times `burn_in`.
    lag : int, default 1
        Number of transitions L by which the first chain of each pair is ahead. A larger one makes the bound tighter.
    quantity : callable, optional
        Function h whose mean is estimated, from positions (n, d) to values (n,) or (n, k). Defaults to the coordinates.
    max_iterations : int, default 10,000
        Iteration after which pairs that have not met are given up, at least `iterations`.
    walk_share : float, default 0.05
        Probability of a random walk instead of HMC, in (0, 1).
    walk_size : float, default 1e-3
        Scale of the random walk, whose proposals have the covariance ``walk_size**2 * M^-1``.
    initvals : array_like, dict or callable, optional
        Starts: a position of shape (d,), positions of shape (pairs, 2, d), constrained values by name, or a function that
        draws a position from a ``numpy.random.Generator``. Defaults to the model's own start, else to uniform draws on (-2, 2).
        The two starts of a pair must have the same distribution.
    random_seed : int, sequence of int, SeedSequence or Generator, optional
        Seed of the run. By default it comes from the operating system.

    Returns
    -------
    Coupled
        Meeting times, estimates with standard errors, and bounds on the total variation distance, as NumPy arrays.

    Raises
    ------
    TypeError
        If the kernel is not HMC.
    ValueError
        If the kernel lacks a step size or a number of steps, if its metric depends on the position, or if an argument is out
        of range.
    ShapeError, InitError
        If the starts have another shape, or are outside the support.

    Warns
    -----
    SamplingWarning
        If pairs have not met after `max_iterations`. Estimates and bounds are NaN then, since those of the pairs that met
        would be biased.

    See Also
    --------
    sample : Long chains, for most purposes. Its warm-up finds a step size and a metric for `kernel`.

    Notes
    -----
    All pairs advance together in arrays. The distribution of the result depends on the random numbers of each pair only, but
    the numbers themselves change with `pairs`.

    References
    ----------
    - Heng and Jacob (2019), Unbiased Hamiltonian Monte Carlo with couplings, Biometrika 106.
    - Jacob, O'Leary and Atchade (2020), Unbiased Markov chain Monte Carlo methods with couplings, JRSS B 82, section 2.
    - Biswas, Jacob and Vanetti (2019), Estimating convergence of Markov chains with L-lag couplings, NeurIPS, theorem 2.5.

    Examples
    --------
    >>> import refhmc
    >>> model = refhmc.models.Gaussian([3.0, 0.0], [[1.0, 0.5], [0.5, 2.0]])
    >>> kernel = refhmc.HMC(step_size=0.5, n_steps=3)
    >>> made = refhmc.coupled(model, kernel, pairs=50, burn_in=50, iterations=200, random_seed=1)
    >>> made.unmet, made.mean.shape
    (0, (2,))
    >>> bool((abs(made.mean - [3.0, 0.0]) < 6 * made.standard_error).all())
    True
    """
    mixture, memory = mixture_of(model, kernel, walk_size, walk_share)
    for name, number, least in (("pairs", pairs, 2), ("burn_in", burn_in, 0), ("lag", lag, 1)):
        whole_number(name, number, least)
    whole_number("iterations", iterations, burn_in)
    whole_number("max_iterations", max_iterations, max(iterations, lag))
    rng = np.random.default_rng(entropy_of(random_seed))
    x, y = starts_of(model, kernel, initvals, pairs, rng)
    met, total, t = np.full(pairs, -1), np.zeros((pairs, 1)), 0

    def move(z: np.ndarray) -> np.ndarray:
        return mixture(z, rng.standard_normal(z.shape[1:]), rng.random((z.shape[1], 4)))

    def values(q: np.ndarray) -> np.ndarray:
        h = q if quantity is None else np.asarray(quantity(q.copy()), dtype=float)
        if h.ndim not in (1, 2) or len(h) != len(q):
            raise ShapeError(f"quantity must return an array of shape (n,) or (n, k) for n = {len(q)}; got {h.shape}.")
        return h.reshape(len(q), -1)

    with np.errstate(all="ignore"):
        while True:
            if t >= lag:
                met[(met < 0) & np.all(x == y, axis=1)] = t
            apart = met < 0
            if burn_in <= t <= iterations:
                total = total + values(x) / (iterations - burn_in + 1)
            if t >= burn_in + lag and apart.any():
                total[apart] += weight(t, burn_in, iterations, lag) * (values(x[apart]) - values(y[apart]))
            if t == max_iterations or not (apart.any() or t < iterations):
                break
            if t < lag:
                x = move(x[None])[0]
            else:
                x[apart], y[apart] = move(np.stack([x[apart], y[apart]]))
                if t < iterations and not apart.all():
                    x[~apart] = move(x[None, ~apart])[0]
            t += 1
    unmet = int(np.sum(met < 0))
    if unmet:
        warnings.warn(
            SamplingWarning(
                f"{unmet} of {pairs} pairs did not meet within {max_iterations:,} iterations. Estimates from the others would "
                "be biased, so all estimates are NaN. Increase max_iterations, or change step_size, n_steps or the metric."
            ),
            stacklevel=2,
        )
        total = np.full_like(total, np.nan)
    times = np.arange(met.max() - lag + 1)
    bounds = total[:, :1] if unmet else np.maximum(0, -((lag + times - met[:, None]) // lag))
    n_gradients = memory.counts["gradient"]
    return Coupled(met, *mean_and_error(total), total, *mean_and_error(bounds), unmet, n_gradients, lag)


def mixture_of(model: Model, kernel: Any, walk_size: float, walk_share: float) -> tuple[Mixture, Remembering]:
    """Return the kernel of the pairs, and the model that counts its evaluations. Raises TypeError or ValueError."""
    if not isinstance(kernel, HMC):
        raise TypeError(f"kernel must be refhmc.HMC(step_size=..., n_steps=...); got {kernel!r}.")
    for name in ("step_size", "n_steps"):
        if getattr(kernel, name) is None:
            raise ValueError(f"{name} of the kernel must be given for coupled chains, which adapt nothing; got None.")
    metric, integrator = resolve(cast(Any, kernel.metric), cast(Any, kernel.integrator))
    part = getattr(integrator, "base", integrator)
    if metric.position_dependent:
        raise ValueError(f"metric must be constant for coupled chains; got {type(metric).__name__}. Use Dense().")
    if not getattr(part, "constant_metric", False) or getattr(part, "follows_parts", False):
        raise ValueError(
            f"integrator must be explicit, on the whole model, for coupled chains; got {type(integrator).__name__}. "
            "Use Leapfrog()."
        )
    if len(model.discontinuous):
        raise ValueError(f"model must not have discontinuous coordinates for coupled chains; got {model.name}.")
    if not 0 < walk_share < 1:
        raise ValueError(f"walk_share must lie between 0 and 1; got {walk_share!r}. Chains meet in the random walk.")
    memory = Remembering(ModelOnArrays(model))
    W = metric.inverse_mass(model.dim)
    root = np.linalg.cholesky(W) if W.ndim == 2 else np.diag(np.sqrt(W))
    names = "step_size", "n_steps", "step_jitter", "length_jitter"
    options = {name: getattr(kernel, name) or 0.0 for name in names}
    walk = root, positive("walk_size", walk_size), walk_share
    return Mixture(metric.on_arrays(memory), integrator.on_arrays(), options, *walk), memory


def starts_of(
    model: Model, kernel: HMC, initvals: Any, pairs: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Return the starts of both chains of each pair, (pairs, d). Raises ShapeError or InitError."""
    if callable(initvals):
        starts = np.array([initvals(rng) for _ in range(2 * pairs)], dtype=float)
    elif np.ndim(initvals) == 3:
        starts = np.array(initvals, dtype=float)
        if starts.shape != (pairs, 2, model.dim):
            raise ShapeError(
                f"initvals must have shape ({model.dim},) or ({pairs}, 2, {model.dim}); got {starts.shape}."
            )
        starts = starts.reshape(2 * pairs, model.dim)
    else:
        starts = initvals
    given, plan = given_starts(model, starts, 2 * pairs), make_plan(model, kernel, 0)
    if given is None:
        given = np.array([random_start(model, plan, rng, k) for k in range(2 * pairs)])
    for k, q in enumerate(given):
        check_start(model, q, k)
    return given[::2].copy(), given[1::2].copy()


def weight(t: int, first: int, last: int, lag: int) -> float:
    """Return w_t: how many of the estimators H_l, l = first, ..., last, have the difference at t, divided by their number."""
    return ((t - first) // lag + (-max(lag, t - last)) // lag + 1) / (last - first + 1)


def mean_and_error(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the means over the pairs and their standard errors."""
    return x.mean(axis=0), x.std(axis=0, ddof=1) / np.sqrt(len(x))
