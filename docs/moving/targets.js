"use strict";
/**
 * The targets: log densities L(q) without their constants, with every derivative by hand.
 *
 *     logDensity(q) = L      gradient(q)_i = dL/dq_i      hessian(q)_ij      trace(q, M)_k = sum_ij M_ij d3L/dq_i dq_j dq_k
 *     fisher(q) = G          fisherTrace(q, M)_k = sum_ij M_ij dG_ij/dq_k
 *     fisherLevels           the level of each coordinate, if G is block diagonal and each block depends on lower levels only
 *
 * The formulas are those of refhmc's models of the same names. The donut and the two modes exist on this page only.
 */
(function (refhmc) {
  const { cholesky, diagonal, dot, inverse, matrix, plus, times, transposedTimes, zeros } = refhmc.arrays;

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
   * A ring of radius R and width s, smooth in the middle, too. With u = |q|^2 - R^2 and k = 1 / (8 R^2 s^2)
   *
   *     L = -k u^2        dL/dq_i = -4 k u q_i        d2L/dq_i dq_j = -4 k (u [i = j] + 2 q_i q_j)
   *     d3L/dq_i dq_j dq_k = -8 k ([i = j] q_k + [i = k] q_j + [j = k] q_i)
   */
  function Donut(R, s) {
    const k = 1 / (8 * R * R * s * s), u = (q) => dot(q, q) - R * R;
    return {
      name: "donut",
      dim: 2,
      logDensity: (q) => -k * u(q) ** 2,
      gradient: (q) => q.map((x) => -4 * k * u(q) * x),
      hessian: (q) => matrix(2, (i, j) => -4 * k * ((i === j ? u(q) : 0) + 2 * q[i] * q[j])),
      trace(q, M) {
        const both = plus(times(M, q), 1, transposedTimes(M, q));
        return q.map((x, i) => -8 * k * ((M[0][0] + M[1][1]) * x + both[i]));
      },
    };
  }

  /**
   * Two modes, 1/2 N(m, s^2) + 1/2 N(-m, s^2). With d = 2 m / s^2, r = 1 / (1 + exp(-d . q)), the probability of the first, and c = r (1 - r)
   *
   *     L = log(exp(-|q - m|^2 / 2 s^2) + exp(-|q + m|^2 / 2 s^2))
   *     dL/dq = ((2 r - 1) m - q) / s^2      hessian -I / s^2 + c d d'      d3L/dq_i dq_j dq_k = c (1 - 2 r) d_i d_j d_k
   */
  function TwoModes(m, s) {
    const d = m.map((x) => (2 * x) / (s * s));
    const share = (q) => 1 / (1 + Math.exp(-dot(d, q))), product = (r) => r * (1 - r);
    return {
      name: "modes",
      dim: m.length,
      logDensity(q) {
        const t = Math.abs(dot(d, q)); // the two exponents differ by t
        return -0.5 * (dot(q, q) + dot(m, m)) / (s * s) + t / 2 + Math.log1p(Math.exp(-t));
      },
      gradient: (q) => plus(m.map(() => 0), 1 / (s * s), plus(q.map((x) => -x), 2 * share(q) - 1, m)),
      hessian(q) {
        const c = product(share(q));
        return matrix(m.length, (i, j) => (i === j ? -1 / (s * s) : 0) + c * d[i] * d[j]);
      },
      trace(q, M) {
        const r = share(q), factor = product(r) * (1 - 2 * r) * dot(d, times(M, d));
        return d.map((d_k) => factor * d_k);
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

  refhmc.targets = { Banana, Donut, Funnel, Gaussian, Staircase, TwoModes };
})((globalThis.refhmc ??= {}));
