"""Models of named parameters: the centred eight schools, and one of every support, whose law is known."""

from __future__ import annotations

import numpy as np

import refhmc
from refhmc.parameters import CholeskyCorrelation, Interval, Ordered, Positive, Real, Simplex

Y = np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
SIGMA = np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])

schools = refhmc.Parameters(mu=Real(), tau=Positive(), theta=Real(shape=8, dims="school"))
MU, TAU, THETA = schools.at


def schools_log_density(values, data):
    mu, tau, theta = values
    y, sigma = data
    z, r = (theta - mu) / tau, (y - theta) / sigma
    return -0.5 * np.sum(z * z) - 8 * np.log(tau) - 0.5 * np.sum(r * r) - mu * mu / 50 - np.log1p(tau * tau / 25)


def schools_gradient(values, data):
    mu, tau, theta = values
    y, sigma = data
    c = theta - mu
    along_tau = np.sum(c * c) / tau**3 - 8 / tau - 2 * tau / (25 + tau * tau)
    return np.sum(c) / tau**2 - mu / 25, along_tau, (y - theta) / sigma**2 - c / tau**2


def schools_hessian(values, data, out):
    mu, tau, theta = values
    y, sigma = data
    out[MU, MU] = -8 / tau**2 - 1 / 25
    out[TAU, TAU] = 8 / tau**2 + (2 * tau**2 - 50) / (25 + tau**2) ** 2
    for j in range(8):
        k, c = THETA + j, theta[j] - mu
        out[k, k] = -1 / sigma[j] ** 2 - 1 / tau**2
        out[MU, k] = out[k, MU] = 1 / tau**2
        out[TAU, k] = out[k, TAU] = 2 * c / tau**3
        out[MU, TAU] -= 2 * c / tau**3
        out[TAU, TAU] -= 3 * c * c / tau**4
    out[TAU, MU] = out[MU, TAU]


def schools_contraction(values, data, M, out):
    mu, tau, theta = values
    out[MU] = 32 * M[MU, TAU] / tau**3
    out[TAU] = 16 * M[MU, MU] / tau**3 + M[TAU, TAU] * (4 * tau * (75 - tau**2) / (25 + tau**2) ** 3 - 16 / tau**3)
    for j in range(8):
        k, c = THETA + j, theta[j] - mu
        out[k] = 4 * (M[k, TAU] - M[MU, TAU]) / tau**3 - 6 * c * M[TAU, TAU] / tau**4
        out[MU] += 6 * c * M[TAU, TAU] / tau**4 - 4 * M[k, TAU] / tau**3
        out[TAU] += (2 * M[k, k] - 4 * M[MU, k]) / tau**3 - 12 * c * (M[k, TAU] - M[MU, TAU]) / tau**4
        out[TAU] += 12 * c * c * M[TAU, TAU] / tau**5


def schools_fisher(values, data, out):
    sigma = data[1]
    out[TAU, TAU] = 16.5 / values.tau**2
    out[MU, MU] = 8 / values.tau**2 + 1 / 25
    for j in range(8):
        k = THETA + j
        out[k, k] = 1 / sigma[j] ** 2 + 1 / values.tau**2
        out[MU, k] = out[k, MU] = -1 / values.tau**2


def schools_fisher_contraction(values, data, M, out):
    total = 8 * M[MU, MU] + 16.5 * M[TAU, TAU]
    for k in range(THETA, THETA + 8):
        total += M[k, k] - 2 * M[MU, k]
    out[TAU] = -2 / values.tau**3 * total


def eight_schools(**options):
    further = {
        "hessian_contraction": schools_contraction,
        "fisher": schools_fisher,
        "fisher_contraction": schools_fisher_contraction,
    }
    functions = (schools_log_density, schools_gradient, schools_hessian)
    return schools.model(*functions, **further, data=(Y, SIGMA), name="schools by name", **options)


# Of one of every support: mu is normal, tau exponential, p Beta(2, 3), o three normals in order, w Dirichlet(2, 3, 4), and
# L L' LKJ(2), whose entries off the diagonal are 2 Beta(2.5, 2.5) - 1.
laws = refhmc.Parameters(
    mu=Real(), tau=Positive(), p=Interval(0, 1), o=Ordered(3), w=Simplex(3), L=CholeskyCorrelation(3)
)
at = laws.at
W = np.array([1.0, 2.0, 3.0])  # powers of w
DIAGONAL = np.array([0.0, 3.0, 2.0])  # powers of L_ii
Values = laws.Values


def laws_log_density(values, data):
    total = -0.5 * values.mu**2 - values.tau + np.log(values.p) + 2 * np.log(1 - values.p)
    for k in range(3):
        total += W[k] * np.log(values.w[k]) - 0.5 * values.o[k] ** 2 + DIAGONAL[k] * np.log(values.L[k, k])
    return total


def laws_gradient(values, data):
    along_L = np.zeros((3, 3))
    for k in range(3):
        along_L[k, k] = DIAGONAL[k] / values.L[k, k]
    return Values(mu=-values.mu, tau=-1.0, p=1 / values.p - 2 / (1 - values.p), o=-values.o, w=W / values.w, L=along_L)


def laws_hessian(values, data):
    out = np.zeros((at.L + 9, at.L + 9))
    out[at.mu, at.mu] = -1
    out[at.p, at.p] = -1 / values.p**2 - 2 / (1 - values.p) ** 2
    for k in range(3):
        out[at.o + k, at.o + k] = -1
        out[at.w + k, at.w + k] = -W[k] / values.w[k] ** 2
        out[at.L + 4 * k, at.L + 4 * k] = -DIAGONAL[k] / values.L[k, k] ** 2
    return out


def laws_contraction(values, data, M):
    w, along_L = np.zeros(3), np.zeros((3, 3))
    for k in range(3):
        w[k] = 2 * W[k] / values.w[k] ** 3 * M[at.w + k, at.w + k]
        along_L[k, k] = 2 * DIAGONAL[k] / values.L[k, k] ** 3 * M[at.L + 4 * k, at.L + 4 * k]
    along_p = (2 / values.p**3 - 4 / (1 - values.p) ** 3) * M[at.p, at.p]
    return Values(mu=0.0, tau=0.0, p=along_p, o=np.zeros(3), w=w, L=along_L)


def laws_fisher(values, data, out):
    for i in range(at.L + 9):
        out[i, i] = 1 + 1 / values.tau + i * values.p + values.o[0] ** 2
        for j in range(at.L + 9):
            out[i, j] += values.w[0] * values.w[1] + values.L[1, 0] ** 2


def laws_fisher_contraction(values, data, M, out):
    diagonal = whole = by_index = 0.0
    for i in range(at.L + 9):
        diagonal += M[i, i]
        by_index += i * M[i, i]
        for j in range(at.L + 9):
            whole += M[i, j]
    out[at.tau] = -diagonal / values.tau**2
    out[at.p] = by_index
    out[at.o] = 2 * values.o[0] * diagonal
    out[at.w], out[at.w + 1] = whole * values.w[1], whole * values.w[0]
    out[at.L + 3] = 2 * values.L[1, 0] * whole


def one_of_each(**options):
    functions = (laws_log_density, laws_gradient, laws_hessian)
    return laws.model(
        *functions,
        hessian_contraction=laws_contraction,
        fisher=laws_fisher,
        fisher_contraction=laws_fisher_contraction,
        name="one of each",
        **options,
    )
