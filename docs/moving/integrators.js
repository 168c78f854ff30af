"use strict";
/**
 * The integrators: `step(H, z, eps)` makes one step of a state z = { q, p } (Tao's: with the copies x, y). Null if
 * an implicit step has no solution or the metric does not exist.
 *
 * The solver is x_{k+1} = f(x_k) until no coordinate changes by more than the tolerance (Brofos and Lederman 2021, Algorithm 1), or
 * its last bits; null after `maxIterations`. `iterations` counts them for each step.
 */
(function (refhmc) {
  const { isFinite, plus } = refhmc.arrays;
  const LAST_BITS = 4 * Number.EPSILON;

  function Solver(tolerance, maxIterations) {
    const solver = { iterations: 0, solve };
    function close(image, x) {
      for (let i = 0; i < x.length; i++) {
        if (!(Math.abs(image[i] - x[i]) <= Math.max(tolerance, LAST_BITS * Math.abs(x[i])))) return false;
      }
      return true;
    }
    function solve(equation, x) {
      for (let n = 0; n < maxIterations; n++) {
        const image = equation(x);
        if (image === null || !isFinite(image)) return null;
        solver.iterations++;
        if (close(image, x)) return image;
        x = image;
      }
      return null;
    }
    return solver;
  }

  /**
   * The leapfrog on a constant metric (Stoermer-Verlet):
   *
   *     p+ = p + eps/2 dL/dq(q);     q' = q + eps M^-1 p+;     p' = p+ + eps/2 dL/dq(q')
   *
   * Order 2, symplectic, reversible. Gram-Hansen's eqs. 10-12 with their erratum (the second gradient is taken at q').
   *
   * On a position-dependent metric, with dH/dq(q, p) instead of -dL/dq(q), it is **neither symplectic nor
   * reversible**: each kick then depends on the momentum that it changes, and the drift on the position that it moves.
   */
  function Leapfrog() {
    return {
      name: "leapfrog",
      step(H, { q, p }, eps) {
        let field = H.field(q, p);
        if (field === null) return null;
        p = plus(p, -eps / 2, field.dH_dq);
        q = plus(q, eps, H.at(q).velocity(p));
        field = H.field(q, p);
        return field && { q, p: plus(p, -eps / 2, field.dH_dq) };
      },
    };
  }

  /**
   * The explicit leapfrog for hierarchical metrics (Kailas, Vihola and Wallin 2026). With tau_b the part of tau that belongs to level b,
   * F_b(t) the exact flow of tau_b and B levels, one step is
   *
   *     p <- p - eps/2 dphi/dq;     F_B-1(eps/2) ... F_1(eps/2);   F_0(eps);   F_1(eps/2) ... F_B-1(eps/2);     p <- p - eps/2 dphi/dq
   *     F_b(t):   q_b <- q_b + t v,     p_j <- p_j - t dtau_b/dq_j for j of a lower level,     v = M_b^-1 p_b
   *
   * Order 2, symplectic, reversible, explicit.
   */
  function BlockLeapfrog() {
    return {
      name: "block-leapfrog",
      step(H, { q, p }, eps) {
        const top = Math.max(...H.levels);
        for (let b = -top - 1; b <= top + 1; b++) {
          const here = H.at(q);
          if (here === null) return null;
          if (Math.abs(b) > top) {
            p = plus(p, -eps / 2, here.force(p, 1, 0));
          } else {
            const t = b === 0 ? eps : eps / 2, part = p.map((p_i, i) => (H.levels[i] === Math.abs(b) ? p_i : 0));
            q = plus(q, t, here.velocity(part));
            p = plus(p, -t, here.force(part, 0, 1));
          }
        }
        return { q, p };
      },
    };
  }

  /**
   * The generalised leapfrog (Girolami and Calderhead 2011, sec. 6.1; Betancourt 2013, Algorithm 1 with its errata):
   *
   *     p+ = p - eps/2 dH/dq(q, p+)                                  implicit in p+
   *     q' = q + eps/2 (dH/dp(q, p+) + dH/dp(q', p+))                implicit in q'
   *     p' = p+ - eps/2 dH/dq(q', p+)                                explicit
   *
   * Order 2, symplectic, reversible. The solves start from p and from q.
   */
  function GeneralizedLeapfrog(tolerance, maxIterations) {
    const solver = Solver(tolerance, maxIterations);
    return {
      name: "generalized-leapfrog",
      solver,
      step(H, { q, p }, eps) {
        const start = H.at(q);
        if (start === null) return null;
        const ofPotential = start.force(p, 1, 0);
        const half = solver.solve((x) => plus(plus(p, -eps / 2, ofPotential), -eps / 2, start.force(x, 0, 1)), p);
        if (half === null) return null;
        const v = start.velocity(half);
        const end = solver.solve((x) => {
          const there = H.at(x);
          return there && plus(plus(q, eps / 2, v), eps / 2, there.velocity(half));
        }, q);
        const field = end && H.field(end, half);
        return field && { q: end, p: plus(half, -eps / 2, field.dH_dq) };
      },
    };
  }

  /**
   * The implicit midpoint rule, I.M.(a) of Brofos and Lederman 2021, Algorithm 3:
   *
   *     z' = z + eps f((z + z')/2),        z = (q, p),    f = (dH/dp, -dH/dq)
   *
   * Order 2, symplectic, reversible. Solved for z' from z.
   */
  function ImplicitMidpoint(tolerance, maxIterations) {
    const solver = Solver(tolerance, maxIterations);
    return {
      name: "implicit-midpoint",
      solver,
      step(H, { q, p }, eps) {
        const d = q.length, z = [...q, ...p];
        const end = solver.solve((x) => {
          const m_q = new Array(d), m_p = new Array(d), image = new Array(2 * d);
          for (let i = 0; i < d; i++) [m_q[i], m_p[i]] = [(z[i] + x[i]) / 2, (z[d + i] + x[d + i]) / 2];
          const field = H.field(m_q, m_p);
          if (field === null) return null;
          for (let i = 0; i < d; i++) {
            image[i] = z[i] + eps * field.dH_dp[i];
            image[d + i] = z[d + i] - eps * field.dH_dq[i];
          }
          return image;
        }, z);
        return end && { q: end.slice(0, d), p: end.slice(d) };
      },
    };
  }

  /**
   * Tao's step of two copies (Tao 2016; Cobb et al. 2019, eqs. 10-13), K = H(q, y) + H(x, p) + omega/2 (|q - x|^2 + |p - y|^2):
   *
   *     A:  p <- p - h dH/dq(q, y),    x <- x + h dH/dp(q, y)
   *     B:  q <- q + h dH/dp(x, p),    y <- y - h dH/dq(x, p)
   *     C:  the differences (q - x, p - y) turn by the angle 2 omega h, the sums stay
   *
   *     one step:   A(eps/2) B(eps/2) C(eps) B(eps/2) A(eps/2)
   *
   * C has the old values on the right throughout (the paper's Algorithm 2 overwrites them).
   */
  function doubled(H, { q, p, x, y }, eps, omega) {
    const h = eps / 2, c = Math.cos(2 * omega * eps), s = Math.sin(2 * omega * eps);
    const A = () => {
      const field = H.field(q, y);
      if (field === null) return false;
      p = plus(p, -h, field.dH_dq);
      x = plus(x, h, field.dH_dp);
      return true;
    };
    const B = () => {
      const field = H.field(x, p);
      if (field === null) return false;
      q = plus(q, h, field.dH_dp);
      y = plus(y, -h, field.dH_dq);
      return true;
    };
    if (!A() || !B()) return null;
    // q and y are those that B has made, p and x those of A: no array of the caller is overwritten.
    for (let i = 0; i < q.length; i++) {
      const sum_q = q[i] + x[i], sum_p = p[i] + y[i], dq = q[i] - x[i], dp = p[i] - y[i];
      const turned_q = c * dq + s * dp, turned_p = c * dp - s * dq;
      q[i] = (sum_q + turned_q) / 2;
      x[i] = (sum_q - turned_q) / 2;
      p[i] = (sum_p + turned_p) / 2;
      y[i] = (sum_p - turned_p) / 2;
    }
    return B() && A() ? { q, p, x, y } : null;
  }

  /**
   * Tao's explicit integrator. On the doubled space it is symplectic and reversible. The map (q, p) -> (q', p') from equal copies,
   * which are dropped at the end, is *neither*: the next trajectory and the reverse trajectory start from other copies.
   */
  function ExplicitTao(omega) {
    return {
      name: "explicit-tao",
      step: (H, { q, p, x = q, y = p }, eps) => doubled(H, { q, p, x, y }, eps, omega),
    };
  }

  /**
   * Tao's integrator projected onto x = q, y = p, symmetrically (Hairer 2000; Jayawardana and Ohsawa 2023): with Phi the step
   * of the two copies, find the shift mu for which
   *
   *     (q', p', q', p') = Phi((q, p, q, p) + S mu) + S mu,        S mu = (mu_q, mu_p, -mu_q, -mu_p)
   *
   * Order 2, symplectic, reversible. Solved from mu = 0 by mu -> mu - B F(mu), F the difference of the copies afterwards
   * and B = R(-omega eps) / (4 cos(omega eps)), the inverse of its derivative at eps = 0.
   */
  function ProjectedTao(omega, tolerance, maxIterations) {
    const solver = Solver(tolerance, maxIterations);
    return {
      name: "projected-tao",
      solver,
      step(H, { q, p }, eps) {
        const d = q.length, c = Math.cos(omega * eps), s = Math.sin(omega * eps);
        const shifted = (mu) => {
          const mu_q = mu.slice(0, d), mu_p = mu.slice(d);
          const z = { q: plus(q, 1, mu_q), p: plus(p, 1, mu_p), x: plus(q, -1, mu_q), y: plus(p, -1, mu_p) };
          return doubled(H, z, eps, omega);
        };
        const mu = solver.solve((mu) => {
          const end = shifted(mu);
          if (end === null) return null;
          const next = new Array(2 * d);
          for (let i = 0; i < d; i++) {
            const F_q = end.q[i] - end.x[i] + 2 * mu[i], F_p = end.p[i] - end.y[i] + 2 * mu[d + i];
            next[i] = mu[i] - (c * F_q - s * F_p) / (4 * c);
            next[d + i] = mu[d + i] - (c * F_p + s * F_q) / (4 * c);
          }
          return next;
        }, new Array(2 * d).fill(0));
        const end = mu && shifted(mu);
        const mean = (a, b) => a.map((a_i, i) => (a_i + b[i]) / 2);
        return end && { q: mean(end.q, end.x), p: mean(end.p, end.y) };
      },
    };
  }

  /**
   * The step of discontinuous HMC: the leapfrog on the smooth coordinates I, around the discontinuous ones J one at a time.
   *
   *     p_I <- p_I + eps/2 dL/dq_I;     q_I <- q_I + eps/2 s_I p_I
   *     for j in J, in the step's order:
   *         q* = q + eps s_j sign(p_j) e_j,     dU = L(q) - L(q*)
   *         if |p_j| s_j > dU:   q <- q*,  p_j <- p_j - sign(p_j) dU / s_j       through the jump, which costs kinetic energy
   *         else:                p_j <- -p_j                                     back from it
   *     q_I <- q_I + eps/2 s_I p_I;     p_I <- p_I + eps/2 dL/dq_I
   *
   * Algorithms 3 and 4 of Gram-Hansen's notes with their errata, after Nishimura, Dunson and Lu (2020). H: `Laplace`.
   */
  function Discontinuous() {
    const sign = (x) => (x < 0 || Object.is(x, -0) ? -1 : 1);
    return {
      name: "discontinuous",
      step(H, { q, p }, eps, order = H.target.discontinuous) {
        const { target, jumps, inverseMass: s } = H;
        const kick = () => (p = plus(p, eps / 2, target.gradient(q).map((g, i) => (jumps[i] ? 0 : g))));
        const drift = () => (q = q.map((q_i, i) => (jumps[i] ? q_i : q_i + (eps / 2) * s[i] * p[i])));
        kick();
        drift();
        for (const j of order) {
          const there = q.slice();
          there[j] += eps * s[j] * sign(p[j]);
          const dU = target.logDensity(q) - target.logDensity(there);
          const through = Math.abs(p[j]) * s[j] > dU;
          p = p.map((p_i, i) => (i !== j ? p_i : through ? p_i - (sign(p_i) * dU) / s[j] : -p_i));
          if (through) q = there;
        }
        drift();
        kick();
        return { q, p };
      },
    };
  }

  refhmc.integrators = {
    BlockLeapfrog, Discontinuous, ExplicitTao, GeneralizedLeapfrog, ImplicitMidpoint, Leapfrog, ProjectedTao,
  };
})((globalThis.refhmc ??= {}));
