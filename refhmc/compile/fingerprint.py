"""The content of a run's functions, part by part: two runs with equal parts sample from the same distribution.

A *part* is something that affects a function's values, with a readable label and a description of its content::

    the code of log_density                      bytecode 5c0d...
    the global `scale` read by log_density       2.0
    the variable `y` that gradient closes over   float64 array of shape (5,), 77a1...

A function is described by its bytecode with names and constants, its defaults, closure cells and attributes, and each global
that it reads. A callee among these is a function again. A compiled function is described by the Python function that it was
compiled from, with its options. A bound method is its function and its object. An object is its class and what ``pickle``
would write, so that ``__getstate__`` decides what belongs to it. A class is its bases, methods and attributes. File names, line
numbers, docstrings, annotations, memory addresses, and whether the code was imported or is ``__main__``, do not matter.

Anything from Python or an installed package is identified by name; :func:`package_identity` returns the version of the
package. Code that a package generates at run time is inspected like the user's own. A user's module is described by those of
its attributes whose names occur in the function. Dictionaries and sets have no order.

Four things are not compared:

- Random generators, locks and loggers, whose state changes by nature.
- Parts that the functions change while they run, such as a counter that they assign to, or a cache, which is found by comparing
  the parts before and after the first evaluations (:func:`settled`). Such parts are marked, and the user gets a warning.
- Objects that cannot be inspected, such as an open file or a function of a compiled library. They are identified by type, are
  listed in ``unknown``, and the user gets a warning.
- Whatever a function reaches other than by name, such as ``globals()["x"]``, a file that it reads, or the environment.
"""

from __future__ import annotations

import builtins
import collections
import copyreg
import dataclasses
import dis
import functools
import hashlib
import importlib
import importlib.metadata
import importlib.util
import json
import logging
import pathlib
import random
import sys
import threading
import types
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping, Set
from typing import Any, NamedTuple, TypeVar

import numpy as np

T = TypeVar("T")

READS_GLOBAL = {"LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"}
WRITES_GLOBAL = {"STORE_GLOBAL", "DELETE_GLOBAL"}
WRITES_CELL = {"STORE_DEREF", "DELETE_DEREF"}
HAS_DOCSTRING = 0x4000000  # a flag of code objects since Python 3.13
ABOUT_THE_TEXT = ("__firstlineno__", "__static_attributes__")  # attributes of a class since Python 3.13
CHANGES = "changes as the functions run"
SHOWN = 100  # longest description that is not replaced by its digest

# Objects whose state changes by nature.
RANDOM = (np.random.Generator, np.random.RandomState, np.random.BitGenerator, random.Random)
LOCKS = (type(threading.Lock()), type(threading.RLock()), threading.Condition, threading.Event, threading.local)
WEAK = (weakref.ref, weakref.WeakKeyDictionary, weakref.WeakValueDictionary, weakref.WeakSet)
RUNNING = (*RANDOM, *LOCKS, *WEAK, logging.Logger)
PLAIN = (bool, float, complex, str, bytes, range, type(None), type(Ellipsis), type(NotImplemented))
MEMBERS = (types.FunctionType, staticmethod, classmethod, property, functools.cached_property)
IN_MEMBERS = ("__func__", "fget", "fset", "func")  # where those hold functions
BUILT_IN = (types.BuiltinFunctionType, types.MethodWrapperType, types.WrapperDescriptorType, types.MethodDescriptorType)


class Fingerprint(NamedTuple):
    """``parts`` as descriptions by label, the ``packages`` used, and the ``unknown`` labels of uninspected parts, with type."""

    parts: dict[str, str]
    packages: tuple[str, ...]
    unknown: tuple[str, ...]

    @property
    def digest(self) -> str:
        """The SHA-256 of all parts."""
        return sha256(json.dumps(self.parts, sort_keys=True))


def fingerprint(roots: Mapping[str, object]) -> Fingerprint:
    """Return the parts of values and functions by name, and of everything that they reach."""
    walk = _Walk()
    for name, value in roots.items():
        walk.part(name, name, value)
        walk.look_into_functions()
    return Fingerprint(walk.parts, tuple(sorted(walk.packages)), tuple(walk.unknown))


def settled(before: Fingerprint, after: Fingerprint) -> Fingerprint:
    """Return `before`, with marks on the parts that differ `after` the functions were called."""
    labels = [*before.parts, *(label for label in after.parts if label not in before.parts)]
    parts = {k: before.parts[k] if before.parts.get(k) == after.parts.get(k) else CHANGES for k in labels}
    return Fingerprint(parts, before.packages, before.unknown)


def differences(here: Mapping[str, str], there: Mapping[str, str]) -> list[str]:
    """Return a clause for each part that differs here and there."""
    found = []
    for label in [*there, *(label for label in here if label not in there)]:
        one, other = here.get(label), there.get(label)
        if one == other or CHANGES in (one, other):
            continue
        if other is None:
            found.append(f"{label} is only here ({one})")
        elif one is None:
            found.append(f"{label} is only there ({other})")
        else:
            found.append(f"{label} differs: here {one}, there {other}")
    return found


def sha256(content: str | bytes) -> str:
    return hashlib.sha256(content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content).hexdigest()


# ------------------------------------------------------------------------------------------------------ packages


def package_of(module: str | None) -> str | None:
    """Return "python", the installed package or "refhmc" that a module belongs to, or None for the user's own code."""
    top = (module or "").partition(".")[0]
    if top in sys.stdlib_module_names:
        return "python"
    if top in ("", "__main__", "refhmc"):
        return top if top == "refhmc" else None
    return top if {"site-packages", "dist-packages"} & set(_place(top).parts) else None


def _place(top: str) -> pathlib.Path:
    """Return the file of a module, or the ``__init__.py`` or folder of a package, without importing it."""
    home = sys.modules.get(top)
    if home is not None:
        return pathlib.Path(getattr(home, "__file__", None) or next(iter(getattr(home, "__path__", ())), ""))
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError):
        spec = None
    folders = spec.submodule_search_locations if spec is not None else None
    return pathlib.Path((spec.origin if spec is not None else None) or next(iter(folders or ()), ""))


@functools.cache
def package_identity(package: str) -> str:
    """Return the version of an installed package, with a digest of its Python files."""
    place, distribution = _place(package), None if package == "refhmc" else _distribution(package)
    own = getattr(sys.modules.get(package), "__version__", "of unknown version")
    begins = (f"{package}/", f"{package}.py,")
    record = (distribution.read_text("RECORD") if distribution else None) or ""
    files = sorted(line for line in record.splitlines() if line.startswith(begins) and ".py,sha256=" in line)
    if not files:
        paths = sorted(place.parent.rglob("*.py")) if place.name == "__init__.py" else [place]
        files = [f"{path.name} {sha256(path.read_bytes())}" for path in paths if path.is_file()]
    return f"{distribution.version if distribution else own}, files {sha256(chr(10).join(files))[:12]}"


def _distribution(package: str) -> importlib.metadata.Distribution | None:
    try:
        return importlib.metadata.distribution(package)
    except importlib.metadata.PackageNotFoundError:
        names = importlib.metadata.packages_distributions().get(package)
        return importlib.metadata.distribution(names[0]) if names else None


def is_numba_s(kind: type) -> bool:
    """Return whether this is a class of Numba's types, which are numbered in the order in which a process meets them."""
    return kind.__module__.startswith(("numba.core.types.", "numba.core.typing."))


def is_written_at_run_time(f: types.FunctionType) -> bool:
    """Return whether the source of a function is not in the file of its module.

    (A function created by ``exec`` may have the name of the calling module, as PyTensor's functions of graphs do.)
    """
    file = f.__code__.co_filename
    return file != f.__globals__.get("__file__") and not file.startswith("<frozen ")


# ---------------------------------------------------------------------------------------------------------- code


def instructions(code: types.CodeType) -> Iterator[dis.Instruction]:
    """Yield the instructions of the code and of all nested code."""
    for each in dis.get_instructions(code):
        yield each
        if isinstance(each.argval, types.CodeType):
            yield from instructions(each.argval)


def names_in(code: types.CodeType, operations: set[str]) -> set[str]:
    """Return the names that these operations act on, without those that Python gives each module."""
    found = {each.argval for each in instructions(code) if each.opname in operations}
    return {name for name in found if not (name.startswith("__") and name.endswith("__"))}


def written_cells(code: types.CodeType, cells: set[str]) -> set[str]:
    """Return the closure cells that a function, or one nested in it, assigns to."""
    cells = cells & set(code.co_freevars)
    found = {each.argval for each in dis.get_instructions(code) if each.opname in WRITES_CELL} & cells
    return found.union(*(written_cells(each, cells) for each in code.co_consts if isinstance(each, types.CodeType)))


def all_names(code: types.CodeType) -> set[str]:
    """Return the names of globals, attributes and imports in the code, including nested code."""
    nested = [each for each in code.co_consts if isinstance(each, types.CodeType)]
    return set(code.co_names).union(*map(all_names, nested))


def imports_in(code: types.CodeType) -> list[str]:
    """Return the modules that the code imports at run time, as ``importlib.import_module`` takes them."""
    steps = list(instructions(code))
    found: set[str] = set()
    for k, each in enumerate(steps):
        if each.opname == "IMPORT_NAME":  # after the level and the list of names
            level = steps[k - 2].argval
            path = each.argval.split(".")  # import a.b binds a, which leads to a.b
            found.update("." * level + ".".join(path[:n]) for n in range(1, len(path) + 1))
    return sorted(found)


# ---------------------------------------------------------------------------------------------------------- walk


class _Walk:
    """One walk over everything reachable, in an order that depends only on the content."""

    def __init__(self) -> None:
        self.parts: dict[str, str] = {}
        self.packages: set[str] = set()
        self.unknown: list[str] = []
        self.called: dict[int, str] = {}  # functions, classes and objects with parts, with their names in labels
        self.known: dict[int, str] = {}  # arrays and objects described before
        self.entered: list[int] = []  # enclosing containers and objects
        self.alive: list[object] = []  # keeps objects alive, so that ids stay unique
        self.at = ""  # label of the current part
        self.waiting: list[tuple[types.FunctionType, str]] = []  # functions still to be inspected

    def part(self, label: str, name: str, value: Any, names: Set[str] = frozenset()) -> None:
        """Describe a value under a label; ``name`` is what the labels of its own parts call it.

        ``names`` are all those in the code of the function that has the value at hand: what it may take from a module.
        """
        before, depth = self.at, len(self.entered)
        self.at = label = _unused(label, self.parts)
        self.parts[label] = ""
        try:
            module = isinstance(value, types.ModuleType)
            description = self.module(value, name, names) if module else self.describe(value, name)
        except Exception as error:  # a class that cannot be inspected
            del self.entered[depth:]
            description = self.by_type(value, type(error).__name__)
        if len(description) > SHOWN and not isinstance(value, np.ndarray):
            description = f"{type(value).__name__} {sha256(description)[:32]}"
        self.parts[label] = description
        self.at = before

    def describe(self, value: Any, name: str | None = None) -> str:
        """Return the content of a value in words. With a name, an object's attributes become separate parts."""
        kind = type(value)
        if kind in PLAIN:
            return repr(value)
        if kind is int:
            return repr(value) if abs(value) < 1 << 64 else hex(value)
        if value is _Empty:
            return "nothing"
        if isinstance(value, RUNNING):
            return f"a {kind.__qualname__}"
        if isinstance(value, types.CodeType):
            return self.code(value)
        if isinstance(value, types.ModuleType):
            return self.module(value)
        if isinstance(value, type):
            return self.klass(value)
        if callable(value) or isinstance(value, MEMBERS):
            described = self.function(value, name or str(getattr(value, "__qualname__", f"a function in {self.at}")))
            if described is not None:
                return described
        self.alive.append(value)
        if id(value) in self.entered:
            return f"the same as {len(self.entered) - self.entered.index(id(value))} levels up"
        self.entered.append(id(value))
        try:
            return self.container(value) or self.thing(value, name)
        finally:
            self.entered.pop()

    # -- values

    def container(self, value: Any) -> str | None:
        """Describe a tuple, list, dictionary, set or array; return None for anything else."""
        kind = type(value)
        if kind in (tuple, list):
            return f"{kind.__name__} ({', '.join(map(self.describe, value))})"
        if kind is dict:
            keyed = sorted(((self.alone(key), each) for key, each in value.items()), key=lambda pair: pair[0])
            return f"dict ({', '.join(f'{key}: {self.describe(each)}' for key, each in keyed)})"
        if kind in (set, frozenset):
            return f"{kind.__name__} ({', '.join(sorted(map(self.alone, value)))})"
        if isinstance(value, np.generic) and value.dtype.kind != "V":
            return f"{value.dtype} {value!r}"
        return self.remember(value, self.array) if kind is np.ndarray else None

    def alone(self, value: object) -> str:
        """Return a description that is independent of other parts, for members of unordered containers."""
        if type(value) in (str, int, float, bool, bytes, type(None)):
            return self.describe(value)
        walk = _Walk()
        walk.entered, walk.at = self.entered, self.at
        description = walk.describe(value)
        walk.look_into_functions()
        self.packages |= walk.packages
        self.unknown += walk.unknown
        return f"{description} {sha256(json.dumps(walk.parts, sort_keys=True))[:32] if walk.parts else ''}".strip()

    def array(self, value: np.ndarray) -> str:
        """Describe type, shape and content of an array; all NaNs are equal."""
        array = np.asarray(value)
        words = f"{array.dtype} array of shape {array.shape}"
        if array.dtype.kind in "OTV" or array.dtype.char in "gG":  # with pointers or padding bytes
            return f"{words}, {sha256(', '.join(map(self.describe, array.ravel().tolist())))[:32]}"
        if array.dtype.kind in "fc" and np.isnan(array).any():
            array = np.where(np.isnan(array), np.array(np.nan, array.dtype), array)  # one bit pattern for all NaNs
        return f"{words}, {sha256(np.ascontiguousarray(array).tobytes())[:32]}"

    def remember(self, value: T, describe: Callable[[T], str]) -> str:
        if id(value) not in self.known:
            self.known[id(value)] = describe(value)
        return self.known[id(value)]

    def thing(self, value: object, name: str | None) -> str:
        """Describe an object of any other class: its class, and its state as pickle takes it."""
        if hasattr(type(value), "__dlpack__") and not isinstance(value, np.ndarray):  # an array of JAX, Torch, CuPy
            return self.remember(value, lambda v: self.array(np.asarray(getattr(v, "detach", lambda: v)())))
        if is_numba_s(type(value)):
            return f"{type(value).__qualname__} {value}"
        if any(map(is_numba_s, type(value).__mro__)):  # Pointer, or a user's type
            return f"{self.klass(type(value))} {value}"
        if name is None:
            return self.remember(value, self.state)
        if id(value) in self.called:
            return f"the same as {self.called[id(value)]}"
        self.called[id(value)] = name
        return self.state(value, name)

    def state(self, value: object, name: str | None = None) -> str:
        """Describe an object's class and what ``pickle`` would write; with a name, a part for each attribute."""
        by_type = copyreg.dispatch_table.get(type(value))
        try:
            reduced = by_type(value) if by_type else value.__reduce_ex__(4)
        except Exception as error:  # TypeError for files and handles; any error from a user's class
            return self.by_type(value, type(error).__name__)
        if isinstance(reduced, str):  # a global of a module
            return f"{self.klass(type(value))} {self.edition(value, getattr(value, '__module__', None))} {reduced}"
        self.alive.append(reduced)
        made_by, arguments, state, items, pairs = (*reduced, None, None, None)[:5]
        if name is not None and type(state) is dict:
            for key in sorted(state, key=str):
                self.part(f"the attribute `{key}` of {name}", f"{name}.{key}", state[key])
            state = None
        items, pairs = list(items or ()), list(pairs or ())
        contents = pairs if isinstance(value, collections.OrderedDict) else dict(pairs)
        return " ".join(map(self.describe, (type(value), made_by, *arguments, state, items, contents)))

    def by_type(self, value: object, why: str) -> str:
        self.unknown.append(f"{self.at} ({type(value).__module__}.{type(value).__qualname__}; {why})")
        return f"{type(value).__module__}.{type(value).__qualname__}, known by its type alone"

    # -- functions

    def function(self, value: object, name: str) -> str | None:
        """Describe a function of any kind; return None for a callable object, which is described like any other."""
        if isinstance(value, types.MethodType):
            bound_to = self.describe(value.__self__, f"{name}'s object")
            return f"the method {self.describe(value.__func__, name)} of {bound_to}"
        if isinstance(value, functools.partial):
            words = [self.describe(value.func, name), *map(self.describe, value.args)]
            for key in sorted(value.keywords):
                self.part(f"the argument `{key}` that is given to {name}", key, value.keywords[key])
            return f"partial ({', '.join(words)})"
        if isinstance(value, types.FunctionType):
            return self.python_function(value, name)
        if isinstance(value, MEMBERS):
            return f"{type(value).__name__} {self.describe([getattr(value, each, None) for each in IN_MEMBERS])}"
        if isinstance(value, np.ufunc):
            return self.ufunc(value)
        if isinstance(value, np.vectorize):  # has a cache in addition
            options = [value.otypes, value.excluded, value.signature]
            return f"vectorize ({self.describe(value.pyfunc, name)}, {self.describe(options)})"
        if isinstance(value, BUILT_IN) or type(value).__name__ == "cython_function_or_method":
            return self.built_in(value)
        text = _python_text(value)
        if text is None:
            return None
        known = id(text) in self.called
        described = self.describe(text, name)
        if id(text) in self.called and not known and hasattr(value, "targetoptions"):
            self.part(f"the options that {name} is compiled with", name, _options(value))
        return f"{self.klass(type(value))} of {described}"

    def python_function(self, f: types.FunctionType, name: str) -> str:
        """Describe a function by name if it is in a package; otherwise queue it for inspection."""
        if id(f) in self.called:
            return f"the same as {self.called[id(f)]}"
        module, place = f.__globals__.get("__name__"), f.__code__.co_qualname
        package = package_of(module)
        if package is not None:
            self.packages.add(package)
        by_name = package is not None and not is_written_at_run_time(f)
        if not by_name or "<locals>" in place:  # a package's function may have the user's in its closure
            self.alive.append(f)
            self.called[id(f)] = name = _unused(name, self.called.values())
            self.waiting.append((f, name))
        return f"{module}.{place}" if by_name else f"the function {name}"

    def look_into_functions(self) -> None:
        """Add the parts of all functions that were met, and of those met on the way."""
        while self.waiting:
            f, name = self.waiting.pop(0)
            code, names = f.__code__, all_names(f.__code__)
            self.part(f"the code of {name}", name, code)
            if package_of(f.__globals__.get("__name__")) is None or is_written_at_run_time(f):
                self.globals_of(f, name, names)
            memory = written_cells(code, set(code.co_freevars))
            for key, cell in zip(code.co_freevars, f.__closure__ or (), strict=True):
                label = f"the variable `{key}` that {name} closes over"
                if key in memory:
                    self.parts[_unused(label, self.parts)] = CHANGES
                else:
                    self.part(label, key, _Empty if _is_empty(cell) else cell.cell_contents, names)
            defaults = f.__defaults__ or ()
            positional = code.co_varnames[: code.co_argcount]
            named = dict(zip(positional[len(positional) - len(defaults) :], defaults, strict=True))
            for key, value in {**named, **(f.__kwdefaults__ or {})}.items():
                self.part(f"the default of `{key}` in {name}", key, value, names)
            for key in sorted(f.__dict__.keys() - {"__wrapped__"}):
                self.part(f"the attribute `{key}` of {name}", key, f.__dict__[key], names)

    def globals_of(self, f: types.FunctionType, name: str, names: Set[str]) -> None:
        """Add a part for each global that the function reads, and for what it uses of the modules that it imports."""
        code, there = f.__code__, f.__globals__
        memory = names_in(code, WRITES_GLOBAL)
        for key in sorted(names_in(code, READS_GLOBAL)):
            label = f"the global `{key}` read by {name}"
            if key in memory:
                self.parts[_unused(label, self.parts)] = CHANGES
            elif key in there:
                self.part(label, key, there[key], names)
            elif not hasattr(builtins, key):
                self.part(label, key, _Empty)
        for module in imports_in(code):
            label = f"the module `{module}` imported by {name}"
            if package_of(module) is not None:
                self.packages.add(str(package_of(module)))
                self.parts[label] = f"module {module}"
                continue
            try:
                self.part(label, module, importlib.import_module(module, there.get("__package__")), names)
            except Exception:  # the call would fail, too
                self.parts[label] = "nothing"

    def code(self, code: types.CodeType) -> str:
        """Describe the bytecode with its names and the contents of its constants."""
        n = code.co_argcount + code.co_kwonlyargcount
        counts = (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags & ~HAS_DOCSTRING)
        words = [repr(counts), repr(code.co_varnames[:n]), code.co_exceptiontable.hex()]
        named = {*dis.hasname, *dis.haslocal, *dis.hasfree, *dis.hasjrel, *dis.hasjabs}
        steps = list(dis.get_instructions(code))
        for each, after in zip(steps, [*steps[1:], None], strict=True):
            if each.opcode in dis.hasconst and after is not None and after.argval in ABOUT_THE_TEXT:
                continue
            if each.opcode in dis.hasconst:
                words.append(f"{each.opname} {self.describe(each.argval)}")
            else:
                words.append(f"{each.opname} {each.arg} {each.argval if each.opcode in named else ''}")
        return f"bytecode {sha256(chr(10).join(words))[:32]}"

    def built_in(self, value: Any) -> str:
        """Describe a C function by its name and the object that it is bound to; a user's own by its library's file."""
        bound = getattr(value, "__self__", None)
        owner = getattr(value, "__objclass__", None) or (type(bound) if bound is not None else None)
        if owner is not None and not isinstance(bound, types.ModuleType):
            return f"{self.klass(owner)}.{value.__name__} of {self.describe(bound)}"
        module = getattr(value, "__module__", None) or getattr(bound, "__name__", None)
        return f"{self.edition(value, module)} {value.__name__}"

    def edition(self, value: object, module: str | None) -> str:
        """Return the module of compiled code, with the content of its file if it is the user's."""
        package = package_of(module)
        if package is not None:
            self.packages.add(package)
            return f"{module}"
        file = getattr(sys.modules.get(module or ""), "__file__", None)
        if file is None or not pathlib.Path(file).is_file():
            return self.by_type(value, "no source")
        return f"a library {sha256(pathlib.Path(file).read_bytes())[:32]}"

    def ufunc(self, value: np.ufunc) -> str:
        for module in ("numpy", "scipy.special", getattr(value, "__module__", None)):
            if module and getattr(sys.modules.get(module), value.__name__, None) is value:
                return f"{self.edition(value, module)} {value.__name__}"
        return f"{self.by_type(value, 'of an unknown module')} {value.__name__}"

    # -- classes and modules

    def klass(self, cls: type) -> str:
        """Describe a class by name; if it is the user's own, also by its bases, methods and attributes."""
        package = package_of(cls.__module__)
        if package is not None:
            self.packages.add(package)
            return f"{cls.__module__}.{cls.__qualname__}"
        if id(cls) in self.called:
            return self.called[id(cls)]
        self.alive.append(cls)
        self.called[id(cls)] = name = _unused(f"the class {cls.__qualname__}", self.called.values())
        members = {key: value for key, value in vars(cls).items() if _is_member(key, value)}
        self.part(f"the content of {name}", cls.__qualname__, [*cls.__bases__, members])
        return name

    def module(self, module: types.ModuleType, alias: str = "", names: Set[str] = frozenset()) -> str:
        """Describe a module by name; if it is the user's own, with a part for each attribute in `names`, or by its file."""
        package = package_of(module.__name__)
        if package is not None:
            self.packages.add(package)
            return f"module {module.__name__}"
        if not names:
            return f"module {self.edition(module, module.__name__)}"
        if id(module) in self.entered:
            return "module"
        self.entered.append(id(module))
        for key in sorted(names & vars(module).keys()):
            if not (key.startswith("__") and key.endswith("__")):
                self.part(f"`{alias}.{key}`", f"{alias}.{key}", vars(module)[key], names)
        self.entered.pop()
        return "module"


class _Empty:
    """Stands for a missing global, or an empty closure cell."""


def _is_empty(cell: types.CellType) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return True
    return False


def _python_text(value: object) -> object:
    """Return the Python function inside a compiled or caching one (Numba, JAX, ``functools.lru_cache``), or None."""
    for path in ("py_func", "_dispatcher.py_func", "gufunc_builder.py_func", "_pyfunc"):
        inner = value
        for step in path.split("."):
            inner = getattr(inner, step, None)
        if isinstance(inner, types.FunctionType):
            return inner
    return getattr(value, "__wrapped__", None) if package_of(type(value).__module__) is not None else None


def _options(dispatcher: Any) -> dict[str, object]:
    """Return the options with which the user has Numba compile a function."""
    options = {**dispatcher.targetoptions, "locals": str(getattr(dispatcher, "locals", None))}
    if not getattr(dispatcher, "_can_compile", True):  # only for the given signatures
        options["signatures"] = str(dispatcher.signatures)
    return options


def _is_member(key: str, value: object) -> bool:
    """Return whether an attribute of a class may affect its results."""
    if isinstance(value, types.MemberDescriptorType | types.GetSetDescriptorType) or key == "_abc_impl":
        return False
    special = key.startswith("__") and key.endswith("__")
    return key not in ("__repr__", "__str__") if isinstance(value, MEMBERS) else not special


def _unused(label: str, taken: Collection[str]) -> str:
    """Return the label, with a number if it is taken."""
    if label not in taken:
        return label
    k = 2
    while f"{label} ({k})" in taken:
        k += 1
    return f"{label} ({k})"


def classes_in(name: str, value: object) -> dict[str, type]:
    """Return the classes of a kernel and of its dataclass fields, by label: a user may have derived their own."""
    found = {f"the class of {name}": type(value)}
    if dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            inner = getattr(value, field.name)
            each = inner.items() if isinstance(inner, Mapping) else [("", inner)]
            for key, part in each:
                if dataclasses.is_dataclass(part):
                    found |= classes_in(f"{name}.{field.name}" + (f"[{key!r}]" if key else ""), part)
    return found
