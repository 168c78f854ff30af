"""Checkpoints of an older format, made into those of this one.

Format 2 had draws and statistics in ``chain-k.npz``, written whole each time; since format 3 they lie beside it
(:mod:`refhmc.sampling.journal`). Format 1 did not say what the model's functions reach, so that it cannot be gone on with.
"""

from __future__ import annotations

import io
import json
import pathlib
from typing import Any

import numpy as np

from refhmc.errors import CheckpointError
from refhmc.sampling import journal
from refhmc.sampling.files import checksum_of_arrays, checksum_of_run, read_arrays, write_atomically


def migrate(folder: pathlib.Path, run: dict[str, Any]) -> dict[str, Any]:
    """Format 2 in ``folder``, whose ``run.json`` says ``run``, becomes format 3; what ``run.json`` says then.

    A crash in the middle leaves what this can be done to again. Raises CheckpointError if a file is damaged; nothing is
    changed then.
    """
    if run.get("checksum") != checksum_of_run(run):
        raise CheckpointError(f"{folder / 'run.json'} is damaged: its content does not agree with its checksum")
    new = {**run, "format": 3}
    new["checksum"] = checksum_of_run(new)
    first = 0 if run["save_warmup"] else run["tune"]
    found = {}
    for chain in range(run["chains"]):
        path = folder / f"chain-{chain}.npz"
        if not path.exists():
            continue
        try:
            arrays = read_arrays(path)
            checksum = str(arrays.pop("checksum"))
        except Exception as error:
            raise CheckpointError(f"{path} cannot be read: {type(error).__name__}: {error}") from error
        if checksum != checksum_of_arrays(arrays):
            raise CheckpointError(f"{path} is damaged: its content does not agree with its checksum")
        if "draws" in arrays:  # else it was done before
            found[chain] = arrays
    for chain, arrays in found.items():
        draws, stats = arrays.pop("draws"), arrays.pop("stats")
        kept = max(int(arrays["done"]) - first, 0)  # it may have kept warm-up that nobody asked for
        rows = journal.Rows(first, draws[len(draws) - kept :], stats[len(stats) - kept :])
        length = journal.append(folder / f"chain-{chain}.from-{first}.rows", 0, [rows]) if kept else 0
        arrays |= {"first": np.asarray(first), "length": np.asarray(length), "run": np.asarray(new["checksum"])}
        arrays["checksum"] = np.array(checksum_of_arrays(arrays))
        buffer = io.BytesIO()
        np.savez(buffer, **arrays)  # type: ignore[arg-type]
        write_atomically(folder / f"chain-{chain}.npz", buffer.getvalue())
    write_atomically(folder / "run.json", json.dumps(new, indent=1).encode())
    return new
