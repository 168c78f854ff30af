"""Bytes of memory available to this process: the minimum over the machine and its control groups.

Linux puts processes into nested control groups, as containers and batch systems use them. In a group with limit m and usage
u, of which r bytes are file copies that can be reclaimed, ::

    m - (u - r)

bytes are left. The minimum over all groups of the process counts. Version 2 has ``memory.max``, ``memory.current`` and
``inactive_file`` in ``memory.stat``. Version 1 has ``memory.limit_in_bytes``, ``memory.usage_in_bytes`` and
``total_inactive_file`` (kernel documentation, admin-guide/cgroup-v2.rst and cgroup-v1/memory.rst). For the machine, it is
``MemAvailable`` on Linux, the memory that can be committed on Windows, and all memory elsewhere.
"""

from __future__ import annotations

import ctypes
import os
import pathlib
import sys
from collections.abc import Iterator

# By file system type: limit, usage, and the reclaimable part of the usage in memory.stat.
FILES = {
    "cgroup2": ("memory.max", "memory.current", "inactive_file"),
    "cgroup": ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
}


def available(root: pathlib.Path | None = None) -> int | None:
    """Return the available bytes, or None if unknown. `root`: where ``/proc`` and ``/sys`` are."""
    root = pathlib.Path("/") if root is None else root
    found = [*of_groups(root), of_machine(root)]
    return min((max(0, each) for each in found if each is not None), default=None)


def of_machine(root: pathlib.Path) -> int | None:
    """Return the available memory of the machine, or all of it if that is unknown."""
    kilobytes = _table(root / "proc" / "meminfo").get("MemAvailable:")
    if kilobytes is not None:
        return 1024 * kilobytes
    if sys.platform == "win32":
        return _of_windows()
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return None


def of_groups(root: pathlib.Path) -> Iterator[int]:
    """Yield the available memory in each control group of this process with a limit."""
    for kind, folder, end in _groups(root):
        limit, in_use, given_back = FILES[kind]
        while True:
            most, used = (_number(folder / name) for name in (limit, in_use))
            if most is not None and used is not None:
                yield most - max(0, used - _table(folder / "memory.stat").get(given_back, 0))
            if folder == end:
                break
            folder = folder.parent


def _groups(root: pathlib.Path) -> Iterator[tuple[str, pathlib.Path, pathlib.Path]]:
    """Yield kind, folder of this process's group, and mount point of each hierarchy of groups."""
    lines = [line.split(":", 2) for line in _lines(root / "proc" / "self" / "cgroup")]
    member_of = {name: line[2] for line in lines if len(line) == 3 for name in line[1].split(",")}  # "": version 2
    for line in _lines(root / "proc" / "self" / "mountinfo"):
        of_mount, _, of_system = line.partition(" - ")
        words, system = of_mount.split(), of_system.split()
        if len(words) < 5 or len(system) < 2 or system[0] not in FILES:
            continue
        kind, options = system[0], system[-1]
        controller = "" if kind == "cgroup2" else "memory"
        if controller not in member_of:
            continue
        if kind == "cgroup" and controller not in options.split(","):
            continue
        top, mounted = words[3].rstrip("/"), root.joinpath(*_parts(words[4]))
        path = member_of[controller]
        within = path[len(top) :] if f"{path}/".startswith(f"{top}/") else ""
        folder = mounted.joinpath(*_parts(within))
        yield kind, folder if ".." not in within and folder.is_dir() else mounted, mounted


def _parts(path: str) -> list[str]:
    """Return the parts of a path in ``mountinfo``, where a space is an octal number."""
    return [part for part in path.replace("\\040", " ").split("/") if part]


def _lines(file: pathlib.Path) -> list[str]:
    try:
        return file.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []


def _number(file: pathlib.Path) -> int | None:
    """Return the number in a file, or None for "max" or if there is none."""
    text = "".join(_lines(file)).strip()
    return int(text) if text.isdigit() else None


def _table(file: pathlib.Path) -> dict[str, int]:
    """Return the names and numbers in a file."""
    words = (line.split() for line in _lines(file))
    return {line[0]: int(line[1]) for line in words if len(line) > 1 and line[1].isdigit()}


def _of_windows() -> int | None:
    """Return ``ullAvailPageFile`` of Windows: the memory that this process may commit."""

    class Status(ctypes.Structure):
        _fields_ = (
            [("dwLength", ctypes.c_ulong), ("dwMemoryLoad", ctypes.c_ulong)]
            + [
                (f"ull{name}", ctypes.c_ulonglong)
                for name in ("TotalPhys", "AvailPhys", "TotalPageFile", "AvailPageFile", "TotalVirtual", "AvailVirtual")
            ]
            + [("ullAvailExtendedVirtual", ctypes.c_ulonglong)]
        )

    status = Status(dwLength=ctypes.sizeof(Status))
    known = ctypes.windll.kernel32.GlobalMemoryStatusEx(ctypes.byref(status))  # type: ignore[attr-defined]
    return int(status.ullAvailPageFile) if known else None
