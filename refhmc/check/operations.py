"""Table of operations of ``refhmc oracle``, of the driver of external programs, and of the golden vectors.

    op             reads                                      answers
    capabilities                                              ops, targets, metrics, methods, limits
    logp           target, q                                  logp = L(q)
    grad, hess     target, q                                  grad = dL/dq; hess [i][j]
    partial_grad   target, q, parts = M                       partial_grad [m][i] of the log densities that add up to L
    metric         target, q, metric                          G [i][j]; dG [i][j][k] = dG_ij/dq_k with "derivative": true
    dH             target, q, p, metric                       H, dHdq, dHdp
    step           target, q, p, eps, n, method, metric       q, p after n steps (the momentum is not reversed), H there
    orbit          as step, with n_back                       q, p, H of the states -n_back ... n, one row per state
    momentum       target, q, normals, metric                 p; the oracle has no such operation
    transition     target, q, p0 (or normals), u, bits,       q, outcome, accept = the acceptance probability,
                   eps, n, kernel ("hmc", "nuts", "walnuts",  uniforms_used; p = the kept momentum
                   "ghmc", "drhmc", "mams", "mclmc", "malt",  (ghmc, drhmc, mams, mclmc), of which these four read
                   "gist", "autostep")                        normals; u has malt's and mclmc's further normals in their
                                                              places (:mod:`refhmc.core.randomness`)
    draw_exact     target, n, seed                            q, n rows of independent exact draws
    batch          requests                                   answers, one per request
    evidence       key, target, starts, ends                  e, log_e: of all pairs given for that key so far

``parts`` is the number of parts of a split target, or the lists of rows of data that belong to each part.

The golden vectors use other names for some fields (``record``) and have operations of their own. Operations that read no
target are about adaptation. The answers of refhmc are computed in ``protocol/oracle.py`` and ``vectors/own_answers.py``.
"""

from __future__ import annotations

from typing import NamedTuple


class Operation(NamedTuple):
    """One operation of the protocol.

    ``ranks``: number of axes of length d per field of the answer. ``attribute``: the method of a refhmc model that answers it,
    if there is one. ``record``: fields of a golden vector's answer, empty if there are no vectors.
    """

    ranks: dict[str, int] = {}  # noqa: RUF012
    attribute: str = ""
    record: tuple[str, ...] = ()
    reads_target: bool = True


TRANSITION = ("q", "acceptance_rate", "uniforms_used", "accepted", "energy_error", "tree_depth", "n_steps")

OPERATIONS = {
    "capabilities": Operation(reads_target=False),
    "logp": Operation({"logp": 0}, "log_density", ("difference",)),
    "grad": Operation({"grad": 1}, "gradient", ("grad",)),
    "partial_grad": Operation({"partial_grad": 2}, record=("partial_grad",)),
    "hess": Operation({"hess": 2}, "hessian", ("hess",)),
    "third": Operation({}, "third_derivative", ("third",)),
    "fisher": Operation({}, "fisher", ("fisher",)),
    "fisher_derivative": Operation({}, "fisher_derivative", ("fisher_derivative",)),
    "metric": Operation({"G": 2, "dG": 3}, record=("metric", "log_det")),
    "dH": Operation({"H": 0, "dHdq": 1, "dHdp": 1}, record=("dq", "dp")),
    "step": Operation({"q": 1, "p": 1, "H": 0}, record=("q", "p", "energy_error")),
    "split_step": Operation(record=("q", "p", "energy_error")),
    "discontinuous_step": Operation(record=("q", "p", "energy_error")),
    "orbit": Operation({"q": 2, "p": 2, "H": 1}),
    "momentum": Operation({"p": 1}, record=("p",)),
    "transition": Operation({"q": 1, "p0": 1, "accept": 0}, record=(*TRANSITION, "index_in_trajectory", "chosen")),
    "split_transition": Operation(record=(*TRANSITION, "index_in_trajectory", "p")),
    "kept_transition": Operation(
        record=(
            *("q", "p", "energy_error", "acceptance_rate", "accepted", "slice_variable", "stage", "probabilities"),
            "uniforms_used",
        )
    ),
    "draw_exact": Operation({"q": 2}),
    "batch": Operation(reads_target=False),
    "evidence": Operation({"e": 0, "log_e": 0, "log_e_max": 0}),
    "dual_averaging": Operation(record=("step_size", "averaged"), reads_target=False),
    "warmup_schedule": Operation(record=("phases",), reads_target=False),
    "welford": Operation(record=("mean", "covariance", "regularised"), reads_target=False),
}
ADAPTATION = tuple(op for op, has in OPERATIONS.items() if has.record and not has.reads_target)
BUILT_ON = tuple(
    op for op, has in OPERATIONS.items() if has.record and has.reads_target
)  # each depends on some of those before
