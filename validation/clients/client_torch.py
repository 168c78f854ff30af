"""A Torch sampler held against refhmc: density, gradient, leapfrog and one transition, in a page.

    python validation/clients/client_torch.py                     # every row without FAIL: exit status 0
    python validation/clients/client_torch.py --bug half-drift    # or gradient, always-accept: 1, and the report says which

Put your own functions in place of the four below. They take and return tensors: ``like`` says of what kind.
"""

from __future__ import annotations

import math
import sys

import torch

import refhmc.check as rc

LIKE = torch.zeros(1, dtype=torch.float64)  # in single precision rows about rounding are judged as such


def sampler(bug: str = "") -> tuple:
    """(log density, gradient, step, transition) of a quartic well with a coupling."""

    def log_density(q):
        return -0.25 * torch.sum(q**4) - 0.5 * torch.sum((q[1:] * q[:-1]) ** 2)

    def slope(q):
        q = q.detach().requires_grad_()
        return torch.autograd.grad(log_density(q), q)[0]

    def gradient(q):
        return (1.01 if bug == "gradient" else 1.0) * slope(q)

    def leapfrog(q, p, eps):
        p = p + 0.5 * eps * slope(q)
        q = q + (0.5 if bug == "half-drift" else 1.0) * eps * p
        return q, p + 0.5 * eps * slope(q)

    def energy(q, p):
        return 0.5 * torch.sum(p**2) - log_density(q)

    def transition(q, p0, u):
        """A long step from (q, p0), accepted if u < exp(H - H'). (Of several steps there may be several ways back to find.)"""
        there = leapfrog(q, p0, 1.2)
        accept = math.log(u) < float(energy(q, p0) - energy(*there))
        return there[0] if accept or bug == "always-accept" else q

    return log_density, gradient, leapfrog, transition, energy


def checks(bug: str = "", seconds: float | None = 60.0) -> dict:
    """Name -> function that makes the report."""
    log_density, gradient, leapfrog, transition, energy = sampler(bug)
    return {
        "density": lambda: rc.model(log_density, gradient, dim=3, like=LIKE),
        "integrator": lambda: rc.integrator(leapfrog, H=energy, dim=3, eps=0.1, seconds=seconds, like=LIKE),
        "transition": lambda: rc.transition(transition, energy, dim=3, seconds=seconds, like=LIKE),
    }


if __name__ == "__main__":
    found = [check() for check in checks(sys.argv[2] if sys.argv[1:2] == ["--bug"] else "").values()]
    print(*found, sep="\n\n")
    sys.exit(any(report.failures for report in found))
