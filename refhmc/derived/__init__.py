"""Models whose derivatives another library derives: :func:`from_sympy` (SymPy), :func:`from_pymc`, :func:`from_jax`,
:func:`from_numpyro`, :func:`from_bridgestan`."""
