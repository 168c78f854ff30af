"""R-hat and effective sample sizes by ArviZ, for the tests."""

from __future__ import annotations

import numpy as np
import pytest


def by_arviz(name, x, **options):
    """Return ArviZ's results, for either version."""
    try:
        from arviz_stats.base import array_stats
    except ModuleNotFoundError:
        function = getattr(pytest.importorskip("arviz"), name)
        return np.array([function(x[:, :, j], **options) for j in range(x.shape[2])])
    return np.asarray(getattr(array_stats, name)(x, chain_axis=0, draw_axis=1, **options), dtype=float)
