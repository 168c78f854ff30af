"""``check.integrator``: a step (q, p) -> (q', p') of Hamilton's equations."""
