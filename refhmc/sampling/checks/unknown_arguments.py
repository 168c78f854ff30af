"""Error messages for arguments that ``sample`` does not have, with the name in refhmc."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Mapping

from refhmc.core.other_names import IN_OTHER_WAYS, OF_SAMPLE, our_name
from refhmc.core.registry import options
from refhmc.kernels import HMC, KERNELS, NUTS

ALIKE = 0.75  # least ratio of difflib for a suggestion; "thin" and "chains" have 0.6


def refuse_unknown(unknown: Mapping[str, object], function: Callable) -> None:
    """Raise TypeError for the first unknown argument."""
    for name in unknown:
        raise TypeError(f"sample() has no argument {name!r}. {advice(name, function)}")


def advice(name: str, function: Callable) -> str:
    """Return a sentence about what to write instead."""
    if name.lower() in IN_OTHER_WAYS:
        words = IN_OTHER_WAYS[name.lower()].rstrip(".")
        return f"{words[0].upper()}{words[1:]}."
    ours = our_name(name)
    if ours in OF_SAMPLE and ours != name:
        return f"Use {ours}."
    takers = [kind for kind in KERNELS.values() if ours in options(kind)]
    if takers:
        first = next((kind for kind in (NUTS, HMC) if kind in takers), takers[0])
        names = ", ".join(kind.__name__ for kind in takers)
        return (
            f"Pass {ours} to the kernel, as in sample(model, {first.__name__}({ours}=...)). Kernels with it: {names}."
        )
    ours_too = [each for each in inspect.signature(function).parameters if each != "unknown"]
    near = difflib.get_close_matches(name, ours_too, 1, ALIKE)
    return f"Did you mean {near[0]}?" if near else f"It has {', '.join(ours_too)}."
