"""The engine of ``backend="numba"``: each chain in a thread of compiled code, or as tasks of an executor."""

from __future__ import annotations

import sys
import time
import warnings

import numba
import numpy as np

from refhmc.adaptation.adapted import begin_from
from refhmc.compile.fingerprint import CHANGES, Fingerprint, classes_in, fingerprint, package_identity, settled
from refhmc.core.signals import held_back
from refhmc.errors import CheckpointWarning, _see
from refhmc.kernels.options import AnyKernel
from refhmc.models.base import Model
from refhmc.models.recipe import recipe_of
from refhmc.sampling.chains.chain import BlockState, make_plan
from refhmc.sampling.chains.compiled_chains import CompiledChains
from refhmc.sampling.chains.engine import Chains
from refhmc.sampling.chains.initialization import check_start_of, given_starts, is_default, random_start
from refhmc.sampling.chains.task import ChainTask, chain_generator
from refhmc.sampling.checks.memory_estimate import check_memory
from refhmc.sampling.results.result import Result
from refhmc.sampling.spec import RunSpec
from refhmc.sampling.storage.checkpoint import FORMAT, Checkpoint
from refhmc.sampling.storage.kernel_json import kernel_as_json
from refhmc.sampling.storage.store import Store


class CompiledEngine:
    """Chains in compiled code (:class:`refhmc.sampling.chains.engine.Engine`)."""

    def __init__(self, spec: RunSpec) -> None:
        self.spec = spec
        # Before any function of the model is called, which may change what it reads.
        self.parts = None if spec.folder is None else parts_of_run(spec.model, spec.kernel)
        check_memory(spec)  # before the matrices of a metric are allocated
        begin = time.perf_counter()
        self.plan = make_plan(spec.model, spec.kernel, spec.tune, spec.fuse)
        self.plan.compile(spec.model.name)
        self.attributes = {
            "device": f"CPU, Numba {numba.__version__}",
            "shared_step_size": False,
            "fused": spec.fuse,
            "compilation_time": time.perf_counter() - begin,
        }
        self.starts = given_starts(spec.model, spec.initvals, spec.chains)
        rng = chain_generator(spec.entropy, 0)
        self.first = random_start(spec.model, self.plan, rng, 0) if self.starts is None else self.starts[0]
        self.checkpoint: Checkpoint | None = None

    def check_starts(self) -> None:
        for chain, start in enumerate([] if self.starts is None else self.starts):
            check_start_of(self.spec.model, self.plan, start, chain)

    def check_implementation(self) -> str | None:
        return None

    def open(self, result: Result) -> Chains:
        spec, store = self.spec, None
        if self.parts is not None:
            with held_back():  # so that an interrupt releases the folder
                self.checkpoint = open_checkpoint(spec, self.parts, self.starts)
            result.attributes["forced"] = self.checkpoint.forced
        if spec.learned is not None:
            for adapted in spec.learned[: spec.chains]:
                begin_from(BlockState(self.plan.blocks[0]), adapted)  # raises the errors of the chains here
        if spec.store is not None:
            store = Store(
                *(spec.store, spec.model, spec.kernel, self.first, self.plan.n_stats),
                *(spec.chains, spec.draws, spec.tune, spec.kept_warmup),
            )
        tasks = [self._task(k) for k in range(spec.chains)]
        chains = CompiledChains(spec, tasks, self.plan, self.checkpoint, store)
        # An error before this point leaves the number of draws in the folder unchanged.
        if self.checkpoint is not None:
            self.checkpoint.keep_draws()
        if store is not None:
            store.make_room()
        return chains

    def _task(self, k: int) -> ChainTask:
        spec = self.spec
        return ChainTask(
            *(spec.model, spec.kernel, k, spec.entropy, None if self.starts is None else self.starts[k]),
            *(spec.draws, spec.tune, spec.save_warmup, spec.fuse, spec.init),
            adapted=None if spec.learned is None else spec.learned[k % len(spec.learned)],
            free_start=is_default(spec.model, self.starts),
        )

    def close(self) -> None:
        if self.checkpoint is not None:
            self.checkpoint.close()


def parts_of_run(model: Model, kernel: AnyKernel) -> Fingerprint:
    """Return the fingerprint of the model and of the kernel's classes, which may be subclasses of refhmc's."""
    of_model, of_kernel = model.made_of(), fingerprint(classes_in("the kernel", kernel))
    packages = tuple(sorted({*of_model.packages, *of_kernel.packages}))
    return Fingerprint({**of_model.parts, **of_kernel.parts}, packages, of_model.unknown + of_kernel.unknown)


def open_checkpoint(spec: RunSpec, parts: Fingerprint, starts: np.ndarray | None) -> Checkpoint:
    """Return the checkpoint of a run in its folder, new or checked to be of the same run.

    `parts` is the fingerprint from before the first evaluation. Warns of parts that cannot be compared.
    """
    import refhmc

    model = spec.model
    assert spec.folder is not None
    known = settled(parts, parts_of_run(model, spec.kernel))
    packages = sorted({*known.packages, "refhmc", "numba", "numpy"} - {"python"})
    run = {
        "format": FORMAT,
        "refhmc_version": refhmc.__version__,
        "python": f"{sys.version_info.major}.{sys.version_info.minor}",
        "model": model.name,
        "recipe": recipe_of(model),
        "kernel": kernel_as_json(spec.kernel),
        "draws": spec.first_check,
        "until": None if spec.until is None else spec.until.as_json(),
        "tune": spec.tune,
        "chains": spec.chains,
        "entropy": str(spec.entropy),
        "save_warmup": spec.save_warmup,
        "fuse": spec.fuse,
        "init": spec.init,
        "warmup": "" if spec.learned is None else fingerprint({"warmup": spec.learned}).parts["warmup"],
        # Otherwise the last bits may differ.
        "compiled": model.runs_as_python is None and not numba.config.DISABLE_JIT,
        "initvals": "random" if starts is None else fingerprint({"initvals": starts}).parts["initvals"],
        "packages": {name: package_identity(name) for name in packages},
        "parts": known.parts,
    }
    checkpoint = Checkpoint(spec.folder, run, force=spec.force)
    checkpoint.open(starts)
    not_compared = [*known.unknown, *(f"{k} ({CHANGES})" for k, v in checkpoint.run["parts"].items() if v == CHANGES)]
    if not_compared:
        text = (
            f"The checkpoint cannot compare these parts of the model with a later run: {'; '.join(not_compared)}. If one of "
            "them changes, the run continues with another model without notice. Make sure that they are the same when you "
            f"resume. {_see('checkpoints')}"
        )
        try:
            warnings.warn(text, CheckpointWarning, stacklevel=5)
        except CheckpointWarning:
            checkpoint.close()
            raise
    return checkpoint
