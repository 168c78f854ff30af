"""The command line.

The commands are ``sample``, ``resume``, ``report``, ``models``, ``check``, ``oracle``, ``vectors``, ``selftest``, ``warmup``
and ``info``. The exit status is 0 on success, 1 on failure, 2 for wrong usage, and 130 after Ctrl-C or SIGTERM. A run that
reaches --max-seconds during warm-up also returns 1. An interrupted run still writes and summarises the draws so far.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import os
import pathlib
import re
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from refhmc.core.matplotlib import import_matplotlib
from refhmc.core.registry import AUTO, Registry, required
from refhmc.core.registry import options as options_of
from refhmc.sampling.interruption import sigterm_as_ctrl_c

if TYPE_CHECKING:
    from refhmc.compile.compiled import Compilation
    from refhmc.models.base import Model
    from refhmc.models.recommended import Recommended
    from refhmc.sampling.results.result import Result

INTERRUPTED = 130
NEEDED = ("step_size",)  # required arguments of kernels that have an option here
OF_A_KERNEL = (
    "step_size",
    "n_steps",
    "trajectory_length",
    "step_jitter",
    "length_jitter",
    "max_treedepth",
    "target_accept",
    "decay",
    "cycle",
    "exploration",
    "momentum",
    "friction",
    "noise_estimate",
    "evaluate_lp",
)
FEWEST = 4  # draws per chain that a summary needs
SUMMARISED = 1000  # largest dimension with a summary: ArviZ takes a millisecond per coordinate


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

    def made(self, known: Registry, **more: Any) -> Any:
        """Return the object with this name and these options.

        Raises ValueError if an option is unknown, or if a required one is missing.
        """
        kind, given = known[self], {**self.options, **more}
        for option in given:
            if option not in options_of(kind):
                raise ValueError(
                    f"{self} has no option {option!r}. Its options: {', '.join(options_of(kind)) or 'none'}."
                )
        for option in required(kind):
            if option not in given:
                raise ValueError(f"{self} needs the option {option}. Write {self}:{option}=VALUE.")
        return kind(**given)


class Names:
    """The names in a registry, loaded only when a name is looked up, so that the parser imports no compiled code.

    Includes the objects without required arguments other than `needed`, which have options of their own, and the extra
    words `beside`.
    """

    def __init__(self, known: Callable[[], Registry], *needed: str, beside: tuple[str, ...] = ()) -> None:
        self.known, self.needed, self.beside = known, needed, beside

    def __iter__(self) -> Iterator[str]:
        yield from self.beside
        yield from (name.replace("_", "-") for name in self.known().made_with(*self.needed))


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


def build_parser() -> argparse.ArgumentParser:
    """Return the argument parser of ``refhmc``."""
    import refhmc
    from refhmc.check.protocol.commands import add_commands
    from refhmc.check.selftest import run as run_selftest
    from refhmc.check.vectors.golden import add_vectors_command

    parser = argparse.ArgumentParser(prog="refhmc", description="Reference Hamiltonian Monte Carlo.")
    parser.add_argument("--version", action="version", version=f"refhmc {refhmc.__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    sample = commands.add_parser("sample", help="sample a model and compare the draws with its known moments")
    sample.add_argument("model", metavar="MODEL", help="name from `refhmc models`, or FILE.py:NAME of a refhmc.Model")
    sample.add_argument(
        "--widths", metavar="N,N,...", help="widths of the hidden layers of a network (default: 100,100)"
    )
    sample.add_argument(
        "--split",
        type=int,
        metavar="M",
        help="split the data into M parts, for example for --integrator symmetric-split",
    )
    for option, known, default in (
        ("kernel", Names(lambda: refhmc.kernels.KERNELS, *NEEDED), "nuts, or dhmc for discontinuous coordinates"),
        (
            "metric",
            Names(lambda: refhmc.metrics.METRICS, beside=(AUTO,)),
            "auto: low-rank, with directions if they pay",
        ),
        ("integrator", Names(lambda: refhmc.integrators.INTEGRATORS, "omega", "base"), "depends on the metric"),
    ):
        text = f"one of %(choices)s; append its Python options as NAME:option=value,... (default: {default})"
        sample.add_argument(f"--{option}", choices=known, type=Word, metavar="NAME", help=text)
    sample.add_argument("--alpha", type=float, help="softening parameter of a SoftAbs metric")
    sample.add_argument("--tolerance", type=float, help="solver tolerance of an implicit integrator (default: 1e-6)")
    sample.add_argument("--step-size", type=float, help="step size (default: adapted; required for sgd, sgld, sghmc)")
    sample.add_argument(
        "--n-steps", type=int, help="steps per trajectory (hmc, dhmc) or updates per draw (sgd, sgld, sghmc)"
    )
    sample.add_argument("--trajectory-length", type=float, help="trajectory length, instead of --n-steps (hmc, dhmc)")
    sample.add_argument("--step-jitter", type=float, metavar="SHARE", help="step-size jitter, in [0, 1) (hmc, dhmc)")
    sample.add_argument(
        "--length-jitter",
        type=float,
        metavar="SHARE",
        help="jitter of the steps, in [0, 1) (hmc, dhmc)",
    )
    sample.add_argument(
        "--max-treedepth", type=int, help="maximum tree depth of nuts: at most 2^DEPTH steps (default: 10)"
    )
    sample.add_argument("--target-accept", type=float, help="target acceptance rate of the step-size adaptation")
    sample.add_argument(
        "--warmup",
        metavar="stan|FILE.nc",
        help="Stan's warm-up, or the adaptation of an earlier run, read from its --out file",
    )
    baselines = sample.add_argument_group("stochastic gradients", "The minibatches are the parts of --split.")
    baselines.add_argument(
        "--decay", type=offset_and_power, metavar="B,GAMMA", help="decaying steps, (1 + t/B)^-GAMMA after t updates"
    )
    baselines.add_argument("--cycle", type=int, metavar="T", help="cyclic steps with T updates per cycle")
    baselines.add_argument(
        "--exploration", type=float, metavar="BETA", help="share of each cycle without noise (default: 0)"
    )
    baselines.add_argument("--momentum", type=float, metavar="MU", help="momentum of sgd (default: 0)")
    baselines.add_argument("--friction", type=float, metavar="ALPHA", help="friction of sghmc (default: 0.1)")
    baselines.add_argument(
        "--noise-estimate",
        type=float,
        metavar="BETA",
        help="estimated gradient noise, for sghmc (default: 0)",
    )
    baselines.add_argument(
        "--evaluate-lp",
        action="store_true",
        default=None,
        help="evaluate the log density at each draw",
    )
    sample.add_argument("--draws", type=int, default=1000, help="draws per chain (default: %(default)s)")
    sample.add_argument("--tune", type=int, default=1000, help="warm-up iterations per chain (default: %(default)s)")
    sample.add_argument("--chains", type=int, default=4, help="number of chains (default: %(default)s)")
    sample.add_argument("--cores", type=int, help="number of threads (default: one per processor)")
    sample.add_argument("--seed", type=int, help="random seed (default: a new one for each run)")
    sample.add_argument(
        "--init",
        default="uniform",
        metavar="NAME",
        help="uniform or pathfinder (default: %(default)s)",
    )
    sample.add_argument(
        "--initvals",
        type=initial_values,
        metavar="JSON",
        help='initial values by name, {"mu": 1.0}, or a position, [1.0]',
    )
    sample.add_argument("--max-seconds", type=float, help="stop after this time and keep the draws so far")
    sample.add_argument("--checkpoint", type=path_given, metavar="DIR", help="save or continue a run in DIR")
    sample.add_argument(
        "--store", type=path_given, metavar="DIR", help="write draws to DIR (Zarr) during the run; also a checkpoint"
    )
    sample.add_argument("--save-warmup", action="store_true", help="keep the warm-up iterations in the result")
    sample.add_argument("--no-preflight", action="store_true", help="skip the check of the derivatives before sampling")
    sample.add_argument("--backend", default="numba", help="numba, arrays or cupy (default: %(default)s)")
    sample.add_argument("--own-step-sizes", action="store_true", help="one step size per chain (backends arrays, cupy)")
    sample.add_argument(
        "--streamed",
        action="store_true",
        help="copy split data to the GPU part by part (backend cupy)",
    )
    sample.add_argument(
        "--fuse", action="store_true", help="compile the kernel for this model, for long runs (backend numba)"
    )
    sample.add_argument("--out", type=path_given, metavar="FILE.nc", help="write the ArviZ result as netCDF")
    sample.add_argument(
        "--generate",
        type=groups_to_generate,
        metavar="GROUP,...",
        help="groups added to --out: all, none, or some of log_likelihood, posterior_predictive, prior, prior_predictive "
        "(default: all that fit into 1 GiB)",
    )
    sample.add_argument(
        "--plot",
        type=path_given,
        metavar="FILE.png",
        help="write an overview plot; also .pdf or .svg (needs Matplotlib)",
    )
    sample.add_argument(
        "--report", type=path_given, metavar="FILE.html", help="write an HTML report (needs Matplotlib)"
    )
    sample.add_argument("--quiet", action="store_true", help="no progress")
    sample.add_argument("--json", action="store_true", help="print one JSON object: attributes, summary, warnings")
    sample.set_defaults(run=run_sample)

    resume = commands.add_parser("resume", help="continue a run saved by --checkpoint or --store")
    resume.add_argument("folder", type=path_given, help="folder of --checkpoint or --store")
    resume.add_argument("model", nargs="?", help="model of the run, unless it is a built-in one with defaults")
    resume.add_argument("--widths", metavar="N,N,...", help="--widths of the run")
    resume.add_argument("--split", type=int, metavar="M", help="--split of the run")
    resume.add_argument("--warmup", metavar="stan|FILE.nc", help="--warmup of the run")
    resume.add_argument("--draws", type=int, help="total number of draws per chain (default: --draws of the run)")
    resume.add_argument("--recover", action="store_true", help="sample chains with damaged files again")
    resume.add_argument(
        "--force", action="store_true", help="continue although the code or package versions have changed"
    )
    resume.add_argument("--cores", type=int, help="number of threads (default: one per processor)")
    resume.add_argument("--max-seconds", type=float, help="stop after this time and keep the draws so far")
    resume.add_argument("--out", type=path_given, metavar="FILE.nc", help="write the ArviZ result as netCDF")
    resume.add_argument(
        "--plot",
        type=path_given,
        metavar="FILE.png",
        help="write an overview plot; also .pdf or .svg (needs Matplotlib)",
    )
    resume.add_argument(
        "--report", type=path_given, metavar="FILE.html", help="write an HTML report (needs Matplotlib)"
    )
    resume.add_argument("--quiet", action="store_true", help="no progress")
    resume.add_argument("--json", action="store_true", help="print one JSON object: attributes, summary, warnings")
    resume.set_defaults(run=run_resume)

    report = commands.add_parser("report", help="write an HTML report of a run: warnings, summary, plots")
    report.add_argument(
        "result",
        metavar="RESULT_OR_MODEL",
        help="file of --out, or a model as for `refhmc sample`, which is sampled with its recommended kernel",
    )
    report.add_argument(
        "--out",
        type=path_given,
        metavar="FILE.html",
        help="default: next to the result, or MODEL.html",
    )
    report.add_argument(
        "--model",
        help="model of the file, for its known moments, unless it is a built-in one with defaults",
    )
    report.add_argument("--draws", type=int, default=1000, help="draws per chain (default: %(default)s)")
    report.add_argument("--tune", type=int, default=1000, help="warm-up iterations per chain (default: %(default)s)")
    report.add_argument("--chains", type=int, default=4, help="number of chains (default: %(default)s)")
    report.add_argument("--seed", type=int, help="random seed (default: a new one for each run)")
    report.add_argument("--quiet", action="store_true", help="no progress")
    report.set_defaults(run=run_report)

    models = commands.add_parser("models", help="list the built-in models")
    models.set_defaults(run=run_models)
    add_commands(commands)
    add_vectors_command(commands)
    selftest = commands.add_parser("selftest", help="run the correctness checks of refhmc on this machine")
    selftest.set_defaults(run=lambda options: run_selftest())
    warmup = commands.add_parser("warmup", help="compile and cache everything now")
    warmup.set_defaults(run=run_warmup)
    info = commands.add_parser("info", help="show versions, cache directory and processors")
    info.set_defaults(run=run_info)
    return parser


def backend_of(options: Any) -> Any:
    """Return the backend with the options that belong to it. Raises ValueError for an option of another backend."""
    from refhmc.backends import as_backend, with_options

    given = {"fuse": True} if options.fuse else {}
    given |= {"shared_step_size": False} if options.own_step_sizes else {}
    given |= {"streamed": True} if options.streamed else {}
    return with_options(as_backend(options.backend), given)


def run_sample(options: Any) -> int:
    """Run ``refhmc sample``."""
    import refhmc

    model = _model(options.model, options.widths)
    if options.split is not None:
        model = model.split(options.split)
    kernel = make_kernel(options, model)
    if options.generate is not None and options.out is None:
        raise ValueError("--generate selects groups of the --out file; got no --out. Add --out FILE.nc.")
    if options.generate and options.store is not None:
        raise ValueError(
            "--generate must not be used with --store, because it computes the groups in memory. Use --checkpoint DIR "
            "instead of --store DIR, or omit --generate and call refhmc.generate(model, result) in Python."
        )
    return deliver(
        options,
        model,
        advice_taken(options, model),
        lambda: refhmc.sample(
            model,
            kernel,
            draws=options.draws,
            tune=options.tune,
            chains=options.chains,
            cores=options.cores,
            random_seed=options.seed,
            init=options.init,
            max_seconds=options.max_seconds,
            progressbar=not options.quiet,
            raw=True,
            generate=options.generate if options.out is not None else False,
            warmup=learned(options.warmup),
            initvals=options.initvals,
            checkpoint=options.checkpoint,
            store=options.store,
            save_warmup=options.save_warmup,
            preflight=not options.no_preflight,
            backend=backend_of(options),
        ),
    )


def run_resume(options: Any) -> int:
    """Run ``refhmc resume``: continue a run or extend it, then report as ``refhmc sample`` does."""
    import refhmc
    from refhmc.models.recommended import Recommended
    from refhmc.sampling.resume import model_of

    model = model_of(options.folder) if options.model is None else _model(options.model, options.widths)
    if options.split is not None:
        model = model.split(options.split)
    return deliver(
        options,
        model,
        Recommended(),
        lambda: refhmc.resume(
            options.folder,
            model,
            draws=options.draws,
            recover=options.recover,
            force=options.force,
            cores=options.cores,
            max_seconds=options.max_seconds,
            progressbar=not options.quiet,
            raw=True,
            warmup=learned(options.warmup),
            generate=None if options.out is not None else False,
        ),
    )


def run_report(options: Any) -> int:
    """Run ``refhmc report``: write the report of a file, or of a model that is sampled first."""
    import warnings

    import refhmc

    given = pathlib.Path(options.result)
    if given.is_dir():
        raise ValueError(
            f"RESULT_OR_MODEL must be a file or a model; got the folder {given}. For a saved run of N draws per chain, use "
            f"refhmc resume {given} --draws N --report FILE.html."
        )
    if given.is_file() and given.suffix != ".py":
        result: Any = given
        model = None if options.model is None else _model(options.model, None)
        out = options.out or given.with_suffix(".html")
        check_writable(out, renamed=True)
    else:
        model = _model(options.result, None)
        out = options.out or pathlib.Path(f"{options.result.rpartition(':')[2]}.html")
        check_writable(out, renamed=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", refhmc.errors.SamplingWarning)  # the report lists them
            result = refhmc.sample(
                model,
                draws=options.draws,
                tune=options.tune,
                chains=options.chains,
                random_seed=options.seed,
                progressbar=not options.quiet,
                save_warmup=True,
                raw=True,
            )
    print(f"Report written to {refhmc.plot.report(result, out, model)}")
    return 0


def deliver(options: Any, model: Model, advice: Recommended, draw: Callable[[], Result]) -> int:
    """Draw, write ``--out``, ``--plot`` and ``--report``, print the results and return the exit status.

    If the run ends with an exception, a second Ctrl-C included, write and summarise the draws so far before raising it.
    """
    import warnings

    import refhmc

    for path in (options.out, options.plot, options.report):  # fail before the run, not after it
        if path is not None:
            check_writable(path, renamed=path is not options.plot)
    if options.plot is not None or options.report is not None:
        import_matplotlib()
    format = None if options.plot is None else format_of(options.plot)
    failure = None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", refhmc.errors.SamplingWarning)  # printed below, in order
            result = draw()
    except BaseException as error:
        partial: Any = getattr(error, "partial", None)
        if partial is None or not partial.groups.get("posterior"):
            raise
        result, failure = partial, error
    if options.out is not None and getattr(options, "generate", None) is not False:
        result.warnings.extend(not_generated(model, result))
    try:  # write files first: printing may fail
        if options.out is not None:
            write_netcdf(result, options.out)
        if options.plot is not None:
            refhmc.plot.overview(result, model).savefig(options.plot, dpi=120, format=format)
        if options.report is not None:
            refhmc.plot.report(result, options.report, model)
    finally:
        if options.json:
            print_json(model, result)
        else:
            print_result(model, result, advice)
    for what, path in (("Result", options.out), ("Plot", options.plot), ("Report", options.report)):
        if path is not None and not options.json:
            print(f"{what} written to {path}")
    if failure is not None:
        raise failure
    if result.attributes["stopped_by"] == "interrupt":
        return INTERRUPTED
    if not any(result.attributes["draws_per_chain"]) and options.draws != 0:
        print(
            "refhmc: No draws: --max-seconds ended the run during warm-up. Increase --max-seconds or reduce --tune.",
            file=sys.stderr,
        )
        return 1
    return 0


def not_generated(model: Model, result: Result) -> list[str]:
    """Return a warning that names the groups left out of ``--out`` because of ``--store``, if there are any."""
    made = ", ".join([*model.generated.made, *model.generated.data])
    if "store" not in result.attributes or not made:
        return []
    return [
        f"The --out file lacks the groups {made}, because they are not computed with --store. Use --checkpoint DIR instead, "
        "or call refhmc.generate(model, result) in Python."
    ]


def check_writable(path: pathlib.Path, renamed: bool) -> None:
    """Raise ValueError unless a file can be written at `path`.

    `renamed`: whether the file is written under a temporary name and then renamed.
    """
    folder = path.resolve().parent
    if not folder.is_dir():
        raise ValueError(f"{path} must be in an existing directory; {folder} does not exist. Create it first.")
    if path.is_dir():
        raise ValueError(f"{path} is a directory. Give the name of a file.")
    try:
        if path.is_file() and not renamed:
            path.open("ab").close()
        elif renamed or not path.exists():
            tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise ValueError(f"{path} cannot be written: {error.strerror or error}.") from error


def format_of(path: pathlib.Path) -> str:
    """Return the picture format that a file name selects (default PNG). Raises ValueError or ImportError."""
    known = import_matplotlib("matplotlib.backend_bases").FigureCanvasBase.get_supported_filetypes()
    suffix = path.suffix[1:].lower() or "png"
    if suffix not in known:
        raise ValueError(f"--plot must end with a known format ({', '.join(sorted(known))}); got {suffix!r} in {path}.")
    return suffix


def print_result(model: Model, result: Result, advice: Recommended) -> None:
    """Print compilation times, the run, the summary next to the known moments, and the warnings."""
    from refhmc.cli.regression import fit_to_data
    from refhmc.plot.predictive import regression_data
    from refhmc.sampling.progress import count

    attributes = result.attributes
    print(compilation_report())
    print(
        f"{model.name}: {count(len(attributes['chains']), 'chain')} of {count(result.draws.shape[1], 'draw')} in "
        f"{attributes['sampling_time']:.1f} s, {attributes['n_gradient_evaluations']:,} gradient evaluations, "
        f"seed {attributes['entropy']}"
    )
    print(result.diverged)
    if advice.why:
        of_metric = ", ".join(f"{name}={value}" for name, value in advice.metric_options)
        on = [f"on {advice.metric}" + (f" ({of_metric})" if of_metric else "")] if advice.metric else []
        chosen = " with ".join([" ".join([advice.kernel, *on]), *(f"{name}={value}" for name, value in advice.options)])
        taken = f"{chosen}, because" if advice.kernel else "nuts, although"
        print(
            f"Kernel: {taken} {advice.why}"
            + (" (use --kernel nuts for NUTS)" if advice.kernel not in ("", "nuts") else "")
        )
    if attributes.get("adaptation"):
        print(attributes["adaptation"])
    print(summary_beside_truth(model, result))
    if (data := regression_data(model)) is not None and result.draws.size:
        print(fit_to_data(model, result, *data))
    for text in result.warnings:
        print(f"warning: {text}")


def print_json(model: Model, result: Result) -> None:
    """Print one JSON object with ``attributes``, ``warnings`` and ``summary``.

    ``summary`` maps each variable to ArviZ's columns; it is null if there are too few draws.
    """
    import json

    from refhmc.sampling.results.result import summary_table

    short = min(result.draws.shape[:2]) == 0 or result.draws.shape[1] < FEWEST or model.dim > SUMMARISED
    rows = None if short else json.loads(summary_table(result).to_json(orient="index"))
    print(json.dumps({"attributes": result.attributes, "warnings": result.warnings, "summary": rows}))


def make_kernel(options: Any, model: Model) -> Any:
    """Return the kernel that --kernel and its options select. Raises ValueError for an option without effect."""
    import refhmc

    known, advice = refhmc.kernels.KERNELS, advice_taken(options, model)
    kind = known[options.kernel or advice.kernel or ("dhmc" if len(model.discontinuous) else "nuts")]
    word = options.metric
    if word is None and advice.metric:
        word = Word(advice.metric)
        word.options |= dict(advice.metric_options)
    metric, integrator = metric_and_integrator(options, None if word == AUTO else word)
    all_of_them = {key: getattr(options, key) for key in OF_A_KERNEL} | {"metric": metric, "integrator": integrator}
    given = (
        dict(advice.options)
        | getattr(options.kernel, "options", {})
        | {key: value for key, value in all_of_them.items() if value is not None}
    )
    for key in given:
        takers = [name for name in known.made_with(*NEEDED) if key in options_of(known[name])]
        if kind.name not in takers:
            belongs = f"belongs to --kernel {' and '.join(takers)}" if takers else "is not an option of any kernel"
            raise ValueError(f"--{key.replace('_', '-')} {belongs}; got --kernel {kind.name}.")
    for key in required(kind):
        if key not in given:
            raise ValueError(f"--kernel {kind.name} needs --{key.replace('_', '-')}.")
    return kind(**given)


def initial_values(text: str) -> Any:
    """Parse the JSON value of ``--initvals``."""
    import json

    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise argparse.ArgumentTypeError(f"must be JSON; got {text!r} ({error}).") from None


def learned(warmup: str | None) -> Any:
    """Return the value of ``warmup``: "stan", or the result in a netCDF file.

    Raises ValueError if the file does not exist.
    """
    if warmup is None or warmup == "stan":
        return warmup
    if not pathlib.Path(warmup).is_file():
        raise ValueError(f"--warmup must be stan or a file written by --out; the file {warmup!r} does not exist.")
    from refhmc.core.arviz import read_tree

    return read_tree(pathlib.Path(warmup))


def path_given(text: str) -> pathlib.Path:
    """Return a path. Rejects the empty string, which would be the current directory."""
    if not text:
        raise argparse.ArgumentTypeError("must be a path; got an empty string.")
    return pathlib.Path(text)


def groups_to_generate(text: str) -> bool | list[str]:
    """Return True for "all", False for "none", and otherwise the list of names."""
    return {"all": True, "none": False}.get(text.strip(), [each.strip() for each in text.split(",")])


def offset_and_power(text: str) -> tuple[float, ...]:
    """Return (b, gamma) from a string such as "100,0.55"."""
    numbers = tuple(float(each) for each in text.split(","))
    if len(numbers) != 2:
        raise argparse.ArgumentTypeError(f"must be two numbers separated by a comma; got {text!r}.")
    return numbers


def advice_taken(options: Any, model: Model) -> Recommended:
    """Return the model's recommendation, unless --kernel, --metric or an option that it sets is given."""
    from refhmc.models.recommended import Recommended

    if options.kernel is not None or options.metric is not None or model.recommended is None:
        return Recommended()
    given = [name for name, _ in model.recommended.options if getattr(options, name) is not None]
    return Recommended() if given else model.recommended


def metric_and_integrator(options: Any, named: str | None) -> tuple:
    """Return the metric and integrator that the options select, or None for the kernel's defaults.

    Raises ValueError for an option without effect.
    """
    import refhmc
    from refhmc.integrators.defaults import resolve

    metrics, word = refhmc.metrics.METRICS, named if isinstance(named, Word) else Word(named or "low-rank")
    alpha = {} if options.alpha is None else {"alpha": options.alpha}
    if alpha and "alpha" not in options_of(metrics[word]):
        raise ValueError(f"--alpha belongs to the SoftAbs metrics; got --metric {metrics[word].name}.")
    metric = None if named is None else word.made(metrics, **alpha)
    tolerance = {} if options.tolerance is None else {"tolerance": options.tolerance}
    if options.integrator is None and not tolerance:
        return metric, None
    name, integrators = options.integrator or Word(resolve(metric, None)[1].name), refhmc.integrators.INTEGRATORS
    if "base" in name.options:  # the base of a composition is itself NAME or NAME:option=value
        base = Word(str(name.options["base"]))
        if base not in Names(lambda: integrators, "omega"):
            raise ValueError(f"--integrator {name}: base must be the name of an integrator; got {base!r}.")
        name.options["base"] = integrator_named(base, integrators, tolerance)
        return metric, name.made(integrators)
    return metric, integrator_named(name, integrators, tolerance)


def integrator_named(word: Word, integrators: Registry, tolerance: dict[str, float]) -> Any:
    """Return the integrator, with `tolerance` if it is given. Raises ValueError if it is not implicit."""
    if tolerance and not getattr(integrators[word], "implicit", False):
        raise ValueError(f"--tolerance belongs to the implicit integrators; got --integrator {word}.")
    return word.made(integrators, **tolerance)


def run_models(options: Any) -> int:
    """Run ``refhmc models``: print name, dimension and source of the reference values of each model."""
    import refhmc

    for name, make in (refhmc.models.by_name() | refhmc.models.networks_by_name()).items():
        model = make()
        known = model.reference.source if model.reference is not None else "no reference values"
        print(f"{name:24s} d = {model.dim:<4d} {known}")
    return 0


def run_warmup(options: Any) -> int:
    """Run ``refhmc warmup``: compile the core and every built-in model."""
    from refhmc.cli.precompile import compile_everything
    from refhmc.compile.compile_cache import cache_directory

    for done, total, title, seconds in compile_everything():
        print(f"[{done}/{total}] {title}: {seconds:.1f} s", flush=True)
    print(f"Cached in {cache_directory() or 'this process only'}")
    return 0


def run_info(options: Any) -> int:
    """Run ``refhmc info``: print what a bug report needs."""
    import platform
    from importlib.metadata import PackageNotFoundError, version

    import refhmc
    from refhmc.compile.compile_cache import cache_directory

    print(f"refhmc {refhmc.__version__}, Python {platform.python_version()}, {platform.platform()}")
    for package in ("numpy", "scipy", "numba", "arviz", "arviz-base", "xarray", "rich", "cupy"):
        try:
            print(f"{package} {version(package)}")
        except PackageNotFoundError:
            print(f"{package} not installed")
    print(f"processors {os.cpu_count()}")
    print(f"compile cache {cache_directory() or 'none'}")
    return 0


def model_of_file(path: pathlib.Path, name: str) -> Model:
    """Return the model called `name` in a Python file, or the model that the function of that name returns.

    As with ``python FILE.py``, the file's folder is first in ``sys.path`` while it runs. Any exception that the file raises
    becomes a ValueError with the line number.
    """
    import importlib.util

    import refhmc

    if not path.is_file():
        raise ValueError(f"MODEL must name an existing file; {path} does not exist.")
    module_name = name_of_module(path)
    spec = importlib.util.spec_from_file_location(module_name, path)
    module = importlib.util.module_from_spec(spec)  # type: ignore[arg-type]
    sys.modules[module_name] = module  # so that pickle finds its functions by name
    sys.path.insert(0, str(path.resolve().parent))
    try:
        spec.loader.exec_module(module)  # type: ignore[union-attr]
        there, found = hasattr(module, name), getattr(module, name, None)
        found = found if isinstance(found, refhmc.Model) or not callable(found) else found()
    except (Exception, SystemExit) as error:
        sys.modules.pop(module_name, None)
        said = next(iter(str(error).splitlines()), "")
        raise ValueError(f"MODEL: {path}{line_in(path, error)}: {type(error).__name__}: {said}") from error
    finally:
        with contextlib.suppress(ValueError):  # the file may have removed it
            sys.path.remove(str(path.resolve().parent))
    if not there:
        raise ValueError(f"MODEL must be the name of an object in {path}; {name!r} is not defined there.")
    if not isinstance(found, refhmc.Model):
        raise ValueError(
            f"{path}:{name} is neither a refhmc.Model nor a function that returns one (got {type(found).__name__})."
        )
    return found


def name_of_module(path: pathlib.Path) -> str:
    """Return a module name for the file: its stem, unless this would hide another module."""
    import importlib.util

    try:
        there = importlib.util.find_spec(path.stem) if path.stem.isidentifier() else None
    except ValueError:  # find_spec("__main__")
        return f"model_file_{path.stem}"
    own = there is None or pathlib.Path(there.origin or "").resolve() == path.resolve()
    return path.stem if own else f"model_file_{path.stem}"


def line_in(path: pathlib.Path, error: BaseException) -> str:
    """Return ``, line 12`` for the line of the file that raised the error, or an empty string."""
    file = os.path.abspath(path)
    if isinstance(error, SyntaxError) and error.filename == file:
        return f", line {error.lineno}"
    lines = [line for frame, line in traceback.walk_tb(error.__traceback__) if frame.f_code.co_filename == file]
    return f", line {lines[-1]}" if lines else ""


def _model(name: str, widths: str | None) -> Model:
    import refhmc

    path, colon, inside = name.rpartition(":")
    if colon and path.endswith(".py"):
        if widths is not None:
            raise ValueError(f"--widths belongs to the built-in networks; got the model {name}.")
        return model_of_file(pathlib.Path(path), inside)
    known, networks = refhmc.models.by_name(), refhmc.models.networks_by_name()
    if name not in known | networks:
        raise ValueError(f"MODEL must be FILE.py:NAME or one of {', '.join(known | networks)}; got {name!r}.")
    if widths is None:
        return (known | networks)[name]()
    if name not in networks:
        raise ValueError(f"--widths belongs to {' and '.join(networks)}; got the model {name}.")
    if not all(each.strip().isdecimal() for each in widths.split(",")):
        raise ValueError(f"--widths must be integers separated by commas; got {widths!r}.")
    return networks[name]([int(each) for each in widths.split(",")])


def compilation_report() -> str:
    """Return one line on what was compiled in this process and how long it took."""
    from refhmc.compile import compiled
    from refhmc.compile.compile_cache import cache_directory

    fresh = [item for item in compiled.log if not item.from_cache]
    loaded = [item for item in compiled.log if item.from_cache]
    if not fresh:
        return f"Loaded {len(loaded)} compiled functions from the cache in {_total(loaded):.2f} s"
    seconds: dict[str, float] = {}
    for item in fresh:  # the functions of a metric share a title
        seconds[item.title] = seconds.get(item.title, 0.0) + item.seconds
    parts = ", ".join(f"{title} {each:.1f} s" for title, each in seconds.items())
    kept = "Compiled and cached" if cache_directory() else "Compiled"
    return f"{kept} in {_total(fresh):.1f} s: {parts}"


def _total(items: list[Compilation]) -> float:
    return sum(item.seconds for item in items)


def summary_beside_truth(model: Model, result: Result) -> str:
    """Return ArviZ's summary table, with the known mean and standard deviation if the model has them."""
    import numpy as np

    from refhmc.sampling.results.result import summary_table

    if min(result.draws.shape[:2]) == 0 or result.draws.shape[1] < FEWEST:
        return "(No summary: too few draws.)"
    if model.dim > SUMMARISED:
        return f"(No summary: {model.dim:,} coordinates.)"
    table = summary_table(result)
    truth = model.reference
    if truth is not None and truth.mean is not None and len(truth.mean) == len(table):
        table.insert(0, "true mean", np.round(truth.mean, 3))
        if truth.variance is not None:
            table.insert(1, "true sd", np.round(np.sqrt(truth.variance), 3))
    return table.to_string(max_rows=60)


def write_netcdf(result: Result, path: pathlib.Path) -> None:
    """Write the result to a temporary file and rename it, so that a failure leaves an existing file unchanged."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        result.to_arviz().to_netcdf(temporary)
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
