"""The identity of functions: the name under which their compiled code is cached for other processes.

It is a digest of everything that the functions' values depend on (:mod:`refhmc.compile.fingerprint`), and of the versions of
the packages that they use. The versions of refhmc, Numba and Python are in the name of the folder
(:mod:`refhmc.compile.compile_cache`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import numba

from refhmc.compile.compiled import extenders
from refhmc.compile.fingerprint import fingerprint, package_identity, package_of, sha256
from refhmc.compile.numba_internals import Dispatcher

NAMED_BY_THE_CACHE = {"python", "numba", "refhmc"}


def identity_of(known: tuple) -> str | None:
    """Return the digest of functions, or None if one cannot be inspected.

    Also None if a function may call what the user's own code has registered with Numba, because the fingerprint follows
    names.
    """
    found = fingerprint({"functions": by_identity(known)})
    all_refhmc = len(found.parts) == 1 and NAMED_BY_THE_CACHE.issuperset(found.packages)
    extending = set() if all_refhmc else {package_of(module) for module in extenders()}
    if found.unknown or None in extending:
        return None
    return with_editions(found.digest, {*found.packages, *map(str, extending)})


def by_identity(known: object) -> object:
    """Replace compiled functions in nested tuples by their ``identity``, if they have one."""
    if type(known) is tuple:
        return tuple(map(by_identity, known))
    identity = getattr(known, "identity", None) if isinstance(known, Dispatcher) else None
    return known if identity is None else f"compiled code {identity}"


def identity_of_text(text: str, modules: Iterable[str]) -> str | None:
    """Return the identity of functions that another library generates, from their source and the modules involved.

    Returns None if one of these modules, or one that extends Numba, is the user's own.
    """
    packages = set(map(package_of, (*modules, *extenders())))
    return None if None in packages else with_editions(sha256(text), set(map(str, packages)))


def with_editions(digest: str, packages: set[str]) -> str:
    compiler = [numba.config.OPT, numba.config.BOUNDSCHECK]  # options from the environment
    editions = map(package_identity, sorted(packages - NAMED_BY_THE_CACHE))
    return sha256(json.dumps([digest, *map(str, compiler), *editions]))


def identity_with(text: Any, parts: tuple) -> str | None:
    """Return the identity of a function of refhmc whose closure has compiled functions, or None if one has none."""
    identities = [getattr(part, "identity", None) for part in parts]
    if None in identities:
        return None
    return sha256(json.dumps([text.__module__, text.__code__.co_firstlineno, *identities]))
