"""Weight of the leaves of 46 mesquite bushes on measures of their size.

    weight_i ~ N((X beta)_i, sigma^2),      p(beta, sigma) constant

Source: Gelman and Hill (2006), Data Analysis Using Regression, chapter 4, from stan-dev/example-models.
Licence: BSD-3-Clause (model and database).
"""

from validation.posteriordb.regressions import columns, linear

NAME = "mesquite-mesquite"
NAMES = ("diam1", "diam2", "canopy_height", "total_height", "density", "group")
model, in_numpyro = linear(lambda data: (columns(*(data[key] for key in NAMES)), data["weight"]))
