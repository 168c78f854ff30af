"""Whole transitions of HMC, NUTS and WALNUTS, randomness given.

They use the leapfrog; HMC any integrator; HMC and NUTS steps that follow the parts of a split.

HMC: n steps; the end is accepted if u < min(1, exp(H0 - H)).

NUTS is written from its definition, as a list of states in order of time that is doubled, forward (u < 1/2) or backward, and
a recursion over a new half. Two adjacent lists A, B may be joined unless

    (sum A + sum B)       . v   <= 0 at the first state of A or the last of B
    (sum A + p first B)   . v   <= 0 at the first of A or the first of B
    (p last A + sum B)    . v   <= 0 at the last of A or the last of B

with sums of momenta and velocities v = M^-1 p. A new half whose own halves (or theirs) may not be joined is dropped and ends
the transition; if only the whole may not, it is kept and ends it. Uniforms are read in this order: one for the direction;
one for each new state but the half's first, in the order in which they are made, which becomes the half's candidate if
u < its weight / the weights so far, its own included; if the half is kept one more, by which its candidate becomes the
tree's if u < half's weight / tree's weight before. Weight: exp(H0 - H). Energies that spread over more than 1000 end it
too, like a half that is dropped.

WALNUTS is NUTS with macro steps of length eps instead of its steps. A macro step of level l makes 2^l leapfrog steps of
size eps / 2^l. Its level is the least one, up to max_halvings, for which the energies of its 2^l + 1 states spread over at
most max_error. If extra_halving is positive, a uniform is read after that, before the leaf's own, and the level is one higher
if u < extra_halving. A level k above the least one has probability 1 - extra_halving (k = 0), extra_halving (k = 1) or 0. Let P
and P' be the probabilities of the level at the start, and at the end for the step back. The weight of a state is that of its
neighbour towards the start, times exp(H - H') P' / P. If no level is accepted, or P' = 0, the half is dropped and ends the
transition. The acceptance rate is the average over the macro steps of min(1, exp(H - H')) with H' after one step of size eps.

Every comparison's distance from its limit is noted: the least of them is the record's ``margin``.
"""

from __future__ import annotations

from mpmath import mp, mpf

from validation.vectors.arithmetic import dot
from validation.vectors.fields import energy_at, velocity
from validation.vectors.steps import leapfrog, path


def hmc(on, integrator, composition, omega, q, p, e, n, u):
    """The fields of the record, and the margin."""
    return decided(on, (q, p), path(on, integrator, composition, omega, q, p, e, n)[-1], u)


def decided(on, start, end, u):
    """Whether the end is accepted: the fields of the record, and the margin."""
    energies = lambda z: energy_at(on.target, on.c, on.metric, *z, on.noise)  # noqa: E731
    error = energies(end) - energies(start)
    probability = min(mpf(1), mp.exp(-error))
    accepted = u < probability
    out = {
        "q": end[0] if accepted else start[0],
        "accepted": int(accepted),
        "acceptance_rate": probability,
        "energy_error": error,
        "uniforms_used": 1,
    }
    # Where the energy falls, rounding cannot bring the probability below the uniform unless it is close to 1.
    return out, abs(u - probability)


class Turned(Exception):
    """A half is dropped."""


class State:
    """A state of the trajectory; ``ratio`` is the factor of its weight in WALNUTS."""

    def __init__(self, q, p, v, H, index):
        self.q, self.p, self.v, self.H, self.index, self.ratio = q, p, v, H, index, mpf(1)


class Nuts:
    """One transition; ``run`` gives the fields of the record and the margin. ``step``: (q, p) and a signed e -> (q, p)."""

    def __init__(self, on, q, p, e, uniforms, max_depth, step=None):
        self.on, self.e, self.max_depth = on, e, max_depth
        self.step = step or (lambda z, e: leapfrog(on, z, e))
        self.uniforms, self.used, self.margin = uniforms, 0, mpf(1)
        self.start = self.state(q, p, 0)
        self.energies, self.acceptances = [self.start.H], []

    def state(self, q, p, index):
        on = self.on
        return State(
            q, p, velocity(on.at(q), p, on.noise), energy_at(on.target, on.c, on.metric, q, p, on.noise), index
        )

    def uniform(self):
        self.used += 1
        return mpf(self.uniforms[self.used - 1])

    def less(self, a, b):
        self.margin = min(self.margin, abs(a - b))
        return a < b

    def weight(self, state):
        return mp.exp(self.start.H - state.H) * state.ratio

    def onward(self, rho, state):
        """Whether rho . v > 0 there."""
        value, size = dot(rho, state.v), mp.norm(rho) * mp.norm(state.v)
        self.margin = min(self.margin, abs(value) / size)
        return value > 0

    def may_join(self, A, B):
        total = lambda states: [sum(column) for column in zip(*(s.p for s in states), strict=True)]  # noqa: E731
        checks = [(A + B, A[0], B[-1]), (A + B[:1], A[0], B[0]), (A[-1:] + B, A[-1], B[-1])]
        # All are looked at, so that the margin does not depend on the order.
        return all([self.onward(total(states), end) for states, *ends in checks for end in ends])

    def leaf(self, edge, sign):
        q, p = self.step((edge.q, edge.p), sign * self.e)
        noise = self.on.noise
        state = self.state(noise.each(q), noise.each(p), edge.index + sign)
        self.acceptances.append(min(mpf(1), self.weight(state)))
        return state

    def grow(self, edge, sign, depth):
        """A list of 2^depth states in order of time, beyond ``edge``; raises Turned."""
        if depth > 0:
            near = self.grow(edge, sign, depth - 1)
            far = self.grow(near[-1] if sign > 0 else near[0], sign, depth - 1)
            A, B = (near, far) if sign > 0 else (far, near)
            if not self.may_join(A, B):
                raise Turned
            return A + B
        state = self.leaf(edge, sign)
        self.new.append(state.H)
        spread = max(self.new) - min(self.new)
        self.margin = min(self.margin, abs(spread - 1000) / 1000)
        if spread > 1000:
            raise Turned
        self.half_weight += self.weight(state)
        if self.candidate is None or self.less(self.uniform(), self.weight(state) / self.half_weight):
            self.candidate = state
        return [state]

    def run(self):
        tree, chosen, weight, depth = [self.start], self.start, mpf(1), 0
        while depth < self.max_depth:
            forward = self.less(self.uniform(), mpf("0.5"))
            self.candidate, self.half_weight, self.new = None, mpf(0), []
            try:
                half = self.grow(tree[-1] if forward else tree[0], 1 if forward else -1, depth)
            except Turned:
                break
            if self.less(self.uniform(), self.half_weight / weight):
                chosen = self.candidate
            weight += self.half_weight
            A, B = (tree, half) if forward else (half, tree)
            going = self.may_join(A, B)
            tree, depth = A + B, depth + 1
            self.energies += self.new
            spread = max(self.energies) - min(self.energies)
            self.margin = min(self.margin, abs(spread - 1000) / 1000)
            if not going or spread > 1000:
                break
        out = {
            "q": chosen.q,
            "energy_error": chosen.H - self.start.H,
            "acceptance_rate": sum(self.acceptances) / len(self.acceptances),
            "index_in_trajectory": chosen.index,
            "tree_depth": depth,
            "n_steps": len(self.acceptances),
            "uniforms_used": self.used,
        }
        return out, self.margin


class Walnuts(Nuts):
    """One transition of WALNUTS with the leapfrog."""

    def __init__(self, on, q, p, e, uniforms, max_depth, max_error, max_halvings, extra_halving):
        self.max_error, self.max_halvings, self.extra_halving = mpf(max_error), max_halvings, mpf(extra_halving)
        super().__init__(on, q, p, e, uniforms, max_depth)

    def path(self, z, e, level):
        """The end of a macro step, or a state before it if the energies spread too far, and the spread."""
        noise, energies = self.on.noise, [self.state(*z, 0).H]
        for _ in range(2**level):
            z = tuple(noise.each(part) for part in self.step(z, e / 2**level))
            energies.append(self.state(*z, 0).H)
            if max(energies) - min(energies) > 1000:
                break
        return z, max(energies) - min(energies)

    def least(self, z, e):
        """The smallest level that is accepted, or None."""
        for level in range(self.max_halvings + 1):
            width = self.path(z, e, level)[1]
            self.margin = min(self.margin, abs(width - self.max_error) / self.max_error)
            if width <= self.max_error:
                return level
        return None

    def chance(self, level, least):
        more = None if least is None else level - least
        return {0: 1 - self.extra_halving, 1: self.extra_halving}.get(more, mpf(0))

    def leaf(self, edge, sign):
        z, e = (edge.q, edge.p), sign * self.e
        change = self.state(*self.step(z, e), 0).H - edge.H
        self.acceptances.append(min(mpf(1), mp.exp(-change)))
        least = self.least(z, e)
        if least is None:
            raise Turned
        level = least
        if self.extra_halving > 0:
            level += self.less(self.uniform(), self.extra_halving)
        end, width = self.path(z, e, level)
        back = self.chance(level, self.least(end, -e)) if width < 1000 else 0
        if back == 0:
            raise Turned
        state = self.state(*end, edge.index + sign)
        state.ratio = edge.ratio * back / self.chance(level, least)
        return state
