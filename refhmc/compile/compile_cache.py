"""The cache of compiled code between processes: files that only this user can have written, each with a checksum.

Loading compiled code means running it. A file is therefore loaded only if its checksum is correct. The file and the
directories created by refhmc must belong to this user, and must not be writable by others. (Files are checked after
opening.) A file that fails is named in a :class:`refhmc.errors.CompileCacheWarning`, removed and written again. If no
directory passes, nothing is cached, and each process compiles for itself.

If several processes need the same function, one compiles it, and the others wait and load it.

The directory is named after a hash of all sources of refhmc. Numba's own cache, which this one replaces, does not notice
edits of a *callee* in another file.
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
from numba import types as nb

from refhmc.compile.file_lock import FileLock, HeldError
from refhmc.compile.linking import PartLibrary
from refhmc.compile.numba_internals import (
    CompileResult,
    CPUContext,
    Environment,
    FunctionCache,
    JITCodeLibrary,
    JITCPUCodegen,
    Signature,
    TypeOfDispatcher,
    _rebuild_env,
    compile_result,
    dumps,
    global_compiler_lock,
    lookup_environment,
    normalize_signature,
)
from refhmc.errors import CompileCacheWarning, _see

PRIVATE = 0o700
OF_MODELS, MOST = "of_models", 1000  # folder of the code compiled for single models, and its largest number of files
SEAL = hashlib.sha256().digest_size
PATIENCE = 120.0  # seconds to wait while another process compiles a function, which may be suspended


@functools.cache
def source_hash() -> str:
    """Return the name of the cache directory: a hash of refhmc's sources and the versions of Numba and Python.

    ``refhmc.check`` and ``refhmc.plot`` are left out, because they contain no compiled code.
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
    """Return the directory of compiled code, in ``$REFHMC_CACHE_DIR`` or the user's cache directory; create it.

    Returns None, with a CompileCacheWarning, if it cannot be created or if others can write to it.
    """
    root = os.environ.get("REFHMC_CACHE_DIR")
    if not root:
        try:
            import platformdirs
        except ImportError:
            _warn_not_kept("platformdirs, which finds the user's cache directory, is not installed")
            return None
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


def refuse(path: str | os.PathLike, status: os.stat_result) -> None:
    """Raise PermissionError if a path with this owner and mode may have been written by others."""
    if not hasattr(os, "geteuid"):  # Windows, where a user's own directories have access lists instead
        return
    if status.st_uid != os.geteuid():
        raise PermissionError(f"{path} belongs to another user (uid {status.st_uid})")
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        mode = stat.S_IMODE(status.st_mode)
        raise PermissionError(f"{path} can be written by others (mode {mode:o}; chmod go-w makes it yours alone)")


def read_sealed(path: pathlib.Path) -> Any:
    """Return what :func:`write_sealed` wrote. Raises OSError if others may have written it, or ValueError if it is damaged."""
    with open(path, "rb") as file:
        refuse(path, os.fstat(file.fileno()))
        content = file.read()
    if hashlib.sha256(content[SEAL:]).digest() != content[:SEAL]:
        raise ValueError(f"{path} is damaged: its checksum is wrong")
    return pickle.loads(content[SEAL:])


def write_sealed(path: pathlib.Path, value: Any) -> None:
    """Write a checksum and `value` to a temporary file, readable by this user only, and rename it."""
    content = dumps(value)
    path.parent.mkdir(mode=PRIVATE, exist_ok=True)  # the cache may have been emptied
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
    """Python objects of compiled code, rebuilt if the module of its source cannot be imported."""

    def __init__(self, environment: Environment) -> None:
        self.environment = environment

    def __reduce__(self) -> tuple:
        return _rebuild_env, ("numba", self.environment.consts, self.environment.env_name)


def _calls_python(library: JITCodeLibrary) -> bool:
    """Return whether code runs as Python in it (``numba.objmode``), with the names of its module.

    Numba has a variable for each such piece. (Calls of Python alone are not enough: code that takes records needs them.)
    """
    return any("cached_objmode_dispatcher" in variable.name for variable in library._final_module.global_variables)


def without_modules(data: CompileResult) -> tuple:
    """Reduce as Numba's ``CompileResult._reduce``, which imports the function's module when it is loaded.

    A user's function may have no module, or none of that name. Only code that :func:`_calls_python` uses the module.
    """
    library, fndesc, environment, *rest, _ = data._reduce()
    names = [gv.name for gv in data.library._final_module.global_variables if gv.name.startswith("_ZN08NumbaEnv")]
    referenced = filter(None, map(lookup_environment, names))
    return (library, fndesc, _Environment(environment), *rest, tuple(map(_Environment, referenced)))


def remove_oldest(folder: pathlib.Path, most: int) -> None:
    """Keep the `most` files that were used last: each edit of a model leaves some."""
    used = []
    for path in folder.iterdir():
        with contextlib.suppress(OSError):  # another process may remove it
            used.append((path.stat().st_mtime, path))
    for _, path in sorted(used)[: max(0, len(used) - most)]:
        with contextlib.suppress(OSError):
            path.unlink()


class CompiledCode(FunctionCache):
    """The cache of one function, as Numba's dispatcher uses it: one file per processor and argument types.

    `missed` is called if there is nothing to load. Code compiled within :meth:`turn` is compiled by one process at a time. A
    function whose closure has compiled functions, `known`, has an `identity` that identifies them, because they have no
    bytes that are equal in every process. A function and its `part` (:mod:`refhmc.compile.linking`) have two files. With
    `importable`, code that runs as Python in it comes from modules that can be imported, and is part of the `identity`.
    Otherwise, a function with such code is not cached. (Of Numba's class, only the hash of bytecode and closure is used.)
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

    def path(self, sig: Signature | tuple, codegen: JITCPUCodegen) -> pathlib.Path | None:
        """Return the file of a signature, or None if nothing is cached.

        This is the case if the function's file is unknown and there is no `identity`, or if an argument is a function, whose
        name differs between processes.
        """
        directory = cache_directory()
        code = self._py_func.__code__
        # The code is the same whether the return type is declared or inferred.
        arguments, _ = normalize_signature(sig)
        in_file = os.path.exists(code.co_filename)  # otherwise generated: the identity includes its source
        if directory is None or not (in_file or self._identity) or any(map(_has_function, arguments)):
            return None
        machine, text = codegen.magic_tuple(), self._identity
        if text is None:
            _, machine, text = self._index_key(sig, codegen)
        file = _hash_of_file(code.co_filename) if in_file else None
        key = (str(arguments), machine, text, code.co_filename, code.co_firstlineno, file)
        name = f"{pathlib.Path(code.co_filename).stem}.{self._py_func.__qualname__}"
        name = re.sub(r"[^\w.]", "", name)[:80]
        folder = directory if self._identity is None else directory / OF_MODELS
        return folder / f"{name}-{hashlib.sha256(repr(key).encode()).hexdigest()[:24]}.{self._suffix}"

    def load_overload(self, sig: Signature | tuple, target_context: CPUContext) -> CompileResult | None:
        """Return the compiled function of a signature, or None after `missed` if no trusted file exists."""
        target_context.refresh()
        path, (_, declared) = self.path(sig, target_context.codegen()), normalize_signature(sig)
        found = None if path is None else _load(path, target_context, declared)
        if found is None:
            self._missed()
            if path is not None and self._wait_for_our_turn(path):
                found = _load(path, target_context, declared)  # another process may have compiled it
        return found

    def _wait_for_our_turn(self, path: pathlib.Path) -> bool:
        """Take the lock of a file to be written, and return whether it was obtained."""
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
        """Context of one compilation, which releases the lock that it takes, however it ends."""
        with global_compiler_lock:
            outer, self._lock = self._lock, None
            try:
                yield
            finally:
                if self._lock is not None:
                    self._lock.release()
                self._lock = outer

    def save_overload(self, sig: Signature | tuple, data: CompileResult) -> None:
        """Cache the code compiled for a signature, if possible."""
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

    def forget(self, sig: Signature | tuple, codegen: JITCPUCodegen) -> None:
        """Remove the cached code of a signature."""
        path = self.path(sig, codegen)
        if path is not None:
            path.unlink(missing_ok=True)

    def _holds_addresses(self, library: JITCodeLibrary) -> bool:
        """Return whether the code contains addresses of this process other than those of `known`, which it never reads."""
        return library.has_dynamic_globals and any(
            int(name.rpartition(".")[2], 16) not in self._known for name in library._dynamic_globals
        )


def _has_function(kind: nb.Type) -> bool:
    """Return whether a type is that of a compiled function, or of a tuple that contains one."""
    return isinstance(kind, TypeOfDispatcher) or any(map(_has_function, getattr(kind, "types", ())))


def _load(path: pathlib.Path, target_context: CPUContext, declared: nb.Type | None) -> CompileResult | None:
    """Return the contents of a file, if they are trusted and return the `declared` type, if there is one.

    Untrusted files give a warning and are removed.
    """
    try:
        found = (_part_of if path.name.endswith(".part.nbc") else CompileResult._rebuild)(
            target_context, *read_sealed(path)
        )
        if path.parent.name == OF_MODELS:
            os.utime(path)  # mark as used
        return found if declared in (None, found.signature.return_type) else None
    except FileNotFoundError:
        pass
    except Exception as error:  # whatever unpickling and linking may raise
        if not _is_in_use(error):
            with contextlib.suppress(OSError):
                _remove(path)
            text = str(error) if str(path) in str(error) else f"{path}: {type(error).__name__}: {error}"
            warnings.warn(
                f"A file of compiled code is not used: {text}. The function is compiled again, and the draws are the same. If "
                f"this recurs, check who can write to the cache directory (REFHMC_CACHE_DIR). {_see('compile-cache')}",
                CompileCacheWarning,
                stacklevel=3,
            )
    return None


def _part_of(
    target_context: CPUContext, library: tuple, fndesc: object, environment: Environment, *rest: Any
) -> CompileResult:
    """Rebuild as Numba's ``CompileResult._rebuild``, for a part."""
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
    """Return whether another process has the file open, which Windows does not allow during writing."""
    return os.name == "nt" and isinstance(error, PermissionError)


@functools.cache
def _warn_not_kept(why: str) -> None:
    """Warn once per process for each reason."""
    warnings.warn(
        f"Compiled code is not kept for other processes: {why}. Each new process compiles refhmc again, which takes about 20 "
        f"seconds. Set REFHMC_CACHE_DIR to a directory that only you can write to. {_see('compile-cache')}",
        CompileCacheWarning,
        stacklevel=2,
    )


@functools.cache
def _hash_of_file(path: str) -> str:
    return hashlib.sha256(pathlib.Path(path).read_bytes()).hexdigest()


def _remove(path: pathlib.Path) -> None:
    """Remove whatever is in place of a cache file, in a cache directory."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()
