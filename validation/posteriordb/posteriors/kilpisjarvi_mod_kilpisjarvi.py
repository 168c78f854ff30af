"""Summer temperatures in Kilpisjaervi on the year, which is not centred.

    y_i ~ N(alpha + beta x_i, sigma^2),      alpha ~ N(9.3, 100^2), beta ~ N(0, 0.033^2), sigma flat

Source: Vehtari, Bayesian data analysis course, from stan-dev/example-models; the priors are in the data.
Licence: BSD-3-Clause (model and database).
"""

from validation.posteriordb.regressions import columns, linear

NAME = "kilpisjarvi_mod-kilpisjarvi"


def prior(data):
    return [data["pmualpha"], data["pmubeta"]], [data["psalpha"], data["psbeta"]]


def reference_values(values):
    return {"alpha": values["beta"][..., 0], "beta": values["beta"][..., 1]}


model, in_numpyro = linear(lambda data: (columns(data["x"]), data["y"]), prior=prior)
