"""Whether 3,020 households in Bangladesh switched wells, on centred distance and arsenic, and their interaction.

    P(switched_i) = expit(alpha + x_i'beta),      p(alpha, beta) constant

Source: Gelman and Hill (2006), Data Analysis Using Regression, chapter 5, from stan-dev/example-models.
Licence: BSD-3-Clause (model and database).
"""

from validation.posteriordb.regressions import logistic

NAME = "wells_data-wells_interaction_c_model"


def design(data):
    dist = (data["dist"] - data["dist"].mean()) / 100
    arsenic = data["arsenic"] - data["arsenic"].mean()
    return [dist, arsenic, dist * arsenic], data["switched"]


model, in_numpyro = logistic(design)
