"""Logarithm of the weight of the leaves of 46 mesquite bushes on log volume.

    log weight_i ~ N(beta_1 + beta_2 log volume_i, sigma^2),      p(beta, sigma) constant

Source: Gelman and Hill (2006), Data Analysis Using Regression, chapter 4, from stan-dev/example-models.
Licence: BSD-3-Clause (model and database).
"""

import numpy as np

from validation.posteriordb.regressions import columns, linear

NAME = "mesquite-logmesquite_logvolume"


def design(data):
    volume = np.log(data["diam1"] * data["diam2"] * data["canopy_height"])
    return columns(volume), np.log(data["weight"])


model, in_numpyro = linear(design)
