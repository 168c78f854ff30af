"""The command line: the commands, and the exit status.

The exit status is 0 on success, 1 on failure, 2 for wrong usage, and 130 after Ctrl-C or SIGTERM. A run that reaches
--max-seconds during warm-up also returns 1. An interrupted run still writes and summarises the draws so far.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from typing import Any

from refhmc._dependencies import import_module
from refhmc.cli.output import INTERRUPTED
from refhmc.sampling.interruption import sigterm_as_ctrl_c

COMMANDS = {  # the module with the functions, and the description
    "sample": ("runs", "Sample a model and compare the draws with its known moments."),
    "resume": ("runs", "Continue a run saved by --checkpoint or --store."),
    "report": ("runs", "Write an HTML report of a run: warnings, summary, plots."),
    "models": ("machine", "List the built-in models."),
    "warmup": ("machine", "Compile and cache a model and a method, or everything."),
    "info": ("machine", "Show versions, cache directory and processors."),
}


def main(arguments: list[str] | None = None) -> int:
    """Parse `arguments` (default: ``sys.argv``), run the command and return the exit status."""
    status = 0
    try:
        with sigterm_as_ctrl_c():
            try:
                options = build_parser().parse_args(arguments)
                status = options.run(options)
            finally:
                if sys.stdout is not None:
                    sys.stdout.flush()
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # the reader of the output has exited, for example `head`
        with contextlib.suppress(OSError, ValueError):  # discard the remaining output
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (ValueError, TypeError, RuntimeError, OSError, MemoryError, ImportError) as error:
        print(f"refhmc: {type(error).__name__}: {error}", file=sys.stderr)
        return 1
    return status


class CommandParser(argparse.ArgumentParser):
    """Parser of one command of ``COMMANDS``, which loads the command and adds its arguments when it is used."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        name = self.prog.rpartition(" ")[2]
        if name in COMMANDS and self.get_default("run") is None:
            module = import_module(f"refhmc.cli.{COMMANDS[name][0]}", f"refhmc {name}")
            getattr(module, f"add_{name}", lambda parser: None)(self)
            self.set_defaults(run=getattr(module, f"run_{name}"))
        return super().parse_known_args(args, namespace)


def build_parser() -> argparse.ArgumentParser:
    """Return the argument parser of ``refhmc``."""
    import refhmc
    from refhmc.check.protocol.commands import add_commands
    from refhmc.check.selftest import run as run_selftest
    from refhmc.check.vectors.golden import add_vectors_command

    parser = argparse.ArgumentParser(prog="refhmc", description="Reference Hamiltonian Monte Carlo.")
    parser.add_argument("--version", action="version", version=f"refhmc {refhmc.__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND", parser_class=CommandParser)
    for name, (_, text) in COMMANDS.items():
        commands.add_parser(name, help=text, description=text)
    add_commands(commands)
    add_vectors_command(commands)
    selftest = commands.add_parser("selftest", help="Run the correctness checks of refhmc on this machine.")
    selftest.set_defaults(run=lambda options: run_selftest())
    return parser
