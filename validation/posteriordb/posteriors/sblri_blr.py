"""Linear regression of 100 simulated observations on 5 independent columns.

    y ~ N(X beta, sigma^2 I),      beta_k ~ N(0, 10^2), sigma ~ N+(0, 10^2)

Source: simulated for posteriordb by its authors.
Licence: BSD-3-Clause (model and database).
"""

import numpy as np

from validation.posteriordb.regressions import linear

NAME = "sblri-blr"
model, in_numpyro = linear(lambda data: (data["X"], data["y"]), sigma=(np.inf, 10.0), prior=lambda data: (0.0, 10.0))
