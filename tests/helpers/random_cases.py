"""How many random cases the Hypothesis tests look at, and which: the profiles.

"every-run", the default: the same cases on every run, so that the verdict depends on the code alone. (Hypothesis also tries
the numbers that stand in the modules imported so far, which depend on the tests that ran before: not in this profile.)
"thorough" (``--hypothesis-profile=thorough``): new cases on every run, ten times as many. What fails is printed with what
reproduces it, and kept in ``.hypothesis/``, from where the next run of that profile tries it first.
"""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

EVERY_RUN, THOROUGH = 100, 1000

COMMON = {"deadline": None, "suppress_health_check": list(HealthCheck)}


def register_profiles() -> None:
    """Both profiles, the first one loaded; pytest's option loads another afterwards."""
    settings.register_profile("every-run", max_examples=EVERY_RUN, derandomize=True, database=None, **COMMON)
    settings.register_profile("thorough", max_examples=THOROUGH, derandomize=False, print_blob=True, **COMMON)
    settings.load_profile("every-run")
    is_local = getattr(providers, "is_local_module_file", None)  # None where Hypothesis looks at no modules
    if is_local is not None:
        providers.is_local_module_file = lambda path: not settings.default.derandomize and is_local(path)


def cases(n: int) -> settings:
    """``n`` random cases in the default profile, in another one as many more as it asks for."""
    return settings(max_examples=max(1, n * settings.default.max_examples // EVERY_RUN))
