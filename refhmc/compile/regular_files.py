"""Files in a folder that may come from an untrusted source: links are never followed.

An archive can contain a symbolic or hard link instead of any file. Opened for writing, such a link changes a file elsewhere.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import stat
from typing import IO

# A link and, on Windows, a junction, which Python does not report as a symbolic link.
LINKS = tuple(getattr(stat, name, -1) for name in ("IO_REPARSE_TAG_SYMLINK", "IO_REPARSE_TAG_MOUNT_POINT"))
COPY = "Check what the links point to, copy the folder without links (cp -rL), and use the copy."


class UnsafeFileError(OSError):
    """A path is a link, not a regular file, or a file of another user."""


def open_regular(path: pathlib.Path, mode: str) -> IO:
    """Open a file as ``open`` does, but only a regular one with a single name.

    Raises UnsafeFileError, before anything is read or changed, for a link, a device or a file of another user.
    """
    try:
        check_regular(path, path.lstat(), _owners(path.parent))
    except FileNotFoundError:
        if mode.startswith("r"):
            raise
    flags = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)  # a pipe must not block
    file = open(path, mode, opener=lambda name, usual: os.open(name, usual | flags, 0o666))  # noqa: SIM115
    try:
        check_regular(path, os.fstat(file.fileno()), _owners(path.parent))
    except BaseException:
        file.close()
        raise
    return file


def check_folder(folder: pathlib.Path) -> None:
    """Raise UnsafeFileError for the first link, device or file of another user below ``folder``.

    ``folder`` itself may be a link: it is the path that the user gave. A file with several names passes if all of them are
    below ``folder``, as a process that is killed while it renames a file leaves it. Entries that another process removes
    meanwhile are skipped.
    """
    owners, waiting = _owners(folder), [folder]
    names: dict[tuple[int, int], list[pathlib.Path]] = {}
    while waiting:
        try:
            entries = list(os.scandir(waiting.pop()))
        except (FileNotFoundError, NotADirectoryError):
            continue
        for entry in entries:
            path = pathlib.Path(entry.path)
            try:
                found = path.lstat()
            except FileNotFoundError:
                continue
            if stat.S_ISDIR(found.st_mode) and not _is_link(found):
                waiting.append(path)
                continue
            if found.st_nlink > 1:
                names.setdefault((found.st_dev, found.st_ino), []).append(path)
            check_regular(path, found, owners, most_names=found.st_nlink)
    for paths in names.values():
        with contextlib.suppress(FileNotFoundError):
            check_regular(paths[0], paths[0].lstat(), owners, most_names=len(paths))


def check_regular(path: pathlib.Path, found: os.stat_result, owners: set[int], most_names: int = 1) -> None:
    """Raise UnsafeFileError, with the reason, unless ``found`` describes a regular file with few names and a known owner."""
    if _is_link(found):
        why = "is a link"
    elif not stat.S_ISREG(found.st_mode):
        why = "is not a regular file"
    elif found.st_nlink > most_names:  # 0: another process removed it after it was opened
        why = f"is a hard link: the file has {found.st_nlink} names"
    elif owners and found.st_uid not in owners:
        why = f"belongs to another user (number {found.st_uid})"
    else:
        return
    raise UnsafeFileError(f"{path} {why}, which refhmc does not follow. {COPY}")


def _is_link(found: os.stat_result) -> bool:
    return stat.S_ISLNK(found.st_mode) or getattr(found, "st_reparse_tag", 0) in LINKS


def _owners(folder: pathlib.Path) -> set[int]:
    """Return the users whose files are accepted: this process and the folder's owner, or none if files have no owners."""
    return {os.geteuid(), folder.stat().st_uid} if hasattr(os, "geteuid") else set()
