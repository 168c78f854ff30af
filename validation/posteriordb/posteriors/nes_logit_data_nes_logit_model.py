"""Votes of 1,179 respondents of the National Election Study of 1992, on income.

    P(vote_i) = expit(alpha + beta income_i),      p(alpha, beta) constant

Source: Gelman and Hill (2006), Data Analysis Using Regression, chapter 5, from stan-dev/example-models.
Licence: BSD-3-Clause (model and database).
"""

from validation.posteriordb.regressions import logistic

NAME = "nes_logit_data-nes_logit_model"
model, in_numpyro = logistic(lambda data: ([data["income"]], data["vote"]))
