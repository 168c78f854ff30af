"""A metric of low rank with values, in any dimension."""

from __future__ import annotations

import numpy as np

from refhmc.metrics import LowRank


def low_rank_metric(d: int, k: int | None = None) -> LowRank:
    """Scales of .5 to 2, and k directions (default: half of d, at least one) with eigenvalues of .2 to 3."""
    k = max(1, d // 2) if k is None else k
    rows = np.linalg.qr(np.random.default_rng(d).normal(size=(d, d)))[0][:k]
    return LowRank(np.linspace(0.5, 2.0, d), rows, np.linspace(0.2, 3.0, k))
