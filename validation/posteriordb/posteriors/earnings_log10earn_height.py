"""The decimal logarithm of the earnings of 1,192 adults on height in inches.

    log10 earn_i ~ N(beta_1 + beta_2 height_i, sigma^2),      p(beta, sigma) constant

Source: Gelman and Hill (2006), Data Analysis Using Regression, chapter 4, from stan-dev/example-models.
Licence: BSD-3-Clause (model and database).
"""

import numpy as np

from validation.posteriordb.regressions import columns, linear

NAME = "earnings-log10earn_height"
model, in_numpyro = linear(lambda data: (columns(data["height"]), np.log10(data["earn"])))
