"""Party identification in the National Election Study of 1992 on ideology, race, age group, education, gender, income.

    party_i ~ N((X beta)_i, sigma^2),      p(beta, sigma) constant

Source: Gelman and Hill (2006), Data Analysis Using Regression, chapter 4, from stan-dev/example-models.
Licence: BSD-3-Clause (model and database).
"""

from validation.posteriordb.regressions import election, linear

NAME = "nes1992-nes"
model, in_numpyro = linear(election)
