"""``check.orbit``: the law of a tree sampler on single orbits, by enumeration."""
