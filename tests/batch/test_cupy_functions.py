"""Each function that the array implementations call exists in array-api-compat's CuPy, with the keywords that are used.

Calls ``xp.name(...)`` are found in the sources. The test needs CuPy but no GPU.
"""

import ast
import inspect
import pathlib

import pytest

import refhmc

pytest.importorskip("cupy", reason="CuPy is not installed")
xp = pytest.importorskip("array_api_compat.cupy", reason="array-api-compat is not installed")
NOT_ON_A_DEVICE = {"check", "compile", "cli", "plot", "derived"}


def dotted(node):
    """Return the names of ``xp.linalg.eigh`` as ("linalg", "eigh"), or None for another expression."""
    names = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    return tuple(reversed(names)) if names and isinstance(node, ast.Name) and node.id == "xp" else None


def uses():
    """Return the keywords of each function of the namespace by its names, and where it is used."""
    root, found = pathlib.Path(refhmc.__file__).parent, {}
    for path in sorted(root.rglob("*.py")):
        if path.relative_to(root).parts[0] in NOT_ON_A_DEVICE:
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = dotted(node.func) if isinstance(node, ast.Call) else dotted(node)
            if names is not None and names != ("linalg",):
                keywords = {each.arg for each in node.keywords if each.arg} if isinstance(node, ast.Call) else set()
                found.setdefault(names, {}).setdefault(str(path.relative_to(root)), set()).update(keywords)
    return found


def test_the_functions_exist_with_their_keywords():
    missing = []
    for names, places in uses().items():
        function = xp
        for name in names:
            function = getattr(function, name, None)
        if function is None:
            missing.append((".".join(names), "does not exist", sorted(places)))
            continue
        try:
            known = inspect.signature(function).parameters
        except (TypeError, ValueError):
            continue  # a constant, a type, or a function of C without a signature
        if not any(each.kind is each.VAR_KEYWORD for each in known.values()):
            missing += [(".".join(names), word, path) for path, words in places.items() for word in words - set(known)]
    assert not missing
    assert len(uses()) > 50
