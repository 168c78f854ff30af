"""Which functions these are: under what name their compiled code is kept for other processes.

The name is a digest of all that the functions' values depend on (:mod:`refhmc.core.fingerprint`), and of the editions of the
packages that they reach. refhmc's, Numba's and Python's are in the name of the folder (:mod:`refhmc.core.compile_cache`).
"""

from __future__ import annotations

import json
from typing import Any

import numba

from refhmc.core.compiled import extenders
from refhmc.core.fingerprint import fingerprint, package_identity, package_of, sha256

NAMED_BY_THE_CACHE = {"python", "numba", "refhmc"}


def identity_of(known: tuple) -> str | None:
    """The digest; None if one cannot be looked into, or if somebody's text may call what the user's own code has told Numba of:
    the fingerprint follows names."""
    found = fingerprint({"functions": known})
    all_refhmc = len(found.parts) == 1 and NAMED_BY_THE_CACHE.issuperset(found.packages)
    extending = set() if all_refhmc else {package_of(module) for module in extenders()}
    if found.unknown or None in extending:
        return None
    packages = {*found.packages, *map(str, extending)} - NAMED_BY_THE_CACHE
    compiler = [numba.config.OPT, numba.config.BOUNDSCHECK]  # what the environment may ask of it
    return sha256(json.dumps([found.digest, *map(str, compiler), *map(package_identity, sorted(packages))]))


def identity_with(text: Any, parts: tuple) -> str | None:
    """Of a function of refhmc's that closes over compiled ones, each with its own ``identity``; None where one has none."""
    identities = [getattr(part, "identity", None) for part in parts]
    if None in identities:
        return None
    return sha256(json.dumps([text.__module__, text.__code__.co_firstlineno, *identities]))
