"""What everything rests on: how refhmc compiles, the types and records of the compiled core, randomness, statistics."""
