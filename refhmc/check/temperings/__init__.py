"""Check of coupled chains."""
