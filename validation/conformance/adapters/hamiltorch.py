"""hamiltorch: its integrators as steps; ``hamiltorch.sample`` as a run."""

from __future__ import annotations

import hamiltorch
import torch
from hamiltorch.samplers import Integrator, Metric, Sampler, hamiltonian, leapfrog

import refhmc.check as rc
from validation.conformance.subjects import Subject

PACKAGES = ("torch", "hamiltorch")
SECONDS = 20  # of processor time per subject
torch.set_num_threads(1)


def quartic(q):
    return -0.25 * torch.sum(q**4)


def banana(q):
    return -12.5 * (1 - q[0] - q[1] ** 2) ** 2 - 0.125 * torch.sum(q**2)


def prior(q):
    return -0.125 * torch.sum(q**2)


def likelihood(q):
    return -12.5 * (1 - q[0] - q[1] ** 2) ** 2


def step_of(log_density, **options):
    """Adapt an integrator of hamiltorch to ``step(q, p, eps, n) -> (q, p)``."""

    def step(q, p, eps, n):
        q, p = leapfrog(torch.tensor(q), torch.tensor(p), log_density, steps=n, step_size=eps, **options)
        return q[-1].detach().numpy(), p[-1].detach().numpy()

    return step


def energy_of(log_density, **options):
    return lambda q, p: float(hamiltonian(torch.tensor(q), torch.tensor(p), log_density, **options))


def integrator(name, log_density, claims, eps, tolerance=0, energy=None, **options):
    def examine():
        shared = {key: value for key, value in options.items() if not key.startswith("fixed")}
        return rc.integrator(
            step_of(log_density, **options),
            energy or energy_of(log_density, **shared),
            dim=2,
            eps=eps,
            claims=claims,
            tolerance=tolerance,
            seconds=2 * SECONDS,
            name=name,
        )

    return Subject(name, f"hamiltorch.samplers.leapfrog(q, p, f, n, eps, {name})", examine, (step_of,))


def runs(log_density, **options):
    """Adapt ``hamiltorch.sample`` to ``run(rng, q, n)``, which returns n draws after q."""

    def run(rng, q, n):
        torch.manual_seed(int(rng.integers(2**31)))
        draws = hamiltorch.sample(log_density, torch.tensor(q), num_samples=n + 1, verbose=False, **options)
        return torch.stack(draws[1:]).numpy()

    return run


def sampler(name, log_density, target, **options):
    def examine():
        run = runs(log_density, **options)
        return rc.sampler(run=run, target=target, seconds=SECONDS, transitions=5, name="hamiltorch.sample")

    return Subject(
        f"hamiltorch.sample, {name}, {target}", f"hamiltorch.sample(f, q, num_samples, {name})", examine, (runs,)
    )


SYMPLECTIC = "symplectic reversible order=2"
SOFTABS = {
    "sampler": Sampler.RMHMC,
    "integrator": Integrator.IMPLICIT,
    "metric": Metric.SOFTABS,
    "softabs_const": 1.0,
    "jitter": None,
}
PARTS = [likelihood, prior]
SUBJECTS = [
    integrator("HMC", banana, SYMPLECTIC, 0.05, sampler=Sampler.HMC),
    integrator(
        "HMC, SPLITTING",
        PARTS,
        SYMPLECTIC,
        0.05,
        sampler=Sampler.HMC,
        integrator=Integrator.SPLITTING,
        energy=energy_of(banana, sampler=Sampler.HMC),
    ),
    integrator(
        "RMHMC, IMPLICIT, SOFTABS, 100 iterations",
        banana,
        SYMPLECTIC,
        0.02,
        1e-12,
        fixed_point_threshold=1e-28,
        fixed_point_max_iterations=100,
        **SOFTABS,
    ),
    integrator("RMHMC, IMPLICIT, SOFTABS", banana, SYMPLECTIC, 0.1, 1e-10, **SOFTABS),
    sampler("HMC", quartic, "quartic-2", step_size=0.8, num_steps_per_sample=3),
    sampler(
        "HMC, inv_mass",
        quartic,
        "quartic-2",
        step_size=0.8,
        num_steps_per_sample=3,
        inv_mass=torch.tensor([1.0, 0.5], dtype=torch.float64),
    ),
    sampler("HMC, SPLITTING", PARTS, "banana", step_size=0.2, num_steps_per_sample=3, integrator=Integrator.SPLITTING),
]
