"""The kernel that a model recommends, by name, because models do not depend on kernels."""

from __future__ import annotations

from typing import NamedTuple


class Recommended(NamedTuple):
    """The kernel that a model recommends.

    If `kernel` and `metric` are both empty, the defaults apply, and `why` explains their weakness for this model.

    Parameters
    ----------
    kernel : str, default ""
        Name of the kernel as on the command line, such as "hmc"; empty for the default.
    metric : str, default ""
        Name of the metric as on the command line, such as "softabs"; empty for the default.
    why : str, default ""
        The reason, one clause.
    options : tuple of (str, object), default ()
        Options of the kernel.

    Examples
    --------
    >>> import refhmc
    >>> refhmc.models.Banana().recommended.metric
    'fisher'
    """

    kernel: str = ""
    metric: str = ""
    why: str = ""
    options: tuple[tuple[str, object], ...] = ()
