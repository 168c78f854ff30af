"""Files of compiled code: written again if damaged, and not read if others could have written them."""

from __future__ import annotations

import os
import pathlib
import pickle
import shutil
import subprocess
import sys
import tempfile
import warnings

import pytest
from numba import types as nb
from numba.core.errors import TypingError

from refhmc.compile import compile_cache
from refhmc.compile.compile_cache import cache_directory, read_sealed, write_sealed
from refhmc.compile.compiled import jit
from refhmc.compile.file_lock import FileLock
from refhmc.errors import CompileCacheWarning
from tests.helpers.sweeps import every, swept

posix = pytest.mark.skipif(not hasattr(os, "geteuid"), reason="Windows has access lists in the place of owner and mode")
REAL_USER = os.geteuid() if hasattr(os, "geteuid") else 0


def cube(x):
    return x * x * x


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """Return a cache directory for this test; ``files`` finds its files."""
    monkeypatch.setenv("REFHMC_CACHE_DIR", str(tmp_path / "cache"))
    for remembered in (cache_directory, compile_cache._warn_not_kept):
        remembered.cache_clear()
    yield tmp_path / "cache"
    for remembered in (cache_directory, compile_cache._warn_not_kept):
        remembered.cache_clear()


def files(folder):
    return sorted(path for path in folder.rglob("*") if not path.is_dir())


def compiles():
    """Return whether a new dispatcher of ``cube``, as in a new process, had to compile."""
    dispatcher = jit(cube)
    dispatcher.compile(nb.float64(nb.float64))
    assert dispatcher(3.0) == 27.0
    return sum(dispatcher.stats.cache_misses.values()) == 1


def compiles_without_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return compiles()


def overwrite(content):
    return lambda path: path.write_bytes(content(path.read_bytes()))


def make_directory(path, child=None):
    path.unlink()
    path.mkdir()
    if child:
        (path / child).write_text("something")


def flip(content):
    middle = bytearray(content)
    middle[len(content) // 2] ^= 1
    return bytes(middle)


DAMAGES = {
    "truncated": overwrite(lambda content: content[: len(content) // 2]),
    "one byte short": overwrite(lambda content: content[:-1]),
    "empty": overwrite(lambda content: b""),
    "shorter than its checksum": overwrite(lambda content: content[:10]),
    "one bit": overwrite(flip),
    "garbage": overwrite(lambda content: os.urandom(len(content))),
    "another pickle": overwrite(lambda content: pickle.dumps({"not": "code"})),
    "another sealed pickle": lambda path: write_sealed(path, ("not", "code")),
    "a directory": make_directory,
    "a directory that is not empty": lambda path: make_directory(path, "child"),
}


@pytest.mark.parametrize("damage", every(3, DAMAGES))
def test_damaged_file_is_named_and_written_again(folder, damage):
    assert compiles_without_warning()
    assert not compiles_without_warning()
    (path,) = files(folder)
    whole = path.read_bytes()
    DAMAGES[damage](path)
    with pytest.warns(CompileCacheWarning) as caught:
        assert compiles()
    assert [str(path) in str(each.message) for each in caught] == [True]
    assert files(folder) == [path]
    assert len(path.read_bytes()) > len(whole) // 2
    assert not compiles_without_warning()


def test_unwritable_cache_warns_once(folder, monkeypatch):
    def refuse(*arguments, **options):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(tempfile, "mkstemp", refuse)
    monkeypatch.setattr(os, "name", "posix")
    with pytest.warns(CompileCacheWarning) as caught:
        assert compiles()
        assert compiles()
    assert len(caught) == 1
    assert str(cache_directory()) in str(caught[0].message)
    assert "Permission denied" in str(caught[0].message)
    assert files(folder) == []


def test_a_declared_return_type_and_the_same_inferred_are_one_file(folder):
    assert compiles()
    inferred = jit(cube)
    assert inferred(3.0) == 27.0
    assert sum(inferred.stats.cache_hits.values()) == 1
    (path,) = files(folder)
    other = jit(cube)
    other.compile(nb.complex128(nb.float64))
    assert sum(other.stats.cache_misses.values()) == 1
    assert other(3.0) == 27.0 + 0j
    assert isinstance(other(3.0), complex)
    assert files(folder) == [path]


def test_code_compiled_by_another_process_during_the_wait_is_loaded(folder, monkeypatch):
    assert compiles_without_warning()
    (path,) = files(folder)
    content, taken = path.read_bytes(), []
    path.unlink()

    def acquire(lock, patience):
        taken.append(lock.path.name)
        path.write_bytes(content)
        path.chmod(0o600)

    monkeypatch.setattr(FileLock, "acquire", acquire)
    assert not compiles_without_warning()
    assert taken == [path.with_suffix(".lock").name]


def test_a_holder_that_is_suspended_is_not_waited_for_forever(folder, monkeypatch):
    assert compiles_without_warning()
    (path,) = files(folder)
    path.unlink()
    monkeypatch.setattr(compile_cache, "PATIENCE", 0.05)
    with FileLock(path.with_suffix(".lock")):
        assert compiles_without_warning()
    assert files(folder) == [path]


def test_a_compilation_that_fails_leaves_no_lock(folder):
    def no_type(x):
        return x.no_such_attribute

    dispatcher = jit(no_type)
    for _ in range(2):
        with pytest.raises(TypingError):
            dispatcher.compile(nb.float64(nb.float64))
        assert files(folder) == []


BESIDE_OTHERS = """
import sys
from numba import types as nb
from refhmc.metrics.softabs_function import soft
print("ready", flush=True)
sys.stdin.readline()
soft.compile(nb.float64(nb.float64, nb.float64))
print(sum(soft.stats.cache_misses.values()), soft(0.0, 2.0))
"""


@pytest.mark.sweep
def test_one_of_parallel_processes_compiles(folder):
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    processes = [subprocess.Popen([sys.executable, "-c", BESIDE_OTHERS], **pipes) for _ in range(3)]
    for process in processes:
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        process.stdin.write("go\n")
        process.stdin.flush()
    answers = [process.communicate(timeout=300)[0].split() for process in processes]
    assert sorted(answers) == [["0", "0.5"], ["0", "0.5"], ["1", "0.5"]]
    assert not [path.name for path in files(folder) if path.suffix == ".lock"]


@pytest.mark.parametrize("place", ["root", "by hash"])
def test_file_instead_of_the_directory(folder, place):
    path = folder if place == "root" else folder / compile_cache.source_hash()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("not a directory")
    with pytest.warns(CompileCacheWarning, match="(?s)not kept for other processes: .*cache.*#compile-cache"):
        assert compiles()
    assert path.read_text() == "not a directory"


def test_emptied_cache_is_filled_again(folder):
    assert compiles_without_warning()
    shutil.rmtree(cache_directory())
    assert compiles_without_warning()
    assert not compiles_without_warning()


def test_a_half_written_file_is_not_left_behind(folder, monkeypatch):
    def full(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.warns(CompileCacheWarning, match="No space left"):
        assert compiles()
    assert files(folder) == []


# ------------------------------------------------------------------------------------------------------------ trust


class Planted:
    """Creates a file when it is unpickled."""

    def __init__(self, mark):
        self.mark = mark

    def __reduce__(self):
        return pathlib.Path.touch, (self.mark,)


@pytest.fixture
def planted(folder, tmp_path):
    """Plant code that leaves a mark in the only file of the cache; return the file and the mark."""
    compiles()
    (path,) = files(folder)
    mark = tmp_path / "executed"
    write_sealed(path, Planted(mark))
    return path, mark


def test_the_planted_file_would_be_executed(planted):
    path, mark = planted
    with pytest.warns(CompileCacheWarning):
        compiles()
    assert mark.exists()  # this user wrote it: the tests below would see it executed


@posix
@pytest.mark.parametrize("mode", [0o720, 0o702, *map(swept, [0o777, 0o1777, 0o770])])
@pytest.mark.parametrize("which", ["root", swept("by hash")])
def test_a_directory_that_others_can_write_is_not_used(folder, planted, which, mode):
    path, mark = planted
    place = folder if which == "root" else path.parent
    before = path.read_bytes()
    os.chmod(place, mode)
    cache_directory.cache_clear()
    with pytest.warns(CompileCacheWarning, match=f"{place} can be written by others") as caught:
        assert compiles()
    assert len(caught) == 1
    assert not mark.exists()
    assert path.read_bytes() == before
    os.chmod(place, 0o700)


@posix
def test_a_directory_of_another_user_is_not_used(folder, planted, monkeypatch):
    path, mark = planted
    monkeypatch.setattr(os, "geteuid", lambda: REAL_USER + 1)
    cache_directory.cache_clear()
    with pytest.warns(CompileCacheWarning, match=f"{folder} belongs to another user"):
        assert compiles()
    assert not mark.exists()


@posix
def test_a_file_of_another_user_is_not_read(planted, monkeypatch):
    path, mark = planted
    assert cache_directory() == path.parent  # looked at before: only the file is of another user
    monkeypatch.setattr(os, "geteuid", lambda: REAL_USER + 1)
    with pytest.warns(CompileCacheWarning, match=f"{path} belongs to another user"):
        assert compiles()
    assert not mark.exists()


@posix
@pytest.mark.parametrize("mode", [0o620, swept(0o602), swept(0o666)])
def test_a_file_that_others_can_write_is_not_read(planted, mode):
    path, mark = planted
    os.chmod(path, mode)
    with pytest.warns(CompileCacheWarning, match=f"{path} can be written by others"):
        assert compiles()
    assert not mark.exists()
    assert path.stat().st_mode & 0o777 == 0o600
    assert not compiles_without_warning()


@posix
def test_a_link_to_a_file_of_another_user_is_not_followed(planted, tmp_path, monkeypatch):
    path, mark = planted
    elsewhere = tmp_path / "elsewhere"
    path.rename(elsewhere)
    path.symlink_to(elsewhere)
    os.chmod(elsewhere, 0o666)
    with pytest.warns(CompileCacheWarning, match="can be written by others"):
        assert compiles()
    assert not mark.exists()
    assert elsewhere.exists()
    assert not path.is_symlink()


@posix
def test_cache_is_private_whatever_the_umask(folder):
    before = os.umask(0)
    try:
        assert compiles_without_warning()
    finally:
        os.umask(before)
    assert {path.stat().st_mode & 0o777 for path in (folder, cache_directory())} == {0o700}
    assert {path.stat().st_mode & 0o777 for path in files(folder)} == {0o600}


def test_the_temporary_directory_is_never_used(tmp_path, monkeypatch):
    blocked, temporary = tmp_path / "blocked", tmp_path / "temporary"
    blocked.write_text("a file")
    temporary.mkdir()
    monkeypatch.setenv("REFHMC_CACHE_DIR", str(blocked / "cache"))
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    (temporary / f"refhmc-{compile_cache.source_hash()}").mkdir()
    with pytest.warns(CompileCacheWarning):
        assert cache_directory() is None
        assert compiles()
    assert files(temporary) == []


def test_sealed_values_are_read_back_and_damage_is_detected(tmp_path):
    path = tmp_path / "value"
    write_sealed(path, {"a": [1, 2]})
    assert read_sealed(path) == {"a": [1, 2]}
    content = path.read_bytes()
    for k in range(0, len(content), 7):  # any byte
        path.write_bytes(content[:k] + bytes([content[k] ^ 0x10]) + content[k + 1 :])
        with pytest.raises(ValueError, match="checksum"):
            read_sealed(path)


WHOLE_MODEL = "import refhmc; print(refhmc.models.Funnel(2).log_density([0.3, -0.2, 1.1]))"


@pytest.mark.sweep
def test_a_model_works_without_a_cache_and_after_damage_to_all_of_it(folder, tmp_path):
    def run(root, *flags):
        environment = {**os.environ, "REFHMC_CACHE_DIR": str(root)}
        code = [sys.executable, *flags, "-c", WHOLE_MODEL]
        done = subprocess.run(code, capture_output=True, text=True, timeout=300, env=environment, check=False)
        assert done.returncode == 0, done.stderr
        assert float(done.stdout) == pytest.approx(-0.5486617547350021, rel=1e-12)
        return done.stderr

    def written():
        return {path: path.stat().st_mtime_ns for path in files(folder)}

    run(folder, "-W", "error")
    kept = written()
    assert len(kept) >= 2
    run(folder, "-W", "error")
    assert written() == kept  # all of it is found again
    for path in kept:
        path.write_bytes(path.read_bytes()[:-5])
    caught = run(folder)
    assert "CompileCacheWarning" in caught
    assert any(path.name in caught for path in kept)
    kept = written()
    run(folder, "-W", "error")
    assert written() == kept
    (tmp_path / "file").write_text("")
    assert run(tmp_path / "file").count("not kept for other processes") == 1
