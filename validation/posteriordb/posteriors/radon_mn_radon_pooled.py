"""Logarithm of radon in 919 houses of Minnesota on the floor, without counties.

    y_i ~ N(alpha + beta floor_i, sigma_y^2),      alpha, beta ~ N(0, 10^2), sigma_y ~ N+(0, 1)

Source: Gelman and Hill (2006), from the Stan case study on radon.
Licence: BSD-3-Clause (model and database).
"""

import numpy as np

from validation.posteriordb.regressions import columns, linear

NAME = "radon_mn-radon_pooled"


def reference_values(values):
    return {"alpha": values["beta"][..., 0], "beta": values["beta"][..., 1], "sigma_y": values["sigma"]}


def design(data):
    return columns(data["floor_measure"]), data["log_radon"]


model, in_numpyro = linear(design, sigma=(np.inf, 1.0), prior=lambda data: (0.0, 10.0))
