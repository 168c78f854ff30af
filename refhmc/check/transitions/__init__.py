"""``check.transition``: one transition of a kernel on given randomness."""
