"""Where compiled code is kept between processes: files that only this user can have written, each with its checksum.

To load compiled code is to run it. So a file is loaded only if it and the directories that refhmc made belong to this user
and nobody else may write to them (of a file, looked at after it is opened), and if its checksum holds. A file that fails is
named in a :class:`refhmc.errors.CompileCacheWarning`, removed and written anew. Where no directory passes, nothing is kept:
each process compiles for itself.

Of several processes that need a function which nobody has compiled, one compiles it; the others wait and load it.

The directory is named after a hash of all of refhmc's sources, because Numba's own cache, which this replaces, does not notice
that a *callee* in another file was edited.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import pathlib
import pickle
import re
import shutil
import stat
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numba
from numba.core.caching import FunctionCache
from numba.core.compiler import CompileResult, compile_result
from numba.core.compiler_lock import global_compiler_lock
from numba.core.environment import Environment, _rebuild_env, lookup_environment
from numba.core.serialize import dumps
from numba.core.sigutils import normalize_signature
from numba.core.types import Dispatcher

from refhmc.core.file_lock import FileLock, HeldError
from refhmc.core.linking import PartLibrary
from refhmc.errors import CompileCacheWarning

PRIVATE = 0o700
OF_MODELS, MOST = "of_models", 1000  # the folder of what was compiled for one model, and how many files stay in it
SEAL = hashlib.sha256().digest_size
PATIENCE = (
    120.0  # seconds for which a process waits while another compiles a function: that one may have been suspended
)


@functools.cache
def source_hash() -> str:
    """Hash of refhmc's Python sources, Numba's version and Python's: the name of the cache directory.

    (Without ``refhmc.check`` and ``refhmc.plot``, where nothing is compiled.)
    """
    digest = hashlib.sha256(f"{numba.__version__} {sys.version_info[:3]}".encode())
    root = pathlib.Path(__file__).parent.parent
    for path in sorted(root.rglob("*.py")):
        if path.relative_to(root).parts[0] in ("check", "plot"):
            continue
        digest.update(str(path.relative_to(root)).encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


@functools.cache
def cache_directory() -> pathlib.Path | None:
    """Where compiled code is kept: ``$REFHMC_CACHE_DIR`` or the user's cache directory, by source hash; made if need be.

    None, with a CompileCacheWarning that says why, where it cannot be made or somebody else can write there.
    """
    root = os.environ.get("REFHMC_CACHE_DIR")
    if not root:
        import platformdirs

        root = platformdirs.user_cache_dir("refhmc", appauthor=False)
    path = pathlib.Path(root) / source_hash()
    try:
        path.parent.mkdir(mode=PRIVATE, parents=True, exist_ok=True)
        path.mkdir(mode=PRIVATE, exist_ok=True)
        for each in (path.parent, path):
            refuse(each, os.stat(each))
    except OSError as error:
        _warn_not_kept(f"{error}")
        return None
    return path


def refuse(path: Any, status: os.stat_result) -> None:
    """Raise PermissionError, with path and reason, if somebody else can have written what has this owner and mode."""
    if not hasattr(os, "geteuid"):  # Windows, where a user's own directories have access lists instead
        return
    if status.st_uid != os.geteuid():
        raise PermissionError(f"{path} belongs to another user (uid {status.st_uid})")
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        mode = stat.S_IMODE(status.st_mode)
        raise PermissionError(f"{path} can be written by others (mode {mode:o}; chmod go-w makes it yours alone)")


def read_sealed(path: pathlib.Path) -> Any:
    """What :func:`write_sealed` wrote. Raises OSError if others can have written it, ValueError if its checksum fails."""
    with open(path, "rb") as file:
        refuse(path, os.fstat(file.fileno()))
        content = file.read()
    if hashlib.sha256(content[SEAL:]).digest() != content[:SEAL]:
        raise ValueError(f"{path} is damaged: its checksum does not hold")
    return pickle.loads(content[SEAL:])


def write_sealed(path: pathlib.Path, value: Any) -> None:
    """Write a checksum and ``value`` beside the place, readable by this user only, and rename."""
    content = dumps(value)
    path.parent.mkdir(mode=PRIVATE, exist_ok=True)  # somebody may have emptied the cache since
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f"{path.name}.")
    try:
        with open(handle, "wb") as file:
            file.write(hashlib.sha256(content).digest() + content)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


class _Environment:
    """What compiled code keeps of Python's objects, to be made again where the module of its text cannot be imported."""

    def __init__(self, environment: Environment) -> None:
        self.environment = environment

    def __reduce__(self) -> tuple:
        return _rebuild_env, ("numba", self.environment.consts, self.environment.env_name)


def _calls_python(library: Any) -> bool:
    """Whether there is code that runs as Python in it (``numba.objmode``), with the names of its module: Numba has a variable
    for each such piece. (To call Python is not enough: code that takes records calls it to take them apart.)"""
    return any("cached_objmode_dispatcher" in variable.name for variable in library._final_module.global_variables)


def without_modules(data: CompileResult) -> tuple:
    """As Numba's ``CompileResult._reduce``, which has a function's module imported when it is loaded. A user's may have none,
    or none of that name; nothing is read in it but by code that :func:`_calls_python`."""
    library, fndesc, environment, *rest, _ = data._reduce()
    names = [gv.name for gv in data.library._final_module.global_variables if gv.name.startswith("_ZN08NumbaEnv")]
    referenced = filter(None, map(lookup_environment, names))
    return (library, fndesc, _Environment(environment), *rest, tuple(map(_Environment, referenced)))


def remove_oldest(folder: pathlib.Path, most: int) -> None:
    """Leave the files that were used last, ``most`` of them: each edit of a model leaves some."""
    used = []
    for path in folder.iterdir():
        with contextlib.suppress(OSError):  # another process may remove it
            used.append((path.stat().st_mtime, path))
    for _, path in sorted(used)[: max(0, len(used) - most)]:
        with contextlib.suppress(OSError):
            path.unlink()


class CompiledCode(FunctionCache):
    """The cache of one function, as Numba's dispatcher asks for it: one file for each processor and types of arguments.

    ``missed`` is called when there is nothing to load. What is compiled within :meth:`turn` is compiled by one process at a
    time. A function that closes over compiled ones, ``known``, has an ``identity`` that says which they are: they themselves
    have no bytes that are the same in every process. A function and its ``part`` (:mod:`refhmc.core.linking`) have two files.
    ``importable``: what runs as Python in it is of modules that can be imported, and in the ``identity``; else the function is
    not kept if anything does.
    (Of Numba's class only the hash of bytecode and closure is used.)
    """

    def __init__(
        self,
        function: Callable,
        missed: Callable[[], None],
        identity: str | None = None,
        known: Sequence = (),
        importable: bool = False,
        *,
        part: bool = False,
    ) -> None:
        self._py_func, self._name, self._cache_path = function, repr(function), None
        self._missed, self._identity, self._known = missed, identity, {id(each) for each in known}
        self._importable = importable
        self._lock: FileLock | None = None
        self._suffix = "part.nbc" if part else "nbc"

    def path(self, sig: Any, codegen: Any) -> pathlib.Path | None:
        """The file of a signature; None where nothing is kept: the function's own file is not known and no ``identity`` is
        given, or it is handed a function itself, which has another name in each process."""
        directory = cache_directory()
        code = self._py_func.__code__
        # Whether the returned type was declared or inferred: the code is the same.
        arguments, _ = normalize_signature(sig)
        in_file = os.path.exists(code.co_filename)  # or generated: the identity is of its text, too
        if directory is None or not (in_file or self._identity) or any(map(_has_function, arguments)):
            return None
        machine: Any = codegen.magic_tuple()
        text: Any = self._identity
        if text is None:
            _, machine, text = self._index_key(sig, codegen)
        file = _hash_of_file(code.co_filename) if in_file else None
        key = (str(arguments), machine, text, code.co_filename, code.co_firstlineno, file)
        name = f"{pathlib.Path(code.co_filename).stem}.{self._py_func.__qualname__}"
        name = re.sub(r"[^\w.]", "", name)[:80]
        folder = directory if self._identity is None else directory / OF_MODELS
        return folder / f"{name}-{hashlib.sha256(repr(key).encode()).hexdigest()[:24]}.{self._suffix}"

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """The compiled function of a signature; None, and ``missed``, where there is none that can be trusted."""
        target_context.refresh()
        path, (_, declared) = self.path(sig, target_context.codegen()), normalize_signature(sig)
        found = None if path is None else _load(path, target_context, declared)
        if found is None:
            self._missed()
            if path is not None and self._wait_for_our_turn(path):
                found = _load(path, target_context, declared)  # another process may have compiled it meanwhile
        return found

    def _wait_for_our_turn(self, path: pathlib.Path) -> bool:
        """Take the lock of a file that is to be written; whether it was had, in the end or at once."""
        lock = FileLock(path.with_suffix(".lock"))
        try:
            path.parent.mkdir(mode=PRIVATE, exist_ok=True)
            lock.acquire(PATIENCE)
        except (HeldError, OSError):
            return False
        self._lock = lock
        return True

    @contextlib.contextmanager
    def turn(self) -> Iterator[None]:
        """Around one compilation: a lock that it takes is released when it has ended, however it ends."""
        with global_compiler_lock:
            outer, self._lock = self._lock, None
            try:
                yield
            finally:
                if self._lock is not None:
                    self._lock.release()
                self._lock = outer

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep what was compiled for a signature, if it can be kept."""
        path = self.path(sig, data.codegen)
        if path is None or self._holds_addresses(data.library) or any(not part.can_cache for part in data.lifted):
            return
        if self._identity is not None and not self._importable and _calls_python(data.library):
            return
        try:
            write_sealed(path, data._reduce() if self._identity is None else without_modules(data))
            if path.parent.name == OF_MODELS:
                remove_oldest(path.parent, MOST)
        except OSError as error:
            if not _is_in_use(error):
                _warn_not_kept(f"{path.parent}: {error.strerror or error}")

    def forget(self, sig: Any, codegen: Any) -> None:
        """Remove what was kept for a signature."""
        path = self.path(sig, codegen)
        if path is not None:
            path.unlink(missing_ok=True)

    def _holds_addresses(self, library: Any) -> bool:
        """Whether there are addresses of this process in the code, other than those of ``known``, which it never reads."""
        return library.has_dynamic_globals and any(
            int(name.rpartition(".")[2], 16) not in self._known for name in library._dynamic_globals
        )


def _has_function(kind: Any) -> bool:
    """Whether a type is that of a compiled function, or of a tuple with one in it."""
    return isinstance(kind, Dispatcher) or any(map(_has_function, getattr(kind, "types", ())))


def _load(path: pathlib.Path, target_context: Any, declared: Any) -> CompileResult | None:
    """What is kept in that file, if it can be trusted and returns what is ``declared``, where anything is.

    What cannot be trusted is warned of and removed.
    """
    try:
        found = (_part_of if path.name.endswith(".part.nbc") else CompileResult._rebuild)(
            target_context, *read_sealed(path)
        )
        if path.parent.name == OF_MODELS:
            os.utime(path)  # it was used now
        return found if declared in (None, found.signature.return_type) else None
    except FileNotFoundError:
        pass
    except Exception as error:  # whatever unpickling and linking may raise
        if not _is_in_use(error):
            with contextlib.suppress(OSError):
                _remove(path)
            text = str(error) if str(path) in str(error) else f"{path}: {type(error).__name__}: {error}"
            warnings.warn(f"Compiled code is made anew: {text}.", CompileCacheWarning, stacklevel=3)
    return None


def _part_of(target_context: Any, library: tuple, fndesc: Any, environment: Any, *rest: Any) -> CompileResult:
    """As Numba's ``CompileResult._rebuild``, for a part."""
    signature, objectmode, lifted, type_annotation, reload_init, referenced_envs = rest
    for function in reload_init:
        function()
    part = PartLibrary.from_bitcode(target_context.codegen(), *library)
    entry_point = target_context.get_executable(part, fndesc, environment)
    for each in referenced_envs:
        part.codegen.set_env(each.env_name, each)
    return compile_result(
        typing_context=target_context.typing_context,
        target_context=target_context,
        library=part,
        environment=environment,
        entry_point=entry_point,
        fndesc=fndesc,
        type_annotation=type_annotation,
        signature=signature,
        objectmode=objectmode,
        lifted=lifted,
        reload_init=reload_init,
        referenced_envs=referenced_envs,
    )


def _is_in_use(error: Exception) -> bool:
    """Whether another process has the file open, which Windows does not allow two to do when one of them writes."""
    return os.name == "nt" and isinstance(error, PermissionError)


@functools.cache
def _warn_not_kept(why: str) -> None:
    """Once a process for each reason."""
    warnings.warn(f"Compiled code is not kept for other processes: {why}.", CompileCacheWarning, stacklevel=2)


@functools.cache
def _hash_of_file(path: str) -> str:
    return hashlib.sha256(pathlib.Path(path).read_bytes()).hexdigest()


def _remove(path: pathlib.Path) -> None:
    """What stands in the place of a file of ours, in a directory of ours."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()
