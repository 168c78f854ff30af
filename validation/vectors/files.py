"""The files in refhmc/vectors: a header line, then one record a line. Records are appended, never changed."""

from __future__ import annotations

import json
import pathlib
import random
from collections.abc import Iterator

from validation.vectors.networks import NETWORKS
from validation.vectors.records import DIGITS, FORMAT_VERSION, PRINTED, hexed, line
from validation.vectors.targets import JUMPING, TARGETS

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "refhmc" / "vectors"
GENERATOR_VERSION = "1"
LICENCE = "BSD-3-Clause"


def header(file: str) -> dict:
    about = {"file": file, "generator": f"validation.vectors {GENERATOR_VERSION}", "digits": DIGITS, "printed": PRINTED}
    return {"v": FORMAT_VERSION, "header": {**about, "licence": LICENCE}}


def target_records() -> Iterator[dict]:
    """What the targets are: formula, coordinates, data."""
    for t in (TARGETS | JUMPING | NETWORKS).values():
        data = {key: value for key, value in t.data.items() if key != "ones"}
        about = {"dim": t.dim, "coordinates": t.coordinates, "log_density": t.formula, "data": hexed(data)}
        if t.metric_text:
            about["fisher"] = t.metric_text
        yield {"v": FORMAT_VERSION, "id": f"target/{t.name}", "op": "target", "target": t.name, **about}


def stored(file: str) -> dict[str, dict]:
    """The records of a file by id, the header left out; none if there is no such file."""
    path = FOLDER / f"{file}.jsonl"
    if not path.exists():
        return {}
    rows = [json.loads(text) for text in path.read_text().splitlines()]
    return {row["id"]: row for row in rows if "id" in row}


def withdrawn() -> set[str]:
    """Ids named in the errata."""
    return set(stored("ERRATA"))


def append(file: str, record: dict) -> None:
    """Add a record, and the header before the first one."""
    path = FOLDER / f"{file}.jsonl"
    texts = [line(record)] if path.exists() else [line(header(file)), line(record)]
    with path.open("a") as stream:
        stream.writelines(text + "\n" for text in texts)


def sample(records: list[dict], share: float, seed: int, costly: int | None = None) -> list[dict]:
    """A random share of the records, at least one; at most ``costly`` of those that solve equations or build trees."""
    rng = random.Random(seed)
    chosen = rng.sample(records, max(1, round(share * len(records))))
    if costly is None:
        return chosen
    slow = [r for r in chosen if is_costly(r)]
    left_out = {r["id"] for r in slow[costly:]}
    return [r for r in chosen if r["id"] not in left_out]


def is_costly(record: dict) -> bool:
    """Whether it takes more than a second or so."""
    constant = record["args"].get("metric") in ("identity", "diagonal", "dense")
    if record["target"] in NETWORKS and record["op"] != "logp":
        return True
    return (record["op"] in ("step", "dH", "transition") and not constant) or record["args"].get("kernel") in (
        "nuts",
        "walnuts",
    )
