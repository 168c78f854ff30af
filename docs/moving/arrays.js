"use strict";
/**
 * Vectors and matrices. A vector is an array of numbers, a matrix an array of its rows.
 *
 * Every file of this folder adds its functions to one object, `refhmc`, because a page that is opened as a file can only load plain
 * scripts. Node reads the same files with `require`.
 */
(function (refhmc) {
  // Loops instead of reduce, map and fill, because a frame of the page makes about 100,000 of these operations.
  function dot(x, y) {
    let sum = 0;
    for (let i = 0; i < x.length; i++) sum += x[i] * y[i];
    return sum;
  }

  /** x + h y */
  function plus(x, h, y) {
    const sum = new Array(x.length);
    for (let i = 0; i < x.length; i++) sum[i] = x[i] + h * y[i];
    return sum;
  }

  /** A x */
  function times(A, x) {
    const product = new Array(A.length);
    for (let i = 0; i < A.length; i++) product[i] = dot(A[i], x);
    return product;
  }

  /** A' x */
  function transposedTimes(A, x) {
    const product = new Array(A[0].length);
    for (let j = 0; j < product.length; j++) product[j] = 0;
    for (let i = 0; i < A.length; i++) for (let j = 0; j < product.length; j++) product[j] += A[i][j] * x[i];
    return product;
  }

  /** The matrix of entry(i, j). */
  function matrix(d, entry) {
    const A = new Array(d);
    for (let i = 0; i < d; i++) {
      A[i] = new Array(d);
      for (let j = 0; j < d; j++) A[i][j] = entry(i, j);
    }
    return A;
  }

  function zeros(d) {
    const A = new Array(d);
    for (let i = 0; i < d; i++) {
      A[i] = new Array(d);
      for (let j = 0; j < d; j++) A[i][j] = 0;
    }
    return A;
  }

  const diagonal = (x) => matrix(x.length, (i, j) => (i === j ? x[i] : 0));

  /** max_i |x_i|; NaN if one of them is. */
  const largest = (x) => x.reduce((most, x_i) => (Math.abs(x_i) <= most ? most : Math.abs(x_i)), 0);

  function isFinite(x) {
    for (let i = 0; i < x.length; i++) if (!Number.isFinite(x[i])) return false;
    return true;
  }

  /** A = C C', C lower triangular; null if A is not positive definite. */
  function cholesky(A) {
    const C = zeros(A.length);
    for (let i = 0; i < A.length; i++) {
      const row = C[i];
      for (let j = 0; j <= i; j++) {
        let left = A[i][j];
        for (let k = 0; k < j; k++) left -= row[k] * C[j][k];
        if (i !== j) row[j] = left / C[j][j];
        else if (left > 0) row[i] = Math.sqrt(left);
        else return null;
      }
    }
    return C;
  }

  /** x with C C' x = b */
  const solve = (C, b) => solveInPlace(C, b.slice());

  function solveInPlace(C, x) {
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
  function inverse(C) {
    const columns = zeros(C.length);
    for (let i = 0; i < C.length; i++) {
      columns[i][i] = 1;
      solveInPlace(C, columns[i]);
    }
    return columns;
  }

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
  function determinant(square) {
    const A = square.map((row) => row.slice());
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
    cholesky, determinant, diagonal, dot, eigen, inverse, isFinite, largest, matrix, plus, solve, times, transposedTimes, zeros,
  };
})((globalThis.refhmc ??= {}));
