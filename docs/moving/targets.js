"use strict";
/**
 * The targets: log densities L(q) without their constants, with every derivative by hand.
 *
 *     logDensity(q) = L      gradient(q)_i = dL/dq_i      hessian(q)_ij      trace(q, M)_k = sum_ij M_ij d3L/dq_i dq_j dq_k
 *     fisher(q) = G          fisherTrace(q, M)_k = sum_ij M_ij dG_ij/dq_k
 *     fisherLevels           the level of each coordinate, if G is block diagonal and each block depends on lower levels only
 *
 * The formulas are those of refhmc's models of the same names.
 */
(function (refhmc) {
  const { cholesky, diagonal, dot, inverse, plus, times, zeros } = refhmc.arrays;

  /** N(mean, S), P = S^-1:  L = -1/2 (q - mean)' P (q - mean),  dL/dq = -P (q - mean),  hessian -P,  Fisher metric P. */
  function Gaussian(mean, covariance) {
    const P = inverse(cholesky(covariance)), none = mean.map(() => 0);
    const gradient = (q) => times(P, plus(mean, -1, q));
    return {
      name: "gaussian",
      dim: mean.length,
      logDensity: (q) => -0.5 * dot(plus(mean, -1, q), gradient(q)),
      gradient,
      hessian: () => P.map((row) => row.map((P_ij) => -P_ij)),
      trace: () => none,
      fisher: () => P,
      fisherTrace: () => none,
    };
  }

  /**
   * The banana (Brofos and Lederman 2021): y_i ~ N(t1 + t2^2, sigma_y), i = 1..n, and t1, t2 ~ N(0, sigma_theta). With
   * a = n / sigma_y^2, b = 1 / sigma_theta^2 and the residual r = ybar - t1 - t2^2
   *
   *     L = -a r^2/2 - b (t1^2 + t2^2)/2
   *     dL/dt1 = a r - b t1          dL/dt2 = 2 a r t2 - b t2
   *     11: -a - b     12: -2 a t2     22: 2 a (r - 2 t2^2) - b
   *     111, 112: 0    122: -2 a       222: -12 a t2
   *     Fisher metric a (1, 2 t2)(1, 2 t2)' + b I
   */
  function Banana(y, sigma_y, sigma_theta) {
    const a = y.length / sigma_y ** 2, b = 1 / sigma_theta ** 2;
    const ybar = y.reduce((sum, y_i) => sum + y_i, 0) / y.length;
    const residual = ([t1, t2]) => ybar - t1 - t2 * t2;
    return {
      name: "banana",
      dim: 2,
      logDensity: (q) => -0.5 * (a * residual(q) ** 2 + b * dot(q, q)),
      gradient: (q) => [a * residual(q) - b * q[0], (2 * a * residual(q) - b) * q[1]],
      hessian: (q) => [
        [-a - b, -2 * a * q[1]],
        [-2 * a * q[1], 2 * a * (residual(q) - 2 * q[1] * q[1]) - b],
      ],
      trace: (q, M) => [-2 * a * M[1][1], -2 * a * (M[0][1] + M[1][0]) - 12 * a * q[1] * M[1][1]],
      fisher: (q) => [
        [a + b, 2 * a * q[1]],
        [2 * a * q[1], 4 * a * q[1] * q[1] + b],
      ],
      fisherTrace: (q, M) => [0, 2 * a * (M[0][1] + M[1][0]) + 8 * a * q[1] * M[1][1]],
    };
  }

  /**
   * Neal's funnel: v ~ N(0, 9), x_i | v ~ N(0, exp(-v)), i = 1..n; the neck is at large v. With q = (v, x), S = sum_i x_i^2
   *
   *     L = -v^2/18 + n v/2 - e^v S/2
   *     dL/dv  = -v/9 + n/2 - e^v S/2            dL/dx_i = -e^v x_i
   *     d2L/dv2 = -1/9 - e^v S/2                 d2L/dv dx_i = -e^v x_i           d2L/dx_i dx_j = -e^v [i = j]
   *     third:  vvv: -e^v S/2    vvx_i: -e^v x_i    v x_i x_j: -e^v [i = j]       xxx: 0
   *     Fisher metric, minus the Hessian averaged over x given v: diag(1/9 + n/2, e^v, ..., e^v)
   */
  function Funnel(n) {
    const read = ([v, ...x]) => ({ v, x, e: Math.exp(v), half_eS: 0.5 * Math.exp(v) * dot(x, x) });
    return {
      name: "funnel",
      dim: 1 + n,
      fisherLevels: [0, ...new Array(n).fill(1)],
      logDensity(q) {
        const { v, half_eS } = read(q);
        return (0.5 * n - v / 18) * v - half_eS;
      },
      gradient(q) {
        const { v, x, e, half_eS } = read(q);
        return [-v / 9 + 0.5 * n - half_eS, ...x.map((x_i) => -e * x_i)];
      },
      hessian(q) {
        const { x, e, half_eS } = read(q), H = zeros(1 + n);
        H[0][0] = -1 / 9 - half_eS;
        x.forEach((x_i, i) => {
          H[0][1 + i] = H[1 + i][0] = -e * x_i;
          H[1 + i][1 + i] = -e;
        });
        return H;
      },
      trace(q, M) {
        const { x, e, half_eS } = read(q);
        const M_vx = x.map((_, i) => M[0][1 + i] + M[1 + i][0]);
        const M_xx = x.reduce((sum, _, i) => sum + M[1 + i][1 + i], 0);
        return [-e * (dot(M_vx, x) + M_xx) - M[0][0] * half_eS, ...x.map((x_i, i) => -e * (M[0][0] * x_i + M_vx[i]))];
      },
      fisher(q) {
        const { x, e } = read(q);
        return diagonal([1 / 9 + 0.5 * n, ...x.map(() => e)]);
      },
      fisherTrace(q, M) {
        const { x, e } = read(q);
        return [e * x.reduce((sum, _, i) => sum + M[1 + i][1 + i], 0), ...x.map(() => 0)];
      },
    };
  }

  /**
   * A density with jumps, q = (x, y); y represents the integer n = floor(y), 0 <= n < N:
   *
   *     L = log_w[n] - (x - mean[n])^2 / (2 s[n]^2) - log s[n];     -inf outside
   *
   * Along y it is constant between jumps, and its gradient is zero.
   */
  function Staircase(log_w, mean, s) {
    const inside = (n) => n >= 0 && n < log_w.length;
    return {
      name: "staircase",
      dim: 2,
      discontinuous: [1],
      logDensity([x, y]) {
        const n = Math.floor(y);
        return inside(n) ? log_w[n] - (x - mean[n]) ** 2 / (2 * s[n] ** 2) - Math.log(s[n]) : -Infinity;
      },
      gradient([x, y]) {
        const n = Math.floor(y);
        return [inside(n) ? (mean[n] - x) / s[n] ** 2 : 0, 0];
      },
    };
  }

  refhmc.targets = { Banana, Funnel, Gaussian, Staircase };
})((globalThis.refhmc ??= {}));
