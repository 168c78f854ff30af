"""Checkpoints: a folder from which a run continues, bit for bit as if it had not been stopped.

``run.json`` identifies the run: every part of the model (:mod:`refhmc.compile.fingerprint`), kernel, warm-up, starts, entropy,
and the versions of refhmc, Numba, NumPy, Python and the packages that the model's functions use. ``chain-k.npz`` holds the
state of chain k after its last saved draw (``Chain.to_bytes``), the identity of run and chain, and the number of valid bytes in
``chain-k.from-i.rows``. That file holds draws and statistics from iteration i on (:mod:`refhmc.sampling.storage.append_only`):
all that are kept, or those that are not yet in a store (:mod:`refhmc.sampling.storage.store`).

Each file holds a checksum of its content. Rows are appended, and are on disk before the state that counts them. ``run.json``
and states are written to temporary files and renamed. So a crash leaves the previous version. Files hold arrays and JSON, and
are never unpickled.

An active run holds ``writer.lock`` (:mod:`refhmc.compile.file_lock`), so that a second run on the same folder is rejected.
"""

from __future__ import annotations

import json
import os
import pathlib
import re
import threading
import time
import warnings
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from refhmc.compile.file_lock import FileLock, HeldError
from refhmc.compile.fingerprint import differences
from refhmc.compile.regular_files import UnsafeFileError, check_folder
from refhmc.core.records import CONTROL, N_CONTROL
from refhmc.errors import CheckpointError, CheckpointWarning, _see
from refhmc.sampling.chains.task import Saved
from refhmc.sampling.storage import append_only
from refhmc.sampling.storage.append_only import Rows, append
from refhmc.sampling.storage.files import (
    NOT_IN_IT,
    StrPath,
    checksum_of_arrays,
    checksum_of_run,
    read_arrays,
    write_arrays,
    write_atomically,
)
from refhmc.sampling.storage.in_memory import InMemory

FORMAT = 3
STATES = "checkpoint"  # folder of the chains' states in a store
SAVE_EVERY = 3.0  # seconds between two saves of one chain, or 20 times the time of the last save
BLOCK = 4096  # rows of a chain written at a time
STARTS = "starts.npz"  # ``run.json`` holds its digest
TEMPORARY = re.compile(r"(run\.json|starts\.npz|chain-\d+\.npz)\.\d+\.tmp")
ROWS = re.compile(r"chain-(\d+)\.from-(\d+)\.rows")
# Fields that must agree even if a resume is forced.
MUST_AGREE = ("kernel", "tune", "chains", "entropy", "save_warmup", "init", "warmup", "dim")
NOT_RECOVERED = (
    "Only this file identifies the run, so recover=True cannot replace it. Restore a copy of it, or start the run again in "
    "another folder."
)
RECOVER = "Use refhmc.resume(..., recover=True) to draw the chain again, or restore a copy of the file."
SCALARS = {**dict.fromkeys(("done", "chain", "first", "length"), "i"), "run": "U", "no_pathfinder": "U"}
ASKED = "draws", "until"  # in ``run.json``, and may change
CLAUSES = 6  # differences listed in a message
# The entries of ``run.json`` that are read, with their types.
FIELDS: dict[str, type] = {
    **dict.fromkeys(("refhmc_version", "python", "model", "kernel", "entropy", "init", "warmup", "initvals"), str),
    **dict.fromkeys(("draws", "tune", "chains"), int),
    **dict.fromkeys(("save_warmup", "fuse", "compiled"), bool),
    **dict.fromkeys(("packages", "parts"), dict),
}


class OnDisk(NamedTuple):
    """Rows of a chain on disk: iterations ``first`` to ``end``, in ``length`` bytes of the file."""

    first: int
    end: int
    length: int


def take(lock: FileLock) -> None:
    """Acquire a lock, or raise CheckpointError with its holder; warn if the file system has no locks."""
    try:
        error = lock.acquire()
    except HeldError as holder:
        text = f"{lock.path.parent} is in use by {holder}, which holds {lock.path.name}. Wait for it, or use another folder."
        raise CheckpointError(text) from None
    if error is not None:
        text = (
            f"{lock.path} cannot be locked ({error}). Nothing prevents a second run from writing to this folder, which would "
            f"damage both. Start only one run per folder, or use a folder on another file system. {_see('checkpoints')}"
        )
        warnings.warn(text, CheckpointWarning, stacklevel=2)


class Checkpoint:
    """Folder of one run. `force` accepts changed model code or versions; ``forced`` lists these differences."""

    def __init__(self, folder: StrPath, run: dict, *, force: bool = False) -> None:
        self.force = force
        self.forced: list[str] = []
        self.folder = pathlib.Path(folder)
        self.run, self._asked = run, {name: run.get(name) for name in ASKED}
        self._writer = FileLock(self.folder / "writer.lock")
        self._next_save: dict[int, float] = {}
        self._on_disk: dict[int, OnDisk] = {}
        self._closed = False
        self._saving = [threading.Lock() for _ in range(run.get("chains", 0))]

    def open(self, starts: np.ndarray | None = None) -> None:
        """Create the folder, or check that it belongs to this run. `starts` are the given starts, if any.

        Raises CheckpointError with the differences or the damaged file, and for the folder of a store.
        """
        if (self.folder / "zarr.json").exists() or (self.folder / STATES / "run.json").exists():
            raise CheckpointError(
                f"checkpoint must not be a store; got {self.folder}. Pass it as store=, or use another folder."
            )
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            refuse_links(self.folder)
            take(self._writer)
        except OSError as error:
            raise CheckpointError(f"{self.folder} cannot be written: {error}.") from error
        try:
            remove_left_over_files(self.folder)
            self._take_on(read_run(self.folder), starts)
        except BaseException:
            self._writer.release()
            raise

    def _take_on(self, there: dict | None, starts: np.ndarray | None) -> None:
        """Write or compare ``run.json``, the last file of a new folder; a folder without it holds no run."""
        if there is None:
            chains = sorted(path.name for path in self.folder.glob("chain-*.npz"))
            if chains:
                raise CheckpointError(f"{self.folder / 'run.json'} is missing, but {chains[0]} exists. {NOT_RECOVERED}")
            self.run = {**self.run, "checksum": checksum_of_run(self.run)}
            path = self.folder / STARTS
            try:
                path.unlink(missing_ok=True)
                if starts is not None:  # needed to resume from the folder alone
                    write_arrays(path, starts=starts)
                path = self.folder / "run.json"
                write_atomically(path, json.dumps(self.run, indent=1).encode())
            except OSError as error:
                raise CheckpointError(f"{path} cannot be written: {error}.") from error
            return
        found = other_run(self.run, there)
        if found and self.force and not set(MUST_AGREE) & set(found):
            self.forced = list(found.values())
            found = {}
        if found:
            more = f"; and {len(found) - CLAUSES} more" if len(found) > CLAUSES else ""
            raise CheckpointError(
                f"The checkpoint in {self.folder} belongs to another run ({'; '.join(list(found.values())[:CLAUSES])}{more}). "
                "Use the same arguments, or another folder."
            )
        self._asked, self.run = {name: self.run.get(name) for name in ASKED}, there

    def keep_draws(self) -> None:
        """Write the requested number of draws, or the stopping rule, to ``run.json``."""
        if {name: self.run.get(name) for name in ASKED} != self._asked:
            self.run = {**self.run, **self._asked}
            write_atomically(self.folder / "run.json", json.dumps(self.run, indent=1).encode())

    def close(self) -> None:
        """Stop writing and release the folder."""
        self._closed = True
        for lock in self._saving:
            with lock:  # wait until the present write is complete
                pass
        self._writer.release()

    def path(self, chain: int) -> pathlib.Path:
        return self.folder / f"chain-{chain}.npz"

    def path_of_rows(self, chain: int, first: int) -> pathlib.Path:
        return self.folder / f"chain-{chain}.from-{first}.rows"

    def load(self, chain: int, d: int, n_stats: int) -> tuple[Saved, Rows | None] | None:
        """Return the saved chain and its rows (n, d) and (n, n_stats), or None if the chain was not saved.

        Raises CheckpointError, with the name of the file, if it is damaged or belongs to another run.
        """
        path = self.path(chain)
        if not os.path.lexists(path):
            return None
        try:
            arrays = read_arrays(path)
            checksum = str(arrays.pop("checksum"))
            for name, kind in SCALARS.items():
                if arrays[name].shape != () or arrays[name].dtype.kind != kind:
                    raise TypeError(f"{name} must be one {'string' if kind == 'U' else 'integer'}")
            done, its_chain, first, length = (int(arrays[name]) for name in ("done", "chain", "first", "length"))
            run, no_pathfinder = str(arrays["run"]), str(arrays["no_pathfinder"])
            state, start, control = arrays["state"].tobytes(), arrays["start_of_draws"], arrays["control"]
            if control.shape != (N_CONTROL,) or control.dtype != np.int64:
                raise TypeError(f"control must be {N_CONTROL} integers")
            saved = Saved(state, done, start, control.view(CONTROL)[0], no_pathfinder)
        except Exception as error:
            raise CheckpointError(f"{path} cannot be read: {type(error).__name__}: {error}. {RECOVER}") from error
        if checksum != checksum_of_arrays(arrays):
            raise CheckpointError(f"{path} is damaged: its content does not match its checksum. {RECOVER}")
        if run != self.run["checksum"]:
            raise CheckpointError(f"{path} belongs to another run than {self.folder / 'run.json'}. {RECOVER}")
        if its_chain != chain:
            raise CheckpointError(f"{path} holds chain {its_chain} instead of chain {chain}. {RECOVER}")
        path = self.path_of_rows(chain, first)
        try:
            rows = append_only.read(path, length, d, n_stats)
        except (ValueError, OSError, MemoryError) as error:
            raise CheckpointError(f"{path} is damaged: {error}. {RECOVER}") from error
        if (rows.first if rows else first) != first or (rows.end if rows else first) != max(first, saved.done):
            raise CheckpointError(f"{path} is damaged: it does not hold the rows of chain {chain}. {RECOVER}")
        self._on_disk[chain] = OnDisk(first, rows.end if rows else first, length)
        return saved, rows

    def save(self, chain: int, saved: Saved, rows: Rows | InMemory, *, now: bool = False) -> bool:
        """Write the chain and its `rows` that are not in a store, at most every three seconds unless `now`.

        Return whether it was written. Raises OSError if writing fails.
        """
        begin = time.monotonic()
        if not now and begin < self._next_save.setdefault(chain, begin + SAVE_EVERY):
            return False
        self._next_save[chain] = begin + SAVE_EVERY  # also if this fails
        with self._saving[chain]:
            if self._closed:  # the run was abandoned, and another may use the folder
                return False
            there = self._on_disk.get(chain)
            if there is None or there.first != rows.first:
                there = OnDisk(rows.first, rows.first, 0)
            if saved.done > there.end:
                # Blocks fit into a processor's cache, where columns of statistics are converted to rows and written.
                firsts = range(there.end, saved.done, BLOCK)
                new = (rows.between(at, min(at + BLOCK, saved.done)) for at in firsts)
                there = OnDisk(rows.first, saved.done, append(self.path_of_rows(chain, rows.first), there.length, new))
            fields = {**saved._asdict(), "state": np.frombuffer(saved.state, np.uint8), "chain": chain}
            fields["control"] = np.frombuffer(saved.control.tobytes(), np.int64)
            fields |= {"first": there.first, "length": there.length, "run": self.run["checksum"]}
            arrays = {name: np.asarray(value) for name, value in fields.items()}
            write_arrays(self.path(chain), **arrays, checksum=np.array(checksum_of_arrays(arrays)))
            before, self._on_disk[chain] = self._on_disk.get(chain), there
            if before is not None and before.first != there.first:
                self.path_of_rows(chain, before.first).unlink(missing_ok=True)
        cost = time.monotonic() - begin
        self._next_save[chain] = time.monotonic() + max(SAVE_EVERY, 20 * cost)
        return True

    def discard(self, chain: int) -> None:
        """Remove the files of a chain."""
        self._on_disk.pop(chain, None)
        for path in [self.path(chain), *self.folder.glob(f"chain-{chain}.from-*.rows")]:
            path.unlink(missing_ok=True)


def other_run(here: Mapping[str, Any], there: Mapping[str, Any]) -> dict[str, str]:
    """Return a clause for each difference between two runs, by the name of the field."""
    single = [key for key in here if key not in ("packages", "parts", "recipe", *NOT_IN_IT)]
    found = {
        k: f"{k}: this run has {here[k]!r}, the checkpoint {there.get(k)!r}" for k in single if here[k] != there.get(k)
    }
    one, other = here["packages"], there["packages"]
    found |= {
        k: f"{k}: this run has {one[k]}, the checkpoint {other[k]}" for k in one if k in other and one[k] != other[k]
    }
    if here["python"] != there["python"]:  # functions are compared as bytecode
        words = "functions cannot be compared between versions of Python, because bytecode differs"
        return {**found, "functions": words}
    return found | {each.partition(" differs:")[0]: each for each in differences(here["parts"], there["parts"])}


def refuse_links(folder: pathlib.Path) -> None:
    """Raise CheckpointError if a run's folder holds a link, a device or a file of another user."""
    try:
        check_folder(folder)
    except UnsafeFileError as error:
        raise CheckpointError(str(error)) from None


def read_run(folder: StrPath) -> dict | None:
    """Return the content of ``run.json`` in the folder, or None if there is none.

    Raises CheckpointError if it cannot be read, or if the folder holds links.
    """
    path = pathlib.Path(folder) / "run.json"
    if not os.path.lexists(path):
        return None
    refuse_links(path.parent)
    try:
        run = json.loads(path.read_bytes())
    except (ValueError, OSError, RecursionError) as error:
        raise CheckpointError(f"{path} cannot be read: {type(error).__name__}: {error}. {NOT_RECOVERED}") from error
    if not isinstance(run, dict) or "refhmc_version" not in run:
        raise CheckpointError(f"{path} does not describe a run of refhmc. {NOT_RECOVERED}")
    if run.get("format") != FORMAT:
        raise CheckpointError(
            f"{path} must have format {FORMAT}; got a file of refhmc {run['refhmc_version']} in format {run.get('format', 1)}. "
            "Resume with the version of refhmc that started the run, or use another folder."
        )
    if run.get("checksum") != checksum_of_run(run):
        raise CheckpointError(f"{path} is damaged: its content does not match its checksum. {NOT_RECOVERED}")
    for name, kind in FIELDS.items():
        if type(run.get(name)) is not kind or (kind is int and run[name] < 0):
            raise CheckpointError(f"{name} in {path} must be of type {kind.__name__}; got {run.get(name)!r:.100}.")
    if not re.fullmatch(r"\d{1,4000}", run["entropy"]):
        raise CheckpointError(f"entropy in {path} must be an integer; got {run['entropy']!r:.100}.")
    return run


def remove_left_over_files(folder: pathlib.Path) -> None:
    """Remove the files that a killed run left: temporary files, and rows that no state counts."""
    for path in folder.glob("*.tmp"):
        if TEMPORARY.fullmatch(path.name):
            path.unlink(missing_ok=True)
    for path in folder.glob("*.rows"):
        found = ROWS.fullmatch(path.name)
        if found and not (folder / f"chain-{found[1]}.npz").exists():
            path.unlink(missing_ok=True)
