"""Another commit beside the present tree: for what is compared between the two."""

from __future__ import annotations

import contextlib
import os
import pathlib
import subprocess
import tempfile
from collections.abc import Iterator
from typing import NamedTuple

ROOT = pathlib.Path(__file__).resolve().parent.parent


class Tree(NamedTuple):
    """A source tree and the folder of its compiled code."""

    root: pathlib.Path
    cache: pathlib.Path

    def environment(self) -> dict[str, str]:
        """The environment of a process whose ``refhmc`` is this tree's; start it with ``-P``, and not in another tree."""
        given = os.environ.get("PYTHONPATH", "").split(os.pathsep)
        others = [path for path in given if path and pathlib.Path(path).resolve() != ROOT]
        paths = os.pathsep.join([str(self.root), *others])
        return {**os.environ, "PYTHONPATH": paths, "REFHMC_CACHE_DIR": str(self.cache)}

    def compiled(self) -> set[pathlib.Path]:
        """The files of compiled code that there are."""
        return set(self.cache.glob("*/*.nbc"))


def git(*arguments: str) -> str:
    """What git prints. Raises SystemExit with its words where it fails."""
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"git {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout.strip()


@contextlib.contextmanager
def present_tree() -> Iterator[Tree]:
    """This tree; compiled code is kept in ``$REFHMC_CACHE_DIR`` if that is given, else in a temporary folder."""
    with contextlib.ExitStack() as stack:
        cache = os.environ.get("REFHMC_CACHE_DIR")
        cache = cache or stack.enter_context(tempfile.TemporaryDirectory(prefix="refhmc-cache-"))
        yield Tree(ROOT, pathlib.Path(cache).resolve())


@contextlib.contextmanager
def commit_beside(present: Tree, revision: str) -> Iterator[Tree]:
    """The files of a commit in a git worktree within the cache of ``present``, removed afterwards.

    The place depends on the commit alone, because compiled code belongs to the path of its source: where
    ``$REFHMC_CACHE_DIR`` is given, a second comparison with the commit compiles nothing.
    """
    commit = git("rev-parse", "--verify", f"{revision}^{{commit}}")
    folder = present.cache / f"commit-{commit[:16]}"
    tree = Tree(folder / "tree", folder / "compiled")
    if tree.root.exists():  # left by a comparison that was killed
        git("worktree", "remove", "--force", str(tree.root))
    git("worktree", "prune")
    git("worktree", "add", "--quiet", "--detach", str(tree.root), commit)
    try:
        yield tree
    finally:
        git("worktree", "remove", "--force", str(tree.root))
