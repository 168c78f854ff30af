"""Gaussian process regression, hyperparameters only (posteriordb's ``gp_regr``).

    y ~ N(0, K),   K_ij = alpha^2 exp(-(x_i - x_j)^2 / (2 rho^2)) + sigma [i = j]       (sigma, not its square)
    rho ~ Gamma(shape 25, rate 4),   alpha ~ N+(0, 2),   sigma ~ N+(0, 1)

with q = (log rho, log alpha, log sigma). Priors and Jacobians together are

    25 q_1 - 4 rho,    q_2 - alpha^2/8,    q_3 - sigma^2/2

The derivatives of K in q, with w_ij = (x_i - x_j)^2 / rho^2, C = alpha^2 e^{-w/2} entry by entry, S = sigma I: each log
alpha multiplies C by 2, the log rho's multiply it by

    once: w     twice: w^2 - 2w     thrice: w^3 - 6w^2 + 4w

and S is its own derivative in log sigma, all those mixed with it being zero. Write K_a, K_ab, K_abc for them,
P = K^-1, beta = P y, W = beta beta' - P. Then, since P_c = -P K_c P and L = -y'P y/2 - log|K|/2,

    L_a   = W:K_a / 2                                             (A:B = sum_ij A_ij B_ij)
    L_ab  = W:K_ab / 2 - beta'K_a P K_b beta + tr(P K_a P K_b)/2
    L_abc = W:K_abc / 2 + sum over ab|c, ac|b, bc|a of [tr(P K_ab P K_c)/2 - beta'K_ab P K_c beta]
            + sum over the middle one of (a, b, c) of beta'K_. P K_. P K_. beta - tr(P K_a P K_b P K_c)

Fisher metric: F_ab = tr(P K_a P K_b)/2, plus the priors' curvature diag(4 rho, alpha^2/2, 2 sigma^2);

    F_ab,c = [tr(P K_ac P K_b) + tr(P K_bc P K_a)]/2 - tr(P K_a P K_b P K_c), and the priors' 4 rho, alpha^2, 4 sigma^2.

Where K is not positive definite in floating point (sigma far below alpha^2's rounding) L is -inf, its derivatives zero.
So close to singularity they lose accuracy in proportion to K's condition number, as any evaluation of L must.

``data``: row 0 holds x, row 1 holds y.
"""

from __future__ import annotations

import numpy as np

from refhmc.compiled import jit, jit_allocating
from refhmc.datasets import posteriordb, posteriordb_reference
from refhmc.linalg import cholesky, dot, solve_lower, solve_lower_transposed
from refhmc.model import Model
