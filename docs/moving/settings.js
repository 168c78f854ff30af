"use strict";
/**
 * The settings: for each target the plane that is shown, a start, constants of its metrics, and its metrics and integrators. Then the
 * classic failures, each with a remedy.
 *
 * `window`: [least, most] of q1 and q2, as shown. `box`: the same of a box that contains the probability, for the exact margins; the
 * funnel's are integrals of its own. `arrow`: length of the momentum's arrow in the plane, for each unit of p, on constant and
 * on curved metrics. `cloud`: standard deviations of the cloud in q and in p.
 *
 * `hierarchical`: log M_i = a_i + c_i q_1, c_1 = 0. As in a gamma regression, a and c minimise E[g_i^2 / M_i + log M_i], g the
 * gradient. On the funnel this is its Fisher metric. On the banana M_1 = E[g_1^2]; the test of the page computes a_2 and c_2 again.
 */
(function (refhmc) {
  const { Banana, Donut, Funnel, Gaussian, Staircase, TwoModes } = refhmc.targets;
  const { Constant, Fisher, Hierarchical, Identity, Laplace, SoftAbs } = refhmc.metrics;
  const integrators = refhmc.integrators;

  const COVARIANCE = [[1, 1.2], [1.2, 2.25]];
  const SMOOTH = ["leapfrog", "generalized-leapfrog", "implicit-midpoint", "explicit-tao", "projected-tao"];

  const TARGETS = {
    gaussian: {
      make: () => Gaussian([0, 0], COVARIANCE),
      names: ["x₁", "x₂"],
      window: [[-4, 4], [-4.6, 4.6]],
      box: [[-7, 7], [-10, 10]],
      metrics: ["identity", "diagonal", "dense", "softabs", "fisher"],
      integrators: SMOOTH,
      diagonal: [1, 2.25],
      start: { q: [-1.5, -1], p: [0.5, -1] },
      arrow: { constant: 1, curved: 1 },
      cloud: { q: 0.15, p: 0.15 },
    },
    banana: {
      make: () => Banana(new Array(20).fill(1), 2, 2),
      names: ["θ₁", "θ₂"],
      window: [[-4.5, 3], [-2.8, 2.8]],
      box: [[-16, 8], [-6, 6]],
      metrics: ["identity", "diagonal", "softabs", "fisher", "hierarchical"],
      integrators: [...SMOOTH, "block-leapfrog"],
      diagonal: [1.5, 1],
      hierarchical: { a: [Math.log(5.25), 2.72135285], c: [0, -0.64696135] },
      start: { q: [0, 1], p: [1, 0.5] },
      curved: { q: [0, 1], p: [1.5, 2.2] },
      arrow: { constant: 0.8, curved: 0.4 },
      cloud: { q: 0.07, p: 0.15 },
    },
    funnel: {
      make: () => Funnel(1),
      names: ["v", "x"],
      window: [[-5, 7], [-5, 5]],
      metrics: ["identity", "diagonal", "softabs", "fisher", "hierarchical"],
      integrators: [...SMOOTH, "block-leapfrog"],
      diagonal: [9, 1],
      hierarchical: { a: [Math.log(1 / 9 + 1 / 2), 0], c: [0, 1] },
      start: { q: [-1, 1], p: [1, 0.8] },
      curved: { q: [-3, 3], p: [1.6, 0.1] },
      arrow: { constant: 1.2, curved: 1.2 },
      cloud: { q: 0.15, p: 0.1 },
    },
    donut: {
      make: () => Donut(2.5, 0.35),
      names: ["x₁", "x₂"],
      window: [[-4.6, 4.6], [-4.6, 4.6]],
      box: [[-6, 6], [-6, 6]],
      metrics: ["identity", "diagonal", "softabs"],
      integrators: SMOOTH,
      diagonal: [3, 1],
      start: { q: [2.5, 0], p: [0.2, 1.2] },
      curved: { q: [2.3, 0], p: [1, 0.1] }, // where SoftAbs is not flat along the ring
      arrow: { constant: 1, curved: 0.4 },
      cloud: { q: 0.07, p: 0.15 },
    },
    modes: {
      make: () => TwoModes([1.8, 0.9], 0.75),
      names: ["x₁", "x₂"],
      window: [[-4.6, 4.6], [-4, 4]],
      box: [[-7, 7], [-7, 7]],
      metrics: ["identity", "diagonal", "softabs"],
      integrators: SMOOTH,
      diagonal: [3.8, 1.4],
      start: { q: [-1.8, -0.9], p: [1, 0.5] },
      curved: { q: [-1, -0.5], p: [0.6, 0.3] }, // towards the valley, where the curvature changes
      arrow: { constant: 1, curved: 1 },
      cloud: { q: 0.15, p: 0.15 },
    },
    staircase: {
      make: () => Staircase([0, -0.75, 0.5, -1.5], [0, 1, -0.5, 2], [1, 0.5, 1.5, 0.75]),
      names: ["x", "n"],
      window: [[-4, 5], [-0.4, 4.4]],
      box: [[-10, 10], [-1, 5]],
      metrics: ["identity"],
      integrators: ["leapfrog", "discontinuous"],
      start: { q: [-0.5, 0.53719], p: [1, 1.4] }, // n moves in steps of ε: from 0.5 it would end exactly on the jumps
      arrow: { constant: 0.7, curved: 0.7 },
      cloud: { q: 0.08, p: 0.08 },
    },
  };

  const isCurved = (metric) => ["softabs", "fisher", "hierarchical"].includes(metric);
  const isImplicit = (integrator) => ["generalized-leapfrog", "implicit-midpoint", "projected-tao"].includes(integrator);

  /** The Hamiltonian and the integrator of the chosen settings. */
  function made({ target: name, metric, integrator, alpha, omega, tolerance, maxIterations }) {
    const setting = TARGETS[name], target = setting.make();
    const H = {
      identity: () => (integrator === "discontinuous" ? Laplace(target, target.discontinuous) : Identity(target)),
      diagonal: () => Constant(target, setting.diagonal),
      dense: () => Constant(target, COVARIANCE),
      softabs: () => SoftAbs(target, alpha),
      fisher: () => Fisher(target),
      hierarchical: () => Hierarchical(target, [setting.hierarchical.a], [[0, 0]], [[setting.hierarchical.c]]),
    }[metric]();
    const map = {
      leapfrog: () => integrators.Leapfrog(),
      "block-leapfrog": () => integrators.BlockLeapfrog(),
      "generalized-leapfrog": () => integrators.GeneralizedLeapfrog(tolerance, maxIterations),
      "implicit-midpoint": () => integrators.ImplicitMidpoint(tolerance, maxIterations),
      "explicit-tao": () => integrators.ExplicitTao(omega),
      "projected-tao": () => integrators.ProjectedTao(omega, tolerance, maxIterations),
      discontinuous: () => integrators.Discontinuous(),
    }[integrator]();
    return { H, integrator: map };
  }

  const DEFAULTS = { alpha: 10, omega: 1, tolerance: 1e-10, maxIterations: 100 };
  const ON_BANANA = { target: "banana", metric: "fisher", ...TARGETS.banana.curved };

  const FAILURES = [
    {
      id: "step",
      title: "Step too large",
      set: { target: "gaussian", metric: "identity", integrator: "leapfrog", eps: 1.06, n: 12, ...TARGETS.gaussian.start },
      mend: { label: "ε = 0.3", set: { eps: 0.3 } },
      text: `The leapfrog is stable only for <span class="math">ε &lt; 2 σ<sub>min</sub></span>, σ<sub>min</sub>² the least eigenvalue of the
        covariance. Here 2 σ<sub>min</sub> = 1.042 and ε = 1.06. The energy error grows without bound, although volume is preserved and the map is
        reversible. The map is correct, but no proposal is accepted.`,
      chapter: "leapfrog",
      paper: "Neal 2011, MCMC using Hamiltonian dynamics, sec. 4.2",
    },
    {
      id: "tao",
      title: "Explicit Tao, restarted",
      set: { ...ON_BANANA, integrator: "explicit-tao", eps: 0.15, n: 28, omega: 1 },
      mend: { label: "projected Tao", set: { integrator: "projected-tao" } },
      text: `Tao's map is symplectic on two copies, <span class="math">K = H(q, y) + H(x, p) + ½ω(|q − x|² + |p − y|²)</span>. Sampling drops the copies
        and restarts from <span class="math">x = q, y = p</span>. That map of (q, p) alone neither preserves volume nor is reversible.
        Acceptance by <span class="math">H(q, p)</span> leaves a bias that no number of draws removes.`,
      chapter: "tao",
      paper: "Tao 2016; Cobb et al. 2019, eqs. 10–13",
    },
    {
      id: "solver",
      title: "Solver stopped early",
      set: { ...ON_BANANA, integrator: "implicit-midpoint", eps: 0.15, n: 28, tolerance: 0.1 },
      mend: { label: "tolerance 1e-10", set: { tolerance: 1e-10 } },
      text: `The implicit midpoint <span class="math">z′ = z + ε f(½(z + z′))</span> is symplectic and reversible <em>if the equation is solved</em>. Here the iteration
        stops at <span class="math">|z′<sub>k+1</sub> − z′<sub>k</sub>| ≤ 0.1</span>. Every step “converges” and the energy error looks harmless, but
        volume and reversibility are lost.`,
      chapter: "implicit_steps",
      paper: "Brofos and Lederman 2021, Algorithm 3",
    },
    {
      id: "curved",
      title: "Leapfrog on a curved metric",
      set: { ...ON_BANANA, integrator: "leapfrog", eps: 0.1, n: 40 },
      mend: { label: "implicit midpoint", set: { integrator: "implicit-midpoint" } },
      text: `If G depends on q, H does not separate. The kick <span class="math">p ← p − ½ε ∂H/∂q(q, p)</span> depends on the p that it changes, so it is
        not a shear. The explicit steps shrink or stretch volume and are not reversible.`,
      chapter: "funnel",
      paper: "Girolami and Calderhead 2011, sec. 6.1",
    },
    {
      id: "jump",
      title: "A jump ignored",
      set: { target: "staircase", metric: "identity", integrator: "leapfrog", eps: 0.2, n: 20, q: [-0.5, 0.53719], p: [1, 0.6] },
      mend: { label: "discontinuous step", set: { integrator: "discontinuous", p: [1, 1.4] } },
      text: `The gradient contains no information about the jumps of L. The leapfrog crosses them, and its energy error is the sum of the jumps,
        for any ε. The discontinuous step compensates each jump: <span class="math">p<sub>j</sub> ← p<sub>j</sub> − sign(p<sub>j</sub>) m<sub>j</sub> ΔU</span> if
        <span class="math">|p<sub>j</sub>|/m<sub>j</sub> &gt; ΔU</span>, and otherwise p<sub>j</sub> changes its sign.`,
      chapter: "discontinuous",
      paper: "Nishimura, Dunson and Lu 2020; Gram-Hansen 2017, Algorithm 3 with its erratum",
    },
  ];

  /** The least and the largest value of each number, and whether it is an integer. */
  const LIMITS = {
    eps: [0.001, 5], n: [1, 500, true], tolerance: [1e-14, 10], maxIterations: [1, 1000, true], alpha: [0.01, 1e6], omega: [0, 100],
    width: [0.001, 20], maxDepth: [1, 10, true], seed: [1, 1e6, true],
  };

  const START = {
    view: "trajectory", target: "banana", kernel: "hmc", metric: "fisher", integrator: "implicit-midpoint", eps: 0.1, n: 40, ...DEFAULTS,
    width: 0.5, maxDepth: 7, seed: 1, speed: 6, pace: 4, ...TARGETS.banana.curved,
  };

  const CHOICES = {
    view: ["trajectory", "chain"],
    target: Object.keys(TARGETS),
    kernel: ["rwm", "hmc", "nuts"],
    metric: ["identity", "diagonal", "dense", "softabs", "fisher", "hierarchical"],
    integrator: [...SMOOTH, "block-leapfrog", "discontinuous"],
    speed: [6, 15, 60], // steps of the cloud per second
    pace: [0.5, 4, 30, 500], // draws per second; 0.5: stages of a transition
  };

  const WITH_LEAPFROG = { metric: "identity", integrator: "leapfrog" };
  const CHAINS = [
    {
      id: "walk",
      title: "Random walk",
      set: { target: "gaussian", kernel: "rwm", width: 0.6, pace: 30 },
      mend: { label: "HMC on the same target", set: { kernel: "hmc", ...WITH_LEAPFROG, eps: 0.5, n: 5 } },
      text: `The proposal does not know the density. Short proposals diffuse, and long ones are rejected. HMC makes a proposal far away that is accepted
        nearly always, because the trajectory conserves the energy up to a small error.`,
      chapter: "from_metropolis",
    },
    {
      id: "tree",
      title: "A NUTS tree",
      set: { target: "banana", kernel: "nuts", ...WITH_LEAPFROG, eps: 0.12, pace: 0.5 },
      text: `The trajectory is doubled, forward or backward in time by a coin, until an interval of it turns back. A new half that contains such an
        interval is discarded. The draw is one of the remaining states, with probability proportional to <span class="math">exp(−H)</span> within a half.`,
      chapter: "nuts",
    },
    {
      id: "neck",
      title: "The funnel's neck",
      set: { target: "funnel", kernel: "nuts", ...WITH_LEAPFROG, eps: 0.3, pace: 30 },
      mend: { label: "metric that follows the width", set: { kernel: "hmc", metric: "hierarchical", integrator: "block-leapfrog", eps: 0.3, n: 12 } },
      text: `The width of the funnel changes by orders of magnitude, so a constant step size is too large for the neck, and the chain rarely enters it.
        A metric that depends on the position scales the steps: its ellipses have the shape of the density.`,
      chapter: "funnel",
    },
    {
      id: "donut",
      title: "A donut",
      set: { target: "donut", kernel: "hmc", ...WITH_LEAPFROG, eps: 0.2, n: 15, pace: 4 },
      text: `All of the probability is on a ring. The force keeps a trajectory on it, and the momentum along the ring carries it round.
        No constant metric fits all of the ring, because its direction changes.`,
      chapter: "from_metropolis",
    },
    {
      id: "modes",
      title: "Two modes",
      set: { target: "modes", kernel: "hmc", ...WITH_LEAPFROG, eps: 0.3, n: 8, pace: 30 },
      text: `A trajectory crosses the valley only if its momentum has enough kinetic energy for the barrier. The stationary distribution is right,
        but a chain stays long in one mode, and its histogram is lopsided until it has crossed many times.`,
      chapter: "acceptance",
    },
    {
      id: "biased",
      title: "A biased chain",
      set: { ...ON_BANANA, kernel: "hmc", integrator: "explicit-tao", eps: 0.15, n: 28, omega: 1, pace: 30 },
      mend: { label: "projected Tao", set: { integrator: "projected-tao" } },
      text: `The map is not reversible and does not preserve volume, but the decision to accept assumes both. The chain has another stationary
        distribution than the target. The histogram converges to it, and nothing in the acceptance rate shows it.`,
      chapter: "tao",
    },
  ];

  refhmc.settings = { CHAINS, CHOICES, DEFAULTS, FAILURES, LIMITS, START, TARGETS, isCurved, isImplicit, made };
})((globalThis.refhmc ??= {}));
