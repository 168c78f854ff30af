"""Options of the command line from signatures and docstrings.

An option has the name, the type and the default of a parameter. Its help is the first sentence of the parameter's entry in the
docstring. Parameters that are Python objects have no option, except those in ``FORMS``.
"""

from __future__ import annotations

import argparse
import inspect
import json
import pathlib
import re
from collections.abc import Callable, Collection, Mapping
from typing import Any


def two_numbers(text: str) -> tuple[float, ...]:
    """Return two numbers from a string such as "100,0.55"."""
    numbers = tuple(float(each) for each in text.split(","))
    if len(numbers) != 2:
        raise argparse.ArgumentTypeError(f"must be two numbers separated by a comma; got {text!r}.")
    return numbers


def initial_values(text: str) -> object:
    """Parse the JSON value of ``--initvals``."""
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise argparse.ArgumentTypeError(f"must be JSON; got {text!r} ({error}).") from None


OF_RULE: dict[str, Callable] = {"ess": float, "rhat": float, "mcse": float, "max_draws": int}


def stopping_rule(text: str) -> object:
    """Return the rule of ``--until``, such as "ess=400,rhat=1.01,mcse.mu=0.01,max_draws=5000"."""
    from refhmc.sampling.until import Until

    numbers: dict[str, Any] = {}
    for part in text.split(","):
        name, _, value = part.strip().partition("=")
        try:
            kind = OF_RULE["mcse" if name.startswith("mcse.") else name]
            given = None if value == "none" else kind(value)
        except (KeyError, ValueError):
            raise argparse.ArgumentTypeError(
                f"must be parts such as ess=400,rhat=1.01,mcse.mu=0.01; got {part!r}."
            ) from None
        if name.startswith("mcse."):
            numbers.setdefault("mcse", {})[name.removeprefix("mcse.")] = given
        else:
            numbers[name] = given
    try:
        return Until(**numbers)
    except (TypeError, ValueError) as error:
        raise argparse.ArgumentTypeError(f"is not a rule: {error}") from None


def path_given(text: str) -> pathlib.Path:
    """Return a path. Rejects the empty string, which would be the current directory."""
    if not text:
        raise argparse.ArgumentTypeError("must be a path; got an empty string.")
    return pathlib.Path(text)


def groups_to_generate(text: str) -> bool | list[str]:
    """Return True for "all", False for "none", and otherwise the list of names."""
    return {"all": True, "none": False}.get(text.strip(), [each.strip() for each in text.split(",")])


TYPES: dict[str, dict[str, Any]] = {  # by annotation
    "int": {"type": int, "metavar": "N"},
    "float": {"type": float, "metavar": "X"},
    "tuple[float, float]": {"type": two_numbers, "metavar": "X,Y"},
    "bool": {},
}
FORMS: dict[str, dict[str, Any]] = {  # of parameters that the command line takes in another form, by name
    "progressbar": {"flag": "--quiet", "action": "store_false", "help": "Show no progress."},
    "random_seed": {"flag": "--seed", "type": int, "metavar": "N"},
    "init": {"metavar": "uniform|pathfinder"},
    "initvals": {"type": initial_values, "metavar": "JSON"},
    "checkpoint": {"type": path_given, "metavar": "DIR"},
    "store": {"type": path_given, "metavar": "DIR"},
    "until": {
        "type": stopping_rule,
        "metavar": "ess=N,...",
        "help": "Draw until a rule is met, such as ess=400,rhat=1.01,mcse.mu=0.01,max_draws=5000; none leaves out ess or rhat.",
    },
    "warmup": {
        "metavar": "stan|FILE.nc",
        "help": "Warm up as Stan does, or start from the adaptation of an earlier run, read from its --out file.",
    },
    "generate": {
        "type": groups_to_generate,
        "metavar": "GROUP,...",
        "help": "Groups added to --out: all, none, or names such as log_likelihood (default: all that fit into 1 GiB).",
    },
    "shared_step_size": {"flag": "--own-step-sizes", "action": "store_false", "help": "Adapt one step size per chain."},
}
PYTHON_ONLY = ("raw",)  # parameters with a simple type that are for Python only


def first_sentences(documented: Callable) -> dict[str, str]:
    """Return the first sentence of each entry under Parameters as plain text, escaped for argparse."""
    found = re.search(r"^Parameters\n-+\n(.*?)(?:\n\n|\Z)", inspect.getdoc(documented) or "", re.DOTALL | re.MULTILINE)
    entries = re.findall(r"^(\w+) : .*\n((?: +.*(?:\n|\Z))+)", found[1] if found else "", re.MULTILINE)
    sentences = {name: re.split(r"(?<=\.)\s", " ".join(text.split()))[0] for name, text in entries}
    return {
        name: re.sub(r":\w+:`~?([^`]*)`", r"\1", text).replace("`", "").replace("%", "%%")
        for name, text in sentences.items()
    }


def forms_of(documented: Callable) -> dict[str, dict[str, Any]]:
    """Return the arguments of ``add_argument`` for each parameter that has an option."""
    forms, sentences = {}, first_sentences(documented)
    for name, parameter in inspect.signature(documented).parameters.items():
        annotation = str(parameter.annotation).removesuffix(" | None")
        if name not in FORMS and (name in PYTHON_ONLY or annotation not in TYPES):
            continue
        form = {"default": parameter.default, "help": sentences.get(name, "")} | FORMS.get(
            name, TYPES.get(annotation, {})
        )
        if annotation == "bool":
            form.setdefault("action", argparse.BooleanOptionalAction if parameter.default else "store_true")
        forms[name] = form
    return forms


def default_of(form: Mapping[str, object]) -> str:
    """Return the default for the help, or an empty string."""
    default = form["default"]
    return "" if default in (None, inspect.Parameter.empty) or isinstance(default, bool) else str(default)


def add_options(parser: argparse._ActionsContainer, function: Callable, only: Collection[str] = ()) -> None:
    """Add an option for each parameter of a function, or for those named in `only`."""
    for name, form in forms_of(function).items():
        if not only or name in only:
            shown = form["help"].removesuffix(".") + " (default: %(default)s)." if default_of(form) else form["help"]
            add(parser, name, **{**form, "help": shown})


def add_options_of_classes(parser: argparse._ActionsContainer, classes: Mapping[str, Callable]) -> None:
    """Add the options of kernels, metrics, integrators or backends.

    None, the default of each option here, stands for the default of the class. The help has each sentence with the names of the
    classes that it describes, and their defaults. A sentence that begins with another one is left out.
    """
    takers: dict[str, dict[str, dict]] = {}
    for title, kind in classes.items():
        for name, form in forms_of(kind).items():
            takers.setdefault(name, {})[title] = form
    for name, forms in takers.items():
        sentences = sorted({form["help"].removesuffix(".") for form in forms.values()}, key=len)
        titles: dict[str, list[str]] = {}
        for title, form in forms.items():
            sentence = next(each for each in sentences if form["help"].startswith(each))
            titles.setdefault(sentence, []).append(f"{title}: {shown}" if (shown := default_of(form)) else title)
        text = " ".join(f"{sentence} ({', '.join(of)})." for sentence, of in titles.items())
        add(parser, name, **{**form, "help": text, "default": None})


def add(parser: argparse._ActionsContainer, name: str, *, flag: str | None = None, **form: Any) -> None:
    """Add the option ``--name``, or `flag`, whose value is stored under `name`."""
    parser.add_argument(flag or f"--{name.replace('_', '-')}", dest=name, **form)


def given(options: argparse.Namespace, function: Callable) -> dict[str, Any]:
    """Return the arguments of `function` that the options give."""
    return {name: getattr(options, name) for name in inspect.signature(function).parameters if hasattr(options, name)}
