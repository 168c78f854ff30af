"""Somebody's code as a subject: how it is called, which randomness it is given, and what it may answer."""
