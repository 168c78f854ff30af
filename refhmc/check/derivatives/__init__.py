"""A claimed derivative against differences of the function it is claimed of, at test points."""
