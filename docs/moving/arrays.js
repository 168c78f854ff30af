"use strict";
/**
 * Vectors and matrices. A vector is an array of numbers, a matrix an array of its rows.
 *
 * Every file of this folder adds its functions to one object, `refhmc`: a page that is opened as a file can load plain
 * scripts only. Node reads the same files with `require`.
 */
(function (refhmc) {
  const dot = (x, y) => x.reduce((sum, x_i, i) => sum + x_i * y[i], 0);

  /** x + h y */
  const plus = (x, h, y) => x.map((x_i, i) => x_i + h * y[i]);

  /** A x */
  const times = (A, x) => A.map((row) => dot(row, x));

  const transpose = (A) => A[0].map((_, j) => A.map((row) => row[j]));

  const product = (A, B) => {
    const columns = transpose(B);
    return A.map((row) => columns.map((column) => dot(row, column)));
  };

  const zeros = (d) => Array.from({ length: d }, () => new Array(d).fill(0));

  const diagonal = (x) => x.map((x_i, i) => x.map((_, j) => (i === j ? x_i : 0)));

  const largest = (x) => x.reduce((most, x_i) => (Math.abs(x_i) > most ? Math.abs(x_i) : most), 0);

  const isFinite = (x) => x.every(Number.isFinite);

  /** A = C C', C lower triangular; null where A is not positive definite. */
  function cholesky(A) {
    const C = zeros(A.length);
    for (let i = 0; i < A.length; i++) {
      for (let j = 0; j <= i; j++) {
        let left = A[i][j];
        for (let k = 0; k < j; k++) left -= C[i][k] * C[j][k];
        if (i !== j) C[i][j] = left / C[j][j];
        else if (left > 0) C[i][i] = Math.sqrt(left);
        else return null;
      }
    }
    return C;
  }

  /** x with C C' x = b */
  function solve(C, b) {
    const x = b.slice();
    for (let i = 0; i < x.length; i++) {
      for (let j = 0; j < i; j++) x[i] -= C[i][j] * x[j];
      x[i] /= C[i][i];
    }
    for (let i = x.length - 1; i >= 0; i--) {
      for (let j = i + 1; j < x.length; j++) x[i] -= C[j][i] * x[j];
      x[i] /= C[i][i];
    }
    return x;
  }

  /** (C C')^-1 */
  const inverse = (C) => diagonal(C.map(() => 1)).map((column) => solve(C, column));

  /**
   * Eigenvalues and eigenvectors of a symmetric matrix, A = Q diag(values) Q', by Jacobi's rotations (Golub and Van Loan, sec.
   * 8.5): each turns the plane of the coordinates (i, j) so that A_ij becomes 0.
   */
  function eigen(symmetric) {
    const A = symmetric.map((row) => row.slice()), d = A.length, Q = diagonal(new Array(d).fill(1));
    for (let sweep = 0; sweep < 50; sweep++) {
      let turned = false;
      for (let i = 0; i < d; i++) {
        for (let j = i + 1; j < d; j++) {
          if (Math.abs(A[i][j]) <= 1e-17 * Math.sqrt(Math.abs(A[i][i] * A[j][j])) || A[i][j] === 0) continue;
          turned = true;
          const theta = (A[j][j] - A[i][i]) / (2 * A[i][j]);
          const t = (theta < 0 ? -1 : 1) / (Math.abs(theta) + Math.hypot(theta, 1));
          const c = 1 / Math.hypot(t, 1), s = t * c, change = t * A[i][j];
          A[i][i] -= change;
          A[j][j] += change;
          A[i][j] = A[j][i] = 0;
          for (let k = 0; k < d; k++) {
            if (k !== i && k !== j) {
              const a = A[k][i], b = A[k][j];
              A[k][i] = A[i][k] = c * a - s * b;
              A[k][j] = A[j][k] = s * a + c * b;
            }
            const a = Q[k][i], b = Q[k][j];
            Q[k][i] = c * a - s * b;
            Q[k][j] = s * a + c * b;
          }
        }
      }
      if (!turned) break;
    }
    return { values: A.map((row, i) => row[i]), Q };
  }

  /** det A, by elimination with the largest pivot. */
  function determinant(matrix) {
    const A = matrix.map((row) => row.slice());
    let det = 1;
    for (let k = 0; k < A.length; k++) {
      let pivot = k;
      for (let i = k + 1; i < A.length; i++) if (Math.abs(A[i][k]) > Math.abs(A[pivot][k])) pivot = i;
      if (!(Math.abs(A[pivot][k]) > 0)) return A[pivot][k];
      if (pivot !== k) {
        [A[k], A[pivot]] = [A[pivot], A[k]];
        det = -det;
      }
      det *= A[k][k];
      for (let i = k + 1; i < A.length; i++) A[i] = plus(A[i], -A[i][k] / A[k][k], A[k]);
    }
    return det;
  }

  refhmc.arrays = {
    cholesky, determinant, diagonal, dot, eigen, inverse, isFinite, largest, plus, product, solve, times, transpose, zeros,
  };
})((globalThis.refhmc ??= {}));
