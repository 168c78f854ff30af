"""Checkpoints: a folder from which a run goes on as if it had not been stopped, bit for bit.

``run.json`` says which run it is: every part of the model (:mod:`refhmc.core.fingerprint`), kernel, warm-up, starts, entropy,
and the editions of refhmc, Numba, NumPy, Python and the packages that the model's functions reach. ``chain-k.npz`` holds
the state of chain k after its last saved draw (``Chain.to_bytes``), which run and which chain that is, and how many bytes of
``chain-k.from-i.rows`` belong to it: its draws and statistics from iteration i on (:mod:`refhmc.sampling.journal`), all that
are kept, or those that are not in a store yet (:mod:`refhmc.sampling.store`). Each file holds a checksum of its content.
Rows are added behind those that are there, and on the disk before the state that counts them; ``run.json`` and states are
written beside their place and renamed into it. So a crash leaves what was saved before. They are arrays and JSON, and are
never unpickled.

While a run is under way it holds ``writer.lock`` (:mod:`refhmc.core.file_lock`): a second run on the same folder is refused.
"""

from __future__ import annotations

import io
import json
import os
import pathlib
import re
import sys
import threading
import time
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from refhmc.core.file_lock import FileLock, HeldError
from refhmc.core.fingerprint import Fingerprint, differences, package_identity
from refhmc.core.regular_files import UnsafeFileError, check_folder
from refhmc.errors import CheckpointError, CheckpointWarning
from refhmc.models.recipe import recipe_of
from refhmc.sampling import journal
from refhmc.sampling.files import NOT_IN_IT, checksum_of_arrays, checksum_of_run, read_arrays, write_atomically
from refhmc.sampling.journal import Rows, append
from refhmc.sampling.migration import migrate

if TYPE_CHECKING:
    from refhmc.models.base import Model
    from refhmc.sampling.memory import RowsOfChain

FORMAT = 3
STATES = "checkpoint"  # the folder of the chains' states in a store
SAVE_EVERY = 3.0  # seconds between two files of one chain, or 20 times what the last took to write
BLOCK = 4096  # rows of a chain that are written at a time
STARTS = "starts.npz"  # compared with what ``run.json`` says of it
TEMPORARY = re.compile(r"(run\.json|starts\.npz|chain-\d+\.npz)\.\d+\.tmp")
ROWS = re.compile(r"chain-(\d+)\.from-(\d+)\.rows")
# What a run cannot go on without, even if it is forced to.
MUST_AGREE = ("kernel", "tune", "chains", "entropy", "save_warmup", "init", "warmup", "dim")
NOT_RECOVERED = (
    "It alone says which run this is, so that recover=True cannot help: put a copy of it back, or begin the run again in "
    "another folder"
)
SCALARS = {**dict.fromkeys(("done", "chain", "first", "length"), "i"), "run": "U", "no_pathfinder": "U"}
CLAUSES = 6  # differences that a message lists
# The entries of ``run.json`` that are read, with their types.
FIELDS: dict[str, type] = {
    **dict.fromkeys(("refhmc_version", "python", "model", "kernel", "entropy", "init", "warmup", "initvals"), str),
    **dict.fromkeys(("tune", "chains"), int),
    **dict.fromkeys(("save_warmup", "fuse", "compiled"), bool),
    **dict.fromkeys(("packages", "parts"), dict),
}


class Saved(NamedTuple):
    """A chain between two iterations: plain data, all that it needs to go on."""

    state: bytes
    done: int  # iterations, warm-up included
    start_of_draws: np.ndarray  # where the chain stood after warm-up; NaN before
    control: np.ndarray
    no_pathfinder: str = ""  # why the chain did not begin where Pathfinder, asked for, would have it


class OnDisk(NamedTuple):
    """How much of a chain's rows is on the disk: from iteration ``first`` to ``end``, in so many bytes of the file."""

    first: int
    end: int
    length: int


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
    """The folder of one run. ``force``: go on though the code of the model or a version is another; ``forced`` says which."""

    def __init__(self, folder: Any, run: dict, *, force: bool = False) -> None:
        self.force = force
        self.forced: list[str] = []
        self.folder = pathlib.Path(folder)
        self.run, self._draws = run, run.get("draws")
        self._writer = FileLock(self.folder / "writer.lock")
        self._next_save: dict[int, float] = {}
        self._on_disk: dict[int, OnDisk] = {}
        self._closed = False
        self._saving = [threading.Lock() for _ in range(run.get("chains", 0))]

    def open(self, starts: np.ndarray | None = None) -> None:
        """Make the folder, or check that it is of this run. ``starts``: where chains begin, if that was given.

        Raises CheckpointError, with what differs or the file at fault, and for the folder of a store, which has a checkpoint
        of its own.
        """
        if (self.folder / "zarr.json").exists() or (self.folder / STATES / "run.json").exists():
            raise CheckpointError(f"{self.folder} is a store: give it as store=, or take another folder")
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            refuse_links(self.folder)
            take(self._writer)
        except OSError as error:
            raise CheckpointError(f"{self.folder} cannot be written to: {error}") from error
        try:
            remove_left_over_files(self.folder)
            self._take_on(read_run(self.folder), starts)
        except BaseException:
            self._writer.release()
            raise

    def _take_on(self, there: dict | None, starts: np.ndarray | None) -> None:
        """Write ``run.json``, or compare it. It is the last file of a new folder: one without it holds no run."""
        if there is None:
            chains = sorted(path.name for path in self.folder.glob("chain-*.npz"))
            if chains:
                raise CheckpointError(
                    f"{self.folder / 'run.json'} is missing, though {chains[0]} is there. {NOT_RECOVERED}"
                )
            self.run = {**self.run, "checksum": checksum_of_run(self.run)}
            path = self.folder / STARTS
            try:
                path.unlink(missing_ok=True)
                if starts is not None:  # a run that is resumed by its folder alone needs them
                    buffer = io.BytesIO()
                    np.savez(buffer, starts=starts)
                    write_atomically(path, buffer.getvalue())
                path = self.folder / "run.json"
                write_atomically(path, json.dumps(self.run, indent=1).encode())
            except OSError as error:
                raise CheckpointError(f"{path} cannot be written: {error}") from error
            return
        found = other_run(self.run, there)
        if found and self.force and not set(MUST_AGREE) & set(found):
            self.forced = list(found.values())
            found = {}
        if found:
            more = f"; and {len(found) - CLAUSES} more" if len(found) > CLAUSES else ""
            raise CheckpointError(
                f"the checkpoint in {self.folder} is of another run ({'; '.join(list(found.values())[:CLAUSES])}{more})"
            )
        self._draws, self.run = self.run.get("draws"), there

    def keep_draws(self) -> None:
        """Into ``run.json``, how many draws are asked for now."""
        if self.run.get("draws") != self._draws:
            self.run = {**self.run, "draws": self._draws}
            write_atomically(self.folder / "run.json", json.dumps(self.run, indent=1).encode())

    def close(self) -> None:
        """Nothing is written from now on; let go of the folder."""
        self._closed = True
        for lock in self._saving:
            with lock:  # what is being written is whole before another may have the folder
                pass
        self._writer.release()

    def path(self, chain: int) -> pathlib.Path:
        return self.folder / f"chain-{chain}.npz"

    def path_of_rows(self, chain: int, first: int) -> pathlib.Path:
        return self.folder / f"chain-{chain}.from-{first}.rows"

    def load(self, chain: int, d: int, n_stats: int) -> tuple[Saved, Rows | None] | None:
        """Return the chain as last saved and its rows (n, d) and (n, n_stats), or None if there is no such chain.

        Raises CheckpointError, with the name of a file that is damaged or belongs to another run.
        """
        path = self.path(chain)
        if not os.path.lexists(path):
            return None
        try:
            arrays = read_arrays(path)
            checksum = str(arrays.pop("checksum"))
            for name, kind in SCALARS.items():
                if arrays[name].shape != () or arrays[name].dtype.kind != kind:
                    raise TypeError(f"{name} must be one {'text' if kind == 'U' else 'integer'}")
            done, its_chain, first, length = (int(arrays[name]) for name in ("done", "chain", "first", "length"))
            run, no_pathfinder = str(arrays["run"]), str(arrays["no_pathfinder"])
            state, start, control = arrays["state"].tobytes(), arrays["start_of_draws"], arrays["control"]
            saved = Saved(state, done, start, control, no_pathfinder)
        except Exception as error:
            raise CheckpointError(f"{path} cannot be read: {type(error).__name__}: {error}") from error
        if checksum != checksum_of_arrays(arrays):
            raise CheckpointError(f"{path} is damaged: its content does not agree with its checksum")
        if run != self.run["checksum"]:
            raise CheckpointError(f"{path} is of another run than {self.folder / 'run.json'}")
        if its_chain != chain:
            raise CheckpointError(f"{path} holds chain {its_chain}, not chain {chain}")
        path = self.path_of_rows(chain, first)
        try:
            rows = journal.read(path, length, d, n_stats)
        except (ValueError, OSError, MemoryError) as error:
            raise CheckpointError(f"{path} is damaged: {error}") from error
        if (rows.first if rows else first) != first or (rows.end if rows else first) != max(first, saved.done):
            raise CheckpointError(f"{path} is damaged: it does not hold the rows that chain {chain} has made")
        self._on_disk[chain] = OnDisk(first, rows.end if rows else first, length)
        return saved, rows

    def save(self, chain: int, saved: Saved, rows: Rows | RowsOfChain, *, now: bool = False) -> bool:
        """Write the chain, whose ``rows`` are those that only the checkpoint keeps, at most every three seconds unless ``now``.

        Whether it was written. Raises OSError if it cannot be.
        """
        begin = time.monotonic()
        if not now and begin < self._next_save.setdefault(chain, begin + SAVE_EVERY):
            return False
        self._next_save[chain] = begin + SAVE_EVERY  # should this fail: not sooner
        with self._saving[chain]:
            if self._closed:  # the run was given up, and another may have the folder
                return False
            there = self._on_disk.get(chain)
            if there is None or there.first != rows.first:
                there = OnDisk(rows.first, rows.first, 0)
            if saved.done > there.end:
                # In blocks that a processor's cache holds: statistics in columns are made rows, summed and written there.
                firsts = range(there.end, saved.done, BLOCK)
                new = (rows.between(at, min(at + BLOCK, saved.done)) for at in firsts)
                there = OnDisk(rows.first, saved.done, append(self.path_of_rows(chain, rows.first), there.length, new))
            fields = {**saved._asdict(), "state": np.frombuffer(saved.state, np.uint8), "chain": chain}
            fields |= {"first": there.first, "length": there.length, "run": self.run["checksum"]}
            arrays = {name: np.asarray(value) for name, value in fields.items()}
            buffer = io.BytesIO()
            arrays["checksum"] = np.array(checksum_of_arrays(arrays))
            np.savez(buffer, **arrays)  # type: ignore[arg-type]
            write_atomically(self.path(chain), buffer.getvalue())
            before, self._on_disk[chain] = self._on_disk.get(chain), there
            if before is not None and before.first != there.first:
                self.path_of_rows(chain, before.first).unlink(missing_ok=True)
        cost = time.monotonic() - begin
        self._next_save[chain] = time.monotonic() + max(SAVE_EVERY, 20 * cost)
        return True

    def discard(self, chain: int) -> None:
        """Remove what is there of a chain."""
        self._on_disk.pop(chain, None)
        for path in [self.path(chain), *self.folder.glob(f"chain-{chain}.from-*.rows")]:
            path.unlink(missing_ok=True)


def describe_run(model: Model, kernel_json: str, parts: Fingerprint, **settings: Any) -> dict[str, Any]:
    """What ``run.json`` says; ``settings``: warm-up, chains, entropy, starts."""
    import refhmc

    packages = sorted({*parts.packages, "refhmc", "numba", "numpy"} - {"python"})
    return {
        "format": FORMAT,
        "refhmc_version": refhmc.__version__,
        "python": f"{sys.version_info.major}.{sys.version_info.minor}",
        "model": model.name,
        "recipe": recipe_of(model),
        "kernel": kernel_json,
        **settings,
        "packages": {name: package_identity(name) for name in packages},
        "parts": parts.parts,
    }


def other_run(here: Mapping[str, Any], there: Mapping[str, Any]) -> dict[str, str]:
    """A clause for everything in which two runs differ, by its name."""
    single = [key for key in here if key not in ("packages", "parts", "recipe", *NOT_IN_IT)]
    found = {k: f"{k}: here {here[k]!r}, there {there.get(k)!r}" for k in single if here[k] != there.get(k)}
    one, other = here["packages"], there["packages"]
    found |= {k: f"{k}: here {one[k]}, there {other[k]}" for k in one if k in other and one[k] != other[k]}
    if here["python"] != there["python"]:  # functions are compared as bytecode
        words = "functions cannot be compared between versions of Python, whose bytecode differs"
        return {**found, "functions": words}
    return found | {clause: clause for clause in differences(here["parts"], there["parts"])}


def refuse_links(folder: pathlib.Path) -> None:
    """Raise CheckpointError for a link, a device or a file of another user below a run's folder."""
    try:
        check_folder(folder)
    except UnsafeFileError as error:
        raise CheckpointError(str(error)) from None


def read_run(folder: Any) -> dict | None:
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
    if run.get("format") == 2:
        run = migrate(path.parent, run)
    if run.get("format") != FORMAT:
        raise CheckpointError(
            f"{path} was written by refhmc {run['refhmc_version']} in format {run.get('format', 1)} of checkpoints; this is "
            f"refhmc of format {FORMAT}. Go on with the version that began the run, or take another folder"
        )
    if run.get("checksum") != checksum_of_run(run):
        raise CheckpointError(f"{path} is damaged: its content does not agree with its checksum. {NOT_RECOVERED}")
    fields = FIELDS | ({"draws": int} if "draws" in run else {})  # format 2 had none
    for name, kind in fields.items():
        if type(run.get(name)) is not kind or (kind is int and run[name] < 0):
            raise CheckpointError(f"{path}: {name} must be of type {kind.__name__}; got {run.get(name)!r:.100}")
    if not re.fullmatch(r"\d{1,4000}", run["entropy"]):
        raise CheckpointError(f"{path}: entropy must be a whole number; got {run['entropy']!r:.100}")
    return run


def remove_left_over_files(folder: pathlib.Path) -> None:
    """Those that a run which was killed while it wrote has left: files not renamed yet, rows that no state counts."""
    for path in folder.glob("*.tmp"):
        if TEMPORARY.fullmatch(path.name):
            path.unlink(missing_ok=True)
    for path in folder.glob("*.rows"):
        found = ROWS.fullmatch(path.name)
        if found and not (folder / f"chain-{found[1]}.npz").exists():
            path.unlink(missing_ok=True)
