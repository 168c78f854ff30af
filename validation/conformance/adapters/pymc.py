"""PyMC: step methods with tuning stopped as kernels, and the transforms of its distributions."""

from __future__ import annotations

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from pymc.distributions import transforms

import refhmc.check as rc
from validation.conformance.adapters import changes
from validation.conformance.subjects import Subject

PACKAGES = ("pymc", "pytensor")
SECONDS = 8  # of processor time per subject


def quartic(q):
    return -0.25 * pt.sum(q**4)


def banana(q):
    return -12.5 * (1 - q[0] - q[1] ** 2) ** 2 - 0.125 * pt.sum(q**2)


TARGETS = {"quartic-2": quartic, "banana": banana}


def model_of(target):
    """Return a model whose only variable is q, with the density of the target."""
    with pm.Model() as model:
        q = pm.Flat("q", shape=rc.targets.from_name(target).dim)
        pm.Potential("target", TARGETS[target](q))
    return model


def kernel_of(make, target):
    """Adapt a step method of PyMC to ``kernel(rng, q) -> q``."""
    with model_of(target):
        method = make()

    def kernel(rng, q):
        method.setup_chain(np.random.default_rng(int(rng.integers(2**32))), tune=0, draws=1)
        method.stop_tuning()
        return method.step({"q": np.array(q)})[0]["q"]

    return kernel


def kernel(call, make, target):
    """Return a step method as a subject on one target."""
    name = call.partition("(")[0]

    def examine():
        return rc.sampler(kernel_of(make, target), target, seconds=SECONDS, name=name)

    return Subject(f"{name}, {target}", f"pymc.{call}", examine, (kernel_of, model_of))


def transform(name, T, dim, coordinates=changes.WHOLE, inputs=()):
    """Return a transform of PyMC as a subject; its ``backward`` goes from the real line to the support."""
    place, pick = coordinates

    def compiled():
        x = pt.vector("x")
        y = T.backward(x, *inputs)
        value = y.type("y")
        go = pytensor.function([x], [y, T.log_jac_det(x, *inputs)])
        back = pytensor.function([value], T.forward(value, *inputs))
        return go, back

    def examine():
        go, back = compiled()

        def forward(x):
            y, log_det = go(np.array(x))
            return pick(y), log_det

        def inverse(free):
            x = back(place(np.array(free)))
            return x, go(x)[1]

        return changes.examine(changes.leap_of(forward, inverse), lambda x: pick(go(x)[0]), dim, SECONDS, name)

    return Subject(f"transforms.{name}", f"pymc.distributions.transforms.{name}", examine, (changes.leap_of, transform))


FIXED = {"adapt_step_size": False, "scaling": np.ones(2)}
KERNELS = [
    *(
        kernel(
            f"NUTS(step_scale={scale}, scaling=ones, adapt_step_size=False)",
            lambda scale=scale: pm.NUTS(step_scale=scale, **FIXED),
            target,
        )
        for target, scale in (("quartic-2", 0.8), ("banana", 0.3))
    ),
    *(
        kernel(
            f"HamiltonianMC(path_length={length}, step_scale={scale}, scaling=ones, adapt_step_size=False)",
            lambda length=length, scale=scale: pm.HamiltonianMC(path_length=length, step_scale=scale, **FIXED),
            target,
        )
        for target, length, scale in (("quartic-2", 2.0, 0.8), ("banana", 0.8, 0.3))
    ),
    kernel("Slice(tune=False)", lambda: pm.Slice(tune=False), "quartic-2"),
    kernel("Metropolis(tune=False)", lambda: pm.Metropolis(tune=False), "quartic-2"),
]
TRANSFORMS = [
    transform("log", transforms.log, 2),
    transform("log_exp_m1", transforms.log_exp_m1, 2),
    transform("logodds", transforms.logodds, 2),
    transform("Interval(-1, 3)", transforms.Interval(-1.0, 3.0), 2),
    transform("Interval(lower=1)", transforms.Interval(1.0, None), 2),
    transform("Interval(upper=1)", transforms.Interval(None, 1.0), 2),
    transform("circular", transforms.circular, 2),
    transform("ordered", transforms.ordered, 3),
    transform("simplex", transforms.simplex, 3, changes.SIMPLEX),
]
SUBJECTS = TRANSFORMS + KERNELS
