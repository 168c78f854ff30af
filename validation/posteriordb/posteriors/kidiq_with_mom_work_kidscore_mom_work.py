"""Cognitive test scores of 434 children on whether their mothers worked, in four groups.

    score_i ~ N(beta_1 + beta_{w_i} [w_i > 1], sigma^2),  w_i = 1, ..., 4,      p(beta, sigma) constant

Source: Gelman and Hill (2006), Data Analysis Using Regression, chapter 3, from stan-dev/example-models.
Licence: BSD-3-Clause (model and database).
"""

from validation.posteriordb.regressions import columns, linear

NAME = "kidiq_with_mom_work-kidscore_mom_work"
model, in_numpyro = linear(lambda data: (columns(*(data["mom_work"] == k for k in (2, 3, 4))), data["kid_score"]))
