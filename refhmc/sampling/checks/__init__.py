"""Checks before the first draw: arguments, functions of the user, derivatives, jumps, memory."""
