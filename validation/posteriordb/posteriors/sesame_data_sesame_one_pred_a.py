"""Whether 240 children watched Sesame Street, on whether they were encouraged.

    watched_i ~ N(beta_1 + beta_2 encouraged_i, sigma^2),      p(beta, sigma) constant

Source: Gelman and Hill (2006), Data Analysis Using Regression, chapter 10, from stan-dev/example-models.
Licence: BSD-3-Clause (model and database).
"""

from validation.posteriordb.regressions import columns, linear

NAME = "sesame_data-sesame_one_pred_a"
model, in_numpyro = linear(lambda data: (columns(data["encouraged"]), data["watched"]))
