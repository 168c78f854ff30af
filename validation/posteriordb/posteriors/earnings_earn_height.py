"""Earnings of 1,192 adults on height in inches.

    earn_i ~ N(beta_1 + beta_2 height_i, sigma^2),      p(beta, sigma) constant

Source: Gelman and Hill (2006), Data Analysis Using Regression, chapter 4, from stan-dev/example-models.
Licence: BSD-3-Clause (model and database).
"""

from validation.posteriordb.regressions import columns, linear

NAME = "earnings-earn_height"
model, in_numpyro = linear(lambda data: (columns(data["height"]), data["earn"]))
