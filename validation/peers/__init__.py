"""Other people's samplers as clients of the conformance kit: one command a library, its reports in ``reports/``.

    python -m validation.peers.blackjax_client        BlackJAX: leapfrog, implicit midpoint; HMC and NUTS
    python -m validation.peers.mici_client            mici: leapfrog, implicit leapfrog, implicit midpoint
    python -m validation.peers.numpyro_client         NumPyro: HMC and NUTS

Needs the extra ``peers``. A report is what the check printed, with the versions it was made with. That a library FAILS here is
a statement about the version named in its report and the call written down in the command, nothing more.
"""

from __future__ import annotations

import datetime
import pathlib
import platform
from collections.abc import Sequence
from importlib.metadata import version

REPORTS = pathlib.Path(__file__).parent / "reports"


def write_reports(name: str, packages: Sequence[str], reports: Sequence) -> None:
    """Print the reports and keep them as ``reports/NAME.txt``."""
    versions = ", ".join(f"{package} {version(package)}" for package in ("numpy", *packages))
    head = f"{datetime.date.today()}; Python {platform.python_version()}; {versions}"
    text = "\n\n".join([head, *map(str, reports)]) + "\n"
    REPORTS.mkdir(exist_ok=True)
    (REPORTS / f"{name}.txt").write_text(text, encoding="utf-8")
    print(text)
