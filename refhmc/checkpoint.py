"""Checkpoints: a folder with one file a chain, from which a run goes on bit for bit as if it had not been stopped.

``run.json`` says which run it is: model and data (fingerprint), kernel, warm-up, entropy, version. ``chain-k.npz`` holds the
draws and statistics of chain k so far and its state (``Chain.to_bytes``) after the last of them. Files are written beside
their place and renamed into it, so that a crash leaves the one before; they hold arrays and JSON, and are never unpickled.
"""

from __future__ import annotations

import io
import json
import os
import pathlib
import time
from typing import NamedTuple

import numpy as np

from refhmc.errors import CheckpointError

SAVE_EVERY = 10.0  # seconds between two files of one chain


class Saved(NamedTuple):
    """A chain at the end of a chunk."""

    state: bytes
    done: int  # iterations, warm-up included
    draws: np.ndarray  # those kept so far, warm-up first where it is kept
    stats: np.ndarray
    start_of_draws: np.ndarray  # where the chain stood after warm-up; NaN before
    control: np.ndarray


class Checkpoint:
    """The folder of one run; picklable, so that chains in other processes can use it."""

    def __init__(self, folder, run: dict):
        self.folder = pathlib.Path(folder)
        self.run = run
        self._last_written: dict[int, float] = {}

    def open(self) -> None:
        """Make the folder, or check that what lies there is this run. Raises CheckpointError with both descriptions."""
        self.folder.mkdir(parents=True, exist_ok=True)
        there = read_run(self.folder)
        if there is None:
            write_atomically(self.folder / "run.json", json.dumps(self.run, indent=1).encode())
            return
        different = [key for key in self.run if self.run[key] != there.get(key)]
        if different:
            lines = "; ".join(f"{key}: here {self.run[key]!r}, there {there.get(key)!r}" for key in different)
            raise CheckpointError(f"the checkpoint in {self.folder} is of another run ({lines})")

    def path(self, chain: int) -> pathlib.Path:
        return self.folder / f"chain-{chain}.npz"

    def load(self, chain: int) -> Saved | None:
        """The chain as last saved, or None. Raises CheckpointError, naming the file, if it cannot be read."""
        path = self.path(chain)
        if not path.exists():
            return None
        try:
            with np.load(path, allow_pickle=False) as archive:
                arrays = {name: archive[name] for name in Saved._fields}
        except Exception as error:
            raise CheckpointError(f"{path} cannot be read: {type(error).__name__}: {error}") from error
        return Saved(**{**arrays, "state": arrays["state"].tobytes(), "done": int(arrays["done"])})

    def save(self, chain: int, saved: Saved, *, now: bool = False) -> None:
        """Write the chain, at most every ten seconds unless ``now``."""
        if not now and time.monotonic() - self._last_written.setdefault(chain, time.monotonic()) < SAVE_EVERY:
            return
        buffer = io.BytesIO()
        fields = saved._asdict()
        np.savez(buffer, **{**fields, "state": np.frombuffer(saved.state, np.uint8)})
        write_atomically(self.path(chain), buffer.getvalue())
        self._last_written[chain] = time.monotonic()


def read_run(folder) -> dict | None:
    """What ``run.json`` in the folder says, or None if there is none. Raises CheckpointError if it cannot be read."""
    path = pathlib.Path(folder) / "run.json"
    if not path.exists():
        return None
    try:
        return json.loads(path.read_bytes())
    except ValueError as error:
        raise CheckpointError(f"{path} cannot be read: {error}") from error


def write_atomically(path: pathlib.Path, content: bytes) -> None:
    """Write beside the target, flush to disk, rename: an old file stays whole until the new one is."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
