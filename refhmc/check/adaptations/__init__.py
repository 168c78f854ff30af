"""``check.adaptation``: the step size and the metric that warm-up learns."""
