"""Subjects on JAX, Torch and other arrays, also arrays like CuPy's that are not converted implicitly.

JAX and Torch are not among the test requirements: their tests are skipped where they are not installed.
"""

from __future__ import annotations

import numpy as np
import pytest

import refhmc.check as rc
from tests.helpers.sweeps import swept

WIDTHS = np.array([1.0, 2.0, 0.5])


def energy(q, p):
    return 0.5 * np.sum((q / WIDTHS) ** 2) + 0.5 * np.sum(p**2) + 0.25 * np.sum(q**4)


def leapfrog(slope, q, p, eps, n, drift=1.0):
    """Leapfrog step for any array type; ``slope`` is dU/dq."""
    for _ in range(n):
        p = p - 0.5 * eps * slope(q)
        q = q + drift * eps * p
        p = p - 0.5 * eps * slope(q)
    return q, p


class DeviceArray:
    """Array in device memory: NumPy may not read it, ``get`` copies it, and it can only be added to its own kind."""

    __module__ = "cupy"
    __array_priority__ = 1000

    def __init__(self, value):
        self._value = np.array(value)

    def __array__(self, *_, **__):
        raise TypeError("implicit conversion to a NumPy array is not allowed")

    def get(self):
        return self._value.copy()

    @property
    def dtype(self):
        return self._value.dtype

    @staticmethod
    def __array_namespace__():
        return DeviceSpace

    def _with(self, other, operation):
        if isinstance(other, np.ndarray):
            raise TypeError("host and device arrays do not mix")
        return DeviceArray(operation(self._value, getattr(other, "_value", other)))

    def __add__(self, other):
        return self._with(other, np.add)

    def __sub__(self, other):
        return self._with(other, np.subtract)

    def __mul__(self, other):
        return self._with(other, np.multiply)

    def __truediv__(self, other):
        return self._with(other, np.divide)

    def __pow__(self, other):
        return self._with(other, np.power)

    __radd__, __rmul__ = __add__, __mul__


class DeviceSpace:
    @staticmethod
    def asarray(x, dtype=None):
        return DeviceArray(np.asarray(x, dtype=dtype))


@pytest.mark.parametrize("drift", [1.0, swept(0.5)])
def test_arrays_on_a_device(drift):
    widths = DeviceArray(WIDTHS)

    def step(q, p, eps, n):
        return leapfrog(lambda x: x / widths / widths + x**3, q, p, eps, n, drift)

    # H takes NumPy arrays; the step does not.
    options = {"H": rc.adapters.on_host(energy), "dim": 3, "eps": 0.1, "like": DeviceArray(np.zeros(1))}
    report = rc.integrator(step, **options)
    if drift != 1.0:
        assert "order" in {row.name for row in report.failures}, str(report)
    else:
        assert report.ok, str(report)


@pytest.fixture
def jax():
    jax = pytest.importorskip("jax", reason="JAX is not installed")
    jax.config.update("jax_enable_x64", True)
    return jax


def jax_energy(jax):
    import jax.numpy as jnp

    return lambda q, p: 0.5 * jnp.sum((q / WIDTHS.astype(q.dtype)) ** 2) + 0.5 * jnp.sum(p**2) + 0.25 * jnp.sum(q**4)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_a_step_in_jax(jax, dtype):
    import jax.numpy as jnp

    H = jax.jit(jax_energy(jax))
    slope = jax.jit(jax.grad(lambda q: H(q, jnp.zeros_like(q))))

    def step(q, p, eps, n, drift=1.0):
        return leapfrog(slope, q, p, jnp.asarray(eps, q.dtype), n, drift)

    like = jnp.zeros(1, dtype=dtype)
    right = rc.integrator(step, H=H, dim=3, eps=0.1, like=like)
    assert right.ok, str(right)
    assert any("(float32)" in note for note in right.notes) == (dtype == "float32"), str(right)
    wrong = rc.integrator(lambda q, p, eps, n: step(q, p, eps, n, 0.5), H=H, dim=3, eps=0.1, like=like)
    assert {row.name for row in wrong.failures} & {"order", "elapsed time", "small step"}, str(wrong)


def test_a_model_and_a_kernel_with_keys_in_jax(jax):
    import jax.numpy as jnp

    def log_density(q):
        return -0.5 * jnp.sum((q / WIDTHS) ** 2) - 0.25 * jnp.sum(q**4)

    gradient = jax.jit(jax.grad(log_density))
    like = jnp.zeros(1)
    assert rc.model(jax.jit(log_density), gradient, jax.jit(jax.hessian(log_density)), dim=3, like=like).ok
    assert not rc.model(jax.jit(log_density), lambda q: 1.001 * gradient(q), dim=3, like=like).ok

    def kernel(key, q, factor=1.0):
        first, second = jax.random.split(key)
        p = factor * jax.random.normal(first, q.shape)
        end_q, end_p = leapfrog(lambda x: x, q, p, 0.3, 4)
        drop = 0.5 * (q @ q + p @ p - end_q @ end_q - end_p @ end_p)
        return jnp.where(jnp.log(jax.random.uniform(second)) < drop, end_q, q)

    def judged(factor):
        several = jax.jit(jax.vmap(lambda key, q: kernel(key, q, factor)))
        called = rc.adapters.kernel_with_key(lambda key, q: several(jax.random.split(key, len(q)), q), jax.random.key)
        return rc.sampler(called, target=rc.targets.normal(3), batched=True, seconds=20, like=like)

    assert judged(1.0).ok
    assert judged(1.1).severity == "wrong distribution"


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_a_step_in_torch_with_automatic_gradients(dtype):
    torch = pytest.importorskip("torch", reason="Torch is not installed")
    kind = getattr(torch, dtype)
    widths = torch.tensor(WIDTHS, dtype=kind)

    def H(q, p):
        return 0.5 * ((q / widths) ** 2).sum() + 0.5 * (p**2).sum() + 0.25 * (q**4).sum()

    def slope(q):
        q = q.detach().requires_grad_(True)
        return torch.autograd.grad(H(q, torch.zeros_like(q)), q)[0]

    def step(q, p, eps, n, drift=1.0):
        q, p = leapfrog(slope, q, p, eps, n, drift)
        return q.requires_grad_(True), p  # as a careless author returns it

    like = torch.zeros(1, dtype=kind)
    right = rc.integrator(step, H=H, dim=3, eps=0.1, like=like)
    assert right.ok, str(right)
    wrong = rc.integrator(lambda q, p, eps, n: step(q, p, eps, n, 0.5), H=H, dim=3, eps=0.1, like=like)
    assert {row.name for row in wrong.failures} & {"order", "elapsed time", "small step"}, str(wrong)


def test_a_kernel_on_torchs_global_generator():
    torch = pytest.importorskip("torch", reason="Torch is not installed")

    def kernel(q, factor=1.0):
        p = factor * torch.randn_like(q)
        end_q, end_p = leapfrog(lambda x: x, q, p, 0.3, 4)
        drop = 0.5 * (q**2 + p**2 - end_q**2 - end_p**2).sum(-1)
        taken = torch.log(torch.rand(len(q), dtype=q.dtype)) < drop
        return torch.where(taken[:, None], end_q, q)

    def judged(factor):
        states = {"get_state": torch.get_rng_state, "set_state": torch.set_rng_state}
        called = rc.adapters.kernel_with_global_seed(lambda q: kernel(q, factor), seed=torch.manual_seed, **states)
        like = torch.zeros(1, dtype=torch.float64)
        return rc.sampler(called, target=rc.targets.normal(3), batched=True, seconds=20, like=like)

    assert judged(1.0).ok
    assert judged(1.1).severity == "wrong distribution"
