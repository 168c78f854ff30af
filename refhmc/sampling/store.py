"""A store: a Zarr hierarchy on disk to which draws and statistics go as they come, so that memory stays flat.

The groups are those of a result, ``posterior``, ``sample_stats``, ``unconstrained_posterior`` and with warm-up the same with
the prefix ``warmup_``: arrays (chain, draw, ...) with named axes, of Zarr's format 3, each chunk with its CRC-32C. They have
their whole length from the beginning, NaN, 0 or False where nothing is drawn yet; ``draws_done`` (chain,) says how far each
chain is. So ``xarray.open_datatree(path, engine="zarr")`` reads a run that is under way. In the folder ``checkpoint`` are
the states of its chains, and rows that have not filled a chunk (:mod:`refhmc.sampling.checkpoint`): a run goes on from there.
"""

from __future__ import annotations

import itertools
import json
import math
import pathlib
import re
import shutil
import threading
import warnings
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from refhmc.core.named_axes import SAMPLES, axes_of
from refhmc.core.signals import held_back
from refhmc.errors import CheckpointError
from refhmc.kernels.blocks import statistics
from refhmc.sampling.checkpoint import STATES, refuse_links
from refhmc.sampling.journal import Rows

if TYPE_CHECKING:
    from refhmc.models.base import Model

FORMAT = 1
CHUNK = 2**24  # bytes of positions and statistics of one chain in a chunk
LEAST_CHUNK = 1024  # draws in one, of a run that may grow
MOST_IN_CHUNK = 2**40
GROUPS = "posterior", "sample_stats", "unconstrained_posterior"
PARTIAL = re.compile(r".*\.[0-9a-f]{32}\.partial")  # what Zarr writes before it renames a file


def import_zarr() -> Any:
    """The library. Raises ImportError, saying what to install."""
    try:
        with held_back():  # a package that is half imported stays so
            import zarr
    except ModuleNotFoundError as missing:
        raise ImportError('store= needs Zarr: pip install "refhmc[store]" (or zarr)') from missing
    return zarr


def states_of(path: Any) -> pathlib.Path:
    """Return the folder of the states in a store, which may be new.

    Raises CheckpointError if ``path`` is something else, a store without states, or holds links.
    """
    path = pathlib.Path(path)
    if path.is_dir():
        refuse_links(path)
    if (path / STATES / "run.json").exists() or not path.exists():
        return path / STATES
    if not path.is_dir() or (any(path.iterdir()) and [each.name for each in path.iterdir()] != [STATES]):
        why = (
            f"has no {STATES}/run.json: it can be read, not gone on with"
            if (path / "zarr.json").exists()
            else "is no store"
        )
        raise CheckpointError(f"{path} {why}: take another folder")
    return path / STATES


def remove_unfinished(path: pathlib.Path) -> None:
    """Remove what a killed process left: files that Zarr had not renamed, and a hierarchy that was not complete.

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


def check_outside_of_stores(checkpoint: Any) -> None:
    """Raises CheckpointError for the folder of the states in a store, which go with draws that are beside it."""
    folder = pathlib.Path(checkpoint)
    if folder.name == STATES and (folder.parent / "zarr.json").exists():
        raise CheckpointError(
            f"{folder} belongs to the store {folder.parent}: give that as store=, or take another folder"
        )


class Store:
    """The hierarchy at ``path``, made or taken up: for each chain room for ``draws``, and for ``warmup`` iterations.

    ``q`` (d,): a position, to see what the model makes of it.

    Raises CheckpointError where a store of other arrays lies there.
    """

    def __init__(
        self,
        path: Any,
        model: Model,
        kernel: Any,
        q: np.ndarray,
        n_stats: int,
        chains: int,
        draws: int,
        tune: int,
        warmup: int,
    ) -> None:
        self.path, self.model, self.kernel = pathlib.Path(path), model, kernel
        self.chains, self.draws, self.tune, self.warmup = chains, draws, tune, warmup
        self._one_at_a_time = threading.Lock()  # the model's ``constrain``, and what is said of all chains
        row, enough = 8 * (model.dim + n_stats), max(draws, tune, LEAST_CHUNK)
        self.chunk = 2 ** min(max(0, int(math.log2(CHUNK / row))), math.ceil(math.log2(enough)))
        self.arrays: dict[str, dict[str, Any]] = {}
        self._shorter: list[tuple[Any, tuple[int, ...]]] = []  # arrays that have too little room, and what they need
        self._zarr = import_zarr()
        with warnings.catch_warnings():
            # Of strings, and of metadata in one place: that they are not in Zarr's format 3 yet.
            warnings.simplefilter("ignore")
            # A chunk that is missing was lost: those of zeros are written, too.
            with self._zarr.config.set({"array.write_empty_chunks": True}):
                try:
                    with held_back():  # an interrupted call can leave a lock of Zarr taken
                        self._open(q[None, None], n_stats)
                except (CheckpointError, OSError, ArithmeticError):
                    raise
                except Exception as error:  # whatever Zarr raises of what it cannot read
                    text = f"{self.path} cannot be opened as a store: {type(error).__name__}: {error}"
                    raise CheckpointError(text) from error

    def _open(self, q: np.ndarray, n_stats: int) -> None:
        remove_unfinished(self.path)
        there = (self.path / "zarr.json").exists()
        root = self._zarr.open_group(self.path, mode="a", zarr_format=3, use_consolidated=False)
        if there:
            made_by, chunk = root.attrs.get("refhmc_store"), root.attrs.get("chunk")
            if made_by != FORMAT:
                raise CheckpointError(
                    f"{self.path} is a store of format {made_by!r}; this version of refhmc reads format {FORMAT}"
                )
            if type(chunk) is not int or not 1 <= chunk <= MOST_IN_CHUNK:
                raise CheckpointError(f"{self.path}: chunk must be from 1 to {MOST_IN_CHUNK}; got {chunk!r:.100}")
            self.chunk = chunk
        self.done = self._array(root, "draws_done", np.zeros(self.chains, np.int64), (self.chains,), ("chain",))
        values = self.model.constrain(q), statistics(self.kernel, np.zeros((1, 1, n_stats))), {"q": q}
        example: dict[str, Any] = dict(zip(GROUPS, values, strict=True))
        lengths = {"": self.draws} | ({"warmup_": self.warmup} if self.warmup else {})
        for (prefix, n), (name, group) in itertools.product(lengths.items(), example.items()):
            self.arrays[prefix + name] = self._group(root, prefix + name, group, n)
        root.update_attributes({"refhmc_store": FORMAT, "chunk": self.chunk})  # in one write: the store is complete
        self._zarr.consolidate_metadata(self.path)

    def _group(self, root: Any, name: str, example: Mapping[str, np.ndarray], n: int) -> dict[str, Any]:
        """A group's arrays, like the example but of ``n`` draws of every chain, and the labels of their axes."""
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

    def _array(self, group: Any, name: str, example: np.ndarray, shape: tuple, axes: tuple) -> Any:
        """The array of that name, made or, where it is as it would be made, taken up (:meth:`make_room`)."""
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
        differ = [f"{key}: here {here[key]}, there {found.get(key)}" for key in here if here[key] != found.get(key)]
        if differ:
            raise CheckpointError(f"{self.path / group.path / name} is not as this run has it ({'; '.join(differ)})")
        return array

    @staticmethod
    def _description(array: Any) -> dict[str, str]:
        """What ``zarr.json`` says of an array, but for its attributes. (As text: NaN is not equal to itself.)"""
        return {key: repr(value) for key, value in array.metadata.to_dict().items() if key != "attributes"}

    def make_room(self) -> None:
        """Make arrays longer that were for fewer draws: not before it is known that the run goes on."""
        if not self._shorter:
            return
        with warnings.catch_warnings(), held_back():
            warnings.simplefilter("ignore")
            for array, shape in self._shorter:
                array.resize(shape)
            self._zarr.consolidate_metadata(self.path)
        self._shorter.clear()

    def end_of_chunk(self, iteration: int) -> int:
        """The iteration with which the chunk of this one ends."""
        begin, end = (0, self.tune) if iteration < self.tune else (self.tune, self.tune + self.draws)
        return min(begin + (1 + (iteration - begin) // self.chunk) * self.chunk, end)

    def write(self, chain: int, rows: Rows) -> None:
        """Put rows in their places. OSError leaves what was there before, but for a chunk that the rows begin.

        Raises CheckpointError where a chunk that they go on with is damaged."""
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
        """Rows of one array. Zarr reads a chunk that they do not fill before it writes it."""
        array = self.arrays[name][key]
        last = (at.stop - 1) // self.chunk
        if at.start <= last * self.chunk:  # what is in it was never counted by a state, and may be damaged
            self._file(name, key, chain, last).unlink(missing_ok=True)
        try:
            array[chain, at] = values
        except ValueError as error:
            raise unreadable(self.path / name / key, chain, f"{error}") from error

    def discard(self, chain: int) -> None:
        """Remove all chunks of a chain, which is to be drawn again: a damaged one could not be written to."""
        with self._one_at_a_time, held_back():
            self.done[chain] = 0
        for name, arrays in self.arrays.items():
            for key, array in arrays.items():
                for j in range(-(-array.shape[1] // self.chunk)):
                    self._file(name, key, chain, j).unlink(missing_ok=True)

    def _file(self, name: str, key: str, chain: int, j: int) -> pathlib.Path:
        return file_of_chunk(self.path / name / key, self.arrays[name][key], chain, j)

    def check(self, chain: int, done: int, *, whole: bool = False) -> None:
        """What a chain had put here after ``done`` iterations must be there; the last chunk of each array, which may be written
        to, is read, or all that is there, the ``whole``. Raises CheckpointError, naming what cannot be read."""
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

    def put_attributes(self, attributes: Mapping[str, Any]) -> None:
        """Into every group, as ArviZ's objects have them."""
        with warnings.catch_warnings(), held_back():
            warnings.simplefilter("ignore")
            root = self._zarr.open_group(self.path, mode="a", use_consolidated=False)
            for name in self.arrays:
                root[name].attrs.update(attributes)
            self._zarr.consolidate_metadata(self.path)

    def group(self, name: str, chains: list[int], n: int) -> StoredGroup:
        """The first ``n`` draws of some chains, read when they are asked for."""
        return StoredGroup(self.path, name, self.arrays[name], chains, n)


class StoredGroup(Mapping[str, np.ndarray]):
    """The arrays of a group by name, each read from the store when it is asked for."""

    def __init__(self, path: pathlib.Path, name: str, arrays: Mapping[str, Any], chains: list[int], n: int) -> None:
        self.path, self.name, self.arrays, self.chains, self.n = path, name, arrays, chains, n

    def __getitem__(self, key: str) -> np.ndarray:
        return self.some(key, 0)

    def __iter__(self) -> Iterator[str]:
        return iter(self.arrays)

    def __len__(self) -> int:
        return len(self.arrays)

    def shape(self, key: str) -> tuple[int, ...]:
        return len(self.chains), self.n, *self.arrays[key].shape[2:]

    def some(self, key: str, first: int, step: int = 1) -> np.ndarray:
        """Every ``step``-th draw from ``first`` on."""
        at = slice(first, self.n, step)
        return np.stack([self.read(key, k, at) for k in self.chains])

    def read(self, key: str, chain: int, at: slice) -> np.ndarray:
        """Some draws of one chain. Raises CheckpointError where a chunk is missing or damaged."""
        array = self.arrays[key]
        for j in range(at.start // array.chunks[1], -(-at.stop // array.chunks[1])):
            self.file_of(key, chain, j)
        try:
            with held_back():
                return array[chain, at]
        except (ValueError, OSError, TypeError) as error:
            raise self._unreadable(key, chain, f"{error}") from error

    def file_of(self, key: str, chain: int, j: int) -> pathlib.Path:
        """That of the ``j``-th chunk of a chain. Raises CheckpointError where there is none: Zarr would read NaN."""
        file = file_of_chunk(self.path / self.name / key, self.arrays[key], chain, j)
        if not file.exists():
            raise self._unreadable(key, chain, f"{file} is missing")
        return file

    def _unreadable(self, key: str, chain: int, why: str) -> CheckpointError:
        return unreadable(self.path / self.name / key, chain, why)

    def with_rows(self, left: Mapping[int, Rows], kernel: Any, store: Store) -> dict[str, np.ndarray]:
        """Arrays in memory: what is in the store and, of each chain, rows that did not get there."""
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
                made = statistics(kernel, part.stats)
            elif kind == "posterior":
                try:
                    made = store.model.constrain(part.draws)
                except Exception:  # the chain has ended by it, and says so
                    made = {}
            for key, values in made.items():
                found[key][place, first - begin : end - begin] = values
        return found

    def as_dataset(self) -> Any:
        """An xarray ``Dataset`` that reads when it is used."""
        with held_back():
            import xarray

        with warnings.catch_warnings(), held_back():
            warnings.simplefilter("ignore")
            made = xarray.open_dataset(self.path, group=self.name, engine="zarr", chunks=None)
        made = made.isel(chain=self.chains, draw=slice(self.n))
        return made.assign_coords(chain=np.array(self.chains), draw=np.arange(self.n))


def file_of_chunk(folder: pathlib.Path, array: Any, chain: int, j: int) -> pathlib.Path:
    """That of the ``j``-th chunk of a chain, of the array in that folder."""
    return folder / array.metadata.encode_chunk_key((chain, j) + (0,) * (array.ndim - 2))


def unreadable(folder: pathlib.Path, chain: int, why: str) -> CheckpointError:
    return CheckpointError(
        f"{folder}, chain {chain}, cannot be read: {why}. refhmc.resume(..., recover=True) draws the chain again"
    )
