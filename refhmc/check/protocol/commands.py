"""``refhmc check`` and ``refhmc oracle`` on the command line.

    refhmc check --cmd "./mysampler" --target funnel               a program in any language (refhmc.check.protocol.driver)
    refhmc check integrator mylib:leapfrog --H mylib:energy --dim 3  a Python function
    refhmc check sampler mylib:kernel --target funnel --seconds 30
    refhmc oracle                                                  answers requests on its standard input

Exit status: 0 every check that ran is a PASS, 1 a row failed, 2 wrong usage, 3 undecided, 4 the program crashed or timed out.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
from typing import Any

from refhmc.check import CHECKS

# These need several functions, or functions of other things.
SEVERAL = ("sbc", "minibatch", "coupling", "tempering", "stopping")
KINDS = tuple(name for name in CHECKS if name not in SEVERAL)


def add_commands(commands: Any) -> None:
    """Add ``check`` and ``oracle`` to the subparsers of ``refhmc``."""
    check = commands.add_parser(
        "check",
        help="check a Python function, or a program in any language, against the mathematics",
        description="Check a Python function, or a program in any language (--cmd), against the mathematics.",
        epilog="exit status: 0 pass, 1 a row failed, 2 wrong usage, 3 undecided, 4 the program crashed or timed out",
    )
    check.add_argument("kind", nargs="?", choices=KINDS, metavar="CHECK", help=f"one of: {', '.join(KINDS)}")
    check.add_argument(
        "subject", nargs="*", metavar="module:name", help="objects to check, in the order of the check's arguments"
    )
    check.add_argument("--cmd", metavar="COMMAND", help="start this program and send it requests, one per line")
    check.add_argument("--what", metavar="CHECK,...", help="with --cmd: run only these checks")
    check.add_argument("--H", dest="energy", metavar="module:name", help="the Hamiltonian H(q, p)")
    check.add_argument(
        "--target", metavar="NAME", help="target: a name from `refhmc models`, or funnel-5, quartic-2, ..."
    )
    check.add_argument("--args", type=_object, metavar="JSON", help="arguments of the target, such as '{\"n\": 2}'")
    check.add_argument(
        "--metric", type=_metric, metavar="NAME", help="metric of H, such as softabs(1e6), or its description in JSON"
    )
    check.add_argument("--method", metavar="NAME", help="with --cmd: passed on to the program")
    check.add_argument("--parts", type=int, metavar="M", help="with --cmd: number of parts of its data")
    check.add_argument("--dim", type=int, help="dimension")
    check.add_argument("--discontinuous", type=int, nargs="+", metavar="J", help="coordinates in which a density jumps")
    check.add_argument("--change", metavar="module:name", help="change(q, j, x) of a discontinuous density")
    check.add_argument("--eps", type=float, help="step size")
    check.add_argument("--n", type=int, help="number of steps of a trajectory")
    check.add_argument("--depth", type=int, help="depth of a tree sampler's tree")
    check.add_argument("--claims", metavar="WORDS", help='claims of a step, such as "symplectic reversible order=2"')
    check.add_argument("--alpha", type=float, default=1e-6, help="false-alarm rate of the statistical checks")
    check.add_argument("--seconds", type=float, default=30.0, help="time budget per check, for checks with a budget")
    check.add_argument("--timeout", type=float, default=10.0, help="longest wait for one answer, in seconds")
    check.add_argument("--seed", type=int, default=20261121, help="seed of the checks")
    check.add_argument("--strict", action="store_true", help="exit with status 3 if any row is INCONCLUSIVE")
    check.add_argument("--json", action="store_true", help="print the reports as JSON, one per line")
    check.set_defaults(run=run_check)
    oracle = commands.add_parser(
        "oracle", help="answer requests in JSON lines: densities, derivatives, steps, transitions, exact draws"
    )
    oracle.set_defaults(run=run_oracle)


def run_oracle(options: argparse.Namespace) -> int:
    """Run the command ``refhmc oracle`` and return its exit status; ImportError without Numba."""
    from refhmc.check import own
    from refhmc.check.protocol.oracle import serve

    if not own.is_compiled():
        raise own.missing_dependency("numba", "refhmc oracle")
    return serve()


def run_check(options: argparse.Namespace) -> int:
    """Run the command ``refhmc check``: print the reports and return the exit status."""
    from refhmc.check.protocol.driver import USAGE
    from refhmc.check.protocol.messages import Rejection

    try:
        _sensible(options)
        return _check_program(options) if options.cmd is not None else _check_function(options)
    except (ValueError, TypeError, ImportError, Rejection) as error:
        print(f"refhmc check: {error}", file=sys.stderr)
        return USAGE


def _check_program(options: argparse.Namespace) -> int:
    from refhmc.check.protocol.driver import check_program

    what = None if options.what is None else [word.strip() for word in options.what.split(",") if word.strip()]
    names: tuple[str, ...] = ("target", "args", "metric", "method", "parts", "eps", "n", "depth", "dim", "claims")
    names += ("alpha", "seconds", "timeout", "seed")
    outcome = check_program(options.cmd, what=what, **{name: getattr(options, name) for name in names})
    if options.json:
        for report in outcome.reports:
            print(report.to_json())
        for stop in outcome.stops:
            print(json.dumps({"stopped": stop}))
    else:
        print(outcome)
    return outcome.status(options.strict)


def _check_function(options: argparse.Namespace) -> int:
    import refhmc.check
    from refhmc.check.protocol import names
    from refhmc.check.protocol.driver import accepted, exit_status

    function = getattr(refhmc.check, options.kind)
    arguments = [_loaded(text) for text in options.subject]
    given = {
        "H": _hamiltonian(options),
        "target": options.target,
        "discontinuous": options.discontinuous,
        "change": None if options.change is None else _loaded(options.change),
        "name": options.subject[0],
        **{key: getattr(options, key) for key in ("dim", "eps", "n", "depth", "claims", "alpha", "seconds", "seed")},
    }
    if options.target is not None and (options.args or options.kind != "sampler"):
        given["target"] = names.target(options.target, options.args)
        given["dim"] = options.dim or given["target"].dim
    report = function(*arguments, **accepted(function, given))
    print(report.to_json() if options.json else report)
    return exit_status([report], options.strict)


def _hamiltonian(options: argparse.Namespace) -> Any:
    """Return H as given, or that of the target with the metric."""
    if options.energy is not None:
        return _loaded(options.energy)
    if options.target is None:
        return None
    from refhmc.check import own, targets
    from refhmc.check.protocol import names

    target = names.target(options.target, options.args)
    if isinstance(target, targets.Target) and options.metric is None:  # without Numba
        return lambda q, p: 0.5 * (p @ p) - target.log_density(q)
    return own.Hamiltonian(target, names.metric(options.metric))


def _sensible(options: argparse.Namespace) -> None:
    """Raise ValueError for options that exclude each other."""
    if options.cmd is not None and options.kind is not None:
        raise ValueError("Give either a check and its objects, or --cmd (--what chooses the checks of a program).")
    if options.cmd is None and (options.kind is None or not options.subject):
        raise ValueError('Name what to check: CHECK module:name, or --cmd "./program". See refhmc check --help.')
    if not 0 < options.alpha < 1:
        raise ValueError(f"--alpha must lie between 0 and 1; got {options.alpha:g}.")
    if not options.seconds > 0 or not options.timeout > 0:
        raise ValueError(f"--seconds and --timeout must be positive; got {options.seconds:g} and {options.timeout:g}.")


def _loaded(text: str) -> Any:
    """Return the object that ``module:name`` names, also from the working directory; ValueError if there is none."""
    module, colon, path = text.partition(":")
    if not (module and colon and path):
        raise ValueError(f"Objects must be given as module:name; got {text!r}.")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        value = importlib.import_module(module)
    except Exception as error:  # any exception of the author's module at import
        raise ValueError(f"Cannot import {module}: {type(error).__name__}: {error}") from error
    for name in path.split("."):
        try:
            value = getattr(value, name)
        except AttributeError as error:
            raise ValueError(f"Cannot find {text}: {error}.") from None
    return value


def _metric(text: str) -> Any:
    return _object(text) if text.lstrip().startswith("{") else text


def _object(text: str) -> dict:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"not valid JSON: {error}") from None
    if not isinstance(value, dict):
        raise argparse.ArgumentTypeError(f"must be a JSON object; got {text}")
    return value
