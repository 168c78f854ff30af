"""Numerical methods: linear algebra, solvers, transforms and diagnostics."""
