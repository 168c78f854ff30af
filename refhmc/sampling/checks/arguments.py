"""Checks of the arguments of ``sample``: errors name the argument and its value."""

from __future__ import annotations

import os
import secrets
import threading
from typing import Any

import numpy as np

from refhmc.core.arguments import flag, is_number
from refhmc.kernels.blocks import blocks_of
from refhmc.kernels.options import check_kernel
from refhmc.models.base import Model
from refhmc.sampling.chains.executors import is_executor
from refhmc.sampling.storage.checkpoint import read_run

INITS = ("uniform", "pathfinder")


def check_arguments(
    model: Model, kernel: Any, draws: int, tune: int, chains: int, cores: Any, max_seconds: float | None
) -> None:
    """Raise TypeError or ValueError, with name and value, for an invalid argument."""
    if not isinstance(model, Model):
        raise TypeError(
            "model must be a refhmc.Model or an instance of a class in refhmc.models; got "
            f"{model.__name__ if isinstance(model, type) else type(model).__name__}."
        )
    for each in blocks_of(kernel).values():
        check_kernel(each, "kernel")
    for name, value, least in (("draws", draws, 0), ("tune", tune, 0), ("chains", chains, 1), ("cores", cores, 1)):
        if name == "cores" and value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int | np.integer):
            raise TypeError(f"{name} must be an integer; got {value!r}.")
        if value < least:
            raise ValueError(f"{name} must be at least {least}; got {value}.")
    if max_seconds is not None and not (is_number(max_seconds) and max_seconds > 0):
        raise ValueError(f"max_seconds must be a positive number; got {max_seconds!r}. Use None for no limit.")


def seconds_of(max_seconds: Any) -> float | None:
    """Return `max_seconds` as a float; None (no limit) for inf and for more than a thread can wait (centuries)."""
    if max_seconds is None or float(max_seconds) > threading.TIMEOUT_MAX:
        return None
    return float(max_seconds)


def check_kinds(progressbar: Any, executor: Any, checkpoint: Any, store: Any, **flags: Any) -> None:
    """Raise TypeError for arguments of the wrong kind, ValueError for both a checkpoint and a store."""
    for name, value in flags.items():
        flag(name, value)
    if not callable(progressbar):
        flag("progressbar", progressbar)
    if executor is not None and not (is_executor(executor) or callable(executor)):
        raise TypeError(
            "executor must have a method submit or apply_async, or be a function that returns such an object; got "
            f"{executor!r}. Use for example concurrent.futures.ProcessPoolExecutor."
        )
    for name, folder in {"checkpoint": checkpoint, "store": store}.items():
        if folder is not None and not isinstance(folder, str | os.PathLike):
            raise TypeError(f"{name} must be the path of a folder; got {folder!r}.")
        if folder is not None and not os.fspath(folder):
            raise ValueError(f"{name} must be the path of a folder; got {folder!r}. Use '.' for the current folder.")
    if checkpoint is not None and store is not None:
        raise ValueError(
            "checkpoint and store cannot be used together; got both. Use store alone, which is also a checkpoint."
        )


def check_init(init: Any, model: Model) -> None:
    """Raise ValueError for an unknown `init`, and for Pathfinder with discontinuous coordinates."""
    if not (isinstance(init, str) and init in INITS):
        raise ValueError(
            f"init must be 'uniform' or 'pathfinder'; got {init!r}. Give positions and values as initvals."
        )
    if init == "pathfinder" and len(model.discontinuous):
        names = ", ".join(model.names[j] for j in model.discontinuous[:5])
        raise ValueError(
            f"init='pathfinder' needs a model without discontinuous coordinates; got {model.name!r} with {names}. Give "
            "initvals."
        )


def check_options(given: dict[str, Any], backend: str) -> None:
    """Raise ValueError if an option of the compiled core is given with another backend."""
    for name, value in given.items():
        if value is not None:
            raise ValueError(
                f"{name} needs backend='numba'; got backend={backend!r}. Remove {name}, or change the backend."
            )


def entropy_of(random_seed: Any, checkpoint: Any = None) -> int:
    """Return the integer that seeds all chains; for None the checkpoint's, or one from the operating system."""
    if random_seed is None and checkpoint is not None:
        there = read_run(checkpoint)
        if there is not None:
            return int(there["entropy"])
    if random_seed is None:
        return secrets.randbits(128)
    if isinstance(random_seed, np.random.Generator):
        return int.from_bytes(random_seed.bytes(16), "little")
    if isinstance(random_seed, np.random.RandomState):
        raise TypeError("random_seed must be an integer or a numpy.random.Generator; got a RandomState.")
    if not isinstance(random_seed, np.random.SeedSequence):
        if isinstance(random_seed, float | bool | str):
            raise TypeError(f"random_seed must be an integer; got {random_seed!r}.")
        if isinstance(random_seed, int | np.integer):
            if random_seed < 0:
                raise ValueError(f"random_seed must not be negative; got {random_seed}.")
            return int(random_seed)
        try:
            random_seed = np.random.SeedSequence(random_seed)
        except (TypeError, ValueError) as error:
            raise type(error)(f"random_seed must be non-negative integers; got {random_seed!r}.") from None
    words = random_seed.generate_state(4, np.uint32)
    return int.from_bytes(words.astype("<u4").tobytes(), "little")
