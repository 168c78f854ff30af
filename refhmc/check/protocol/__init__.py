"""``refhmc check --cmd`` and ``refhmc oracle``: programs in any language that answer requests line by line."""
