"""Check of leaps: partial maps and declared Jacobians."""
