"""A store: a Zarr hierarchy on disk that receives draws and statistics during the run, so that memory stays constant.

The groups are those of a result: ``posterior``, ``sample_stats``, ``unconstrained_posterior``, and with warm-up the same with
the prefix ``warmup_``. They hold arrays (chain, draw, ...) with named axes, in Zarr's format 3, with a CRC-32C per chunk.
Arrays have their full length from the start, with NaN, 0 or False for missing draws; ``draws_done`` (chain,) counts the draws
of each chain. So ``xarray.open_datatree(path, engine="zarr")`` reads a run while it is active. The folder ``checkpoint`` holds
the states of the chains and the rows of partial chunks (:mod:`refhmc.sampling.storage.checkpoint`), from which a run is
resumed. With a stopping rule, the length is first ``max_draws``, and that of the draws at the end.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import pathlib
import re
import shutil
import threading
import warnings
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from refhmc.core.named_axes import SAMPLES, axes_of
from refhmc.core.signals import held_back
from refhmc.errors import CheckpointError
from refhmc.kernels.blocks import statistics
from refhmc.kernels.options import AnyKernel
from refhmc.sampling.storage.append_only import Rows
from refhmc.sampling.storage.checkpoint import STATES, refuse_links
from refhmc.sampling.storage.files import StrPath

if TYPE_CHECKING:
    import xarray
    import zarr

    from refhmc.models.base import Model

FORMAT = 1
CHUNK = 2**24  # bytes of positions and statistics of one chain per chunk
LEAST_CHUNK = 1024  # draws per chunk at least, because a run may grow
MOST_IN_CHUNK = 2**40
GROUPS = "posterior", "sample_stats", "unconstrained_posterior"
PARTIAL = re.compile(r".*\.[0-9a-f]{32}\.partial")  # temporary files of Zarr


def import_zarr() -> ModuleType:
    """Import Zarr; raises ImportError with the command to install it."""
    try:
        with held_back():  # an interrupted import would leave a broken package
            import zarr
    except ModuleNotFoundError as missing:
        raise ImportError('store needs Zarr, which is not installed. Run: pip install "refhmc[store]"') from missing
    return zarr


def states_of(path: StrPath) -> pathlib.Path:
    """Return the folder of the states in a new or existing store.

    Raises CheckpointError if ``path`` is something else, a store without states, or holds links.
    """
    path = pathlib.Path(path)
    if path.is_dir():
        refuse_links(path)
    if (path / STATES / "run.json").exists() or not path.exists():
        return path / STATES
    if not path.is_dir() or (any(path.iterdir()) and [each.name for each in path.iterdir()] != [STATES]):
        why = (
            f"has no {STATES}/run.json, so it can be read but not resumed"
            if (path / "zarr.json").exists()
            else "is not a store"
        )
        raise CheckpointError(f"store must be a new folder or the store of a run; {path} {why}. Use another folder.")
    return path / STATES


def remove_unfinished(path: pathlib.Path) -> None:
    """Remove what a killed process left: temporary files of Zarr, and an incomplete hierarchy.

    A store is complete when its attributes are written, and no chain has a state before that. The folder must be locked.
    """
    for file in path.rglob("*.partial"):
        if PARTIAL.fullmatch(file.name):
            file.unlink(missing_ok=True)
    try:
        complete = "chunk" in json.loads((path / "zarr.json").read_bytes())["attributes"]
    except (OSError, ValueError, KeyError, TypeError):
        complete = False
    if complete or any((path / STATES).glob("chain-*.npz")):
        return
    for name in ("zarr.json", "draws_done", *GROUPS, *(f"warmup_{group}" for group in GROUPS)):
        if (path / name).is_dir():
            shutil.rmtree(path / name)
        else:
            (path / name).unlink(missing_ok=True)


def check_outside_of_stores(checkpoint: StrPath) -> None:
    """Raise CheckpointError for the folder of the states in a store, which cannot be a checkpoint of its own."""
    folder = pathlib.Path(checkpoint)
    if folder.name == STATES and (folder.parent / "zarr.json").exists():
        raise CheckpointError(
            f"checkpoint must not be part of a store; {folder} belongs to the store {folder.parent}. Pass that as store=..."
        )


class Store:
    """New or existing hierarchy at `path`, with space for `draws` and for `warmup` iterations of each chain.

    `q` (d,) is a position at which the shapes of the constrained values are read.

    Raises CheckpointError if there is a store with other arrays.
    """

    def __init__(
        self,
        path: StrPath,
        model: Model,
        kernel: AnyKernel,
        q: np.ndarray,
        n_stats: int,
        chains: int,
        draws: int,
        tune: int,
        warmup: int,
    ) -> None:
        self.path, self.model, self.kernel = pathlib.Path(path), model, kernel
        self.chains, self.draws, self.tune, self.warmup = chains, draws, tune, warmup
        self._one_at_a_time = threading.Lock()  # for the model's ``constrain`` and arrays of all chains
        row, enough = 8 * (model.dim + n_stats), max(draws, tune, LEAST_CHUNK)
        self.chunk = 2 ** min(max(0, int(math.log2(CHUNK / row))), math.ceil(math.log2(enough)))
        self.arrays: dict[str, dict[str, zarr.Array]] = {}
        self._shorter: list[
            tuple[zarr.Array, tuple[int, ...]]
        ] = []  # arrays that are too short, and the shapes they need
        self._zarr = import_zarr()
        with warnings.catch_warnings():
            # Zarr warns that strings and consolidated metadata are not part of its format 3 yet.
            warnings.simplefilter("ignore")
            # Chunks of zeros are written as well, so that a missing chunk is a lost one.
            with self._zarr.config.set({"array.write_empty_chunks": True}):
                try:
                    with held_back():  # an interrupted call can leave a lock of Zarr held
                        self._open(q[None, None], n_stats)
                except (CheckpointError, OSError, ArithmeticError):
                    raise
                except Exception as error:  # any error of Zarr while it reads
                    text = (
                        f"{self.path} cannot be opened as a store: {type(error).__name__}: {error}. Use another folder."
                    )
                    raise CheckpointError(text) from error

    def _open(self, q: np.ndarray, n_stats: int) -> None:
        remove_unfinished(self.path)
        there = (self.path / "zarr.json").exists()
        root = self._zarr.open_group(self.path, mode="a", zarr_format=3, use_consolidated=False)
        if there:
            made_by, chunk = root.attrs.get("refhmc_store"), root.attrs.get("chunk")
            if made_by != FORMAT:
                raise CheckpointError(
                    f"{self.path} must be a store of format {FORMAT}; got format {made_by!r}. Use another version of refhmc."
                )
            if type(chunk) is not int or not 1 <= chunk <= MOST_IN_CHUNK:
                raise CheckpointError(f"chunk in {self.path} must be from 1 to {MOST_IN_CHUNK}; got {chunk!r:.100}.")
            self.chunk = chunk
        self.done = self._array(root, "draws_done", np.zeros(self.chains, np.int64), (self.chains,), ("chain",))
        values = self.model.constrain(q), statistics(self.kernel, np.zeros((1, 1, n_stats))), {"q": q}
        example: dict[str, Mapping[str, np.ndarray]] = dict(zip(GROUPS, values, strict=True))
        lengths = {"": self.draws} | ({"warmup_": self.warmup} if self.warmup else {})
        for (prefix, n), (name, group) in itertools.product(lengths.items(), example.items()):
            self.arrays[prefix + name] = self._group(root, prefix + name, group, n)
        root.update_attributes({"refhmc_store": FORMAT, "chunk": self.chunk})  # in one write: the store is complete
        self._zarr.consolidate_metadata(self.path)

    def _group(self, root: zarr.Group, name: str, example: Mapping[str, np.ndarray], n: int) -> dict[str, zarr.Array]:
        """Create or open a group's arrays, like the example but with `n` draws of every chain, and labels of their axes."""
        own = name.removeprefix("warmup_") == "posterior"
        dims, coords = (self.model.dims, self.model.coords) if own else ({}, {})
        group, arrays = root.require_group(name), {}
        used: dict[str, int] = {}
        for key, value in example.items():
            axes = (*SAMPLES, *axes_of(key, value.ndim - 2, dims))
            used |= dict(zip(axes[2:], value.shape[2:], strict=True))
            arrays[key] = self._array(group, key, value[0, 0], (self.chains, n, *value.shape[2:]), axes)
        for axis, labels in coords.items():
            if len(labels) == used.get(axis) and axis not in group:
                group.create_array(axis, data=np.asarray(labels), dimension_names=(axis,))
        return arrays

    def _array(self, group: Any, name: str, example: np.ndarray, shape: tuple, axes: tuple) -> zarr.Array:
        """Create an array, or open one with the same description; :meth:`make_room` makes it longer."""
        kind = example.dtype
        per_axis = {"chain": 1, "draw": self.chunk}
        described = {
            "shape": shape,
            "chunks": tuple(per_axis.get(axis, n) for axis, n in zip(axes, shape, strict=True)),
            "dtype": kind,
            "fill_value": np.nan if kind.kind == "f" else kind.type(0),
            "dimension_names": axes,
            "compressors": [self._zarr.codecs.Crc32cCodec()],
        }
        if name not in group:
            return group.create_array(name, **described)
        array = group[name]
        if len(shape) > 1 and array.shape[1] < shape[1]:
            self._shorter.append((array, (array.shape[0], shape[1], *array.shape[2:])))
        described["shape"] = (shape[0], *array.shape[1:2], *shape[2:])
        here, found = (self._description(each) for each in (self._zarr.create_array({}, **described), array))
        differ = [
            f"{key}: this run has {here[key]}, the store {found.get(key)}"
            for key in here
            if here[key] != found.get(key)
        ]
        if differ:
            text = f"{self.path / group.path / name} belongs to another run ({'; '.join(differ)}). Use another folder."
            raise CheckpointError(text)
        return array

    @staticmethod
    def _description(array: zarr.Array) -> dict[str, str]:
        """Return the metadata of an array without its attributes, as text because NaN is not equal to itself."""
        return {key: repr(value) for key, value in array.metadata.to_dict().items() if key != "attributes"}

    def make_room(self) -> None:
        """Make arrays longer that were created for fewer draws, once it is known that the run continues."""
        if not self._shorter:
            return
        with warnings.catch_warnings(), held_back():
            warnings.simplefilter("ignore")
            for array, shape in self._shorter:
                array.resize(shape)
            self._zarr.consolidate_metadata(self.path)
        self._shorter.clear()

    def shorten(self, draws: int) -> None:
        """Remove the space for more than `draws` draws, which a stopping rule did not need.

        If the disk cannot be written, the space stays, as in a run that was stopped.
        """
        longer = [array for group in GROUPS for array in self.arrays[group].values() if array.shape[1] > draws]
        if not longer:
            return
        with warnings.catch_warnings(), held_back(), contextlib.suppress(OSError):
            warnings.simplefilter("ignore")
            for array in longer:
                array.resize((array.shape[0], draws, *array.shape[2:]))
            self._zarr.consolidate_metadata(self.path)

    def end_of_chunk(self, iteration: int) -> int:
        """Return the iteration at which the chunk of this iteration ends."""
        begin, end = (0, self.tune) if iteration < self.tune else (self.tune, self.tune + self.draws)
        return min(begin + (1 + (iteration - begin) // self.chunk) * self.chunk, end)

    def write(self, chain: int, rows: Rows) -> None:
        """Write rows. OSError leaves earlier rows intact, except in a chunk that these rows start.

        Raises CheckpointError if a chunk that they continue is damaged.
        """
        if rows.first < self.tune < rows.end:
            self.write(chain, rows.between(rows.first, self.tune))
            rows = rows.between(self.tune, rows.end)
        if not len(rows.draws):
            return
        prefix, begin = ("warmup_", 0) if rows.first < self.tune else ("", self.tune)
        at = slice(rows.first - begin, rows.end - begin)
        with self._one_at_a_time:
            constrained = self.model.constrain(rows.draws)
        groups = {
            "unconstrained_posterior": {"q": rows.draws},
            "sample_stats": statistics(self.kernel, rows.stats),
            "posterior": constrained,
        }
        for name, group in groups.items():
            for key, values in group.items():
                self._put(prefix + name, key, chain, at, values)
        if not prefix:
            with self._one_at_a_time:
                self.done[chain] = rows.end - self.tune

    def _put(self, name: str, key: str, chain: int, at: slice, values: np.ndarray) -> None:
        """Write rows of one array. Zarr reads a chunk that they do not fill before it writes it."""
        array = self.arrays[name][key]
        last = (at.stop - 1) // self.chunk
        if at.start <= last * self.chunk:  # no state counts the content of this chunk, which may be damaged
            self._file(name, key, chain, last).unlink(missing_ok=True)
        try:
            array[chain, at] = values
        except ValueError as error:
            raise unreadable(self.path / name / key, chain, f"{error}") from error

    def discard(self, chain: int) -> None:
        """Remove all chunks of a chain that is drawn again, because a damaged chunk cannot be written."""
        with self._one_at_a_time, held_back():
            self.done[chain] = 0
        for name, arrays in self.arrays.items():
            for key, array in arrays.items():
                for j in range(-(-array.shape[1] // self.chunk)):
                    self._file(name, key, chain, j).unlink(missing_ok=True)

    def _file(self, name: str, key: str, chain: int, j: int) -> pathlib.Path:
        return file_of_chunk(self.path / name / key, self.arrays[name][key], chain, j)

    def check(self, chain: int, done: int, *, whole: bool = False) -> None:
        """Raise CheckpointError unless all chunks of a chain after `done` iterations exist.

        The last chunk of each array, which may be written again, is also read; with `whole`, all chunks are.
        """
        counts = {"": max(done - self.tune, 0), "warmup_": min(done, self.warmup)}
        for name, arrays in self.arrays.items():
            n = counts["warmup_" if name.startswith("warmup_") else ""]
            group = StoredGroup(self.path, name, arrays, [chain], n)
            for key in arrays:
                for first in range(0, n, self.chunk):
                    at = slice(first, min(first + self.chunk, n))
                    group.file_of(key, chain, first // self.chunk)
                    if whole or at.stop == n:
                        group.read(key, chain, at)

    def put_attributes(self, attributes: Mapping[str, object]) -> None:
        """Write the attributes to every group, as in ArviZ's objects."""
        with warnings.catch_warnings(), held_back():
            warnings.simplefilter("ignore")
            root = self._zarr.open_group(self.path, mode="a", use_consolidated=False)
            for name in self.arrays:
                root[name].attrs.update(attributes)
            self._zarr.consolidate_metadata(self.path)

    def group(self, name: str, chains: list[int], n: int) -> StoredGroup:
        """Return the first `n` draws of some chains, which are read on access."""
        return StoredGroup(self.path, name, self.arrays[name], chains, n)


class StoredGroup(Mapping[str, np.ndarray]):
    """Arrays of a group by name, read from the store on access."""

    def __init__(
        self, path: pathlib.Path, name: str, arrays: Mapping[str, zarr.Array], chains: list[int], n: int
    ) -> None:
        self.path, self.name, self.arrays, self.chains, self.n = path, name, arrays, chains, n

    def __getitem__(self, key: str) -> np.ndarray:
        return self.some(key, 0)

    def __iter__(self) -> Iterator[str]:
        return iter(self.arrays)

    def __len__(self) -> int:
        return len(self.arrays)

    def shape(self, key: str) -> tuple[int, ...]:
        return len(self.chains), self.n, *self.arrays[key].shape[2:]

    def of(self, key: str) -> StoredGroup:
        """Return the group with one of its arrays."""
        return StoredGroup(self.path, self.name, {key: self.arrays[key]}, self.chains, self.n)

    def columns(self, which: np.ndarray, left: Mapping[int, Rows], store: Store) -> np.ndarray:
        """Return some coordinates of all draws, (chain, n, k), in chunks of draws; `left` are rows that were not written."""
        found = np.empty((len(self.chains), self.n, len(which)))
        for of, k in zip(found, self.chains, strict=True):
            rows = left[k].between(max(left[k].first, store.tune), left[k].end)
            first = min(rows.first - store.tune, self.n)
            for i in range(0, first, store.chunk):
                at = slice(i, min(i + store.chunk, first))
                of[at] = self.read("q", k, at)[:, which]
            of[first:] = rows.draws[: self.n - first, which]
        return found

    def some(self, key: str, first: int, step: int = 1) -> np.ndarray:
        """Read every `step`-th draw, starting at `first`."""
        at = slice(first, self.n, step)
        return np.stack([self.read(key, k, at) for k in self.chains])

    def read(self, key: str, chain: int, at: slice) -> np.ndarray:
        """Read draws of one chain; raises CheckpointError if a chunk is missing or damaged."""
        array: Any = self.arrays[key]
        for j in range(at.start // array.chunks[1], -(-at.stop // array.chunks[1])):
            self.file_of(key, chain, j)
        try:
            with held_back():
                return array[chain, at]
        except (ValueError, OSError, TypeError) as error:
            raise self._unreadable(key, chain, f"{error}") from error

    def file_of(self, key: str, chain: int, j: int) -> pathlib.Path:
        """Return the file of a chain's `j`-th chunk; raises CheckpointError if it is missing, as Zarr would read NaN."""
        file = file_of_chunk(self.path / self.name / key, self.arrays[key], chain, j)
        if not file.exists():
            raise self._unreadable(key, chain, f"{file} is missing")
        return file

    def _unreadable(self, key: str, chain: int, why: str) -> CheckpointError:
        return unreadable(self.path / self.name / key, chain, why)

    def with_rows(self, left: Mapping[int, Rows], store: Store) -> dict[str, np.ndarray]:
        """Return arrays in memory: the content of the store, and the rows of each chain that were not written."""
        kind, begin = self.name.removeprefix("warmup_"), 0 if self.name.startswith("warmup_") else store.tune
        found = {key: np.full(self.shape(key), each.fill_value, each.dtype) for key, each in self.arrays.items()}
        for place, k in enumerate(self.chains):
            rows = left.get(k, Rows(begin + self.n, np.zeros((0, 0)), np.zeros((0, 0))))
            first, end = max(rows.first, begin), min(rows.end, begin + self.n)
            there = slice(0, min(first - begin, self.n))
            for key, values in found.items():
                values[place, there] = self.read(key, k, there)
            if end <= first:
                continue
            part = rows.between(first, end)
            made: Mapping[str, np.ndarray] = {"q": part.draws}
            if kind == "sample_stats":
                made = statistics(store.kernel, part.stats)
            elif kind == "posterior":
                try:
                    made = store.model.constrain(part.draws)
                except Exception:  # the chain has ended with this exception, which is raised later
                    made = {}
            for key in found.keys() & made.keys():
                found[key][place, first - begin : end - begin] = made[key]
        return found

    def as_dataset(self) -> xarray.Dataset:
        """Return an xarray ``Dataset`` that reads on access."""
        with held_back():
            import xarray

        with warnings.catch_warnings(), held_back():
            warnings.simplefilter("ignore")
            made = xarray.open_dataset(self.path, group=self.name, engine="zarr", chunks=None)
        made = made.isel(chain=self.chains, draw=slice(self.n))
        return made.assign_coords(chain=np.array(self.chains), draw=np.arange(self.n))


def file_of_chunk(folder: pathlib.Path, array: zarr.Array, chain: int, j: int) -> pathlib.Path:
    """Return the file of a chain's `j`-th chunk, for the array in `folder`."""
    return folder / array.metadata.encode_chunk_key((chain, j) + (0,) * (array.ndim - 2))


def unreadable(folder: pathlib.Path, chain: int, why: str) -> CheckpointError:
    return CheckpointError(
        f"{folder}, chain {chain}, cannot be read: {why}. Use refhmc.resume(..., recover=True) to draw the chain again."
    )
