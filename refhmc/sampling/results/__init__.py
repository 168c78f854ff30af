"""The result of a run: its arrays, review, warnings, generated quantities and predictions."""
