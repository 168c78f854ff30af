"""``check.model``: a log density and its derivatives."""
