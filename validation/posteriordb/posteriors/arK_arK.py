"""An autoregression of order 5 on 200 simulated observations.

    y_t ~ N(alpha + sum_k beta_k y_{t-k}, sigma^2), t > 5,      alpha, beta_k ~ N(0, 10^2), sigma ~ C+(0, 2.5)

Source: simulated, from stan-dev/stat_comp_benchmarks.
Licence: BSD-3-Clause (model and database).
"""

from validation.posteriordb.regressions import HALF_CAUCHY, columns, linear

NAME = "arK-arK"


def design(data):
    y, K = data["y"], data["K"]
    return columns(*(y[K - k : len(y) - k] for k in range(1, K + 1))), y[K:]


def reference_values(values):
    return {"alpha": values["beta"][..., 0], "beta": values["beta"][..., 1:]}


model, in_numpyro = linear(design, sigma=HALF_CAUCHY, prior=lambda data: (0.0, 10.0))
