"""The command line: ``refhmc sample``, ``resume``, ``report``, ``models``, ``check``, ``oracle``, ``vectors``, ``selftest``,
``warmup``, ``info``.

Exit status: 0 done, 1 failed, also where --max-seconds ran out in warm-up, 2 usage, 130 interrupted by Ctrl-C or SIGTERM (what
was drawn is still summarised and written).
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
    from refhmc.core.compiled import Compilation
    from refhmc.models.base import Model
    from refhmc.models.recommended import Recommended
    from refhmc.sampling.result import Result

INTERRUPTED = 130
NEEDED = ("step_size",)  # what a kernel may need that has an option here
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
FEWEST = 4  # draws of a chain that a summary needs
SUMMARISED = 1000  # coordinates that a summary is made of: ArviZ takes a millisecond for each


class Word(str):
    """``NAME`` or ``NAME:option=value,option=value``: the name, and the options of what is called so."""

    options: dict[str, Any]

    def __new__(cls, text: str) -> Word:
        name, _, rest = text.partition(":")
        word = super().__new__(cls, name)
        word.options = {}
        for each in filter(None, re.split(r",(?=\s*[\w-]+=)", rest)):  # a list has commas, too
            option, equals, value = each.partition("=")
            if not equals:
                raise argparse.ArgumentTypeError(f"{text!r}: {each!r} is not option=value")
            try:
                word.options[option.strip().replace("-", "_")] = ast.literal_eval(value.strip())
            except (ValueError, SyntaxError):
                word.options[option.strip().replace("-", "_")] = value.strip()  # a word
        return word

    def made(self, known: Registry, **more: Any) -> Any:
        """The object. Raises ValueError for an option that it has not, and for one that it cannot do without."""
        kind, given = known[self], {**self.options, **more}
        for option in given:
            if option not in options_of(kind):
                raise ValueError(f"{self} has no option {option!r}; it has {', '.join(options_of(kind)) or 'none'}")
        for option in required(kind):
            if option not in given:
                raise ValueError(f"{self} needs {option}: {self}:{option}=...")
        return kind(**given)


class Names:
    """The names in a registry, asked for when one is given: the parser of every command imports no compiled code.

    Of those that need no argument but ``needed``, which have options of their own; ``beside`` them other words.
    """

    def __init__(self, known: Callable[[], Registry], *needed: str, beside: tuple[str, ...] = ()) -> None:
        self.known, self.needed, self.beside = known, needed, beside

    def __iter__(self) -> Iterator[str]:
        yield from self.beside
        yield from (name.replace("_", "-") for name in self.known().made_with(*self.needed))


def main(arguments: list[str] | None = None) -> int:
    """Parse ``arguments`` (default: the command's own) and run; returns the exit status."""
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
    except BrokenPipeError:  # the reader of our output went away, which is no fault
        with contextlib.suppress(OSError, ValueError):  # what is left to print goes nowhere, so that the end is quiet
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (ValueError, TypeError, RuntimeError, OSError, MemoryError, ImportError) as error:
        print(f"refhmc: {type(error).__name__}: {error}", file=sys.stderr)
        return 1
    return status


def build_parser() -> argparse.ArgumentParser:
    """The parser of ``refhmc``."""
    import refhmc
    from refhmc.check.protocol.commands import add_commands
    from refhmc.check.selftest import run as run_selftest
    from refhmc.check.vectors.golden import add_vectors_command

    parser = argparse.ArgumentParser(prog="refhmc", description="Reference Hamiltonian Monte Carlo.")
    parser.add_argument("--version", action="version", version=f"refhmc {refhmc.__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    sample = commands.add_parser("sample", help="draw from a built-in model and compare with the known truth")
    sample.add_argument(
        "model", metavar="MODEL", help="a name from `refhmc models`, or FILE.py:NAME, a refhmc.Model there"
    )
    sample.add_argument(
        "--widths", metavar="N,N,...", help="of a network: widths of its hidden layers; default: 100,100"
    )
    sample.add_argument(
        "--split", type=int, metavar="M", help="follow the data in M parts; see --integrator symmetric-split"
    )
    for option, known, default in (
        ("kernel", Names(lambda: refhmc.kernels.KERNELS, *NEEDED), "nuts, or dhmc where a coordinate jumps"),
        ("metric", Names(lambda: refhmc.metrics.METRICS, beside=(AUTO,)), "auto: low-rank, directions where they pay"),
        ("integrator", Names(lambda: refhmc.integrators.INTEGRATORS, "omega", "base"), "what suits the metric"),
    ):
        text = f"one of %(choices)s, with any of its options in Python: NAME:option=value,...; default: {default}"
        sample.add_argument(f"--{option}", choices=known, type=Word, metavar="NAME", help=text)
    sample.add_argument("--alpha", type=float, help="sharpness of a SoftAbs metric")
    sample.add_argument("--tolerance", type=float, help="of an implicit integrator's solver; default 1e-6")
    sample.add_argument("--step-size", type=float, help="default: adapted; SGD, SGLD, SGHMC need one")
    sample.add_argument(
        "--n-steps", type=int, help="HMC, DHMC: steps of a trajectory; SGD, SGLD, SGHMC: updates of a draw"
    )
    sample.add_argument("--trajectory-length", type=float, help="HMC, DHMC: in the place of --n-steps")
    sample.add_argument("--step-jitter", type=float, metavar="SHARE", help="HMC, DHMC: of the step, less than 1")
    sample.add_argument("--length-jitter", type=float, metavar="SHARE", help="HMC, DHMC: of the steps, less than 1")
    sample.add_argument("--max-treedepth", type=int, help="NUTS: trajectories of at most 2^this steps; default: 10")
    sample.add_argument("--target-accept", type=float)
    sample.add_argument(
        "--warmup", metavar="stan|FILE.nc", help="Stan's warm-up, or what an earlier run has learned, from its --out"
    )
    baselines = sample.add_argument_group("stochastic gradients", "the minibatches are the parts of --split")
    baselines.add_argument(
        "--decay", type=offset_and_power, metavar="B,GAMMA", help="steps that decay as (1 + t/B)^-GAMMA, t in updates"
    )
    baselines.add_argument("--cycle", type=int, metavar="T", help="cyclic steps, T updates to a cycle")
    baselines.add_argument(
        "--exploration", type=float, metavar="BETA", help="share of a cycle without noise; default: 0"
    )
    baselines.add_argument("--momentum", type=float, metavar="MU", help="of SGD; default: 0")
    baselines.add_argument("--friction", type=float, metavar="ALPHA", help="of SGHMC; default: 0.1")
    baselines.add_argument(
        "--noise-estimate", type=float, metavar="BETA", help="of SGHMC: the minibatches' own noise; default: 0"
    )
    baselines.add_argument(
        "--evaluate-lp", action="store_true", default=None, help="the log density at each draw: a pass more"
    )
    sample.add_argument("--draws", type=int, default=1000)
    sample.add_argument("--tune", type=int, default=1000)
    sample.add_argument("--chains", type=int, default=4)
    sample.add_argument("--cores", type=int)
    sample.add_argument("--seed", type=int)
    sample.add_argument("--init", default="uniform", metavar="NAME", help="where chains begin: uniform, or pathfinder")
    sample.add_argument(
        "--initvals",
        type=initial_values,
        metavar="JSON",
        help='start: values by name, {"mu": 1.0}, or a position, [1.0]',
    )
    sample.add_argument("--max-seconds", type=float)
    sample.add_argument("--checkpoint", type=path_given, metavar="DIR", help="save the run there, or go on with it")
    sample.add_argument(
        "--store", type=path_given, metavar="DIR", help="draws go there as they come (Zarr), also a checkpoint"
    )
    sample.add_argument("--save-warmup", action="store_true", help="keep warm-up in the result")
    sample.add_argument("--no-preflight", action="store_true", help="do not check the derivatives before sampling")
    sample.add_argument("--backend", default="numba", help="numba; arrays or cupy: many chains at once")
    sample.add_argument("--own-step-sizes", action="store_true", help="of many chains at once: one for each chain")
    sample.add_argument("--streamed", action="store_true", help="of cupy and --split: data moved for each evaluation")
    sample.add_argument("--fuse", action="store_true", help="compile the kernel for this model: for long runs")
    sample.add_argument("--out", type=path_given, metavar="FILE.nc", help="write the ArviZ result as netCDF")
    sample.add_argument(
        "--generate",
        type=groups_to_generate,
        metavar="GROUP,...",
        help="what else --out writes: all, none, or log_likelihood, posterior_predictive, prior, prior_predictive; default: "
        "all that fit into 1 GiB",
    )
    sample.add_argument(
        "--plot", type=path_given, metavar="FILE.png", help="write a picture, also .pdf, .svg (needs matplotlib)"
    )
    sample.add_argument(
        "--report", type=path_given, metavar="FILE.html", help="write a page about the run (needs matplotlib)"
    )
    sample.add_argument("--quiet", action="store_true", help="no progress")
    sample.add_argument("--json", action="store_true", help="print one JSON object: attributes, summary, warnings")
    sample.set_defaults(run=run_sample)

    resume = commands.add_parser("resume", help="go on with a run that --checkpoint or --store has saved")
    resume.add_argument("folder", type=path_given)
    resume.add_argument("model", nargs="?", help="as it was; needed where it is not a built-in one with its defaults")
    resume.add_argument("--widths", metavar="N,N,...", help="of a network, as they were")
    resume.add_argument("--split", type=int, metavar="M", help="of data in parts, as it was")
    resume.add_argument("--warmup", metavar="stan|FILE.nc", help="as it was")
    resume.add_argument(
        "--draws", type=int, help="of each chain, from the beginning; default: as many as were asked for"
    )
    resume.add_argument("--recover", action="store_true", help="draw chains whose files are damaged again")
    resume.add_argument("--force", action="store_true", help="though code or versions have changed since")
    resume.add_argument("--cores", type=int)
    resume.add_argument("--max-seconds", type=float)
    resume.add_argument("--out", type=path_given, metavar="FILE.nc", help="write the ArviZ result as netCDF")
    resume.add_argument(
        "--plot", type=path_given, metavar="FILE.png", help="write a picture, also .pdf, .svg (needs matplotlib)"
    )
    resume.add_argument(
        "--report", type=path_given, metavar="FILE.html", help="write a page about the run (needs matplotlib)"
    )
    resume.add_argument("--quiet", action="store_true", help="no progress")
    resume.add_argument("--json", action="store_true", help="print one JSON object: attributes, summary, warnings")
    resume.set_defaults(run=run_resume)

    report = commands.add_parser("report", help="a page in HTML about a run: its warnings, summary, pictures")
    report.add_argument(
        "result",
        metavar="RESULT_OR_MODEL",
        help="a file of --out; or a model as of `refhmc sample`, which is sampled with its recommended kernel",
    )
    report.add_argument("--out", type=path_given, metavar="FILE.html", help="default: beside the file, or MODEL.html")
    report.add_argument(
        "--model", help="of a file: for the known truth, where it is not a built-in one with its defaults"
    )
    report.add_argument("--draws", type=int, default=1000, help="of a model")
    report.add_argument("--tune", type=int, default=1000, help="of a model")
    report.add_argument("--chains", type=int, default=4, help="of a model")
    report.add_argument("--seed", type=int, help="of a model")
    report.add_argument("--quiet", action="store_true", help="no progress")
    report.set_defaults(run=run_report)

    models = commands.add_parser("models", help="list the built-in models")
    models.set_defaults(run=run_models)
    add_commands(commands)
    add_vectors_command(commands)
    selftest = commands.add_parser("selftest", help="the proof of refhmc once more, on this machine")
    selftest.set_defaults(run=lambda options: run_selftest())
    warmup = commands.add_parser("warmup", help="compile and cache everything now")
    warmup.set_defaults(run=run_warmup)
    info = commands.add_parser("info", help="versions, cache directory, processors")
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
    """``refhmc sample``: sample, write files, say what was compiled, print the summary beside the truth."""
    import refhmc

    model = _model(options.model, options.widths)
    if options.split is not None:
        model = model.split(options.split)
    kernel = make_kernel(options, model)
    if options.generate is not None and options.out is None:
        raise ValueError("--generate says what --out writes: give --out FILE.nc, too")
    if options.generate and options.store is not None:
        raise ValueError(
            "--generate makes groups in memory, which --store spares: give --checkpoint DIR in place of --store DIR, or leave "
            "--generate out, and make them in Python by refhmc.generate(model, the result that --out has written)"
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
    """``refhmc resume``: go on with a run, or give it more draws; then as ``refhmc sample``."""
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
    """``refhmc report``: the page of a file, or of a model that is sampled."""
    import warnings

    import refhmc

    given = pathlib.Path(options.result)
    if given.is_dir():
        raise ValueError(
            f"{given} is a folder: refhmc resume {given} --draws N --report FILE.html, N as many as it has"
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
            warnings.simplefilter("ignore", refhmc.errors.SamplingWarning)  # they stand in the report
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
    print(f"report written to {refhmc.plot.report(result, out, model)}")
    return 0


def deliver(options: Any, model: Model, advice: Recommended, draw: Callable[[], Result]) -> int:
    """Draw, write ``--out``, ``--plot`` and ``--report``, print; the status to end with.

    Of a run that ends by an exception, a second Ctrl-C too, the draws are written and summarised before it is raised.
    """
    import warnings

    import refhmc

    for path in (options.out, options.plot, options.report):  # what cannot be is said before the run
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
    try:  # files first: nobody may be left to read what is printed
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
    for what, path in (("result", options.out), ("picture", options.plot), ("report", options.report)):
        if path is not None and not options.json:
            print(f"{what} written to {path}")
    if failure is not None:
        raise failure
    if result.attributes["stopped_by"] == "interrupt":
        return INTERRUPTED
    if not any(result.attributes["draws_per_chain"]) and options.draws != 0:
        print("refhmc: there are no draws: --max-seconds ran out in warm-up", file=sys.stderr)
        return 1
    return 0


def not_generated(model: Model, result: Result) -> list[str]:
    """Of a run into a store: that the groups which --out would have without it are left out. Nothing of another run."""
    made = ", ".join([*model.generated.made, *model.generated.data])
    if "store" not in result.attributes or not made:
        return []
    return [
        f"--out has not the groups {made}: with --store they are not made. --checkpoint DIR in its place makes them, or in "
        "Python refhmc.generate(model, result)."
    ]


def check_writable(path: pathlib.Path, renamed: bool) -> None:
    """Raise ValueError unless a file can be written there. ``renamed``: into the place of one that may be there."""
    folder = path.resolve().parent
    if not folder.is_dir():
        raise ValueError(f"{path}: there is no directory {folder}")
    if path.is_dir():
        raise ValueError(f"{path} is a directory: give the name of a file")
    try:
        if path.is_file() and not renamed:
            path.open("ab").close()
        elif renamed or not path.exists():
            tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise ValueError(f"{path} cannot be written: {error.strerror or error}") from error


def format_of(path: pathlib.Path) -> str:
    """That of a picture by the name of its file, PNG where it has no suffix. Raises ValueError, ImportError."""
    known = import_matplotlib("matplotlib.backend_bases").FigureCanvasBase.get_supported_filetypes()
    suffix = path.suffix[1:].lower() or "png"
    if suffix not in known:
        raise ValueError(f"--plot {path}: there is no format {suffix!r}; there are {', '.join(sorted(known))}")
    return suffix


def print_result(model: Model, result: Result, advice: Recommended) -> None:
    """What was compiled, what was drawn, the summary beside the truth, the warnings."""
    from refhmc.cli.regression import fit_to_data
    from refhmc.plot.predictive import regression_data
    from refhmc.sampling.progress import count

    attributes = result.attributes
    print(compilation_report())
    print(
        f"{model.name}: {count(len(attributes['chains']), 'chain')} of {count(result.draws.shape[1], 'draw')} in "
        f"{attributes['sampling_time']:.1f} s, {attributes['n_gradient_evaluations']:,} gradients, "
        f"seed {attributes['entropy']}"
    )
    print(result.diverged)
    if advice.why:
        of_metric = ", ".join(f"{name}={value}" for name, value in advice.metric_options)
        on = [f"on {advice.metric}" + (f" ({of_metric})" if of_metric else "")] if advice.metric else []
        chosen = " with ".join([" ".join([advice.kernel, *on]), *(f"{name}={value}" for name, value in advice.options)])
        taken = f"{chosen}, since" if advice.kernel else "nuts, though"
        print(
            f"kernel: {taken} {advice.why}" + (" (--kernel nuts for NUTS)" if advice.kernel not in ("", "nuts") else "")
        )
    if attributes.get("adaptation"):
        print(attributes["adaptation"])
    print(summary_beside_truth(model, result))
    if (data := regression_data(model)) is not None and result.draws.size:
        print(fit_to_data(model, result, *data))
    for text in result.warnings:
        print(f"warning: {text}")


def print_json(model: Model, result: Result) -> None:
    """One object: ``attributes`` as in the result, ``warnings``, and ``summary``, variable -> ArviZ's columns, null where there
    are too few draws for it."""
    import json

    from refhmc.sampling.result import summary_table

    short = min(result.draws.shape[:2]) == 0 or result.draws.shape[1] < FEWEST or model.dim > SUMMARISED
    rows = None if short else json.loads(summary_table(result).to_json(orient="index"))
    print(json.dumps({"attributes": result.attributes, "warnings": result.warnings, "summary": rows}))


def make_kernel(options: Any, model: Model) -> Any:
    """The kernel that --kernel and its options name; ValueError for an option that has no use."""
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
            belongs = f"belongs to --kernel {' and '.join(takers)}" if takers else "is no option of a kernel"
            raise ValueError(f"--{key.replace('_', '-')} {belongs}")
    for key in required(kind):
        if key not in given:
            raise ValueError(f"--kernel {kind.name} needs --{key.replace('_', '-')}")
    return kind(**given)


def initial_values(text: str) -> Any:
    """What ``initvals`` takes, from JSON."""
    import json

    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise argparse.ArgumentTypeError(f"no JSON, {error}: {text!r}") from None


def learned(warmup: str | None) -> Any:
    """What ``warmup`` takes: "stan", or the result in a netCDF file. Raises ValueError for a file that is not there."""
    if warmup is None or warmup == "stan":
        return warmup
    if not pathlib.Path(warmup).is_file():
        raise ValueError(f"--warmup is stan, or a file of --out; there is no file {warmup!r}")
    from refhmc.core.arviz import read_tree

    return read_tree(pathlib.Path(warmup))


def path_given(text: str) -> pathlib.Path:
    """A file or a folder: "" would be the folder that one stands in."""
    if not text:
        raise argparse.ArgumentTypeError("no path is given: it is empty")
    return pathlib.Path(text)


def groups_to_generate(text: str) -> bool | list[str]:
    """True of "all", False of "none", else names."""
    return {"all": True, "none": False}.get(text.strip(), [each.strip() for each in text.split(",")])


def offset_and_power(text: str) -> tuple[float, ...]:
    """(b, gamma) of "100,0.55"."""
    numbers = tuple(float(each) for each in text.split(","))
    if len(numbers) != 2:
        raise argparse.ArgumentTypeError(f"two numbers with a comma between them, got {text!r}")
    return numbers


def advice_taken(options: Any, model: Model) -> Recommended:
    """What the model recommends, where neither --kernel, --metric nor one of the options that it is about says otherwise."""
    from refhmc.models.recommended import Recommended

    if options.kernel is not None or options.metric is not None or model.recommended is None:
        return Recommended()
    given = [name for name, _ in model.recommended.options if getattr(options, name) is not None]
    return Recommended() if given else model.recommended


def metric_and_integrator(options: Any, named: str | None) -> tuple:
    """The objects that --metric, --alpha, --integrator and --tolerance name, ``None`` for the kernel's own.

    ValueError for an option that has no use.
    """
    import refhmc
    from refhmc.integrators.defaults import resolve

    metrics, word = refhmc.metrics.METRICS, named if isinstance(named, Word) else Word(named or "low-rank")
    alpha = {} if options.alpha is None else {"alpha": options.alpha}
    if alpha and "alpha" not in options_of(metrics[word]):
        raise ValueError(f"--alpha belongs to the SoftAbs metrics, not to {metrics[word].name}")
    metric = None if named is None else word.made(metrics, **alpha)
    tolerance = {} if options.tolerance is None else {"tolerance": options.tolerance}
    if options.integrator is None and not tolerance:
        return metric, None
    name, integrators = options.integrator or Word(resolve(metric, None)[1].name), refhmc.integrators.INTEGRATORS
    if "base" in name.options:  # of a composition: a word, too
        base = Word(str(name.options["base"]))
        if base not in Names(lambda: integrators, "omega"):
            raise ValueError(f"--integrator {name}: there is no integrator {base!r} to be its base")
        name.options["base"] = integrator_named(base, integrators, tolerance)
        return metric, name.made(integrators)
    return metric, integrator_named(name, integrators, tolerance)


def integrator_named(word: Word, integrators: Registry, tolerance: dict[str, float]) -> Any:
    """The object, with ``tolerance`` if that is given. Raises ValueError."""
    if tolerance and not getattr(integrators[word], "implicit", False):
        raise ValueError("--tolerance belongs to the implicit integrators")
    return word.made(integrators, **tolerance)


def run_models(options: Any) -> int:
    """``refhmc models``: name, dimension, what is known about it."""
    import refhmc

    for name, make in (refhmc.models.by_name() | refhmc.models.networks_by_name()).items():
        model = make()
        known = model.reference.source if model.reference is not None else "no reference"
        print(f"{name:24s} d = {model.dim:<4d} {known}")
    return 0


def run_warmup(options: Any) -> int:
    """``refhmc warmup``: compile the core and every built-in model."""
    from refhmc.cli.precompile import compile_everything
    from refhmc.core.compile_cache import cache_directory

    for done, total, title, seconds in compile_everything():
        print(f"[{done}/{total}] {title}: {seconds:.1f} s", flush=True)
    print(f"kept in {cache_directory() or 'this process only'}")
    return 0


def run_info(options: Any) -> int:
    """``refhmc info``: what a bug report needs."""
    import platform
    from importlib.metadata import PackageNotFoundError, version

    import refhmc
    from refhmc.core.compile_cache import cache_directory

    print(f"refhmc {refhmc.__version__}, Python {platform.python_version()}, {platform.platform()}")
    for package in ("numpy", "scipy", "numba", "arviz", "arviz-base", "xarray", "rich", "cupy"):
        try:
            print(f"{package} {version(package)}")
        except PackageNotFoundError:
            print(f"{package} not installed")
    print(f"processors {os.cpu_count()}")
    print(f"compiled code {cache_directory() or 'is not kept'}")
    return 0


def model_of_file(path: pathlib.Path, name: str) -> Model:
    """The ``refhmc.Model`` of that name in a Python file, or what the function of that name returns.

    As in ``python FILE.py``, its folder is first in ``sys.path`` while it runs. Raises ValueError, with the line, for whatever
    the file raises.
    """
    import importlib.util

    import refhmc

    if not path.is_file():
        raise ValueError(f"MODEL: there is no file {path}")
    module_name = name_of_module(path)
    spec = importlib.util.spec_from_file_location(module_name, path)
    module = importlib.util.module_from_spec(spec)  # type: ignore[arg-type]
    sys.modules[module_name] = module  # where functions of the file are found by name
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
        with contextlib.suppress(ValueError):  # the file may have taken it away
            sys.path.remove(str(path.resolve().parent))
    if not there:
        raise ValueError(f"MODEL: {path} has no {name!r}")
    if not isinstance(found, refhmc.Model):
        raise ValueError(f"MODEL: {name} of {path} is no refhmc.Model, and returns none: {type(found).__name__}")
    return found


def name_of_module(path: pathlib.Path) -> str:
    """The file's stem, unless that is the name of another module, such as one of Python's own, which it would hide."""
    import importlib.util

    try:
        there = importlib.util.find_spec(path.stem) if path.stem.isidentifier() else None
    except ValueError:  # of __main__
        return f"model_file_{path.stem}"
    own = there is None or pathlib.Path(there.origin or "").resolve() == path.resolve()
    return path.stem if own else f"model_file_{path.stem}"


def line_in(path: pathlib.Path, error: BaseException) -> str:
    """``, line 12``: where in the file it was raised, or is not Python; nothing where it was not there."""
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
            raise ValueError("--widths belongs to refhmc's own networks")
        return model_of_file(pathlib.Path(path), inside)
    known, networks = refhmc.models.by_name(), refhmc.models.networks_by_name()
    if name not in known | networks:
        raise ValueError(f"no model named {name!r}; there are: {', '.join(known | networks)}, and FILE.py:NAME")
    if widths is None:
        return (known | networks)[name]()
    if name not in networks:
        raise ValueError(f"--widths belongs to {' and '.join(networks)}")
    if not all(each.strip().isdecimal() for each in widths.split(",")):
        raise ValueError(f"--widths are whole numbers with commas between them, got {widths!r}")
    return networks[name]([int(each) for each in widths.split(",")])


def compilation_report() -> str:
    """What was compiled in this process, and how long it took."""
    from refhmc.core import compiled
    from refhmc.core.compile_cache import cache_directory

    fresh = [item for item in compiled.log if not item.from_cache]
    loaded = [item for item in compiled.log if item.from_cache]
    if not fresh:
        return f"compiled nothing; loaded {len(loaded)} functions from the cache in {_total(loaded):.2f} s"
    seconds: dict[str, float] = {}
    for item in fresh:  # the parts of a metric have one title
        seconds[item.title] = seconds.get(item.title, 0.0) + item.seconds
    parts = ", ".join(f"{title} {each:.1f} s" for title, each in seconds.items())
    kept = "compiled, and kept for the next time" if cache_directory() else "compiled"
    return f"{kept}: {parts} ({_total(fresh):.1f} s in all)"


def _total(items: list[Compilation]) -> float:
    return sum(item.seconds for item in items)


def summary_beside_truth(model: Model, result: Result) -> str:
    """ArviZ's summary with two more columns: the known mean and standard deviation, where they are known."""
    import numpy as np

    from refhmc.sampling.result import summary_table

    if min(result.draws.shape[:2]) == 0 or result.draws.shape[1] < FEWEST:
        return "(too few draws for a summary)"
    if model.dim > SUMMARISED:
        return f"({model.dim:,} coordinates: no summary)"
    table = summary_table(result)
    truth = model.reference
    if truth is not None and truth.mean is not None and len(truth.mean) == len(table):
        table.insert(0, "true mean", np.round(truth.mean, 3))
        if truth.variance is not None:
            table.insert(1, "true sd", np.round(np.sqrt(truth.variance), 3))
    return table.to_string(max_rows=60)


def write_netcdf(result: Result, path: pathlib.Path) -> None:
    """Write beside the target, then rename: a failure leaves an old file as it was."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        result.to_arviz().to_netcdf(temporary)
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
