"""Causes of the failures in the matrix, and defects that a program with the project alone shows.

A finding is a ``defect`` of the release, a ``documented limitation``, or a property of ``the examination`` (the call, the
adapter or the kit). A defect names its program in ``reproductions/``.
"""

from __future__ import annotations

from typing import NamedTuple

DEFECT, LIMITATION, OURS = "defect", "documented limitation", "the examination"
KINDS = (DEFECT, LIMITATION, OURS)


class Finding(NamedTuple):
    """Cause of failures.

    Parameters
    ----------
    project : str
        Project, by the name of its adapter.
    title : str
        Title on the page.
    kind : str
        "defect", "documented limitation" or "the examination".
    text : str
        What happens, and why.
    subjects : tuple of str
        Failed subjects of the matrix that it explains.
    reproduction : str
        Name of the program in ``reproductions/`` without ".py"; empty unless it is a defect.
    """

    project: str
    title: str
    kind: str
    text: str
    subjects: tuple[str, ...] = ()
    reproduction: str = ""


FINDINGS = [
    Finding(
        "blackjax",
        "Multinomial HMC always starts its trajectory at the current state",
        DEFECT,
        "`mhmc` and `dmhmc` integrate forward from the current state and draw one of the states by its weight. "
        "From the chosen state the trajectory is another one, so the kernel does not preserve the target. A trajectory in "
        "which the current state has a random place would preserve it (Betancourt 2017). `hmc` and `dhmc` are correct. "
        "`laplace_mhmc` uses the same proposal, but was too slow to be decided. The number of steps is 3, and 2 or 3 at "
        "random in the last two lines.",
        (
            "blackjax.mhmc, quartic-1",
            "blackjax.mhmc, banana",
            "blackjax.dmhmc, quartic-1",
            "blackjax.dmhmc, banana",
        ),
        "blackjax_mhmc",
    ),
    Finding(
        "blackjax",
        "Barker's proposal is wrong for a metric that depends on the position",
        DEFECT,
        "`barker` accepts every type of `inverse_mass_matrix` that `hmc` does, also a function of the position. With such a "
        "function it does not preserve the target. As we read the source, the kinetic energies of the two proposals enter the "
        "acceptance ratio with the opposite sign, and without the squared step size. For a constant metric they cancel, and "
        "the kernel is correct.",
        ("blackjax.barker, position-dependent metric, quartic-1",),
        "blackjax_barker_position_dependent",
    ),
    Finding(
        "blackjax",
        "Barker's proposal uses an inverse mass matrix as a mass matrix",
        DEFECT,
        "With `inverse_mass_matrix` equal to the variances of the target, `hmc` makes jumps of equal size in standard "
        "deviations. `barker` multiplies its proposal by the root of the mass matrix instead, so that narrow coordinates get "
        "large jumps. The chain is still correct, but accepts almost nothing. With the reciprocal of the variances it works "
        "as intended. No row fails, because the stationary distribution is right.",
        (),
        "blackjax_barker_inverse_mass",
    ),
    Finding(
        "blackjax",
        "The weights of orbital HMC underflow",
        DEFECT,
        "`orbital_hmc` exponentiates the energies of an orbit before it divides by their sum. In float32, JAX's default, all "
        "weights are NaN for a standard normal in 100 dimensions. The difference to the largest weight would be finite. The "
        "subject of the matrix, in two dimensions and float64, passes.",
        (),
        "blackjax_orbital_hmc_weights",
    ),
    Finding(
        "blackjax",
        "The first momentum of generalised HMC ignores its scale",
        DEFECT,
        "`ghmc.init` draws the momentum with unit standard deviation, whatever `momentum_inverse_scale` is. The kernel itself "
        "preserves the target, as the subject with a replaced momentum shows. So this affects the start of a chain only, for "
        "about `1 / alpha` transitions. The check starts from exact draws and therefore notices it.",
        ("blackjax.ghmc, scale 5, quartic-2",),
        "blackjax_ghmc_first_momentum",
    ),
    Finding(
        "blackjax",
        "Implicit midpoint does not report an equation that was not solved",
        DEFECT,
        "If the fixed-point iteration does not converge, `implicit_midpoint` continues with its last iterate. Such a step is "
        "not reversible, and `rmhmc` accepts or rejects it like any other. The solver reports the failure, but the integrator "
        "drops the report; a comment in its source plans to track it. On the banana with a step of 0.3 the solver "
        "fails in 26 % of first steps, and `rmhmc` does not preserve the target. It passes with a step of 0.05. It also "
        "passes at 0.3 with a solver that returns NaN if it fails.",
        ("blackjax.rmhmc, banana",),
        "blackjax_implicit_midpoint_unsolved",
    ),
    Finding(
        "mici",
        "One step of the implicit leapfrog advances two steps",
        DEFECT,
        "The documentation composes the step from flows of half the time step. `ImplicitLeapfrogIntegrator` applies each of "
        "them for the whole time step. The map is symplectic and reversible, so chains have the right distribution. Their "
        "trajectories are twice as long as asked, with twice the step. With half the step it passes all rows.",
        ("ImplicitLeapfrogIntegrator, Fisher metric",),
        "mici_implicit_leapfrog_step",
    ),
    Finding(
        "tfp",
        "Uncalibrated Langevin steps are not corrected",
        LIMITATION,
        "`UncalibratedLangevin` is the proposal of `MetropolisAdjustedLangevinAlgorithm`, without the Metropolis test. Its "
        "name and its documentation state this. The corrected kernel passes.",
        ("UncalibratedLangevin, quartic-2",),
    ),
    Finding(
        "hamiltorch",
        "A rejection right after the burn-in returns to the start of the chain",
        DEFECT,
        "If the first transition after the burn-in is rejected, `hamiltorch.sample` continues from `params_init`, not from the "
        "end of the burn-in. The whole burn-in is then lost.",
        (),
        "hamiltorch_burn_in_is_lost",
    ),
]


def finding_of(project: str, subject: str) -> Finding | None:
    """Return the finding that explains the failure of a subject."""
    return next((found for found in FINDINGS if found.project == project and subject in found.subjects), None)
