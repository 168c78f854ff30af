"""Files in an untrusted folder are opened only if they are regular, have one name and a known owner."""

from __future__ import annotations

import os

import pytest

from refhmc.compile.regular_files import UnsafeFileError, check_folder, open_regular

posix = pytest.mark.skipif(os.name != "posix", reason="links and pipes of POSIX")


def symbolic_link(path, victim):
    path.symlink_to(victim)


def dangling_link(path, victim):
    path.symlink_to(victim.with_name("not there"))


def hard_link(path, victim):
    os.link(victim, path)


def pipe(path, victim):
    os.mkfifo(path)


BAD = [symbolic_link, dangling_link, hard_link, pipe]


@posix
@pytest.mark.parametrize("mode", ["rb", "r+b", "a+b", "xb"])
@pytest.mark.parametrize("plant", BAD)
def test_a_link_or_a_pipe_is_not_opened_and_its_target_is_unchanged(tmp_path, plant, mode):
    victim, folder = tmp_path / "victim", tmp_path / "run"
    victim.write_text("mine")
    folder.mkdir()
    plant(folder / "file", victim)
    with pytest.raises((UnsafeFileError, FileExistsError), match="file"):
        open_regular(folder / "file", mode)
    with pytest.raises(UnsafeFileError, match=str(folder / "file")):
        check_folder(folder)
    assert victim.read_text() == "mine"
    assert not victim.with_name("not there").exists()


@posix
def test_a_link_to_a_folder_is_found_at_any_depth(tmp_path):
    outside, deep = tmp_path / "outside", tmp_path / "run" / "a" / "b"
    outside.mkdir()
    deep.mkdir(parents=True)
    (deep / "link").symlink_to(outside, target_is_directory=True)
    with pytest.raises(UnsafeFileError, match=str(deep / "link")):
        check_folder(tmp_path / "run")


def test_regular_files_and_a_folder_given_by_a_link_are_accepted(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    with open_regular(folder / "new", "a+b") as file:
        file.write(b"text")
    with open_regular(folder / "new", "rb") as file:
        assert file.read() == b"text"
    with pytest.raises(FileNotFoundError):
        open_regular(folder / "none", "rb")
    check_folder(folder)
    if os.name == "posix":
        (tmp_path / "link").symlink_to(folder)
        check_folder(tmp_path / "link")


@posix
def test_two_names_of_a_file_inside_the_folder_are_accepted(tmp_path):
    """A process killed while it renames a file by a link leaves both names."""
    (tmp_path / "one").write_text("text")
    os.link(tmp_path / "one", tmp_path / "two")
    check_folder(tmp_path)


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can give a file away")
def test_a_file_of_another_user_is_rejected(tmp_path):
    (tmp_path / "file").write_text("text")
    os.chown(tmp_path / "file", 12345, -1)
    with pytest.raises(UnsafeFileError, match="belongs to another user"):
        check_folder(tmp_path)
    with pytest.raises(UnsafeFileError, match="belongs to another user"):
        open_regular(tmp_path / "file", "r+b")
    os.chown(tmp_path, 12345, -1)  # a folder that was unpacked with its owners
    check_folder(tmp_path)
