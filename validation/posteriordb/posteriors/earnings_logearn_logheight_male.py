"""The logarithm of the earnings of 1,192 adults on the logarithm of height in inches and sex.

    log earn_i ~ N(beta_1 + beta_2 log height_i + beta_3 male_i, sigma^2),      p(beta, sigma) constant

Source: Gelman and Hill (2006), Data Analysis Using Regression, chapter 4, from stan-dev/example-models.
Licence: BSD-3-Clause (model and database).
"""

import numpy as np

from validation.posteriordb.regressions import columns, linear

NAME = "earnings-logearn_logheight_male"
model, in_numpyro = linear(lambda data: (columns(np.log(data["height"]), data["male"]), np.log(data["earn"])))
