"""``check.adaptation``: step size and metric during warm-up."""
