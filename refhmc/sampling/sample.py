"""``sample`` and ``start``: a run is begun (:mod:`~refhmc.sampling.begin`), and waited for (:mod:`~refhmc.sampling.run`)."""

from __future__ import annotations

import contextlib
import inspect
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from refhmc.backends import Arrays, Numba, with_old_options
from refhmc.models.base import Model
from refhmc.sampling.arguments import check_kinds, check_options, entropy_of, seconds_of
from refhmc.sampling.assembly import with_partial
from refhmc.sampling.begin import begin_run, checked
from refhmc.sampling.generation import put_generated_or_say
from refhmc.sampling.interruption import sigterm_as_ctrl_c
from refhmc.sampling.many import sample_many
from refhmc.sampling.progress import ProgressReport, make_display
from refhmc.sampling.run import Run
from refhmc.sampling.unknown_arguments import refuse_unknown

if TYPE_CHECKING:
    from refhmc.sampling.result import Result


def sample(
    model: Model,
    kernel: Any = None,
    *,
    draws: int = 1000,
    tune: int = 1000,
    chains: int = 4,
    cores: int | None = None,
    random_seed: Any = None,
    initvals: Any = None,
    init: str = "uniform",
    progressbar: bool | Callable[[ProgressReport], None] = True,
    save_warmup: bool = False,
    executor: Any = None,
    backend: str | Numba | Arrays = "numba",
    checkpoint: Any = None,
    store: Any = None,
    max_seconds: float | None = None,
    raw: bool = False,
    preflight: bool = True,
    warmup: Any = None,
    generate: Any = None,
    **unknown: Any,
) -> Any | Result:
    """Draw from a model's distribution.

    Parameters
    ----------
    model : a :class:`refhmc.Model`. kernel : ``HMC(...)``, ``NUTS(...)``, ``DHMC(...)`` or ``Gibbs(...)``, or the word for
        one with its defaults, "hmc"; default that of ``model.recommended``, else ``NUTS()``, and ``DHMC()`` for a model with
        discontinuous coordinates.
    draws, tune : draws of each chain after, and iterations of, warm-up. Zero draws give an empty result.
    chains, cores : chains, and how many run at a time, a thread each (default: one per processor).
    random_seed : int, sequence of ints, SeedSequence, or Generator (advanced once). Chain k has the stream
        ``SeedSequence(entropy, spawn_key=(k,))`` whatever ``chains``, ``cores``, progress or executor.
    initvals : (d,) or (chains, d), unconstrained; or constrained values of the variables by name, ``{"mu": 3.0, "tau": 0.5}``,
        enough of them to tell the position, or such a mapping for each chain; nothing is added to them. Default: the model's
        own start, or uniform on (-2, 2).
    init : "uniform": chains begin where ``initvals`` say. "pathfinder": from there each climbs by an optimiser of its own and
        begins with a draw from the best normal on that path (:mod:`refhmc.adaptation.pathfinder`), from the stream
        ``SeedSequence(entropy, spawn_key=(k, 0))``. A chain for which none is found begins as without it, with a warning. The
        result's attribute ``starts`` has "pathfinder", "initvals", "warmup" (its ends), "model" or "uniform" for each chain.
        ValueError for a model with coordinates that jump, and with another backend than "numba". With "uniform" and no
        ``initvals``, a chain whose start turns out to be hopeless begins again where Pathfinder would have begun, with a
        warning (:mod:`refhmc.sampling.far_start`). The attribute ``began_again_after`` has the iteration, or 0.
    progressbar : False, True, or a function of a :class:`refhmc.sampling.progress.ProgressReport`.
    save_warmup : keep warm-up in groups ``warmup_*``.
    executor : anything with ``submit`` or ``apply_async``, or a function that gives one, asked again where one broke; chains
        go in segments of seconds (:mod:`refhmc.sampling.executors`). Never closed here.
    backend : "numba", the compiled core, a chain a thread; or many chains at once (:mod:`refhmc.batch`): "arrays", NumPy on the
        CPU, or "cupy", a GPU (DeviceError where there is none), of HMC, NUTS and DHMC. Their streams are another generator's,
        so that their draws differ; chain k has its own whatever ``chains``. A draw has no counts of evaluations, and an
        exception of the model ends all chains. ValueError for an option that the backend does not use: ``cores``,
        ``executor``, ``checkpoint`` and ``fuse`` are of "numba", the next two of the others.
    shared_step_size : of "arrays" and "cupy": warm-up adapts one step size for all chains (True, the default), or one for each.
        The metric is learned from all chains.
    streamed : of "cupy" and a split model: the data of a part are moved to the device for each of its evaluations, from
        page-locked copies on the host, beside the evaluation of the part before. All of them together may be larger than its
        memory, which holds those of two parts at a time.
    max_seconds : stop then, with the draws made so far; in warm-up there are none, and the result's warning says at which
        iteration each chain was, how fast, and how long all of warm-up would take. inf, or centuries: no limit.
    checkpoint : a folder. The run is saved there every few seconds and when it stops; called again with the same
        folder it goes on from there, bit for bit as if it had never stopped. Model (all that its functions reach:
        :mod:`refhmc.core.fingerprint`), kernel, warm-up, starts, seed and the versions of refhmc, Numba, NumPy and Python
        must be the same; ``random_seed=None`` takes the saved seed; ``draws`` may have grown.
    store : a folder. Draws and statistics go there as they come, a Zarr hierarchy (:mod:`refhmc.sampling.store`), and memory
        holds some 16 MiB of each chain; it is a checkpoint, too, and can be read while the run is under way, by
        ``xarray.open_datatree(store, engine="zarr")``. The result reads from it. Warnings then are of the last draws of each
        chain, R-hat and effective sample size of every so many of all; :func:`refhmc.generate` makes what ``generate`` would.
    raw : return a :class:`refhmc.Result` of NumPy arrays. preflight : check the gradient
        and each derivative that the metric reads, before sampling.
    warmup : "stan": ``Diagonal()`` and ``Dense()`` as Stan's warm-up has them, its diagonal where the kernel says no metric;
        one that the kernel has learned from gradients, ``LowRank()`` among them, is learned as without it. Or a result of this
        function, raw or ArviZ's, by HMC, NUTS or DHMC and backend "numba": chain k begins with the step size, the metric and
        HMC's trajectory length and jitter that chain k (modulo their number) of it has learned, as far as the kernel leaves
        them to warm-up, and where that ended if there are no ``initvals``; with ``tune=0`` they are used as they are. A step
        size belongs to its metric: ValueError where the kernel's is another.
    generate : which groups to make after sampling, of those that the model's ``generated`` has
        (:class:`refhmc.GeneratedQuantities`): None, all that fit into 1 GiB, with a warning that names the others; True, all; False,
        none; or names, "log_likelihood". Slow ones show progress, and Ctrl-C leaves out what is not finished.
        :func:`refhmc.generate` makes them later.
    fuse : compile the kernel for this model, integrator and metric (:mod:`refhmc.dynamics.fuse`): 5 to 40 seconds, once, then
        kept; worth it for runs of minutes where an evaluation takes microseconds or less. Draws may differ from those by
        pointer in their last bits, since sums may be added in another order.

    Returns
    -------
    The installed ArviZ's own object, or a :class:`refhmc.Result`. Ctrl-C, SIGTERM (if called in the main thread) or
    ``max_seconds`` gives what there is, marked in the attributes ``interrupted`` and ``stopped_by``, after the last draw, too,
    where Ctrl-C ends the review of the draws and a warning says it; a second Ctrl-C raises.

    Raises
    ------
    ShapeError, InitError, ModelError, GradientError, MetricError, ValueError : before sampling.
    CheckpointError : before sampling: the folder is of another run (what differs is said), damaged (the file is named), or
        being written to.
    WarmupError : a chain's warm-up was hopeless, so that its draws would be useless; other chains are complete.
    SamplingError : the model raised during sampling, other chains are complete; of many chains at once, all have ended.
    Whatever is raised after the first draw, also by ``constrain``, ArviZ, the progress callback, a warning that is an error or
    a second Ctrl-C, has what was drawn as a :class:`refhmc.Result` in its attribute ``partial``.
    """
    backend = with_old_options(backend, unknown)
    refuse_unknown(unknown, sample)
    if isinstance(backend, Numba):
        run = begin_run(
            model,
            kernel,
            draws=draws,
            tune=tune,
            chains=chains,
            cores=cores,
            random_seed=random_seed,
            initvals=initvals,
            init=init,
            progressbar=progressbar,
            save_warmup=save_warmup,
            executor=executor,
            checkpoint=checkpoint,
            store=store,
            max_seconds=max_seconds,
            raw=raw,
            preflight=preflight,
            fuse=backend.fuse,
            warmup=warmup,
            generate=generate,
        )
        return run._wait()
    flags = {"save_warmup": save_warmup, "raw": raw, "preflight": preflight}
    check_kinds(progressbar, executor, checkpoint, store, **flags)
    kernel, initvals, usual, learned = checked(
        model, kernel, draws, tune, chains, cores, max_seconds, init, initvals, warmup, generate
    )
    of_the_core = {"cores": cores, "executor": executor, "checkpoint": checkpoint, "store": store}
    of_the_core["warmup"] = learned  # a result; "stan" is a matter of the kernel's metric
    of_the_core["init='pathfinder'"] = init == "pathfinder" or None
    check_options(of_the_core, backend.name)
    display = make_display(progressbar)
    with contextlib.closing(display):
        result, to_say = sample_many(
            model,
            kernel,
            draws=draws,
            tune=tune,
            chains=chains,
            entropy=entropy_of(random_seed),
            initvals=initvals,
            backend=backend,
            save_warmup=save_warmup,
            preflight=preflight,
            display=display,
            max_seconds=seconds_of(max_seconds),
            generate=generate,
        )
    result.attributes["starts"] = [usual] * chains
    try:
        with sigterm_as_ctrl_c():
            for warning in to_say:
                warnings.warn(warning, stacklevel=2)
            for warning in put_generated_or_say(result, model, generate, progressbar):
                warnings.warn(warning, stacklevel=2)
            return result if raw else result.to_arviz()
    except BaseException as error:
        carrier = with_partial(error, result)
        if carrier is error:
            raise
        raise carrier from error


def start(model: Model, kernel: Any = None, **options: Any) -> Run:
    """Begin a run in the background.

    ``options`` are those of :func:`sample`, but for ``backend`` and what belongs to others than "numba". What cannot be is
    refused, and what is not compiled yet is compiled, before this returns; so are its errors raised. The chains then draw in
    threads of their own, or by the executor: the :class:`refhmc.sampling.run.Run` says how far they are, what they have drawn,
    ends them, and has the result, the same as ``sample`` gives::

        run = refhmc.start(model, draws=100_000)
        run.progress().draws_done, run.peek().draws, run.stop(), run.wait()

    Until it has ended, linear algebra of this process has one thread. In asyncio: ``await asyncio.to_thread(run.wait)``.
    """
    parameters = inspect.signature(sample).parameters
    known = {name: each.default for name, each in parameters.items() if each.kind is each.KEYWORD_ONLY}
    backend = with_old_options(options.pop("backend", known.pop("backend")), options)
    refuse_unknown({name: value for name, value in options.items() if name not in known}, sample)
    if not isinstance(backend, Numba):
        raise ValueError(f"backend must be 'numba' in refhmc.start; got {backend.name!r}. Use refhmc.sample.")
    return begin_run(model, kernel, **{**known, **options}, fuse=backend.fuse, level=3)._begin_drawing()
