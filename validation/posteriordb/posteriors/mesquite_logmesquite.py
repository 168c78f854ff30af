"""Logarithm of the weight of the leaves of 46 mesquite bushes on logarithms of measures of their size.

    log weight_i ~ N((X beta)_i, sigma^2),      p(beta, sigma) constant

Source: Gelman and Hill (2006), Data Analysis Using Regression, chapter 4, from stan-dev/example-models.
Licence: BSD-3-Clause (model and database).
"""

import numpy as np

from validation.posteriordb.regressions import columns, linear

NAME = "mesquite-logmesquite"
SIZES = ("diam1", "diam2", "canopy_height", "total_height", "density")
model, in_numpyro = linear(
    lambda data: (columns(*(np.log(data[key]) for key in SIZES), data["group"]), np.log(data["weight"]))
)
