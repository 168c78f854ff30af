"""Migration of checkpoints of an older format.

Format 2 had draws and statistics in ``chain-k.npz``, which was rewritten each time; format 3 has them in files of their own
(:mod:`refhmc.sampling.storage.append_only`). Format 1 did not record what the model's functions use, so that it cannot be
resumed.
"""

from __future__ import annotations

import io
import json
import pathlib
from typing import Any

import numpy as np

from refhmc.errors import CheckpointError
from refhmc.sampling.storage import append_only
from refhmc.sampling.storage.files import checksum_of_arrays, checksum_of_run, read_arrays, write_atomically


def migrate(folder: pathlib.Path, run: dict[str, Any]) -> dict[str, Any]:
    """Convert the folder of format 2 with the description `run` to format 3, and return the new description.

    After a crash, the migration can be repeated. Raises CheckpointError if a file is damaged; then nothing is changed.
    """
    if run.get("checksum") != checksum_of_run(run):
        raise CheckpointError(
            f"{folder / 'run.json'} is damaged: its content does not match its checksum. Restore a copy of it."
        )
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
            raise CheckpointError(
                f"{path} cannot be read: {type(error).__name__}: {error}. Restore a copy of it."
            ) from error
        if checksum != checksum_of_arrays(arrays):
            raise CheckpointError(f"{path} is damaged: its content does not match its checksum. Restore a copy of it.")
        if "draws" in arrays:  # else it was migrated before
            found[chain] = arrays
    for chain, arrays in found.items():
        draws, stats = arrays.pop("draws"), arrays.pop("stats")
        kept = max(int(arrays["done"]) - first, 0)  # it may include warm-up that is not kept
        rows = append_only.Rows(first, draws[len(draws) - kept :], stats[len(stats) - kept :])
        length = append_only.append(folder / f"chain-{chain}.from-{first}.rows", 0, [rows]) if kept else 0
        arrays |= {"first": np.asarray(first), "length": np.asarray(length), "run": np.asarray(new["checksum"])}
        arrays["checksum"] = np.array(checksum_of_arrays(arrays))
        buffer = io.BytesIO()
        np.savez(buffer, **arrays)  # type: ignore[arg-type]
        write_atomically(folder / f"chain-{chain}.npz", buffer.getvalue())
    write_atomically(folder / "run.json", json.dumps(new, indent=1).encode())
    return new
