"""Models whose derivatives another library derives: :func:`derive` (SymPy), :func:`from_pymc`, :func:`from_jax`,
:func:`from_numpyro`, :func:`from_bridgestan`."""
