"""The tree of one NUTS transition.

The transition runs the array implementation (:func:`refhmc.array_api.nuts`) with a step that records its states. With the
same uniforms, ``max_treedepth=k`` performs only the first k doublings, so that its result is the candidate after them. The
interval that turned is found with the U-turn criterion of the array implementation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from refhmc.integrators import ExplicitTao
from refhmc.integrators.defaults import resolve
from refhmc.kernels import nuts
from refhmc.kernels.nuts import NUTS
from refhmc.metrics.base import HamiltonianOnArrays
from refhmc.models.model_on_arrays import ModelOnArrays
from refhmc.numerics.batched import Array
from refhmc.plot.canvas import (
    BLACK,
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    RED,
    density_contours,
    legend,
    limits,
    name_axes,
    panels,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from refhmc.models.base import Model

DEEPEST = 14  # largest max_treedepth without given uniforms


class Tree(NamedTuple):
    """The states and intervals of one NUTS transition, recorded by :func:`refhmc.plot.tree`.

    The n states are in the order in which they were computed, with the start first.

    Parameters
    ----------
    q : ndarray of shape (n, d)
        Positions.
    p : ndarray of shape (n, d)
        Momenta.
    energy : ndarray of shape (n,)
        Energies H(q, p).
    time : ndarray of shape (n,)
        Times in steps, negative before the start.
    halves : tuple of slice
        The states of each doubling. The last doubling may be incomplete.
    candidates : tuple of int
        Time of the candidate at the start and after each accepted doubling. The last is the next state of the chain.
    turned : tuple of two ints, or None
        Interval of times (a, b) whose halves may not be joined, or None if the transition ended for another reason.
    move : Move
        Return value of the array implementation.

    Examples
    --------
    >>> import refhmc
    >>> tree = refhmc.plot.tree(refhmc.models.Funnel(1), refhmc.NUTS(step_size=0.3), [0.5, 0.1], rng=1)
    >>> len(tree.time) == tree.move.n_steps + 1
    True
    """

    q: np.ndarray
    p: np.ndarray
    energy: np.ndarray
    time: np.ndarray
    halves: tuple[slice, ...]
    candidates: tuple[int, ...]
    turned: tuple[int, int] | None
    move: nuts.Move

    def intervals(self) -> list[tuple[int, int, int]]:
        """Return the intervals that were joined.

        The trees of accepted doublings and the single states are included.

        Returns
        -------
        list of tuple
            First time, last time and depth of each interval of 2^depth states.
        """
        found = [(0, 0, 0)]
        for k, half in enumerate(self.halves):
            times, kept = self.time[half], k < self.move.tree_depth
            for depth in range(k + 1):
                size = 2**depth
                blocks = [times[i : i + size] for i in range(0, len(times) - size + 1, size)]
                if not kept and depth > self.last_depth:  # intervals that end with the last state were not joined
                    blocks = [block for block in blocks if block[-1] != times[-1]]
                found += [(int(block.min()), int(block.max()), depth) for block in blocks]
            if kept:
                whole = self.time[: half.stop]
                found.append((int(whole.min()), int(whole.max()), k + 1))
        return found

    @property
    def last_depth(self) -> int:
        """The depth of the largest interval that ends with the last state of a discarded half."""
        return 0 if self.turned is None else int(math.log2(self.turned[1] - self.turned[0] + 1)) - 1


def tree(
    model: Model,
    kernel: Any,
    q: ArrayLike,
    *,
    momentum: ArrayLike | None = None,
    uniforms: Sequence[float] | None = None,
    rng: np.random.Generator | int | None = None,
) -> Tree:
    """Record the tree of one NUTS transition.

    Parameters
    ----------
    model : Model
        Model to sample.
    kernel : NUTS
        Kernel with a step size. Its implicit steps run without reversibility check.
    q : array_like of shape (d,)
        Position at the start.
    momentum : array_like of shape (d,), optional
        Momentum at the start, as in :func:`refhmc.transition`. Defaults to a draw from `rng`.
    uniforms : sequence of float, optional
        Uniform random numbers of the transition, as in :func:`refhmc.transition`. Defaults to draws from `rng`.
    rng : numpy.random.Generator or int, optional
        Generator or seed for `momentum` or `uniforms` that are not given.

    Returns
    -------
    Tree
        States and intervals of the transition, which is that of :func:`refhmc.transition` with the same numbers.

    Raises
    ------
    TypeError
        If `kernel` is not a :class:`refhmc.NUTS`.
    ValueError
        If the kernel has no step size, if `rng` is missing, or if ``max_treedepth`` is above 14 without `uniforms`.
    IndexError
        If `uniforms` is too short.

    Examples
    --------
    >>> import refhmc
    >>> tree = refhmc.plot.tree(refhmc.models.Funnel(1), refhmc.NUTS(step_size=0.3), [0.5, 0.1], rng=1)
    >>> tree.q.shape == (len(tree.energy), 2)
    True
    """
    if getattr(kernel, "name", "") != "nuts":
        raise TypeError(f"kernel must be refhmc.NUTS(step_size=...); got {type(kernel).__name__}.")
    if kernel.step_size is None:
        raise ValueError(
            "kernel must have a step_size for a single transition; got None. Use refhmc.NUTS(step_size=...)."
        )
    if rng is None and (momentum is None or uniforms is None):
        raise ValueError("rng must be given unless both momentum and uniforms are; got None.")
    if uniforms is None and kernel.max_treedepth > DEEPEST:
        raise ValueError(f"max_treedepth must be at most {DEEPEST} for a plot; got {kernel.max_treedepth}.")
    rng = np.random.default_rng(rng)
    metric, integrator = resolve(kernel.metric, kernel.integrator)
    H, step = metric.on_arrays(ModelOnArrays(model)), integrator.on_arrays()
    start = model._position(q)
    p = H.draw_momentum(start, rng.standard_normal(model.dim)) if momentum is None else np.asarray(momentum, float)
    tape: Any = rng.random(2 ** (kernel.max_treedepth + 1)) if uniforms is None else np.asarray(uniforms, float).ravel()
    made: list[tuple] = []

    def noting(H: HamiltonianOnArrays, *z_and_eps: Array) -> tuple:
        z = step(H, *z_and_eps)
        made.append((z, z_and_eps[-1] > 0))
        return z

    def moved(step: Callable, depth: int) -> nuts.Move:
        copies = 2 if isinstance(getattr(integrator, "base", integrator), ExplicitTao) else 1
        with np.errstate(all="ignore"):
            return nuts.transition(
                H, step, start, p, tape, step_size=kernel.step_size, max_treedepth=depth, copies=copies
            )

    move = moved(noting, kernel.max_treedepth)
    halves = halves_of(len(made))
    candidates = [moved(step, k).index_in_trajectory for k in range(1, move.tree_depth + 1)]
    states = [state(H, (start, p), 0)]
    ends = {True: 0, False: 0}
    for z, forward in made:
        ends[forward] += 1 if forward else -1
        states.append(state(H, z[:2], ends[forward]))
    return Tree(
        np.array([each.z[0] for each in states]),
        np.array([each.z[1] for each in states]),
        np.array([each.energy for each in states]),
        np.array([each.time for each in states]),
        tuple(halves),
        (0, *candidates),
        turned_interval(states, halves, move, nuts.criterion_of(H, kernel.step_size)),
        move,
    )


def state(H: HamiltonianOnArrays, z: tuple, time: int) -> nuts.State:
    with np.errstate(all="ignore"):
        return nuts.state_at(H, z, time)


def halves_of(n_steps: int) -> list[slice]:
    """Return the states of each doubling, 1, 2, 4, ... from index 1 on; the last doubling may be incomplete."""
    return [slice(2**k, min(2 ** (k + 1), n_steps + 1)) for k in range(n_steps.bit_length())]


def turned_interval(
    states: list[nuts.State],
    halves: list[slice],
    move: nuts.Move,
    turns: Callable[[nuts.Interval, nuts.Interval], bool],
) -> tuple[int, int] | None:
    """Return the times (a, b) of the interval whose halves may not be joined by ``turns``, or None."""
    if move.ended != "turned":
        return None
    if len(states) == 2**move.tree_depth:  # the last half is complete and was joined
        times = [each.time for each in states]
        return min(times), max(times)
    last = states[halves[-1]]
    size = 1
    while len(last) % (2 * size) == 0:
        near, far = last[-2 * size : -size], last[-size:]
        a, b = (near, far) if last[0].time > 0 else (far[::-1], near[::-1])
        if turns(interval(a), interval(b)):
            return a[0].time, b[-1].time
        size *= 2
    raise AssertionError("the recorded turn is not one by the U-turn criterion")


def interval(states: list[nuts.State]) -> nuts.Interval:
    """Return the interval of 2^k states in the order of time, with rho summed as in the recursion."""
    if len(states) == 1:
        return nuts.of_state(states[0])
    middle = len(states) // 2
    return nuts.joined(interval(states[:middle]), interval(states[middle:]))


def nuts_tree(
    model: Model,
    kernel: NUTS,
    q: ArrayLike,
    *,
    momentum: ArrayLike | None = None,
    uniforms: Sequence[float] | None = None,
    rng: np.random.Generator | int | None = None,
    coordinates: Sequence[int] = (0, 1),
    figure: Figure | None = None,
) -> Figure:
    """Plot one NUTS transition: its states over contours of the density, and its tree.

    In the tree, time runs in steps from left to right, and depth upwards. A leaf is a state. A node is an interval of
    2^depth states that joins two halves A and B. Let rho be the sum of the momenta of an interval, and v = G^-1 p. A and B
    may not be joined if rho . v <= 0 at an end of their union, of A
    with the first state of B, or of B with the last state of A. The interval that turned is
    red, and discarded states are grey. Numbered rings are the candidates after each doubling, and the star is the next
    state. Within a half, a state becomes the candidate with probability proportional to exp(-H). The candidate of a half
    replaces that of the tree with probability min(1, W_half / W_tree).

    Parameters
    ----------
    model : Model
        Model to sample.
    kernel : NUTS
        Kernel with a step size. Its implicit steps run without reversibility check.
    q : array_like of shape (d,)
        Position at the start.
    momentum : array_like of shape (d,), optional
        Momentum at the start, as in :func:`refhmc.transition`. Defaults to a draw from `rng`.
    uniforms : sequence of float, optional
        Uniform random numbers of the transition, as in :func:`refhmc.transition`. Defaults to draws from `rng`.
    rng : numpy.random.Generator or int, optional
        Generator or seed for `momentum` or `uniforms` that are not given.
    coordinates : sequence of two ints, default (0, 1)
        Coordinates of the left panel. In one dimension, it shows q and p.
    figure : matplotlib.figure.Figure, optional
        Figure to draw on. Defaults to a new one.

    Returns
    -------
    matplotlib.figure.Figure
        The figure with two panels.

    Raises
    ------
    TypeError
        If `kernel` is not a :class:`refhmc.NUTS`.
    ValueError
        If the kernel has no step size, if `rng` is missing, or if ``max_treedepth`` is above 14 without `uniforms`.

    See Also
    --------
    tree : Return the numbers of this plot.

    References
    ----------
    Hoffman and Gelman (2014), The No-U-Turn Sampler, fig. 1 and algorithm 6; Betancourt (2017), A conceptual introduction to
    Hamiltonian Monte Carlo, arXiv:1701.02434, appendix A.4.

    Examples
    --------
    >>> import refhmc
    >>> figure = refhmc.plot.nuts_tree(refhmc.models.Funnel(1), refhmc.NUTS(step_size=0.3), [0.5, 0.1], rng=1)
    >>> len(figure.axes)
    2
    """
    made = tree(model, kernel, q, momentum=momentum, uniforms=uniforms, rng=rng)
    figure, ((left, right),) = panels(figure, 1, 2, 10.5, 4.8)
    draw_states(left, model, made, coordinates)
    draw_tree(right, made)
    words = {"turned": "a U-turn", "full": "max_treedepth", "diverged": "a divergence", "no energy": "no energy"}
    figure.suptitle(
        f"{made.move.n_steps} steps, depth {made.move.tree_depth}, ended by {words[made.move.ended]}", fontsize="medium"
    )
    return figure


def draw_states(ax: Axes, model: Model, made: Tree, coordinates: Sequence[int]) -> None:
    if model.dim == 1:
        xs, ys = made.q[:, 0], made.p[:, 0]
        name_axes(ax, model.names[0], "momentum")
    else:
        j, k = coordinates
        xs, ys = made.q[:, j], made.q[:, k]
        name_axes(ax, model.names[j], model.names[k])
    x, y = limits(xs, share=0.3), limits(ys, share=0.3)
    if model.dim > 1:
        density_contours(ax, model, (j, k), made.q[0], x, y)
    order = np.argsort(made.time)
    ax.plot(xs[order], ys[order], "-", color=GREY, lw=0.8)
    thrown = thrown_away(made)
    ax.plot(xs[~thrown], ys[~thrown], "o", color=BLUE, ms=4, label="states of the tree")
    if thrown.any():
        ax.plot(xs[thrown], ys[thrown], "o", mfc="white", mec=GREY, ms=4, label="discarded states")
    marked(ax, made, xs, ys)
    ax.set(xlim=x, ylim=y)
    legend(ax)


def draw_tree(ax: Axes, made: Tree) -> None:
    thrown = {int(time) for time in made.time[thrown_away(made)]}
    height = {(a, b): depth for a, b, depth in made.intervals()}
    for (a, b), depth in height.items():
        if depth:
            join(ax, a, b, depth, GREY if a in thrown else BLUE)
    if made.turned is not None:
        a, b = made.turned
        depth = int(math.log2(b - a + 1))
        join(ax, a, b, depth, RED)
        (turn,) = ax.plot([a, b], [depth, depth], "|-", color=RED, lw=1.5, label=f"U-turn from {a} to {b}")
    out = thrown_away(made)
    ax.plot(made.time[~out], np.zeros(np.sum(~out)), "o", color=BLUE, ms=4)
    ax.plot(made.time[out], np.zeros(np.sum(out)), "o", mfc="white", mec=GREY, ms=4)
    marked(ax, made, made.time, np.zeros(len(made.time)))
    ax.set(xlabel="time (steps)", ylabel="depth (intervals of 2^depth states)")
    ax.locator_params(axis="y", integer=True)
    ax.set_ylim(-0.6, max([*height.values(), 1]) + 0.8)
    if made.turned is not None:
        ax.legend(handles=[turn], fontsize="small", framealpha=0.85, loc="upper right")


def join(ax: Axes, a: int, b: int, depth: int, colour: str) -> None:
    """Draw elbows from the middle of the interval (a, b) to those of its halves."""
    middle = a + 2 ** (depth - 1)
    for foot in ((a + middle - 1) / 2, (middle + b) / 2):
        ax.plot([(a + b) / 2, foot, foot], [depth, depth, depth - 1], "-", color=colour, lw=1, zorder=1)


def thrown_away(made: Tree) -> np.ndarray:
    """Return which states (n,) belong to a discarded half."""
    thrown = np.zeros(len(made.time), bool)
    if made.halves and len(made.halves) > made.move.tree_depth:
        thrown[made.halves[-1]] = True
    return thrown


def marked(ax: Axes, made: Tree, xs: np.ndarray, ys: np.ndarray) -> None:
    """Mark the start, the numbered candidates after each doubling, and the next state."""
    where = {int(time): k for k, time in enumerate(made.time)}
    ax.plot(xs[:1], ys[:1], "D", color=GREEN, ms=7, label="start")
    numbers: dict[int, list[int]] = {}
    for k, time in enumerate(made.candidates[1:], 1):
        numbers.setdefault(time, []).append(k)
    for i, (time, doublings) in enumerate(numbers.items()):
        at = where[time]
        label = None if i else "candidate after doubling"
        ax.plot(xs[at], ys[at], "o", mfc="none", mec=ORANGE, mew=1.5, ms=10, label=label)
        text = ",".join(map(str, doublings))
        ax.annotate(text, (xs[at], ys[at]), xytext=(0, -16), textcoords="offset points", ha="center", fontsize=8)
    at = where[made.move.index_in_trajectory]
    ax.plot(xs[at], ys[at], "*", color=BLACK, ms=9, label="next state")
