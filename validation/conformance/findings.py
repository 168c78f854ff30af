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
        "Multinomial HMC draws from a trajectory that always starts at the current state",
        DEFECT,
        "`mhmc` integrates `num_integration_steps` steps forward and draws one of these states by its weight. The probability "
        "of the reverse move is that of another trajectory, so the kernel does not preserve the target. A random position of "
        "the current state in the trajectory, as in the paper of Betancourt (2017), would. `hmc` is correct.",
        ("blackjax.mhmc, quartic-1",),
        "blackjax_mhmc",
    ),
]


def finding_of(project: str, subject: str) -> Finding | None:
    """Return the finding that explains the failure of a subject."""
    return next((found for found in FINDINGS if found.project == project and subject in found.subjects), None)
