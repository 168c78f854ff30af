"use strict";
/**
 * Markov chains: one transition of random-walk Metropolis, of HMC and of NUTS, with everything that a picture of it shows, and the exact
 * margins of a target. Random numbers are arguments: `random` has uniform() and normal().
 */
(function (refhmc) {
  const { cholesky, dot, isFinite, plus, times } = refhmc.arrays;
  const { follow } = refhmc.trajectory;

  /** Pseudorandom numbers of a seed (mulberry32; Box and Muller). */
  function Random(seed) {
    const uniform = () => {
      seed = (seed + 0x6d2b79f5) | 0;
      let t = Math.imul(seed ^ (seed >>> 15), 1 | seed);
      t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
      return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
    };
    return { uniform, normal: () => Math.sqrt(-2 * Math.log(1 - uniform())) * Math.cos(2 * Math.PI * uniform()) };
  }

  /** p ~ N(0, G(q)); for discontinuous coordinates a Laplace momentum. Null if the metric does not exist at q. */
  function momentum(H, q, random) {
    if (H.jumps) {
      return q.map((_, i) => {
        if (!H.jumps[i]) return random.normal() / Math.sqrt(H.inverseMass[i]);
        return ((random.uniform() < 0.5 ? -1 : 1) * -Math.log(1 - random.uniform())) / H.inverseMass[i];
      });
    }
    const metric = H.at(q);
    return metric && times(cholesky(metric.mass()), q.map(random.normal));
  }

  /** The Metropolis decision: accept with probability min(1, exp(log_ratio)); a ratio that is not a number is rejected. */
  function decided(log_ratio, uniform) {
    const probability = Number.isNaN(log_ratio) ? 0 : Math.min(1, Math.exp(log_ratio));
    return { probability, accepted: uniform() < probability };
  }

  /** Random-walk Metropolis, with a `proposal` that was drawn symmetrically around q: accept with min(1, exp(L(proposal) - L(q))). */
  function randomWalk(target, q, proposal, uniform) {
    const decision = decided(target.logDensity(proposal) - target.logDensity(q), uniform);
    return { kernel: "rwm", start: { q }, proposal: { q: proposal }, ...decision, q: decision.accepted ? proposal : q, steps: 1 };
  }

  /**
   * HMC from (q, p): n steps, accepted with min(1, exp(H - H')). A step without a solution is a rejection. The decision assumes a map that
   * preserves volume and is reversible. It does not notice if the map is not.
   */
  function hmc(H, integrator, { q, p }, { eps, n }, uniform) {
    const { states, energies, complete } = follow(H, integrator, q, p, eps, n), end = states.at(-1);
    const usable = complete && isFinite([...end.q, ...end.p]), change = energies.at(-1) - energies[0];
    const decision = decided(usable ? -change : NaN, uniform);
    return {
      kernel: "hmc", start: states[0], states, complete: usable, change, proposal: usable ? end : null, ...decision,
      q: decision.accepted ? end.q : q, steps: states.length - 1,
    };
  }

  const MAX_ENERGY_SPREAD = 1000, LARGEST_LOG_WEIGHT = 700;

  /** Whether A and B, which follows it, may not be joined: their union turns, or A with the first state of B, or the last of A with B. */
  function turns(a, b) {
    const onward = (rho, first, last) => dot(rho, first.v) > 0 && dot(rho, last.v) > 0;
    return !(
      onward(plus(a.rho, 1, b.rho), a.first, b.last) &&
      onward(plus(a.rho, 1, b.first.p), a.first, b.first) &&
      onward(plus(a.last.p, 1, b.rho), a.last, b.last)
    );
  }

  const joined = (a, b) => ({ first: a.first, last: b.last, rho: plus(a.rho, 1, b.rho) });
  const spread = (energies) => Math.max(...energies) - Math.min(...energies);

  /**
   * NUTS from (q, p) with multinomial weights and the generalised criterion (Hoffman and Gelman 2014; Betancourt 2017, appendix A), for a
   * constant metric. The order of the uniforms is that of refhmc (docs/randomness.md).
   *
   * `doublings`: of each, its direction, the `states` of the new half, whether the half was `kept`, the `probability` with which its
   * candidate replaces the present one and whether it was `chosen`, the reason if the trajectory `ended`, and the times [first, last] of
   * the interval that `turned`. `chosen`: the state drawn; its `time` counts signed steps from the start.
   */
  function nuts(H, integrator, { q, p }, { eps, maxDepth }, uniform) {
    const stateAt = ({ q, p }, time) => ({ q, p, v: H.at(q).velocity(p), energy: H.energy(q, p), time });
    const intervalOf = (state) => ({ first: state, last: state, rho: state.p });
    const start = stateAt({ q, p }, 0), doublings = [], energies = [start.energy];
    let whole = intervalOf(start), weight = 1, chosen = start;

    /** The interval of 2^depth states beyond `edge`; null, with the reason in `half.ended`, if the half has to be discarded. */
    function build(edge, sign, depth, half) {
      if (depth === 0) {
        const state = stateAt(integrator.step(H, edge, sign * eps), edge.time + sign);
        half.states.push(state);
        half.energies.push(state.energy);
        if (!Number.isFinite(state.energy)) half.ended = "no energy";
        else if (spread(half.energies) > MAX_ENERGY_SPREAD) half.ended = "diverged";
        if (half.ended) return null;
        const w = Math.exp(Math.min(start.energy - state.energy, LARGEST_LOG_WEIGHT));
        half.weight += w;
        if (half.drawn === null || uniform() < (half.weight > 0 ? w / half.weight : 0)) half.drawn = state;
        return intervalOf(state);
      }
      const near = build(edge, sign, depth - 1, half);
      const far = near && build(sign > 0 ? near.last : near.first, sign, depth - 1, half);
      if (far === null) return null;
      const [a, b] = sign > 0 ? [near, far] : [far, near];
      if (!turns(a, b)) return joined(a, b);
      Object.assign(half, { ended: "turned", turned: [a.first.time, b.last.time] });
      return null;
    }

    for (let depth = 0, ended = ""; depth < maxDepth && !ended; depth++) {
      const forward = uniform() < 0.5;
      const half = { forward, states: [], energies: [], weight: 0, drawn: null, ended: "", turned: null, kept: false, chosen: false, probability: 0 };
      const built = build(forward ? whole.last : whole.first, forward ? 1 : -1, depth, half);
      energies.push(...half.energies);
      if (built !== null) {
        half.kept = true;
        half.probability = Math.min(1, half.weight / weight);
        half.chosen = uniform() < half.weight / weight;
        if (half.chosen) chosen = half.drawn;
        const [a, b] = forward ? [whole, built] : [built, whole];
        if (turns(a, b)) Object.assign(half, { ended: "turned", turned: [a.first.time, b.last.time] });
        whole = joined(a, b);
        weight += half.weight;
        if (spread(energies) > MAX_ENERGY_SPREAD) half.ended = "diverged";
      }
      doublings.push(half);
      ended = half.ended;
    }
    const made = energies.slice(1), accept = (E) => (Number.isFinite(E) ? Math.min(1, Math.exp(start.energy - E)) : 0);
    return {
      kernel: "nuts", start, doublings, chosen, q: chosen.q, accepted: chosen.time !== 0, steps: made.length,
      probability: made.reduce((sum, E) => sum + accept(E), 0) / made.length, // the acceptance rate of the trajectory
    };
  }

  /** One transition of the chain that the settings name, with fresh random numbers. */
  function transition({ H, integrator }, { kernel, eps, n, width, maxDepth }, q, random) {
    if (kernel === "rwm") return randomWalk(H.target, q, q.map((x) => x + width * random.normal()), random.uniform);
    const p = momentum(H, q, random);
    if (p === null) {
      const start = { q, p };
      return { kernel: "hmc", start, states: [start], complete: false, proposal: null, probability: 0, accepted: false, q, steps: 0 };
    }
    return (kernel === "nuts" ? nuts : hmc)(H, integrator, { q, p }, { eps, n, maxDepth }, random.uniform);
  }

  /**
   * The exact margins of a density of two coordinates: for each, its values `x`, the `density` there, and its `mean`. By the midpoint
   * rule on `cells` x `cells` points of a box that contains all of the probability that matters.
   */
  function margins(target, box, cells = 600) {
    const [width, height] = box.map(([least, most]) => (most - least) / cells);
    const x = box.map(([least, most]) => Array.from({ length: cells }, (_, k) => least + ((k + 0.5) / cells) * (most - least)));
    const L = x[0].map((a) => x[1].map((b) => target.logDensity([a, b])));
    const most = L.reduce((largest, row) => row.reduce((m, l) => Math.max(m, l), largest), -Infinity);
    const sums = [new Array(cells).fill(0), new Array(cells).fill(0)];
    let total = 0;
    for (let i = 0; i < cells; i++) {
      for (let j = 0; j < cells; j++) {
        const weight = Math.exp(L[i][j] - most);
        sums[0][i] += weight;
        sums[1][j] += weight;
        total += weight;
      }
    }
    return [width, height].map((step, i) => ({
      x: x[i],
      density: sums[i].map((sum) => sum / total / step),
      mean: dot(x[i], sums[i]) / total,
    }));
  }

  /** The margins of Neal's funnel of two coordinates, x | v ~ N(0, exp(-v)): that of v is N(0, 9), and that of x an integral over v. */
  function funnelMargins(window, cells = 600) {
    const normal = (x, sd) => Math.exp(-0.5 * (x / sd) ** 2) / (sd * Math.sqrt(2 * Math.PI)), h = 0.1;
    const nodes = Array.from({ length: 361 }, (_, k) => (k - 180) * h);
    const ofX = (x) => nodes.reduce((sum, v) => sum + h * normal(v, 3) * normal(x, Math.exp(-v / 2)), 0);
    return [(v) => normal(v, 3), ofX].map((density, i) => {
      const [least, most] = window[i], x = Array.from({ length: cells }, (_, k) => least + ((k + 0.5) / cells) * (most - least));
      return { x, density: x.map(density), mean: 0 };
    });
  }

  refhmc.chain = { Random, funnelMargins, hmc, margins, momentum, nuts, randomWalk, transition };
})((globalThis.refhmc ??= {}));
