"""Whether 3,020 households in Bangladesh switched wells, on the distance in metres.

    P(switched_i) = expit(beta_1 + beta_2 dist_i),      p(beta) constant

Source: Gelman and Hill (2006), Data Analysis Using Regression, chapter 5, from stan-dev/example-models.
Licence: BSD-3-Clause (model and database).
"""

import numpy as np

from validation.posteriordb.regressions import logistic

NAME = "wells_data-wells_dist"


def reference_values(values):
    return {"beta": np.stack([values["alpha"], values["beta"][..., 0]], axis=-1)}


model, in_numpyro = logistic(lambda data: ([data["dist"]], data["switched"]))
