"""Logarithm of the weight of the leaves of 46 mesquite bushes on log volume, log area and group.

    log weight_i ~ N((X beta)_i, sigma^2),      p(beta, sigma) constant

Source: Gelman and Hill (2006), Data Analysis Using Regression, chapter 4, from stan-dev/example-models.
Licence: BSD-3-Clause (model and database).
"""

import numpy as np

from validation.posteriordb.regressions import columns, linear

NAME = "mesquite-logmesquite_logva"


def design(data):
    d1, d2, height = data["diam1"], data["diam2"], data["canopy_height"]
    volume, area = np.log(d1 * d2 * height), np.log(d1 * d2)
    return columns(volume, area, data["group"]), np.log(data["weight"])


model, in_numpyro = linear(design)
