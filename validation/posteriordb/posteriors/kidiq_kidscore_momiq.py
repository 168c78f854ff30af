"""Cognitive test scores of 434 children on their mothers' IQ.

    score_i ~ N(beta_1 + beta_2 iq_i, sigma^2),      sigma ~ C+(0, 2.5), beta flat

Source: Gelman and Hill (2006), Data Analysis Using Regression, chapter 3, from stan-dev/example-models.
Licence: BSD-3-Clause (model and database).
"""

from validation.posteriordb.regressions import HALF_CAUCHY, columns, linear

NAME = "kidiq-kidscore_momiq"
model, in_numpyro = linear(lambda data: (columns(data["mom_iq"]), data["kid_score"]), sigma=HALF_CAUCHY)
