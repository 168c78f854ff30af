"""Detection of scripts without ``if __name__ == "__main__":``, which worker processes run again at their start."""

from __future__ import annotations

import ast
import multiprocessing
import pathlib
import sys


def without_guard(executor: object) -> str:
    """Return the error message if the workers of `executor` import the running script and it has no guard, else "".

    A forked worker imports nothing. A spawned worker runs the script up to the call that creates workers, which ends it.
    """
    main = sys.modules.get("__main__")
    path, spec = getattr(main, "__file__", None), getattr(main, "__spec__", None)
    is_package = spec is not None and spec.name.rpartition(".")[2] == "__main__"  # not imported by workers
    if path is None or is_package or not imports_main(executor) or is_guarded(path):
        return ""
    return (
        f"The worker processes ended at their start, because each of them runs {path} again up to the call that creates "
        "workers. "
        'Put `if __name__ == "__main__":` before the code that creates the executor and calls refhmc, and indent that code.'
    )


def imports_main(executor: object) -> bool:
    """Return whether new processes of the executor import the script: all except those that are forked."""
    context = getattr(executor, "_mp_context", None) or getattr(executor, "_ctx", None) or multiprocessing
    return context.get_start_method() != "fork"


def is_guarded(path: str) -> bool:
    """Return whether a script has an ``if`` that reads ``__name__``, or cannot be read."""
    try:
        statements = ast.parse(pathlib.Path(path).read_bytes()).body
    except (OSError, SyntaxError, ValueError):
        return True
    tests = (node for each in statements if isinstance(each, ast.If) for node in ast.walk(each.test))
    return any(isinstance(node, ast.Name) and node.id == "__name__" for node in tests)
