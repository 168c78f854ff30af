"""``check.randomness`` and ``check.batch``: the same numbers give the same draws, alone and in a batch."""
