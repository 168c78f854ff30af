"""Check of stopping rules."""
