"""Report in words, for :meth:`refhmc.check.Report.explain`.

The likely causes are those of the report (``diagnosis``), which each check finds in its ``patterns``. Here are only the
conditions that the rows test, in words, and the sections of the book about causes and checks.
"""

from __future__ import annotations

from typing import Any

BOOK = "docs/book/"
# What must hold, by row.
CONDITIONS = {
    "reversible": "the step from the end with reversed momentum must lead back to the start",
    "inverse": "the inverse step must lead back to the start",
    "symplectic": "the derivative J of the step must satisfy J' Omega J = Omega",
    "volume": "the step must keep volume, |det J| = 1",
    "composition": "n steps in one call must equal n calls of one step",
    "order": "the error against the true flow of H must fall with the claimed power of eps",
    "small step": "the step must agree with the flow of H at small eps",
    "elapsed time": "n steps of eps must advance by the time n eps",
    "energy": "the energy must be that of the stated Hamiltonian, and its error must be bounded by the claimed power of eps",
    "shadow energy": "the step must conserve a modified energy",
    "deterministic": "two calls with the same arguments must return the same answer",
    "detailed balance": "a move and its reverse must be equally likely under the target",
    "acceptance": "a proposal must be accepted with probability min(1, exp(-dH)), or by another balanced rule",
    "stationarity": "draws from the target must still follow it after a transition",
    "ranks": "the rank of the truth among draws given its data must be uniform",
    "rejection returns the start": "a rejected proposal must leave the position unchanged",
    "stateless": "a transition must not depend on earlier ones",
    "shift invariance": "a constant added to the log density must not change a transition",
    "nan energy": "a proposal whose energy is NaN must be rejected",
    "overflow": "a proposal whose energy is infinite must be rejected",
    "momentum flip": "a rejection must reverse a momentum that is kept",
    "invariance": "sum_i pi_i K(i -> j) = pi_j must hold on every orbit",
    "same choice": "the leap from the end must make the same choice",
    "reverse defined": "the leap must be defined at its reversed end",
    "declared Jacobian": "the declared log Jacobian must be that of the leap",
    "normaliser": "log p(x) + log |det dx/dq| and the log density of q must differ by a constant",
    "gradient": "the gradient must be the derivative of the log density",
    "gradient at asymmetric points": "the gradient must be the derivative of the log density",
    "gradient at large points": "the gradient must be the derivative of the log density",
    "hessian": "the Hessian must be the derivative of the gradient",
    "derivative": "dG must be the derivative of G, with the indices [i, j, k] = dG_ij/dq_k",
    "positive definite": "the metric must be finite and positive definite",
    "log det": "log det G must be the log determinant of G",
    "kinetic energy": "the kinetic energy must be p' G^-1 p / 2",
    "velocity": "the velocity must be G^-1 p",
    "force": "the force must be -dH/dq",
    "momentum distribution": "the momentum must have the distribution that H states",
    "stationarity (e-value)": "draws from the target must still follow it after the transitions",
    "distribution (KS/AD)": "the draws must have the distribution of the target",
    "inputs left alone": "a call must not change its arguments",
}
# Sections of the book on a cause, by words of its sentence. The first that occurs counts.
CAUSES = (
    ("positions and momenta are exchanged", "leapfrog.md#hamiltons-equations"),
    ("copies of the state are averaged", "tao.md#3-the-mean-of-the-copies"),
    ("Laplace momentum", "discontinuous.md#a-momentum-with-corners"),
    ("log determinant", "fisher_and_softabs.md#the-equations-of-motion"),
    ("log det", "fisher_and_softabs.md#the-equations-of-motion"),
    ("divided difference", "fisher_and_softabs.md#3-softabs-of-a-round-density"),
    ("its covariance is", "fisher_and_softabs.md#2-the-momentum"),
    ("Jacobian of the transform", "funnel.md#2-the-jacobian"),
    ("jumps of the potential", "discontinuous.md#1-as-printed"),
    ("iteration", "implicit_steps.md#solving"),
    ("trapezoidal", "implicit_steps.md#3-the-mean-of-the-ends"),
    ("palindrome", "leapfrog.md#2-drift-kick-drift"),
    ("kicks use eps", "leapfrog.md#1-write-the-leapfrog"),
    ("mass matrix", "leapfrog.md#3-a-mass"),
    ("accepts NaN", "acceptance.md#3-a-density-that-is-not-a-number"),
    ("only the target's ratio", "acceptance.md#2-only-the-target-counts"),
    ("rejection must return", "reference.md#1-after-a-rejection"),
    ("rejection must reverse", "after_nuts.md#1-after-a-rejection"),
    ("edge", "nuts.md#1-the-edges"),
    ("turns inside", "nuts.md#2-inside-a-half"),
    ("weights", "nuts.md#3-the-weights"),
)
# Sections on the subject of a check, for other causes.
CHECKS = {
    "integrator": "leapfrog.md#what-symplectic-means",
    "transition": "acceptance.md#why-this-preserves-the-distribution",
    "orbit": "nuts.md#why-it-preserves-the-distribution",
    "leap": "after_nuts.md#walnuts-a-step-size-for-each-interval",
    "model": "funnel.md#1-the-gradient",
    "metric": "fisher_and_softabs.md#the-equations-of-motion",
    "minibatch": "split.md#a-sum-of-potentials",
}
OTHERS = "acceptance.md#why-this-preserves-the-distribution"


def explain(report: Any) -> str:
    """Return the explanation of a report."""
    if not report.failures:
        undecided = [f"Undecided: {row.name}: {row.basis}." for row in report.inconclusive]
        return "\n".join([report.verdict, *(undecided if report.status != "PASS" else [])])
    row = _principal(report)
    condition = CONDITIONS.get(row.name)
    lines = [report.verdict, f"Failed condition: {row.name}" + (f": {condition}." if condition else ".")]
    case = row.case or next((other.case for other in report.failures if other.case), "")
    expected, obtained = _values(row)
    lines.append(f"Smallest case: {case or 'none'}; expected {expected}, obtained {obtained}.")
    cause = report.diagnosis[0] if report.diagnosis else "not recognised"
    lines.append(f"Likely cause: {cause}.")
    lines.append(f"Read: {BOOK}{_section(report)}")
    return "\n".join(lines)


def _principal(report: Any) -> Any:
    """Return the most serious failed row; among several, one that decides, then one with a case, then the first."""
    worst = [row for row in report.failures if row.severity == report.severity]
    return max(worst, key=lambda row: (report.decides(row), bool(row.case)))


def _values(row: Any) -> tuple[str, str]:
    """Return the expected and the obtained value in words."""
    if row.number is None or row.tolerance is None:
        return (
            "an answer that can be judged" if row.severity == "call failed" else "this condition",
            row.basis or "not so",
        )
    return f"a value {row.relation} {row.tolerance:.3g}", f"{row.number:.3g}" + (f" ({row.basis})" if row.basis else "")


def _section(report: Any) -> str:
    cause = report.diagnosis[0] if report.diagnosis else ""
    return next((section for words, section in CAUSES if words in cause), CHECKS.get(report.check, OTHERS))
