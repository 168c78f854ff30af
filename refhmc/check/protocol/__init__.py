"""``refhmc check --cmd`` and ``refhmc oracle``: programs in any language, asked line by line."""
