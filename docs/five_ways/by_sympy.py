import numpy as np
import sympy

import refhmc

y = np.array([28.0, 8, -3, 7, -1, 1, 18, 12])
sigma = np.array([15.0, 10, 16, 11, 9, 11, 10, 18])

j, mu, log_tau = sympy.symbols("j mu log_tau")
Y, S, eta = sympy.IndexedBase("y"), sympy.IndexedBase("sigma"), sympy.IndexedBase("eta", shape=(8,))
tau = sympy.exp(log_tau)
school = -(((Y[j] - mu - tau * eta[j]) / S[j]) ** 2) / 2 - eta[j] ** 2 / 2
L = sympy.Sum(school, (j, 0, 7)) - mu**2 / 50 + log_tau - sympy.log(1 + tau**2 / 25)


def constrain(q):
    return {"eta": q[..., :8], "mu": q[..., 8], "tau": np.exp(q[..., 9])}


model = refhmc.from_sympy(L, [eta, mu, log_tau], data={"y": y, "sigma": sigma}, constrain=constrain)
