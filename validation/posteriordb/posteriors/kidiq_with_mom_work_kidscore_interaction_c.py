"""Cognitive test scores of 434 children on their mothers' degree h and IQ q, both centred, with an interaction.

    score_i ~ N(beta_1 + beta_2 h_i + beta_3 q_i + beta_4 h_i q_i, sigma^2),      p(beta, sigma) constant

Source: Gelman and Hill (2006), Data Analysis Using Regression, chapter 3, from stan-dev/example-models.
Licence: BSD-3-Clause (model and database).
"""

from validation.posteriordb.regressions import columns, linear

NAME = "kidiq_with_mom_work-kidscore_interaction_c"


def design(data):
    h, q = (data[key] - data[key].mean() for key in ("mom_hs", "mom_iq"))
    return columns(h, q, h * q), data["kid_score"]


model, in_numpyro = linear(design)
