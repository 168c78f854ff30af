import numpy as np

import refhmc

y = np.array([28.0, 8, -3, 7, -1, 1, 18, 12])
sigma = np.array([15.0, 10, 16, 11, 9, 11, 10, 18])


def log_density(q, data):
    y, sigma = data
    eta, mu, u = q[:8], q[8], q[9]
    r = (y - mu - np.exp(u) * eta) / sigma
    return -0.5 * np.sum(r * r) - 0.5 * np.sum(eta * eta) - mu * mu / 50 + u - np.log1p(np.exp(2 * u) / 25)


def gradient(q, data, out):
    y, sigma = data
    mu, tau = q[8], np.exp(q[9])
    out[8], out[9] = -mu / 25, (25 - tau * tau) / (25 + tau * tau)
    for j in range(8):
        r = (y[j] - mu - tau * q[j]) / sigma[j] ** 2
        out[j] = tau * r - q[j]
        out[8] += r
        out[9] += tau * r * q[j]


def hessian(q, data, out):
    y, sigma = data
    mu, tau = q[8], np.exp(q[9])
    out[8, 8], out[9, 9] = -1 / 25, -100 * tau * tau / (25 + tau * tau) ** 2
    for j in range(8):
        w = 1 / sigma[j] ** 2
        g = tau * w * (y[j] - mu - 2 * tau * q[j])
        out[j, j] = -tau * tau * w - 1
        out[j, 8] = out[8, j] = -tau * w
        out[j, 9] = out[9, j] = g
        out[8, 8] -= w
        out[8, 9] -= tau * w * q[j]
        out[9, 9] += g * q[j]
    out[9, 8] = out[8, 9]


def hessian_contraction(q, data, M, out):
    y, sigma = data
    mu, tau = q[8], np.exp(q[9])
    M_mu_u = M[8, 9] + M[9, 8]
    out[9] = M[9, 9] * 200 * tau**2 * (tau**2 - 25) / (25 + tau**2) ** 3
    for j in range(8):
        w, M_eta_u, M_eta_mu = 1 / sigma[j] ** 2, M[j, 9] + M[9, j], M[j, 8] + M[8, j]
        g = tau * w * (y[j] - mu - 4 * tau * q[j])
        out[j] = -2 * tau * tau * w * M_eta_u - tau * w * M_mu_u + g * M[9, 9]
        out[8] -= tau * w * (M_eta_u + q[j] * M[9, 9])
        out[9] += g * (M_eta_u + q[j] * M[9, 9]) - tau * w * (2 * tau * M[j, j] + M_eta_mu + q[j] * M_mu_u)


def constrain(q):
    return {"eta": q[..., :8], "mu": q[..., 8], "tau": np.exp(q[..., 9])}


names = [*(f"eta[{j}]" for j in range(8)), "mu", "log_tau"]
model = refhmc.Model(
    10,
    log_density,
    gradient,
    hessian,
    hessian_contraction=hessian_contraction,
    data=(y, sigma),
    names=names,
    constrain=constrain,
)
