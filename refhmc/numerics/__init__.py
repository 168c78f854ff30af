"""Numerical methods that know nothing of sampling: linear algebra, eigenvalues, transforms, differences."""
