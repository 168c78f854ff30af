"""``check.orbit``: invariance of a tree sampler on single orbits, by enumeration."""
