"""``check.randomness`` and ``check.batch``: use of random numbers, alone and in a batch."""
