"""The small targets: log densities from the mathematics, term by term, with their data.

``terms(q, c)`` lists summands of L(q); ``c`` is what ``prepare`` made of the data. ``information(q, c)`` is the Fisher metric:
the expected information of the observations, for a Gaussian family y ~ N(m(q), S(q))

    F_ab = m_a' S^-1 m_b + tr(S^-1 S_a S^-1 S_b) / 2

with the derivatives m_a, S_a by differences, plus minus the (expected) Hessian of the log prior.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from mpmath import mp, mpf

from validation.vectors.arithmetic import along, combine, dot, inverse, log_det, matmul, times


class Target(NamedTuple):
    """``data``: named nested lists of floats (exact doubles). Points are made from ``centre`` and ``spread``, (d,) each;
    ``special`` are further ones. ``rows(q, c)``: the summands of each row of data, and those of the prior."""

    name: str
    formula: str
    coordinates: list[str]
    data: dict
    prepare: Callable
    terms: Callable
    centre: list[float]
    spread: list[float]
    special: list[list[float]]
    information: Callable | None = None
    metric_text: str = ""
    rows: Callable | None = None

    @property
    def dim(self) -> int:
        return len(self.centre)

    def ready(self, noise):
        """The data at the present precision, ready for :attr:`terms`."""
        return self.prepare({key: noise.each(combine(mpf, value)) for key, value in self.data.items()})


def plain(data):
    return data


def softplus(x):
    """log(1 + e^x)"""
    return mp.log(1 + mp.exp(x))


def gaussian_information(mean, variances, q):
    """F for independent observations with means and variances (lists of functions' values)."""
    d = len(q)
    dm = [along(mean, q, a) for a in range(d)]
    s, ds = variances(q), [along(variances, q, a) for a in range(d)]
    return [
        [
            sum(x * y / v for x, y, v in zip(dm[a], dm[b], s, strict=True))
            + sum(x * y / v**2 for x, y, v in zip(ds[a], ds[b], s, strict=True)) / 2
            for b in range(d)
        ]
        for a in range(d)
    ]


def add_diagonal(M, diagonal):
    return [[x + (diagonal[i] if i == j else 0) for j, x in enumerate(row)] for i, row in enumerate(M)]


# ------------------------------------------------------------------------------------------------------- gaussian


def gaussian_prepare(data):
    S = data["covariance"]
    S = [[S[max(i, j)][min(i, j)] for j in range(len(S))] for i in range(len(S))]
    return {"mean": data["mean"], "P": inverse(S)}


def gaussian_terms(q, c):
    x = [a - b for a, b in zip(q, c["mean"], strict=True)]
    return [-c["P"][i][j] * x[i] * x[j] / 2 for i in range(len(q)) for j in range(len(q))]


GAUSSIAN = Target(
    "gaussian",
    "L = -1/2 (q - mean)' covariance^-1 (q - mean)",
    ["x[0]", "x[1]", "x[2]"],
    {
        "mean": [0.5, -1.0, 0.25],
        "covariance": [[1.0, 0.5, -0.25], [0.5, 2.0, 0.375], [-0.25, 0.375, 0.5]],
    },
    gaussian_prepare,
    gaussian_terms,
    [0.5, -1.0, 0.25],
    [2.0, 3.0, 1.5],
    [[0.0, 0.0, 0.0], [100.0, -50.0, 25.0]],
    lambda q, c: c["P"],
    "covariance^-1",
)

# ---------------------------------------------------------------------------------------------------------- banana


def banana_prepare(data):
    y, s = data["y"], data["sigma_y"]
    return {"y": y, "a": len(y) / s**2, "mean": sum(y) / len(y), "b": 1 / data["sigma_theta"] ** 2, "s": s}


def banana_terms(q, c):
    r = c["mean"] - q[0] - q[1] ** 2
    return [-c["a"] * r**2 / 2, -c["b"] * q[0] ** 2 / 2, -c["b"] * q[1] ** 2 / 2]


def banana_information(q, c):
    n = len(c["y"])
    F = gaussian_information(lambda x: [x[0] + x[1] ** 2] * n, lambda x: [c["s"] ** 2] * n, q)
    return add_diagonal(F, [c["b"], c["b"]])


BANANA = Target(
    "banana",
    "y_i ~ N(q1 + q2^2, sigma_y), q1 and q2 ~ N(0, sigma_theta): with n = len(y) and ybar their mean "
    "L = -n (ybar - q1 - q2^2)^2 / (2 sigma_y^2) - (q1^2 + q2^2) / (2 sigma_theta^2)",
    ["theta[0]", "theta[1]"],
    {"y": [0.5, 1.25, 1.0, 1.5], "sigma_y": 0.5, "sigma_theta": 1.0},
    banana_prepare,
    banana_terms,
    [0.5, 0.25],
    [1.0, 1.0],
    # At [1.03125, 0] the Hessian is diag(-17, 0): a curvature of zero.
    [[0.0, 0.0], [1.03125, 0.0], [-15.0, 4.0], [0.25, -0.875]],
    banana_information,
    "n / sigma_y^2 (1, 2 q2)(1, 2 q2)' + I / sigma_theta^2",
)

# ---------------------------------------------------------------------------------------------------------- funnel


def funnel_terms(q, c):
    v, x = q[0], q[1:]
    e = mp.exp(v)
    return [-(v**2) / 18, len(x) * v / 2] + [-e * t**2 / 2 for t in x]


def funnel_information(q, c):
    # Given v, x_i ~ N(0, e^-v) tells v its variance's part; the prior of v has the precision 1/9.
    n, d = len(q) - 1, len(q)
    F = gaussian_information(lambda z: [mpf(0)] * n, lambda z: [mp.exp(-z[0])] * n, q)
    return add_diagonal(F, [mpf(1) / 9] + [mp.exp(q[0])] * (d - 1))


FUNNEL = Target(
    "funnel",
    "q = (v, x_1, x_2, x_3), v ~ N(0, sd 3), x_i ~ N(0, variance e^-v): L = -v^2/18 + 3 v/2 - e^v (x_1^2 + x_2^2 + x_3^2)/2",
    ["v", "x[0]", "x[1]", "x[2]"],
    {},
    plain,
    funnel_terms,
    [0.0, 0.0, 0.0, 0.0],
    [2.0, 1.5, 1.5, 1.5],
    # x = 0: a threefold eigenvalue; then neck, mouth, and two x's alike.
    [[0.5, 0.0, 0.0, 0.0], [7.0, 0.03125, -0.0625, 0.015625], [-7.0, 30.0, -20.0, 10.0], [-1.0, 0.5, 0.5, 0.0]],
    funnel_information,
    "diag(1/9 + 3/2, e^v, e^v, e^v): minus the Hessian, averaged over x given v",
)

# -------------------------------------------------------------------------------------------------------- logistic


def logistic_terms(q, c):
    total = [-softplus(-sign * dot(row, q)) for row, sign in zip(c["X"], c["signs"], strict=True)]
    return total + [-(b**2) / (2 * c["prior_scale"] ** 2) for b in q]


def logistic_rows(q, c):
    terms = logistic_terms(q, c)
    return [[term] for term in terms[: len(c["X"])]], terms[len(c["X"]) :]


def logistic_prepare(data):
    return {**data, "signs": [1 if y > 0.5 else -1 for y in data["y"]]}


def logistic_information(q, c):
    d, X = len(q), c["X"]
    p = [1 / (1 + mp.exp(-dot(row, q))) for row in X]
    F = [[sum(t * (1 - t) * x[a] * x[b] for t, x in zip(p, X, strict=True)) for b in range(d)] for a in range(d)]
    return add_diagonal(F, [1 / c["prior_scale"] ** 2] * d)


LOGISTIC = Target(
    "logistic",
    "y_i ~ Bernoulli(1 / (1 + e^-(X q)_i)), q_j ~ N(0, prior_scale): "
    "L = sum_i [y_i (Xq)_i - log(1 + e^(Xq)_i)] - q'q / (2 prior_scale^2)",
    ["beta[0]", "beta[1]", "beta[2]"],
    {
        "X": [
            [1.0, 0.5, -1.25],
            [1.0, -1.5, 0.375],
            [1.0, 2.25, 0.125],
            [1.0, 0.75, 1.5],
            [1.0, -0.625, -0.5],
            [1.0, 1.125, -2.0],
            [1.0, -2.0, 0.875],
            [1.0, 0.25, 0.25],
            [1.0, -0.375, 1.75],
            [1.0, 1.625, -0.75],
        ],
        "y": [1.0, 0.0, 1.0, 1.0, 0.0, 1.0, 0.0, 0.0, 1.0, 1.0],
        "prior_scale": 2.0,
    },
    logistic_prepare,
    logistic_terms,
    [0.5, 0.5, 0.0],
    [1.5, 1.5, 1.5],
    [[0.0, 0.0, 0.0], [-12.0, 30.0, 8.0]],
    logistic_information,
    "sum_i p_i (1 - p_i) x_i x_i' + I / prior_scale^2, p_i = 1 / (1 + e^-(Xq)_i)",
    logistic_rows,
)

# ---------------------------------------------------------------------------------------------------- eight schools

SCHOOLS = {"y": [28.0, 8.0, -3.0], "sigma": [15.0, 10.0, 16.0]}
CAUCHY = mpf(25)


def half_cauchy(u, square):
    """log tau + log of the half-Cauchy density of tau = e^u, scale^2 = ``square``; without its constant."""
    return [u, -softplus(2 * u - mp.log(square))]


def cauchy_information(u, square):
    """Minus the second derivative of the same: 4 s (1 - s), s = 1 / (1 + square e^-2u)."""
    s = 1 / (1 + square * mp.exp(-2 * u))
    return 4 * s * (1 - s)


def schools_terms(q, c):
    e, mu, u = q[:-2], q[-2], q[-1]
    tau = mp.exp(u)
    fits = [-((y - mu - tau * x) ** 2) / (2 * s**2) for x, y, s in zip(e, c["y"], c["sigma"], strict=True)]
    return fits + [-(x**2) / 2 for x in e] + [-(mu**2) / 50] + half_cauchy(u, CAUCHY)


def schools_information(q, c):
    n = len(q) - 2
    F = gaussian_information(
        lambda z: [z[-2] + mp.exp(z[-1]) * x for x in z[:-2]], lambda z: [s**2 for s in c["sigma"]], q
    )
    return add_diagonal(F, [mpf(1)] * n + [mpf(1) / 25, mpf(1) / 2])


EIGHT_SCHOOLS = Target(
    "eight-schools",
    "three schools, q = (e_1 .. e_3, mu, u), tau = e^u: y_j ~ N(mu + tau e_j, sigma_j), e_j ~ N(0, 1), mu ~ N(0, 5), "
    "tau ~ half-Cauchy(5): L = -sum_j (y_j - mu - tau e_j)^2 / (2 sigma_j^2) - sum_j e_j^2/2 - mu^2/50 + u - log(1 + tau^2/25)",
    ["theta_raw[0]", "theta_raw[1]", "theta_raw[2]", "mu", "log_tau"],
    SCHOOLS,
    plain,
    schools_terms,
    [0.25, 0.0, -0.25, 4.0, 1.0],
    [1.0, 1.0, 1.0, 4.0, 1.5],
    [[0.0, 0.0, 0.0, 0.0, 0.0], [0.5, -0.25, 1.0, -3.0, -8.0], [0.5, -0.25, 1.0, -3.0, 5.0]],
    schools_information,
    "sum_j J_j J_j' / sigma_j^2 + diag(1, 1, 1, 1/25, 1/2), J_j the gradient of mu + tau e_j; 1/2 is minus the mean "
    "second derivative in u of u - log(1 + tau^2/25) under the prior",
)


def centred_terms(q, c):
    theta, mu, u = q[:-2], q[-2], q[-1]
    p = mp.exp(-2 * u)
    fits = [-((y - x) ** 2) / (2 * s**2) for x, y, s in zip(theta, c["y"], c["sigma"], strict=True)]
    return fits + [-p * (x - mu) ** 2 / 2 for x in theta] + [-len(theta) * u, -(mu**2) / 50] + half_cauchy(u, CAUCHY)


def centred_information(q, c):
    # The theta's given mu and tau are a Gaussian family too: mean mu, variance tau^2; they and y are averaged over.
    n = len(q) - 2
    F = gaussian_information(lambda z: [z[-2]] * n, lambda z: [mp.exp(2 * z[-1])] * n, q)
    p = mp.exp(-2 * q[-1])
    for j in range(n):
        F[j][j] += 1 / c["sigma"][j] ** 2 + p
        F[j][n] -= p
        F[n][j] -= p
    return add_diagonal(F, [mpf(0)] * n + [mpf(1) / 25, mpf(1) / 2])


EIGHT_SCHOOLS_CENTRED = Target(
    "eight-schools-centred",
    "three schools, q = (theta_1 .. theta_3, mu, u), tau = e^u: y_j ~ N(theta_j, sigma_j), theta_j ~ N(mu, tau), mu ~ N(0, 5), "
    "tau ~ half-Cauchy(5): L = -sum_j (y_j - theta_j)^2 / (2 sigma_j^2) - sum_j (theta_j - mu)^2 / (2 tau^2) - 3 u - mu^2/50 "
    "+ u - log(1 + tau^2/25)",
    ["theta[0]", "theta[1]", "theta[2]", "mu", "log_tau"],
    SCHOOLS,
    plain,
    centred_terms,
    [8.0, 6.0, 2.0, 4.0, 1.5],
    [6.0, 6.0, 6.0, 4.0, 1.0],
    [[0.0, 0.0, 0.0, 0.0, 0.0], [4.0, 4.5, 3.75, 4.0, -2.0]],
    centred_information,
    "minus the Hessian, averaged over y, and over theta given mu and tau where theta's prior is concerned: "
    "theta theta: diag(1/sigma_j^2 + 1/tau^2), theta mu: -1/tau^2, mu mu: 3/tau^2 + 1/25, u u: 6 + 1/2, otherwise 0",
)

# ------------------------------------------------------------------------------------------------------ regressions


def regression_terms(q, c):
    beta, u = q[:-1], q[-1]
    fits = [-mp.exp(-2 * u) * (y - dot(x, beta)) ** 2 / 2 for x, y in zip(c["X"], c["y"], strict=True)]
    return fits + [-len(c["y"]) * u] + half_cauchy(u, mpf("6.25"))


def regression_information(q, c):
    n = len(c["y"])
    F = gaussian_information(lambda z: times(c["X"], z[:-1]), lambda z: [mp.exp(2 * z[-1])] * n, q)
    return add_diagonal(F, [mpf(0)] * (len(q) - 1) + [cauchy_information(q[-1], mpf("6.25"))])


LINEAR_REGRESSION = Target(
    "linear-regression",
    "q = (beta_1, beta_2, u), sigma = e^u: y ~ N(X beta, sigma^2 I), beta flat, sigma ~ half-Cauchy(2.5): "
    "L = -n u - |y - X beta|^2 / (2 sigma^2) + u - log(1 + sigma^2 / 6.25)",
    ["beta[0]", "beta[1]", "log_sigma"],
    {
        "X": [[1.0, -1.5], [1.0, -0.75], [1.0, 0.0], [1.0, 0.25], [1.0, 1.0], [1.0, 2.0]],
        "y": [-1.25, 0.5, 0.75, 1.5, 2.25, 5.0],
    },
    plain,
    regression_terms,
    [1.0, 1.5, -0.5],
    [1.0, 1.0, 1.0],
    [[0.0, 0.0, 0.0], [5.0, -3.0, 2.5]],
    regression_information,
    "X'X / sigma^2 at beta beta, 2 n + 1 / cosh(u - log 2.5)^2 at u u, otherwise 0",
)


def ar_prepare(data):
    y, K = data["y"], 2
    return {"y": y[K:], "X": [[mpf(1)] + [y[t - k] for k in range(1, K + 1)] for t in range(K, len(y))]}


def ar_terms(q, c):
    return regression_terms(q, c) + [-(b**2) / 200 for b in q[:-1]]


def ar_information(q, c):
    return add_diagonal(regression_information(q, c), [mpf(1) / 100] * (len(q) - 1) + [mpf(0)])


AR = Target(
    "ar",
    "q = (alpha, beta_1, beta_2, u), sigma = e^u: y_t ~ N(alpha + beta_1 y_{t-1} + beta_2 y_{t-2}, sigma), t = 3 .. T, "
    "alpha, beta_k ~ N(0, 10), sigma ~ half-Cauchy(2.5): L = -(T-2) u - sum_t (residual_t)^2 / (2 sigma^2) "
    "- (alpha^2 + beta_1^2 + beta_2^2)/200 + u - log(1 + sigma^2 / 6.25)",
    ["alpha", "beta[0]", "beta[1]", "log_sigma"],
    {"y": [0.25, 1.0, 0.625, -0.5, -0.875, 0.125, 1.25, 0.75, 0.375, -0.25]},
    ar_prepare,
    ar_terms,
    [0.25, 0.5, -0.375, -0.5],
    [0.75, 0.75, 0.75, 0.75],
    [[0.0, 0.0, 0.0, 0.0]],
    ar_information,
    "the information with the regressors X (rows 1, y_{t-1}, y_{t-2}) as given: X'X / sigma^2 + I/100 at the coefficients, "
    "2 (T - 2) + 1 / cosh(u - log 2.5)^2 at u u, otherwise 0",
)

# ----------------------------------------------------------------------------------------------------------- garch


def garch_terms(q, c):
    mu, a0 = q[0], mp.exp(q[1])
    a1, r = 1 / (1 + mp.exp(-q[2])), 1 / (1 + mp.exp(-q[3]))
    b1 = r * (1 - a1)
    terms = [q[1], mp.log(a1), 2 * mp.log(1 - a1), mp.log(r), mp.log(1 - r)]
    h = c["sigma1"] ** 2
    for y in c["y"]:
        terms += [-mp.log(h) / 2, -((y - mu) ** 2) / (2 * h)]
        h = a0 + a1 * (y - mu) ** 2 + b1 * h
    return terms


GARCH = Target(
    "garch",
    "q = (mu, log alpha0, logit alpha1, logit r), beta1 = r (1 - alpha1), e_t = y_t - mu, h_1 = sigma1^2, "
    "h_t = alpha0 + alpha1 e_{t-1}^2 + beta1 h_{t-1}: L = sum_t [-log(h_t)/2 - e_t^2 / (2 h_t)] "
    "+ log alpha0 + log alpha1 + 2 log(1 - alpha1) + log r + log(1 - r)",
    ["mu", "log_alpha0", "logit_alpha1", "logit_r"],
    {"y": [0.5, -1.25, 2.0, -0.375, 0.125, 1.5, -2.25, -0.75], "sigma1": 0.75},
    plain,
    garch_terms,
    [0.0, -0.5, -0.5, 0.0],
    [0.75, 1.0, 1.0, 1.0],
    [[0.0, 0.0, 0.0, 0.0], [1.0, -3.0, 3.0, -4.0]],
)

# ---------------------------------------------------------------------------------------------------------- mixture


def mixture_terms(q, c):
    mu1, mu2 = q[0], q[0] + mp.exp(q[1])
    s1, s2, theta = mp.exp(q[2]), mp.exp(q[3]), 1 / (1 + mp.exp(-q[4]))
    terms = [q[1], q[2], q[3], -(mu1**2) / 8, -(mu2**2) / 8, -(s1**2) / 8, -(s2**2) / 8]
    terms += [5 * mp.log(theta), 5 * mp.log(1 - theta)]
    for y in c["y"]:
        first = theta / s1 * mp.exp(-(((y - mu1) / s1) ** 2) / 2)
        terms.append(mp.log(first + (1 - theta) / s2 * mp.exp(-(((y - mu2) / s2) ** 2) / 2)))
    return terms


MIXTURE = Target(
    "gaussian-mixture",
    "q = (mu1, log(mu2 - mu1), log sigma1, log sigma2, logit theta): "
    "L = sum_i log[theta/sigma1 exp(-((y_i - mu1)/sigma1)^2/2) + (1 - theta)/sigma2 exp(-((y_i - mu2)/sigma2)^2/2)] "
    "- (mu1^2 + mu2^2 + sigma1^2 + sigma2^2)/8 + 5 log theta + 5 log(1 - theta) + log(mu2 - mu1) + log sigma1 + log sigma2",
    ["mu1", "log_gap", "log_sigma[0]", "log_sigma[1]", "logit_theta"],
    {"y": [-2.5, -1.75, -1.25, -0.5, 1.0, 2.25, 2.75, 3.5]},
    plain,
    mixture_terms,
    [-1.5, 1.25, 0.0, 0.0, 0.0],
    [0.75, 0.5, 0.75, 0.75, 1.0],
    [[0.0, 0.0, 0.0, 0.0, 0.0], [-3.0, 2.0, -1.5, 1.5, 3.0]],
)

# ----------------------------------------------------------------------------------------------------------- process


def process_prepare(data):
    # Factors of one on the entries of K: as data they are rounded, and no solver does better than to round those.
    return data


def covariance(q, c):
    x, one = c["x"], c["ones"]
    rho, alpha, sigma = mp.exp(q[0]), mp.exp(q[1]), mp.exp(q[2])
    n = len(x)

    def entry(i, j):
        i, j = max(i, j), min(i, j)
        value = alpha**2 * mp.exp(-((x[i] - x[j]) ** 2) / (2 * rho**2)) + (sigma if i == j else 0)
        return value * one[i][j]

    return [[entry(i, j) for j in range(n)] for i in range(n)]


def process_terms(q, c):
    K = covariance(q, c)
    prior = [25 * q[0], -4 * mp.exp(q[0]), q[1], -mp.exp(2 * q[1]) / 8, q[2], -mp.exp(2 * q[2]) / 2]
    return prior + [-dot(c["y"], times(inverse(K), c["y"])) / 2, -log_det(K) / 2]


def process_information(q, c):
    P = inverse(covariance(q, c))
    A = [matmul(P, along(lambda z: covariance(z, c), q, a)) for a in range(3)]
    F = [[sum(dot(A[a][i], [row[i] for row in A[b]]) for i in range(len(P))) / 2 for b in range(3)] for a in range(3)]
    return add_diagonal(F, [4 * mp.exp(q[0]), mp.exp(2 * q[1]) / 2, 2 * mp.exp(2 * q[2])])


PROCESS = Target(
    "gaussian-process",
    "q = (log rho, log alpha, log sigma), K_ij = alpha^2 exp(-(x_i - x_j)^2 / (2 rho^2)) + sigma [i = j]: "
    "L = -y' K^-1 y / 2 - log det(K) / 2 + 25 log rho - 4 rho + log alpha - alpha^2/8 + log sigma - sigma^2/2",
    ["log_rho", "log_alpha", "log_sigma"],
    {"x": [-4.0, -1.5, 0.0, 2.5, 5.0], "y": [0.75, -0.5, 0.25, 1.5, 1.0], "ones": [[1.0] * 5 for _ in range(5)]},
    process_prepare,
    process_terms,
    [1.75, 0.25, -0.75],
    [0.375, 0.75, 0.75],
    [[0.0, 0.0, 0.0], [2.25, 1.0, -3.0]],
    process_information,
    "tr(K^-1 K_a K^-1 K_b)/2 + diag(4 rho, alpha^2/2, 2 sigma^2), K_a = dK/dq_a",
)

TARGETS = {
    t.name: t
    for t in (
        GAUSSIAN,
        BANANA,
        FUNNEL,
        LOGISTIC,
        EIGHT_SCHOOLS,
        EIGHT_SCHOOLS_CENTRED,
        LINEAR_REGRESSION,
        AR,
        GARCH,
        MIXTURE,
        PROCESS,
    )
}


# ------------------------------------------------------------------------------------------------------- staircase


def staircase_terms(q, c):
    n = int(mp.floor(q[1]))
    if not 0 <= n < len(c["log_w"]):
        return [mpf("-inf")]
    return [c["log_w"][n], -((q[0] - c["mean"][n]) ** 2) / (2 * c["s"][n] ** 2), -mp.log(c["s"][n])]


# One coordinate jumps: only what knows of that is asked about it.
JUMPING = {
    "staircase": Target(
        "staircase",
        "n = floor(q2), 0 <= n < 4: L = log_w[n] - (q1 - mean[n])^2 / (2 s[n]^2) - log s[n]; elsewhere -inf",
        ["x", "n"],
        {"log_w": [0.0, -0.75, 0.5, -1.5], "mean": [0.0, 1.0, -0.5, 2.0], "s": [1.0, 0.5, 1.5, 0.75]},
        plain,
        staircase_terms,
        [0.25, 2.0],
        [1.5, 1.9375],
        [],
    )
}
