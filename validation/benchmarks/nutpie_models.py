"""A compiled value and gradient as a model of nutpie's: C functions compiled by Numba, as its PyMC models are."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np


def nutpie_model(value_and_gradient: Callable, data: np.ndarray, dim: int):
    """``value_and_gradient(q, data, out) -> L`` compiled, ``data`` a matrix; starts are uniform on (-2, 2)."""
    import numba
    from numba import types as nb
    from nutpie.compile_pymc import CompiledPyMCModel

    rows, columns = data.shape
    pointer = nb.CPointer(nb.float64)

    @numba.cfunc(nb.int64(nb.uint64, pointer, pointer, pointer, nb.voidptr), error_model="numpy")
    def log_density(n, q, out, value, user):
        packed = numba.carray(user, (rows, columns), np.float64)
        density = value_and_gradient(numba.carray(q, (dim,)), packed, numba.carray(out, (dim,)))
        numba.carray(value, (1,))[0] = density
        return 0 if np.isfinite(density) else 4

    @numba.cfunc(nb.int64(nb.uint64, nb.uint64, pointer, pointer, nb.voidptr))
    def expand(n, n_expanded, q, out, user):
        for i in range(dim):
            out[i] = q[i]
        return 0

    return CompiledPyMCModel(
        dims=None,
        compiled_logp_func=log_density,
        compiled_expand_func=expand,
        initial_point_func=lambda seed: np.random.default_rng(seed).uniform(-2, 2, dim),
        shared_data={},
        user_data=data,
        n_expanded=dim,
        shape_info=(["q"], [slice(0, dim)], [(dim,)]),
        logp_func=None,
        expand_func=None,
        _n_dim=dim,
        _shapes={"q": (dim,)},
        _coords=None,
    )


def read_trace(trace) -> tuple[np.ndarray, int, int]:
    """Draws (chain, draw, d) after warm-up, the gradients of these draws, and of the run."""
    draws, steps, all_steps = [], 0, 0
    for batch, stats in zip(*trace.get_arrow_trace(), strict=True):
        values = np.stack([np.asarray(x) for x in batch.column("q").to_pylist()])
        n, tuning = stats.column("n_steps").to_numpy(), stats.column("tuning").to_numpy()
        draws.append(values[~tuning])
        steps += int(n[~tuning].sum())
        all_steps += int(n.sum())
    return np.stack(draws), steps, all_steps
