"""Kernel, metric, integrator and backend from their names and options."""

from __future__ import annotations

import argparse
import ast
import re
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from refhmc.cli.signatures import TYPES, add_options_of_classes
from refhmc.core.registry import AUTO, Registry, required
from refhmc.core.registry import options as options_of

if TYPE_CHECKING:
    from refhmc.backends import Arrays, Numba
    from refhmc.integrators.base import Integrator
    from refhmc.kernels.options import AnyKernel
    from refhmc.metrics.base import Metric
    from refhmc.models.base import Model
    from refhmc.models.recommended import Recommended

DEFAULTS = {
    "kernel": "the kernel that the model recommends, else nuts, or dhmc for discontinuous coordinates",
    "metric": "auto: low-rank, with directions if they reduce the cost",
    "integrator": "depends on the metric",
    "backend": "numba",
}


class Word(str):
    """A ``NAME`` or ``NAME:option=value,option=value`` of the command line: the name, with its options."""

    options: dict[str, Any]

    def __new__(cls, text: str) -> Word:
        name, _, rest = text.partition(":")
        word = super().__new__(cls, name)
        word.options = {}
        for each in filter(None, re.split(r",(?=\s*[\w-]+=)", rest)):  # do not split at the commas of a list
            option, equals, value = each.partition("=")
            if not equals:
                raise argparse.ArgumentTypeError(
                    f"each option must have the form NAME:option=value; got {each!r} in {text!r}."
                )
            try:
                word.options[option.strip().replace("-", "_")] = ast.literal_eval(value.strip())
            except (ValueError, SyntaxError):
                word.options[option.strip().replace("-", "_")] = value.strip()
        return word


def classes(part: str) -> Registry:
    """Return the kernels, metrics, integrators or backends whose required arguments can be given on the command line."""
    import refhmc

    known = {
        "kernel": refhmc.kernels.KERNELS,
        "metric": refhmc.metrics.METRICS,
        "integrator": refhmc.integrators.INTEGRATORS,
        "backend": refhmc.backends.BACKENDS,
    }[part]

    def simple(kind: Any) -> bool:
        types = {field.name: str(field.type) for field in kind.__dataclass_fields__.values()}
        return all(types[name] in TYPES or name in ("base", "kernel") for name in required(kind))

    return Registry({name.replace("_", "-"): kind for name, kind in known.items() if simple(kind)})


def add_parts(parser: argparse.ArgumentParser, parts: Collection[str] = tuple(DEFAULTS)) -> None:
    """Add ``--kernel``, ``--metric``, ``--integrator`` and ``--backend``, or some of these, with the options of each."""
    text = (
        "The options of each choice are listed below, with the choices that have them and their defaults in parentheses. They "
        "can also be appended to the choice, as in --kernel hmc:n_steps=5,step_size=0.1."
    )
    method = parser.add_argument_group("method", text)
    for part in parts:
        choices = [*([AUTO] if part == "metric" else []), *classes(part)]
        text = f"One of %(choices)s (default: {DEFAULTS[part]})."
        method.add_argument(f"--{part}", choices=choices, type=Word, metavar="NAME", help=text)
        add_options_of_classes(parser.add_argument_group(f"options of --{part}"), classes(part))


def given(options: argparse.Namespace, part: str) -> dict[str, Any]:
    """Return the options of a kernel, metric, integrator or backend that are given, apart from those in its ``NAME:...``."""
    names = dict.fromkeys(name for kind in classes(part).values() for name in options_of(kind) if name not in DEFAULTS)
    return {name: value for name in names if (value := getattr(options, name, None)) is not None}


def made(part: str, word: str, given: Mapping[str, object]) -> Any:
    """Return the object with this name, the options of the word, and those in `given`.

    Raises ValueError if an option belongs to another choice or to none, or if a required one is missing.
    """
    known = classes(part)
    kind, together = known[word.replace("_", "-")], {**getattr(word, "options", {}), **given}
    for option in together:
        if option not in options_of(kind):
            takers = " and ".join(name for name, each in known.items() if option in options_of(each))
            problem = f"--{option.replace('_', '-')} belongs to --{part} {takers}; got --{part} {word}."
            unknown = f"--{part} {word} has no option {option!r}. Its options: {', '.join(options_of(kind)) or 'none'}."
            raise ValueError(problem if takers else unknown)
    for option in required(kind):
        if option not in together:
            raise ValueError(f"--{part} {word} needs the option {option}. Write --{part} {word}:{option}=VALUE.")
    return kind(**together)


def make_kernel(options: argparse.Namespace, model: Model) -> AnyKernel:
    """Return the kernel that --kernel, --metric, --integrator and their options select.

    The kernel of the replicas of ``tempered`` is itself NAME or NAME:option=value, by default nuts, and gets the metric, the
    integrator and the separate options that are its own. Raises ValueError for an option without effect.
    """
    from refhmc.kernels.tempered import OF_RUNGS, Tempered

    advice = advice_taken(options, model)
    word = options.kernel or Word(advice.kernel or ("dhmc" if len(model.discontinuous) else "nuts"))
    metric = make_metric(options, advice)
    parts = {"metric": metric, "integrator": make_integrator(options, metric)}
    separate = given(options, "kernel") | parts
    chosen = {key: value for key, value in separate.items() if value is not None}
    if word == "tempered":
        replicas = Word(str(word.options.get("kernel", "nuts")))
        if replicas not in OF_RUNGS:
            raise ValueError(f"--kernel tempered: kernel must be one of {', '.join(OF_RUNGS)}; got {replicas!r}.")
        own = {key: chosen.pop(key) for key in options_of(Tempered) if key in chosen}
        return made("kernel", word, own | {"kernel": made("kernel", replicas, chosen)})
    return made("kernel", word, dict(advice.options) | word.options | chosen)


def make_metric(options: argparse.Namespace, advice: Recommended) -> Metric | None:
    """Return the metric, or None for the default of the kernel."""
    word, more = options.metric, given(options, "metric")
    if word is None and advice.metric:
        word = Word(advice.metric)
    if word in (None, AUTO):
        return made("metric", "low-rank", more) if more else None
    return made("metric", word, more)


def make_integrator(options: argparse.Namespace, metric: Metric | None) -> Integrator | None:
    """Return the integrator, or None for the default of the kernel.

    The base of a composition is itself NAME or NAME:option=value, and gets the separate options, such as --tolerance.
    """
    from refhmc.integrators.defaults import resolve

    word, more = options.integrator, given(options, "integrator")
    if word is None and not more:
        return None
    word = word or Word(resolve(metric, None)[1].name)
    if "base" in word.options:
        base = Word(str(word.options["base"]))
        if base not in classes("integrator"):
            raise ValueError(f"--integrator {word}: base must be the name of an integrator; got {base!r}.")
        more = {"base": made("integrator", base, more)}
    return made("integrator", word, more)


def make_backend(options: argparse.Namespace) -> Numba | Arrays:
    """Return the backend that --backend and its options select."""
    return made("backend", options.backend or Word("numba"), given(options, "backend"))


def advice_taken(options: argparse.Namespace, model: Model) -> Recommended:
    """Return the model's recommendation, unless --kernel, --metric or an option that it sets is given."""
    from refhmc.models.recommended import Recommended

    if options.kernel is not None or options.metric is not None or model.recommended is None:
        return Recommended()
    given = [name for name, _ in model.recommended.options if getattr(options, name) is not None]
    return Recommended() if given else model.recommended
