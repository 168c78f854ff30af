"""Comparison of claimed derivatives with differences of their functions, at test points."""
