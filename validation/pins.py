"""Draws do not change: SHA-256 of the draws and statistics of some ninety short runs, compared between two trees.

    python -m validation.pins                        prints a hash for each run; --out FILE keeps them
    python -m validation.pins --against FILE         compares with such a file
    python -m validation.pins --against-commit REV   compares with a commit, checked out beside and run on this machine

The runs are those of :mod:`validation.pinned_runs`, for both trees in the text that stands here. A difference is told by
run and array; exit status 1. No hashes are kept in the repository, since other processors and versions round otherwise.

A run is taken again until nothing is compiled in it: before :mod:`refhmc.compile.linking` a process that compiled the core
could order a sum otherwise than one that loaded it, and a commit to compare with may be of that time.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from validation.two_trees import Tree, commit_beside, present_tree

RUNS = pathlib.Path(__file__).resolve().with_name("pinned_runs.py")
MOST_ROUNDS = 3
SHOWN = 12  # arrays of a run that are named

Pins = dict[str, Any]


def take(tree: Tree, options: list[str]) -> Pins:
    """The pins of the refhmc in ``tree``, made by a process that loads all of the core from the cache."""
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "pins.json"
        command = [sys.executable, "-P", str(RUNS), "--out", str(out), *options]
        for _ in range(MOST_ROUNDS):
            there = tree.compiled()
            done = subprocess.run(
                command, cwd=folder, env=tree.environment(), stderr=subprocess.PIPE, text=True, check=False
            )
            if done.returncode:
                raise SystemExit(f"the runs of {tree.root} failed:\n{done.stderr}")
            if tree.compiled() == there:
                break
        pins = json.loads(out.read_text(encoding="utf-8"))
    if pathlib.Path(pins["about"]["refhmc"]) != tree.root.resolve():
        raise SystemExit(f"{pins['about']['refhmc']} was imported in the place of {tree.root}")
    return pins


def differences(before: Pins, now: Pins) -> list[str]:
    """A line for each run that is not the same in both, with the arrays that differ."""
    found = []
    for name in [*before["runs"], *(name for name in now["runs"] if name not in before["runs"])]:
        old, new = before["runs"].get(name), now["runs"].get(name)
        if old is None or new is None:
            found.append(f"{name}: only {'now' if old is None else 'before'}")
        elif "error" in old or "error" in new:
            found.append(f"{name}: before {old.get('error', 'ran')}; now {new.get('error', 'ran')}")
        elif old["sha256"] != new["sha256"]:
            found.append(f"{name}: {named(differing(old['arrays'], new['arrays']))}")
    return found


def differing(old: dict[str, str], new: dict[str, str]) -> list[str]:
    """The arrays that are not in both with one hash."""
    words = {(True, False): " (only before)", (False, True): " (only now)", (True, True): ""}
    return [name + words[name in old, name in new] for name in sorted({*old, *new}) if old.get(name) != new.get(name)]


def named(arrays: list[str]) -> str:
    more = f" and {len(arrays) - SHOWN} more" if len(arrays) > SHOWN else ""
    return ", ".join(arrays[:SHOWN]) + more


def table(pins: Pins) -> str:
    """Name, hash, and what happened in the run."""
    lines = []
    for name, run in pins["runs"].items():
        happened = run.get("error") or ", ".join(f"{count} {word}" for word, count in run["outcomes"].items())
        lines.append(f"{name:<48} {run.get('sha256', '')[:16]:<16}  {happened}")
    return "\n".join(lines)


def select(pins: Pins, word: str) -> Pins:
    return {**pins, "runs": {name: run for name, run in pins["runs"].items() if word in name}}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=pathlib.Path, help="write the hashes of the present tree there, as JSON")
    against = parser.add_mutually_exclusive_group()
    against.add_argument("--against", type=pathlib.Path, metavar="FILE", help="compare with a file of --out")
    against.add_argument("--against-commit", metavar="REV", help="compare with a commit")
    parser.add_argument("--only", default="", metavar="WORD", help="runs whose name has this word")
    parser.add_argument(
        "--cores", choices=("1", "2"), default="1", help="threads of the present tree's chains (default 1)"
    )
    chosen = parser.parse_args(arguments)
    before = None
    if chosen.against:
        before = select(json.loads(chosen.against.read_text(encoding="utf-8")), chosen.only)
    options = ["--only", chosen.only]
    with present_tree() as present:
        if chosen.against_commit:
            with commit_beside(present, chosen.against_commit) as other, ThreadPoolExecutor(1) as pool:
                beside = pool.submit(take, other, options)
                now = take(present, [*options, "--cores", chosen.cores])
                before = beside.result()
        else:
            now = take(present, [*options, "--cores", chosen.cores])
    print(table(now))
    if chosen.out:
        chosen.out.write_text(json.dumps(now, indent=1) + "\n", encoding="utf-8")
    failed = [f"{name}: {run['error']}" for name, run in now["runs"].items() if "error" in run]
    if before is None:
        return 1 if failed else 0
    for key, value in before["about"].items():
        if key != "refhmc" and value != now["about"][key]:
            print(f"Note: {key} was {value} and is {now['about'][key]}; draws may differ for that alone.")
    found = differences(before, now)
    print(f"{len(now['runs'])} runs, {len(found)} of them differ" + (":" if found else "."))
    print("\n".join(found))
    return 1 if found or failed else 0


if __name__ == "__main__":
    sys.exit(main())
