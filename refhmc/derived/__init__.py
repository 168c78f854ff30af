"""Models whose derivatives another library computes.

:func:`from_sympy` (SymPy), :func:`from_pymc`, :func:`from_jax`, :func:`from_numpyro` and :func:`from_bridgestan`.
"""
