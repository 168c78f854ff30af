"""Whether 3,020 households in Bangladesh switched wells, on the distance in units of 100 m.

    P(switched_i) = expit(alpha + x_i'beta),      p(alpha, beta) constant

Source: Gelman and Hill (2006), Data Analysis Using Regression, chapter 5, from stan-dev/example-models.
Licence: BSD-3-Clause (model and database).
"""

from validation.posteriordb.regressions import logistic

NAME = "wells_data-wells_dist100_model"
model, in_numpyro = logistic(lambda data: ([data["dist"] / 100], data["switched"]))
