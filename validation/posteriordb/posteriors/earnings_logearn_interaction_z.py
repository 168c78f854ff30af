"""The logarithm of the earnings of 1,192 adults on standardised height z, sex and their interaction.

    log earn_i ~ N(beta_1 + beta_2 z_i + beta_3 male_i + beta_4 z_i male_i, sigma^2),      p(beta, sigma) constant

Source: Gelman and Hill (2006), Data Analysis Using Regression, chapter 4, from stan-dev/example-models.
Licence: BSD-3-Clause (model and database).
"""

import numpy as np

from validation.posteriordb.regressions import columns, linear

NAME = "earnings-logearn_interaction_z"


def design(data):
    height, male = data["height"], data["male"]
    z = (height - height.mean()) / height.std(ddof=1)
    return columns(z, male, z * male), np.log(data["earn"])


model, in_numpyro = linear(design)
