"""Checkpoints: a folder with one file a chain, from which a run goes on as if it had not been stopped, bit for bit.

``run.json`` says which run it is: every part of the model (:mod:`refhmc.core.fingerprint`), kernel, warm-up, starts, entropy,
and the editions of refhmc, Numba, NumPy, Python and the packages that the model's functions reach. ``chain-k.npz`` holds
the draws and statistics of chain k so far, its state (``Chain.to_bytes``) after the last of them, and which run and which
chain that is. Both hold a checksum of their content. They are written beside their place and renamed into it, so that a crash
leaves the one before; they are arrays and JSON, and are never unpickled.

While a run is under way it holds ``writer.lock``, and each chain, which may run in another process, its ``chain-k.lock``
(:mod:`refhmc.core.file_lock`): a second run on the same folder is refused.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import pathlib
import re
import sys
import threading
import time
import warnings
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from refhmc.core.file_lock import FileLock, HeldError
from refhmc.core.fingerprint import Fingerprint, differences, package_identity, sha256
from refhmc.errors import CheckpointError, CheckpointWarning

if TYPE_CHECKING:
    from refhmc.models.base import Model

FORMAT = 2
SAVE_EVERY = 3.0  # seconds between two files of one chain, or 20 times what the last took to write
TEMPORARY = re.compile(r"(run\.json|chain-\d+\.npz)\.\d+\.tmp")
CLAUSES = 6  # differences that a message lists


class Saved(NamedTuple):
    """A chain after a draw."""

    state: bytes
    done: int  # iterations, warm-up included
    draws: np.ndarray  # those kept so far, warm-up first where it is kept
    stats: np.ndarray
    start_of_draws: np.ndarray  # where the chain stood after warm-up; NaN before
    control: np.ndarray
    no_pathfinder: str = ""  # why the chain did not begin where Pathfinder, asked for, would have it


_reading = threading.Lock()


def read_arrays(file: Any) -> dict[str, Any]:
    """The arrays of an ``.npz`` file, given by its path or open, read by one thread at a time.

    NumPy parses their headers with ``ast``; where two threads do, CPython before 3.11.8 may raise SystemError (gh-106905).
    """
    with _reading, np.load(file, allow_pickle=False) as archive:
        return {name: archive[name] for name in archive.files}


def take(lock: FileLock) -> None:
    """Take it, or raise CheckpointError naming who holds it. A warning where the file system has no locks."""
    try:
        error = lock.acquire()
    except HeldError as holder:
        text = f"{lock.path.parent} is being written to by {holder}, which holds {lock.path.name}"
        raise CheckpointError(text) from None
    if error is not None:
        text = f"{lock.path} cannot be locked ({error}): nothing keeps a second run from writing to that folder"
        warnings.warn(text, CheckpointWarning, stacklevel=2)


class Checkpoint:
    """The folder of one run; picklable, so that chains in other processes can use it."""

    def __init__(self, folder: str, run: dict) -> None:
        self.folder = pathlib.Path(folder)
        self.run = run
        self._writer = FileLock(self.folder / "writer.lock")
        self._next_save: dict[int, float] = {}
        self._closed = False
        self._saving = threading.Lock()

    def __getstate__(self) -> dict:
        return {"folder": self.folder, "run": self.run}

    def __setstate__(self, state: dict) -> None:
        self.__init__(**state)  # type: ignore[misc]

    def open(self, total: int) -> None:
        """Make the folder, or check that what lies there is this run, whole, and of at most ``total`` iterations a chain.

        Raises CheckpointError, naming what differs or the file that is at fault.
        """
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            take(self._writer)
        except OSError as error:
            raise CheckpointError(f"{self.folder} cannot be written to: {error}") from error
        try:
            for chain in range(self.run["chains"]):
                with self.writing(chain):  # a chain in another process may have outlived the run that began it
                    pass
            remove_temporary_files(self.folder)
            self._take_on(read_run(self.folder))
            for chain in range(self.run["chains"]):
                saved = self.load(chain)
                if saved is not None and saved.done > total:
                    made, asked = (n - self.run["tune"] for n in (saved.done, total))
                    raise CheckpointError(f"chain {chain} of the checkpoint has {made} draws, asked for {asked}")
        except BaseException:
            self._writer.release()
            raise

    def _take_on(self, there: dict | None) -> None:
        """Write ``run.json``, or compare it."""
        if there is None:
            chains = sorted(path.name for path in self.folder.glob("chain-*.npz"))
            if chains:
                raise CheckpointError(f"{self.folder / 'run.json'} is missing, though {chains[0]} is there")
            self.run = {**self.run, "checksum": checksum_of_run(self.run)}
            try:
                write_atomically(self.folder / "run.json", json.dumps(self.run, indent=1).encode())
            except OSError as error:
                raise CheckpointError(f"{self.folder / 'run.json'} cannot be written: {error}") from error
            return
        found = other_run(self.run, there)
        if found:
            more = f"; and {len(found) - CLAUSES} more" if len(found) > CLAUSES else ""
            raise CheckpointError(
                f"the checkpoint in {self.folder} is of another run ({'; '.join(found[:CLAUSES])}{more})"
            )
        self.run = there

    def close(self) -> None:
        """Nothing is written from now on; let go of the folder."""
        with self._saving:
            self._closed = True
        self._writer.release()

    @contextlib.contextmanager
    def writing(self, chain: int) -> Iterator[None]:
        """While a chain runs, in whatever process: nobody else writes its file."""
        lock = FileLock(self.folder / f"chain-{chain}.lock")
        take(lock)
        try:
            yield
        finally:
            lock.release()

    def path(self, chain: int) -> pathlib.Path:
        return self.folder / f"chain-{chain}.npz"

    def load(self, chain: int) -> Saved | None:
        """The chain as last saved, or None. Raises CheckpointError, naming the file, if it is damaged or another's."""
        path = self.path(chain)
        if not path.exists():
            return None
        try:
            arrays = read_arrays(path)
            checksum = str(arrays.pop("checksum"))
            run, its_chain = str(arrays["run"]), int(arrays["chain"])
            saved = Saved(**{name: arrays[name] for name in Saved._fields})
        except Exception as error:
            raise CheckpointError(f"{path} cannot be read: {type(error).__name__}: {error}") from error
        if checksum != checksum_of_arrays(arrays):
            raise CheckpointError(f"{path} is damaged: its content does not agree with its checksum")
        if run != self.run["checksum"]:
            raise CheckpointError(f"{path} is of another run than {self.folder / 'run.json'}")
        if its_chain != chain:
            raise CheckpointError(f"{path} holds chain {its_chain}, not chain {chain}")
        plain = {"state": arrays["state"].tobytes(), "done": int(saved.done), "no_pathfinder": str(saved.no_pathfinder)}
        return saved._replace(**plain)

    def save(self, chain: int, saved: Saved, *, now: bool = False) -> None:
        """Write the chain, at most every three seconds unless ``now``. Raises OSError if it cannot be written."""
        begin = time.monotonic()
        if not now and begin < self._next_save.setdefault(chain, begin + SAVE_EVERY):
            return
        fields = {**saved._asdict(), "state": np.frombuffer(saved.state, np.uint8), "chain": chain}
        arrays = {name: np.asarray(value) for name, value in {**fields, "run": self.run["checksum"]}.items()}
        buffer = io.BytesIO()
        arrays["checksum"] = np.array(checksum_of_arrays(arrays))
        np.savez(buffer, **arrays)  # type: ignore[arg-type]
        self._next_save[chain] = begin + SAVE_EVERY  # should this fail: not sooner
        with self._saving:
            if self._closed:  # the run was given up, and another may have the folder
                return
            write_atomically(self.path(chain), buffer.getvalue())
        cost = time.monotonic() - begin
        self._next_save[chain] = time.monotonic() + max(SAVE_EVERY, 20 * cost)


def describe_run(model: Model, kernel_json: str, parts: Fingerprint, **settings: Any) -> dict[str, Any]:
    """What ``run.json`` says; ``settings``: warm-up, chains, entropy, starts."""
    import refhmc

    packages = sorted({*parts.packages, "refhmc", "numba", "numpy"} - {"python"})
    return {
        "format": FORMAT,
        "refhmc_version": refhmc.__version__,
        "python": f"{sys.version_info.major}.{sys.version_info.minor}",
        "model": model.name,
        "kernel": kernel_json,
        **settings,
        "packages": {name: package_identity(name) for name in packages},
        "parts": parts.parts,
    }


def other_run(here: Mapping[str, Any], there: Mapping[str, Any]) -> list[str]:
    """A clause for everything in which two runs differ."""
    single = [key for key in here if key not in ("packages", "parts", "checksum")]
    found = [f"{key}: here {here[key]!r}, there {there.get(key)!r}" for key in single if here[key] != there.get(key)]
    one, other = here["packages"], there["packages"]
    found += [f"{k}: here {one[k]}, there {other[k]}" for k in one if k in other and one[k] != other[k]]
    if here["python"] != there["python"]:  # functions are compared as bytecode
        return [*found, "functions cannot be compared between versions of Python, whose bytecode differs"]
    return found + differences(here["parts"], there["parts"])


def read_run(folder: Any) -> dict | None:
    """What ``run.json`` in the folder says, or None if there is none. Raises CheckpointError if it cannot be read."""
    path = pathlib.Path(folder) / "run.json"
    if not path.exists():
        return None
    try:
        run = json.loads(path.read_bytes())
    except (ValueError, OSError, RecursionError) as error:
        raise CheckpointError(f"{path} cannot be read: {type(error).__name__}: {error}") from error
    if not isinstance(run, dict) or "refhmc_version" not in run:
        raise CheckpointError(f"{path} does not describe a run of refhmc")
    if run.get("format") != FORMAT:
        raise CheckpointError(
            f"{path} was written by refhmc {run['refhmc_version']} in format {run.get('format', 1)} of checkpoints; this is "
            f"refhmc of format {FORMAT}. Go on with the version that began the run, or take another folder"
        )
    if run.get("checksum") != checksum_of_run(run):
        raise CheckpointError(f"{path} is damaged: its content does not agree with its checksum")
    return run


def checksum_of_run(run: Mapping[str, Any]) -> str:
    """SHA-256 of all of ``run.json`` but the checksum itself."""
    return sha256(json.dumps({key: run[key] for key in run if key != "checksum"}, sort_keys=True))


def checksum_of_arrays(arrays: Mapping[str, np.ndarray]) -> str:
    """SHA-256 of arrays with their names, types and shapes."""
    digest = hashlib.sha256()
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        digest.update(f"{name} {array.dtype.str} {arrays[name].shape} ".encode())
        digest.update(array.view(np.uint8).data if array.size and array.ndim else array.tobytes())
    return digest.hexdigest()


def remove_temporary_files(folder: pathlib.Path) -> None:
    """Those that a run which was killed while it wrote has left in the folder."""
    for path in folder.glob("*.tmp"):
        if TEMPORARY.fullmatch(path.name):
            path.unlink(missing_ok=True)


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
