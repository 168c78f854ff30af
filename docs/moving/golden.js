"use strict";
/**
 * Answers to refhmc's golden vectors (refhmc/vectors/README.md):
 *
 *     refhmc vectors export --questions | node golden.js | refhmc vectors check - --solver-tolerance 1e-13
 *
 * Questions about missing targets or methods are skipped.
 */
for (const file of ["arrays", "targets", "metrics", "integrators", "trajectory"]) require(`./${file}.js`);
const { arrays, targets, metrics, integrators, trajectory } = globalThis.refhmc;

const SOLVER_TOLERANCE = 1e-13;
const MAX_ITERATIONS = 1000;

/** A number of the files: a C99 hex float, a decimal string or a JSON number. */
function number(text) {
  const hex = /^([+-]?)0x([0-9a-f]+)(?:\.([0-9a-f]*))?p([+-]?\d+)$/i.exec(text);
  if (hex === null) return Number(text);
  const [, sign, whole, fraction = "", exponent] = hex, power = Number(exponent) - 4 * fraction.length;
  const digits = Number(BigInt(`0x${whole}${fraction}`)), half = Math.trunc(power / 2); // 2^power itself may underflow
  return (sign === "-" ? -1 : 1) * digits * 2 ** half * 2 ** (power - half);
}

const numbers = (value) => (Array.isArray(value) ? value.map(numbers) : number(value));

/** Return the target of that name with the data of the files, or null if it is missing here. */
function targetOf({ target, dim, data }) {
  const of = Object.fromEntries(Object.entries(data).map(([key, value]) => [key, numbers(value)]));
  if (target === "gaussian") return targets.Gaussian(of.mean, of.covariance);
  if (target === "banana") return targets.Banana(of.y, of.sigma_y, of.sigma_theta);
  if (target === "funnel") return targets.Funnel(dim - 1);
  if (target === "staircase") return targets.Staircase(of.log_w, of.mean, of.s);
  return null;
}

/** Return H of the target on the metric that `args` names, or null if it is missing here. */
function hamiltonianOf(target, { metric, alpha, inverse_mass, constants, parents, coefficients }) {
  if (metric === "identity") return metrics.Identity(target);
  if (metric === "diagonal") return metrics.Constant(target, numbers(inverse_mass));
  if (metric === "dense") {
    const W = numbers(inverse_mass); // of which the lower half counts
    return metrics.Constant(target, W.map((row, i) => row.map((_, j) => W[Math.max(i, j)][Math.min(i, j)])));
  }
  if (metric === "fisher") return metrics.Fisher(target);
  if (metric === "softabs") return metrics.SoftAbs(target, number(alpha));
  if (metric === "hierarchical") return metrics.Hierarchical(target, numbers(constants), parents, numbers(coefficients));
  return null;
}

function integratorOf({ integrator, omega, composition }) {
  if (composition !== undefined) return null;
  if (integrator === "leapfrog") return integrators.Leapfrog();
  if (integrator === "block-leapfrog") return integrators.BlockLeapfrog();
  if (integrator === "implicit-midpoint") return integrators.ImplicitMidpoint(SOLVER_TOLERANCE, MAX_ITERATIONS);
  if (integrator === "generalized-leapfrog") return integrators.GeneralizedLeapfrog(SOLVER_TOLERANCE, MAX_ITERATIONS);
  if (integrator === "explicit-tao") return integrators.ExplicitTao(number(omega));
  if (integrator === "projected-tao") return integrators.ProjectedTao(number(omega), SOLVER_TOLERANCE, MAX_ITERATIONS);
  return null;
}

/** Compute the whole third derivative, [i][j][k], from contractions with unit matrices. */
function byUnits(d, contraction) {
  const unit = (i, j) => arrays.zeros(d).map((row, a) => row.map((_, b) => (a === i && b === j ? 1 : 0)));
  return Array.from({ length: d }, (_, i) => Array.from({ length: d }, (_, j) => contraction(unit(i, j))));
}

const ANSWERS = {
  logp: (f, q, { reference }) => ({ difference: f.logDensity(q) - f.logDensity(numbers(reference)) }),
  grad: (f, q) => ({ grad: f.gradient(q) }),
  hess: (f, q) => f.hessian && { hess: f.hessian(q) },
  third: (f, q) => f.trace && { third: byUnits(f.dim, (M) => f.trace(q, M)) },
  fisher: (f, q) => f.fisher && { fisher: f.fisher(q) },
  fisher_derivative: (f, q) => f.fisherTrace && { fisher_derivative: byUnits(f.dim, (M) => f.fisherTrace(q, M)) },
  metric(f, q, { args }) {
    const at = hamiltonianOf(f, args)?.at(q);
    return at && { metric: at.mass(), log_det: at.logDet() };
  },
  dH(f, q, { args, p }) {
    const field = hamiltonianOf(f, args)?.field(q, numbers(p));
    return field && { dq: field.dH_dq, dp: field.dH_dp };
  },
  step(f, q, { args, p }) {
    const H = hamiltonianOf(f, args), integrator = integratorOf(args);
    if (H === null || integrator === null) return null;
    const { states, energies, complete } = trajectory.follow(H, integrator, q, numbers(p), number(args.eps), args.n);
    if (!complete) throw new Error(`${args.integrator} on ${args.metric}: a step has no solution`);
    return { q: states.at(-1).q, p: states.at(-1).p, energy_error: energies.at(-1) - energies[0] };
  },
  discontinuous_step(f, q, { args, p }) {
    const H = metrics.Laplace(f, args.discontinuous, args.inverse_mass && numbers(args.inverse_mass));
    const start = { q, p: numbers(p) }, { step } = integrators.Discontinuous();
    const end = args.orders.reduce((z, order) => step(H, z, number(args.eps), order), start);
    return { ...end, energy_error: H.energy(end.q, end.p) - H.energy(q, start.p) };
  },
};

/** Return the answer to a question, fields by name, or null if this program has none. */
function answer(question, target) {
  const f = target && targetOf(target), say = ANSWERS[question.op];
  return f && say ? (say(f, numbers(question.q), question) ?? null) : null;
}

module.exports = { SOLVER_TOLERANCE, answer, number, numbers };

if (require.main === module) {
  const fs = require("node:fs"), path = require("node:path");
  const file = process.argv[2] ?? path.join(__dirname, "../../refhmc/vectors/targets.jsonl");
  const read = (text) => text.split("\n").filter(Boolean).map((line) => JSON.parse(line));
  const known = new Map(read(fs.readFileSync(file, "utf8")).map((row) => [row.target, row]));
  for (const question of read(fs.readFileSync(0, "utf8"))) {
    const out = question.id && answer(question, known.get(question.target));
    if (out) console.log(JSON.stringify({ id: question.id, out }));
  }
}
