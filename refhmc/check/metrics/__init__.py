"""``check.metric``: a metric G(q), its derivative, and the momentum, energy and force that belong to it."""
