import numpy as np
import pymc as pm

import refhmc

y = np.array([28.0, 8, -3, 7, -1, 1, 18, 12])
sigma = np.array([15.0, 10, 16, 11, 9, 11, 10, 18])

with pm.Model():
    eta = pm.Normal("eta", 0, 1, shape=8)
    mu = pm.Normal("mu", 0, 5)
    tau = pm.HalfCauchy("tau", 5)
    pm.Normal("y", mu + tau * eta, sigma, observed=y)
    model = refhmc.from_pymc()
