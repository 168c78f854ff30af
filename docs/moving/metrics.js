"use strict";
/**
 * The Hamiltonian of a target on a metric G:
 *
 *     H(q, p) = phi(q) + tau(q, p),      phi = -L(q) + 1/2 log det G(q),      tau = 1/2 p' G(q)^-1 p
 *
 *     dq/dt =  dH/dp = G^-1 p
 *     dp/dt = -dH/dq,   dphi/dq_k = -dL/dq_k + 1/2 tr(G^-1 dG/dq_k),   dtau/dq_k = -1/2 v' dG/dq_k v,   v = G^-1 p
 *
 * (Girolami and Calderhead 2011, eqs. 13-16). `at(q)` contains what depends on the position alone, computed once for each position:
 *
 *     mass() = G     logDet() = log det G     velocity(p) = G^-1 p     force(p, phi, tau) = phi dphi/dq + tau dtau/dq
 *
 * (a fourth argument of `force` is the velocity, if it is known).
 *
 * `at(q)` is null if G is not finite or not positive definite. `levels`: the level of each coordinate if G is hierarchical, or null.
 */
(function (refhmc) {
  const { cholesky, diagonal, dot, eigen, inverse, isFinite, matrix, plus, solve, times, transposedTimes, zeros } = refhmc.arrays;

  function Hamiltonian(target, at, curved, levels = null) {
    let last = null, q_last = null; // the last evaluation of a step is the first one of the next
    const here = (q) => {
      let same = q_last !== null;
      for (let i = 0; same && i < q.length; i++) same = q[i] === q_last[i];
      if (!same) {
        q_last = q.slice();
        last = at(q);
      }
      return last;
    };
    return {
      target,
      curved,
      levels,
      at: here,
      /** H(q, p); NaN if the metric does not exist. */
      energy(q, p) {
        const metric = here(q);
        if (metric === null) return NaN;
        return -target.logDensity(q) + (curved ? 0.5 * metric.logDet() : 0) + 0.5 * dot(p, metric.velocity(p));
      },
      /** dH/dp and dH/dq; null if the metric does not exist. */
      field(q, p) {
        const metric = here(q);
        if (metric === null) return null;
        const v = metric.velocity(p);
        return { dH_dp: v, dH_dq: metric.force(p, 1, 1, v) };
      },
    };
  }

  /** G constant, given by its inverse M^-1: a number for each coordinate, or a matrix. H omits its log det. */
  function Constant(target, inverseMass) {
    const W = Array.isArray(inverseMass[0]) ? inverseMass : diagonal(inverseMass);
    const mass = inverse(cholesky(W));
    const logDet = -2 * cholesky(W).reduce((sum, row, i) => sum + Math.log(row[i]), 0);
    const velocity = (p) => times(W, p);
    const at = (q) => ({ mass: () => mass, logDet: () => logDet, velocity, force: (p, phi) => target.gradient(q).map((g) => -phi * g) });
    return Hamiltonian(target, at, false, new Array(target.dim).fill(0));
  }

  const Identity = (target) => Constant(target, new Array(target.dim).fill(1));

  /**
   * G(q) = E[-d^2 log p(y | q)] + prior precision, as the target gives it. One contraction gives the force:
   *
   *     dH/dq_k = -dL/dq_k + tr(M dG/dq_k),     M = 1/2 (G^-1 - v v')
   */
  function Fisher(target) {
    function at(q) {
      const mass = target.fisher(q), C = mass.every(isFinite) ? cholesky(mass) : null;
      if (C === null) return null;
      const velocity = (p) => solve(C, p);
      return {
        mass: () => mass,
        logDet: () => 2 * C.reduce((sum, row, i) => sum + Math.log(row[i]), 0),
        velocity,
        force(p, phi, tau, v = velocity(p)) {
          const d = p.length, M = phi === 0 ? zeros(d) : inverse(C);
          for (let i = 0; i < d; i++) for (let j = 0; j < d; j++) M[i][j] = 0.5 * (phi * M[i][j] - tau * v[i] * v[j]);
          return plus(target.fisherTrace(q, M), -phi, target.gradient(q));
        },
      };
    }
    return Hamiltonian(target, at, true, target.fisherLevels);
  }

  /**
   * A diagonal metric whose entries depend on earlier coordinates, the parents j(p, i) of i (Kailas, Vihola and Wallin 2026):
   *
   *     M_i(q) = sum_k e_ki,     e_ki = exp(a_ki + sum_p c_kpi q_j(p,i)),     s_pi = sum_k c_kpi e_ki / M_i
   *     coordinate i adds to its parents:   dphi/dq_j(p,i) += 1/2 s_pi,     dtau/dq_j(p,i) -= 1/2 s_pi p_i v_i
   *
   * `constants` a: K x d, `parents` j: P x d, `coefficients` c: K x P x d.
   */
  function Hierarchical(target, constants, parents, coefficients) {
    function at(q) {
      const e = constants.map((a, k) =>
        a.map((a_i, i) => Math.exp(parents.reduce((sum, j, p) => sum + coefficients[k][p][i] * q[j[i]], a_i))));
      const M = q.map((_, i) => e.reduce((sum, e_k) => sum + e_k[i], 0));
      if (!M.every((M_i) => M_i > 0 && M_i < Infinity)) return null;
      const slope = (p, i) => e.reduce((sum, e_k, k) => sum + coefficients[k][p][i] * e_k[i], 0) / M[i];
      const velocity = (p) => p.map((p_i, i) => p_i / M[i]);
      return {
        mass: () => diagonal(M),
        logDet: () => M.reduce((sum, M_i) => sum + Math.log(M_i), 0),
        velocity,
        force(p, phi, tau) {
          const v = velocity(p), force = phi === 0 ? q.map(() => 0) : target.gradient(q).map((g) => -phi * g);
          parents.forEach((j, k) => q.forEach((_, i) => (force[j[i]] += 0.5 * slope(k, i) * (phi - tau * p[i] * v[i]))));
          return force;
        },
      };
    }
    return Hamiltonian(target, at, true, levelsOf(parents, coefficients));
  }

  /** 0 for a coordinate without parents, and otherwise one more than the largest level of its parents. */
  function levelsOf(parents, coefficients) {
    const level = (i) => Math.max(0, ...parents.map((j, p) => (coefficients.some((c) => c[p][i] !== 0) ? 1 + level(j[i]) : 0)));
    return coefficients[0][0].map((_, i) => level(i));
  }

  /**
   * The Hessian with its eigenvalues made positive, smoothly (Betancourt 2013):
   *
   *     H = Q diag(lambda) Q',     G = Q diag(f(lambda)) Q',     f(x) = x coth(alpha x)
   *
   * With the divided differences J_ij of f and a = Q'p / f
   *
   *     dphi/dq_k = -dL/dq_k + tr(M dH/dq_k),      M = 1/2 Q diag(J_ii / f_i) Q'
   *     dtau/dq_k =            tr(M dH/dq_k),      M = -1/2 Q (a_i J_ij a_j) Q'
   *
   * Betancourt's Algorithm 2 with its errata.
   */
  function SoftAbs(target, alpha) {
    function at(q) {
      const hessian = target.hessian(q);
      if (!hessian.every(isFinite)) return null;
      const { values, Q } = eigen(hessian), d = q.length, f = values.map((x) => soft(x, alpha));
      let divided = null; // J, for as many forces as are asked for here
      /** Q inner Q' of a symmetric matrix */
      const inBasis = (inner) => {
        const half = inner.map((row) => times(Q, row)); // inner Q'
        return matrix(d, (i, j) => half.reduce((sum, row, k) => sum + Q[i][k] * row[j], 0));
      };
      const a_of = (p) => transposedTimes(Q, p).map((x, i) => x / f[i]);
      return {
        mass: () => inBasis(diagonal(f)),
        logDet: () => f.reduce((sum, f_i) => sum + Math.log(f_i), 0),
        velocity: (p) => times(Q, a_of(p)),
        force(p, phi, tau) {
          const a = a_of(p);
          const J = (divided ??= matrix(d, (i, j) => dividedDifference(values[i], values[j], f[i], f[j], alpha)));
          const inner = matrix(d, (i, j) => -0.5 * tau * a[i] * J[i][j] * a[j] + (i === j ? (0.5 * phi * J[i][i]) / f[i] : 0));
          return plus(target.trace(q, inBasis(inner)), -phi, target.gradient(q));
        },
      };
    }
    return Hamiltonian(target, at, true);
  }

  const LARGE = 20; // from here on coth t and f' are 1, to 3e-16

  /** f(x) = x coth(alpha x) */
  function soft(x, alpha) {
    const t = Math.abs(alpha * x);
    if (t > LARGE) return Math.abs(x);
    if (t < 1e-4) return (1 + (t * t) / 3) / alpha;
    return Math.abs(x) * (1 + 2 / Math.expm1(2 * t));
  }

  /**
   * J(x, y) = (f(x) - f(y)) / (x - y), the derivative if x = y, from fx = f(x) and fy = f(y). If the quotient cancels, it is computed
   * from M = alpha (x + y) and D = alpha (x - y). J(-x, y) is reduced to positive arguments by f(-x) = f(x).
   */
  function dividedDifference(x, y, fx, fy, alpha) {
    const a = Math.abs(x), b = Math.abs(y);
    let value;
    if (alpha * a > LARGE && alpha * b > LARGE) value = 1;
    else if (alpha * Math.max(a, b) > 1 && alpha * Math.abs(a - b) > 0.5) value = (fx - fy) / (a - b);
    else value = ofSumAndDifference(alpha * (a + b), alpha * (a - b));
    if (x < 0 === y < 0) return x < 0 ? -value : value;
    return value * ((a - b) / (x - y));
  }

  /**
   * J = (sinh M - M sinh(D)/D) / (cosh M - cosh D) for 0 <= |D| <= M, M up to 2 or |D| up to 1/2. Up to M = 2 by
   *
   *     J = M (a_1/3! + a_2/5! + ...) / (a_1/2! + a_2/4! + ...),     a_1 = 1,  a_k+1 = M^2 a_k + D^2k,
   *
   * of which every term is positive, so that nothing cancels; above with both divided by e^M / 2.
   */
  function ofSumAndDifference(M, D) {
    const M2 = M * M, D2 = D * D;
    if (M <= 2) {
      let a = 1, power = 1, factor = 0.5, above = 0, below = 0; // a_k, D^2(k-1), 1 / (2k)!
      for (let k = 1; k < 14; k++) {
        below += a * factor;
        above += (a * factor) / (2 * k + 1);
        power *= D2;
        a = M2 * a + power;
        factor /= (2 * k + 1) * (2 * k + 2);
      }
      return (M * above) / below;
    }
    const sinhc = D === 0 ? 1 : Math.sinh(D) / D, E = Math.exp(-M);
    return (1 - E * E - 2 * M * E * sinhc) / (1 + E * E - 2 * E * Math.cosh(D));
  }

  /**
   * The Hamiltonian of discontinuous HMC (Nishimura, Dunson and Lu 2020): discontinuous coordinates J have Laplace momenta,
   *
   *     H = -L + sum_I p_i^2 s_i/2 + sum_J |p_j| s_j
   */
  function Laplace(target, discontinuous, inverseMass) {
    const s = inverseMass ?? new Array(target.dim).fill(1), jumps = s.map((_, i) => discontinuous.includes(i));
    const kinetic = (p) => p.reduce((sum, p_i, i) => sum + s[i] * (jumps[i] ? Math.abs(p_i) : 0.5 * p_i * p_i), 0);
    return { target, curved: false, jumps, inverseMass: s, energy: (q, p) => -target.logDensity(q) + kinetic(p) };
  }

  refhmc.metrics = { Constant, Fisher, Hierarchical, Identity, Laplace, SoftAbs };
})((globalThis.refhmc ??= {}));
