"""``sample`` and ``start``: check the arguments, begin a run, and wait for it or not."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from refhmc.backends import Arrays, Numba, with_old_options
from refhmc.kernels.options import AnyKernel
from refhmc.models.base import Model
from refhmc.sampling.begin import begin
from refhmc.sampling.chains.initialization import Initvals
from refhmc.sampling.checks.arguments import checked, refuse_unknown
from refhmc.sampling.checks.seed import Seed
from refhmc.sampling.progress import ProgressReport
from refhmc.sampling.results.generated_quantities import GroupChoice
from refhmc.sampling.results.result import Result
from refhmc.sampling.run import Run
from refhmc.sampling.spec import RunSpec
from refhmc.sampling.storage.files import StrPath
from refhmc.sampling.until import Until


def sample(
    model: Model,
    kernel: AnyKernel | str | None = None,
    *,
    draws: int = 1000,
    tune: int | None = None,
    chains: int = 4,
    cores: int | None = None,
    random_seed: Seed | None = None,
    initvals: Initvals | None = None,
    init: str = "uniform",
    progressbar: bool | Callable[[ProgressReport], None] = True,
    save_warmup: bool = False,
    executor: object = None,
    backend: str | Numba | Arrays = "numba",
    checkpoint: StrPath | None = None,
    store: StrPath | None = None,
    max_seconds: float | None = None,
    until: Until | None = None,
    raw: bool = False,
    preflight: bool = True,
    warmup: object = None,
    generate: GroupChoice | None = None,
    **unknown: object,
) -> Any | Result:
    """Draw from the distribution of a model by Hamiltonian Monte Carlo.

    Each chain starts at its own position, adapts step size and metric in `tune` iterations of warm-up, and then makes `draws`
    draws. Chain k uses the random stream ``SeedSequence(entropy, spawn_key=(k,))``, so that its draws do not depend on
    `chains`, `cores`, `progressbar` or `executor`. After the last draw, the draws are reviewed; problems are reported as
    warnings and stored in the result.

    Parameters
    ----------
    model : Model
        Model to sample, for example from :mod:`refhmc.models` or ``refhmc.Model(...)``.
    kernel : kernel or str, optional
        Transition kernel, for example ``NUTS(target_accept=0.9)``, ``HMC()``, ``DHMC()`` or ``Gibbs({...})``, or the name of
        one with default options, such as "hmc". Defaults to the model's recommended kernel if it has one, else ``DHMC()`` for
        a model with discontinuous coordinates, else ``NUTS()``.
    draws : int, default 1000
        Number of draws per chain after warm-up. With 0, the groups of the result are empty. With `until`, the number after
        which the rule is checked for the first time.
    tune : int, optional
        Number of warm-up iterations per chain, by default 1,000. Above 500 coordinates, kernels that learn the length of their
        trajectories, ``HMC()`` and ``MAMS()``, make two per coordinate, at most 2,000 (see Notes).
    chains : int, default 4
        Number of chains.
    cores : int, optional
        Number of chains that run at a time, each in a thread. Defaults to the number of processors.
    random_seed : int, sequence of int, SeedSequence or Generator, optional
        Seed of the run. A Generator is advanced by one draw. By default the seed comes from the operating system; the result
        holds it as the attribute ``entropy``.
    initvals : array_like, dict or list of dict, optional
        Starts of the chains: unconstrained positions of shape (d,) or (chains, d), or constrained values of the variables by
        name, such as ``{"mu": 3.0, "tau": 0.5}``, or one such dictionary per chain. Names must determine all coordinates. No
        random numbers are added. Defaults to the model's own start, else to uniform draws on (-2, 2).
    init : {"uniform", "pathfinder"}, default "uniform"
        Initialization. With "uniform", chains start at `initvals` or their default. With "pathfinder", each chain moves from
        there by an optimizer and starts with a draw from the best normal approximation on this path (see Notes). This needs
        backend "numba" and a model without discontinuous coordinates.
    progressbar : bool or callable, default True
        Show progress, or call a function with a :class:`refhmc.ProgressReport` several times per second.
    save_warmup : bool, default False
        Keep warm-up iterations in the groups ``warmup_*``.
    executor : object or callable, optional
        Executor that runs the chains elsewhere: an object with a method ``submit`` (such as a ``ProcessPoolExecutor``) or
        ``apply_async``, or a function that returns one and is called again if it breaks. It is not closed.
    backend : {"numba", "arrays", "cupy"} or backend object, default "numba"
        How the chains are run: :class:`refhmc.Numba` compiles the kernel and runs each chain in a thread,
        :class:`refhmc.Arrays` runs many chains in NumPy arrays, :class:`refhmc.CuPy` runs them on a GPU. The last two support
        HMC, NUTS and DHMC, and have other random streams. Options belong to the objects, as in ``Numba(fuse=True)``.
    checkpoint : path-like, optional
        Folder in which the run is saved every few seconds and when it stops. The same call with this folder continues the run
        bit for bit, also with more `draws`. Model, kernel, starts, seed and versions of packages must be the same;
        ``random_seed=None`` uses the saved seed. See also :func:`refhmc.resume`.
    store : path-like, optional
        Folder of a Zarr hierarchy to which draws are written during the run, so that memory stays at about 16 MiB per chain.
        It can be read during the run by ``xarray.open_datatree(store, engine="zarr")``, and is also a checkpoint.
    max_seconds : float, optional
        Time limit in seconds. The run then stops and returns the draws so far. By default there is no limit.
    until : Until, optional
        Stopping rule, such as ``refhmc.Until(ess=400)``. Chains make `draws` draws, and then more until the rule is met. The
        attribute ``draws`` of the result is their number, and ``until_unmet`` lists what is not met at the limit.
    raw : bool, default False
        Return a :class:`refhmc.Result` of NumPy arrays instead of an ArviZ object.
    preflight : bool, default True
        Check the gradient, and each derivative that the metric uses, against finite differences before sampling.
    warmup : {"stan"} or Result, InferenceData or DataTree, optional
        With "stan", adapt a diagonal or dense metric as Stan does (diagonal if the kernel has none). With an earlier result by
        HMC, NUTS or DHMC with backend "numba", start from the step sizes, metrics and trajectory lengths that its chains
        adapted, and from its last draws if there are no `initvals`; with ``tune=0`` they are used unchanged. Chain k uses chain
        k modulo the number of chains of that result. The kernel must have the same kind of metric.
    generate : bool, str or sequence of str, optional
        Groups to generate after sampling, such as "log_likelihood", among those that the model defines. True selects all and
        False none. By default all groups that fit into 1 GiB are generated. :func:`refhmc.generate` adds groups later.
    **unknown
        Other names raise TypeError with the name that refhmc uses. The old options `fuse`, `shared_step_size` and `streamed`
        issue a FutureWarning; they belong to the backend objects.

    Returns
    -------
    InferenceData, DataTree or Result
        The object of the installed ArviZ (``InferenceData`` for 0.x, ``DataTree`` for 1.x), or a :class:`refhmc.Result` with
        ``raw=True``. After Ctrl-C, SIGTERM (in the main thread) or `max_seconds` it holds the draws so far, and the attributes
        ``interrupted`` and ``stopped_by`` are set. A second Ctrl-C raises KeyboardInterrupt.

    Raises
    ------
    TypeError, ValueError
        If an argument is invalid, or if an option does not apply to the backend.
    ShapeError, InitError, ModelError, GradientError, MetricError, MissingDerivativeError
        If the model, its derivatives, the starts or the metric fail the checks before sampling.
    CheckpointError
        If the folder belongs to another run (the differences are listed), is damaged, or is in use.
    MemoryError
        If the draws need more memory than is available.
    DeviceError
        If a GPU is requested but not available, or if it fails.
    WarmupError
        If warm-up of a chain failed, so that its draws would be useless. The other chains are complete.
    SamplingError
        If the model raised an exception. The other chains are complete; with "arrays" and "cupy" all chains end.

    See Also
    --------
    start : Run in the background.
    resume : Continue a saved run.
    generate : Add groups to a result.
    predict : Predict at new inputs.

    Notes
    -----
    Any exception raised after the first draw carries the draws so far as a :class:`refhmc.Result` in its attribute ``partial``.

    With "pathfinder", random numbers come from the stream ``SeedSequence(entropy, spawn_key=(k, 0))``. A chain for which
    Pathfinder finds no start begins as with "uniform", with a warning. With "uniform" and no `initvals`, a chain that makes no
    progress from its start restarts where Pathfinder would have started it, with a warning. The attribute ``starts`` of the
    result names the origin of each start, and ``began_again_after`` the iteration of a restart (0 if there was none).

    The metric of a normal with d coordinates is known after d + 1 different draws and their gradients, wherever these are. NUTS
    makes long trajectories until then. HMC and MAMS usually make short ones, whose iterations are cheap, but which do not
    explore the remaining directions. Their default `tune` is therefore twice the number of coordinates if the metric is learned
    from draws and gradients, but at least 1,000 and at most the number of draws that are kept for it, 2,000,000 / d.

    The arguments `cores`, `executor`, `checkpoint`, `store`, and `warmup` with a result, need backend "numba". With "arrays"
    and "cupy", the statistics have no numbers of evaluations per draw.

    With a `store`, warnings about divergences consider the last draws only, and R-hat and effective sample sizes a thinned
    selection of all draws. `generate` must be None or False.

    References
    ----------
    Neal (2011), MCMC using Hamiltonian dynamics, Handbook of Markov Chain Monte Carlo.
    Hoffman and Gelman (2014), The No-U-Turn Sampler, Journal of Machine Learning Research 15.
    Zhang, Carpenter, Gelman and Vehtari (2022), Pathfinder, Journal of Machine Learning Research 23.

    Examples
    --------
    >>> import refhmc
    >>> model = refhmc.models.EightSchools()
    >>> result = refhmc.sample(model, draws=100, tune=100, random_seed=1, progressbar=False, raw=True)
    >>> result.posterior["tau"].shape
    (4, 100)

    Choose a kernel, and repeat a run by its seed:

    >>> options = {"draws": 50, "tune": 50, "random_seed": 1, "progressbar": False, "raw": True}
    >>> one, two = (refhmc.sample(model, refhmc.NUTS(target_accept=0.9), **options) for _ in range(2))
    >>> bool((one.draws == two.draws).all())
    True
    """
    spec = RunSpec(
        model=model,
        kernel=kernel,  # type: ignore[arg-type]  # `checked` resolves a name and None
        draws=draws,
        tune=tune,  # type: ignore[arg-type]  # the same
        chains=chains,
        cores=cores,
        random_seed=random_seed,
        initvals=initvals,
        init=init,
        progressbar=progressbar,
        save_warmup=save_warmup,
        executor=executor,
        backend=with_old_options(backend, unknown),
        checkpoint=checkpoint,
        store=store,
        max_seconds=max_seconds,
        until=until,
        raw=raw,
        preflight=preflight,
        warmup=warmup,
        generate=generate,
    )
    refuse_unknown(unknown, sample)
    return begin(checked(spec))._wait()


def start(model: Model, kernel: AnyKernel | str | None = None, **options: object) -> Run:
    """Start a run in the background.

    Arguments are checked and code is compiled before this function returns. The chains then draw in threads of their own, or by
    the executor. Until the run has ended, linear algebra in this process uses one thread.

    Parameters
    ----------
    model : Model
        Model to sample.
    kernel : kernel or str, optional
        Transition kernel, as in :func:`refhmc.sample`.
    **options
        The other arguments of :func:`refhmc.sample`.

    Returns
    -------
    Run
        A run with the methods ``progress``, ``peek``, ``stop`` and ``wait``.

    Raises
    ------
    TypeError, ValueError
        If an argument is invalid. Other errors before the first draw are those of :func:`refhmc.sample`.

    See Also
    --------
    sample : Start a run and wait for it.

    Notes
    -----
    In asyncio, use ``await asyncio.to_thread(run.wait)``.

    Examples
    --------
    >>> import refhmc
    >>> run = refhmc.start(
    ...     refhmc.models.Funnel(2), draws=100, tune=100, random_seed=1, progressbar=False, raw=True
    ... )
    >>> run.wait().draws.shape
    (4, 100, 3)
    >>> run.progress().draws_done.tolist()
    [200, 200, 200, 200]
    """
    arguments = inspect.signature(sample).bind(model, kernel, **options)
    arguments.apply_defaults()
    given = arguments.arguments
    unknown = given.pop("unknown")
    given["backend"] = with_old_options(given["backend"], unknown)
    refuse_unknown(unknown, sample)
    return begin(checked(RunSpec(**given)))._begin_drawing()
