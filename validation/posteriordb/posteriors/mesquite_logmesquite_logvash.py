"""Logarithm of the weight of the leaves of 46 mesquite bushes on log volume, area, shape, height and group.

    log weight_i ~ N((X beta)_i, sigma^2),      p(beta, sigma) constant

Source: Gelman and Hill (2006), Data Analysis Using Regression, chapter 4, from stan-dev/example-models.
Licence: BSD-3-Clause (model and database).
"""

import numpy as np

from validation.posteriordb.regressions import columns, linear

NAME = "mesquite-logmesquite_logvash"


def design(data):
    d1, d2, height = data["diam1"], data["diam2"], data["canopy_height"]
    volume, area, shape = np.log(d1 * d2 * height), np.log(d1 * d2), np.log(d1 / d2)
    total = np.log(data["total_height"])
    return columns(volume, area, shape, total, data["group"]), np.log(data["weight"])


model, in_numpyro = linear(design)
