"use strict";
/**
 * The mathematics of the page as a program that refhmc can check, with one JSON object per line:
 *
 *     refhmc check --cmd "node client.js funnel softabs implicit-midpoint"
 *
 * Arguments: target, metric, integrator. `--bug half-drift` plants an error that the check must find.
 */
for (const file of ["arrays", "targets", "metrics", "integrators", "trajectory"]) require(`./${file}.js`);
const { numbers, number } = require("./golden.js");
const { targets, metrics, integrators, trajectory } = globalThis.refhmc;

const words = process.argv.slice(2).filter((word) => !word.startsWith("--") && word !== "half-drift");
const [targetName = "banana", metricName = "fisher", integratorName = "implicit-midpoint"] = words;
const halfDrift = process.argv.includes("half-drift");

const TOLERANCE = 1e-12;
const target = { banana: () => targets.Banana(new Array(100).fill(1), 2, 2), funnel: () => targets.Funnel(2) }[targetName]();
const H = {
  identity: () => metrics.Identity(target),
  fisher: () => metrics.Fisher(target),
  softabs: () => metrics.SoftAbs(target, 10),
}[metricName]();
const integrator = {
  leapfrog: () => integrators.Leapfrog(),
  "block-leapfrog": () => integrators.BlockLeapfrog(),
  "generalized-leapfrog": () => integrators.GeneralizedLeapfrog(TOLERANCE, 1000),
  "implicit-midpoint": () => integrators.ImplicitMidpoint(TOLERANCE, 1000),
  "explicit-tao": () => integrators.ExplicitTao(10),
  "projected-tao": () => integrators.ProjectedTao(0, TOLERANCE, 1000),
}[integratorName]();
/** Return H itself, or a version whose drift is half as long. */
const forSteps = {
  ...H,
  at(q) {
    const here = H.at(q);
    return halfDrift && here ? { ...here, velocity: (p) => here.velocity(p).map((v) => v / 2) } : here;
  },
};

const CAPABILITIES = {
  name: `client.js, ${integratorName} on ${metricName}`,
  ops: ["capabilities", "logp", "grad", "hess", "metric", "dH", "step"],
  dim: target.dim,
  target: targetName,
  args: targetName === "funnel" ? { n: 2 } : {},
  metric: metricName === "softabs" ? "softabs(10)" : metricName,
  eps: metricName === "fisher" ? 0.1 : 0.02,
  n: 5,
  claims: integratorName === "explicit-tao" ? "order=2" : "symplectic reversible order=2",
  ...(integrator.solver ? { tolerance: TOLERANCE } : {}),
};

/** Write numbers that JSON lacks as strings. */
const spelled = (value) =>
  Array.isArray(value) ? value.map(spelled) : Number.isFinite(value) ? value : String(value).replace("Infinity", "inf").toLowerCase();
const refusal = (code, message) => ({ error: { code, message } });

function answer({ op, q: position, p: momentum, eps, n }) {
  const q = position && numbers(position), p = momentum && numbers(momentum);
  if (op === "capabilities") return CAPABILITIES;
  if (op === "logp") return { logp: spelled(target.logDensity(q)) };
  if (op === "grad") return { grad: spelled(target.gradient(q)) };
  if (op === "hess") return { hess: spelled(target.hessian(q)) };
  if (op === "metric") return H.at(q) ? { G: spelled(H.at(q).mass()) } : refusal("failed", "no metric");
  if (op === "dH") {
    const field = H.field(q, p);
    if (field === null) return refusal("failed", "no metric");
    return { H: spelled(H.energy(q, p)), dHdq: spelled(field.dH_dq), dHdp: spelled(field.dH_dp) };
  }
  if (op === "step") {
    const { states, complete } = trajectory.follow(forSteps, integrator, q, p, number(eps), n);
    if (!complete) return refusal("failed", "a step has no solution");
    return { q: spelled(states.at(-1).q), p: spelled(states.at(-1).p) };
  }
  return refusal("not_supported", `no op ${op}`);
}

require("node:readline")
  .createInterface({ input: process.stdin })
  .on("line", (line) => {
    const request = JSON.parse(line);
    let said;
    try {
      said = answer(request);
    } catch (error) {
      said = refusal("bad_request", error.message);
    }
    process.stdout.write(`${JSON.stringify({ id: request.id, ...said })}\n`);
  });
