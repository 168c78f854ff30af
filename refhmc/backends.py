"""Backends of ``sample``: how its chains are run, and the options that belong to each way."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

from refhmc._deprecated import warn_of_old_name
from refhmc.core.arguments import flag, whole_number

__all__ = ["Arrays", "CuPy", "Numba"]


@dataclass(frozen=True, kw_only=True)
class Numba:
    """Run each chain in a thread of its own, compiled by Numba. This is the default.

    Parameters
    ----------
    fuse : bool, default False
        Compile the kernel for this model, integrator and metric, instead of calling the model through a function pointer.
        Compilation takes 5 to 40 seconds once and is then cached. It pays for runs of minutes in which one evaluation of
        the model takes microseconds or less. Draws may differ in their last bits from those without it.

    Raises
    ------
    TypeError
        If `fuse` is not a bool.

    See Also
    --------
    Arrays : Many chains at once with NumPy.
    CuPy : Many chains at once on a GPU.

    Examples
    --------
    >>> import refhmc
    >>> result = refhmc.sample(
    ...     refhmc.models.Funnel(2), refhmc.NUTS(), backend=refhmc.Numba(), draws=50, tune=50, progressbar=False, raw=True
    ... )
    >>> result.attributes["backend"], result.attributes["fused"]
    ('numba', False)
    """

    name: ClassVar[str] = "numba"
    fuse: bool = False

    def __post_init__(self) -> None:
        flag("fuse", self.fuse)


@dataclass(frozen=True, kw_only=True)
class Arrays:
    """Run many chains at once as NumPy arrays on the CPU.

    The kernels are HMC, NUTS, GHMC, DRHMC, MALT, MAMS, MCLMC, GIST, AutoStep and DHMC.

    Each chain has its own random stream, independent of the number of chains. These streams differ from those of `Numba`,
    so that draws differ, too.

    Parameters
    ----------
    shared_step_size : bool, default True
        Adapt one step size for all chains; if False, one for each. The metric is always adapted from all chains.
    chains_at_once : int, optional
        Make the transitions of at most this many chains at a time. This limits the memory, except for that of the draws. By
        default the number depends on the kernel, the metric and the dimension only, so that transitions need about 256 MiB.
        Smaller batches are slower for models that are cheap to evaluate. Matrix products of other batches may round
        differently, which trajectories can amplify; the distribution of the draws is the same.

    Raises
    ------
    TypeError
        If `shared_step_size` is not a bool.
    ValueError
        If `chains_at_once` is not a positive whole number.

    See Also
    --------
    Numba : One compiled chain per thread.
    CuPy : The same on a GPU.

    Examples
    --------
    >>> import refhmc
    >>> result = refhmc.sample(
    ...     refhmc.models.Funnel(2), refhmc.HMC(n_steps=3), backend=refhmc.Arrays(shared_step_size=False),
    ...     draws=50, tune=50, chains=100, progressbar=False, raw=True,
    ... )
    >>> result.posterior["v"].shape
    (100, 50)
    """

    name: ClassVar[str] = "arrays"
    shared_step_size: bool = True
    chains_at_once: int | None = None

    def __post_init__(self) -> None:
        flag("shared_step_size", self.shared_step_size)
        if self.chains_at_once is not None:
            whole_number("chains_at_once", self.chains_at_once)


@dataclass(frozen=True, kw_only=True)
class CuPy(Arrays):
    """Run many chains at once on an NVIDIA GPU, with the kernels of :class:`Arrays`.

    Parameters
    ----------
    shared_step_size : bool, default True
        Adapt one step size for all chains; if False, one for each. The metric is always adapted from all chains.
    chains_at_once : int, optional
        Make the transitions of at most this many chains at a time, as with :class:`Arrays`. By default their transitions need
        about 4 GiB on the GPU.
    streamed : bool, default False
        For a split model (`refhmc.Model.split`): copy the data of a part to the GPU for each of its evaluations, while the
        part before is evaluated. The data may then exceed the memory of the GPU, which holds two parts at a time.

    Raises
    ------
    TypeError
        If `shared_step_size` or `streamed` is not a bool.
    ValueError
        If `chains_at_once` is not a positive whole number.
    refhmc.errors.DeviceError
        By `refhmc.sample`, if CuPy or a GPU is missing.

    See Also
    --------
    Arrays : The same on the CPU.

    Examples
    --------
    >>> import refhmc
    >>> refhmc.CuPy(streamed=True)
    CuPy(shared_step_size=True, chains_at_once=None, streamed=True)
    """

    name: ClassVar[str] = "cupy"
    streamed: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        flag("streamed", self.streamed)


BACKENDS = {each.name: each for each in (Numba, Arrays, CuPy)}
OLD_OPTIONS = ("fuse", "shared_step_size", "streamed")


def as_backend(backend: Any) -> Numba | Arrays:
    """Return the backend selected by an object or a name. Raises TypeError or ValueError."""
    words = ", ".join(map(repr, BACKENDS))
    if isinstance(backend, Numba | Arrays):
        return backend
    if not isinstance(backend, str):
        raise TypeError(f"backend must be one of {words}, or an object such as refhmc.Numba(); got {backend!r}.")
    if backend not in BACKENDS:
        raise ValueError(f"backend must be one of {words}; got {backend!r}.")
    return BACKENDS[backend]()


def with_options(backend: Numba | Arrays, options: dict[str, Any]) -> Numba | Arrays:
    """Return the backend with further options. Raises ValueError for an option that belongs to another backend."""
    for name in options:
        if name not in type(backend).__dataclass_fields__:
            owners = [f"refhmc.{each.__name__}" for each in BACKENDS.values() if name in each.__dataclass_fields__]
            raise ValueError(f"{name} is an option of {' and '.join(owners)}; got backend={backend.name!r}.")
    return replace(backend, **options)


def with_old_options(backend: Any, given: dict[str, Any]) -> Numba | Arrays:
    """Return the backend with options that an older release took as arguments of ``sample``, removing them from `given`."""
    old = {name: given.pop(name) for name in OLD_OPTIONS if name in given}
    found = with_options(as_backend(backend), old)
    for name in old:
        warn_of_old_name(f"{name}=", f"backend=refhmc.{type(found).__name__}({name}=...)", stacklevel=4)
    return found
