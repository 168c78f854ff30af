"""The public objects of refhmc, and their docstrings as numpydoc reads them.

``python tests/helpers/public.py [PREFIX ...]`` lists the faults of the docstrings below these names (needs numpydoc) and runs
their examples.
"""

from __future__ import annotations

import doctest
import functools
import importlib
import inspect
import sys
from collections.abc import Iterator
from typing import Any

import refhmc

MODULES = (
    *(
        "array_api",
        "backends",
        "check",
        "check.adapters",
        "check.golden_vectors",
        "check.targets",
        "datasets",
        "diagnostics",
    ),
    *(
        "embedding",
        "errors",
        "integrators",
        "kernels",
        "metrics",
        "models",
        "models.error_laws",
        "models.priors",
        "parameters",
    ),
    *("plot", "uncertainty"),
)
# Checks of numpydoc that are not asked for: where the quotes stand, an extended summary, "See Also", and an example, each only
# where it helps a reader.
NOT_ASKED = {"GL01", "GL02", "GL03", "ES01", "SA01", "SA04", "EX01", "RT02"}


def names_of(module: Any) -> list[str]:
    """Return ``__all__``, or the functions and classes that the module defines."""
    if hasattr(module, "__all__"):
        return [name for name in module.__all__ if not name.startswith("_")]
    found = [name for name, value in vars(module).items() if inspect.isclass(value) or inspect.isfunction(value)]
    return [name for name in found if not name.startswith("_") and getattr(module, name).__module__ == module.__name__]


def members(cls: type) -> Iterator[str]:
    """Yield the public methods and properties that a class of refhmc defines or inherits from one, without old names."""
    bases = [base for base in cls.__mro__ if base.__module__.startswith("refhmc")]
    for name in sorted({name for base in bases for name in vars(base) if not name.startswith("_")}):
        value = inspect.getattr_static(cls, name)
        if hasattr(value, "replaced_by"):
            continue
        if isinstance(value, property | functools.cached_property | staticmethod | classmethod) or inspect.isfunction(
            value
        ):
            yield name


def module_of(name: str) -> Any:
    """Return a public module of refhmc."""
    found = refhmc
    for part in name.split(".") if name else ():
        found = getattr(found, part) if hasattr(found, part) else importlib.import_module(f"{found.__name__}.{part}")
    return found


def public() -> dict[str, Any]:
    """Return the public classes, functions, methods and properties by qualified name, each object once."""
    found, seen = {}, set()
    for prefix in ("", *MODULES):
        module = module_of(prefix)
        for name in names_of(module):
            value = getattr(module, name)
            if (
                not (inspect.isclass(value) or inspect.isroutine(value) or hasattr(value, "py_func"))
                or id(value) in seen
            ):
                continue
            seen.add(id(value))
            full = ".".join(filter(None, ("refhmc", prefix, name)))
            found[full] = value
            if inspect.isclass(value) and value.__module__.startswith("refhmc"):
                for member in members(value):
                    if (static := id(inspect.getattr_static(value, member))) not in seen:
                        seen.add(static)
                        found[f"{full}.{member}"] = getattr(value, member)
    return found


def faults(name: str, value: Any) -> list[str]:
    """Return the faults that numpydoc finds in a public object's docstring, which a method or property may inherit."""
    from numpydoc.validate import validate

    if not inspect.isclass(value) and not value.__doc__ and inspect.getdoc(value):
        return []
    try:
        errors = validate(name)["errors"]
    except ValueError as error:  # a section that cannot be parsed
        return [f"{name}: {error}"]
    return [f"{name}: {code} {text}" for code, text in errors if code not in NOT_ASKED]


def examples(name: str, value: Any) -> list[doctest.DocTest]:
    """Return the examples in the docstring of a public object."""
    value = getattr(value, "fget", None) or getattr(value, "func", None) or value
    text = inspect.getdoc(value) or ""
    test = doctest.DocTestParser().get_doctest(text, {"refhmc": refhmc}, name, None, None)
    return [test] if test.examples else []


def run_example(test: doctest.DocTest) -> tuple[int, str]:
    """Return how many examples failed, and the report."""
    lines: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    result = runner.run(test, out=lines.append)
    return result.failed, "".join(lines)


if __name__ == "__main__":
    prefixes = sys.argv[1:] or ["refhmc"]
    chosen = {name: value for name, value in public().items() if any(name.startswith(each) for each in prefixes)}
    wrong = [line for name, value in chosen.items() for line in faults(name, value)]
    tests = [test for name, value in chosen.items() for test in examples(name, value)]
    failed = [report for count, report in map(run_example, tests) if count]
    print("\n".join([*wrong, *failed]))
    print(f"{len(chosen)} public objects, {len(wrong)} faults of docstrings, {len(tests)} examples, {len(failed)} fail")
    sys.exit(bool(wrong or failed))
