"""Put what a batch of chains in arrays made into a result: draws, counts and errors."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

from refhmc.batch.backends import error_of_device, to_host
from refhmc.batch.draw import Recorder, Run
from refhmc.errors import SamplingError
from refhmc.models.base import Model
from refhmc.sampling.results.rectangle import groups_of, put_rectangle
from refhmc.sampling.results.result import Result


def put_draws(result: Result, batch: Run, save_warmup: bool, *, ended: bool = True) -> None:
    """Put draws and statistics of a batch into the result.

    While it has not `ended`, its thread alone moves draws from a device, and only those that are on the host are taken.
    """
    recorders = {True: batch.warm, False: batch.made}
    lengths = {warmup: lengths_of(recorder, ended) for warmup, recorder in recorders.items()}

    def cut(chains: list[int], warmup: bool, n: int) -> dict[str, Any]:
        recorder = recorders[warmup]
        at = slice(None) if len(chains) == len(recorder.draws) else chains
        return groups_of(recorder.draws[at, :n], {name: values[at, :n] for name, values in recorder.stats.items()})

    put_rectangle(result, lengths[False], lengths[True] if save_warmup else None, cut)
    if len(set(lengths[False])) > 1:
        result.ragged.update({k: batch.made.draws[k, :n] for k, n in enumerate(lengths[False])})


def lengths_of(recorder: Recorder, ended: bool) -> list[int]:
    """Return the numbers of transitions of the chains that are on the host, where this moves them if the batch has ended."""
    if recorder.on_device and not ended:
        return [recorder.moved] * len(recorder.draws)
    try:
        recorder.move()
        return to_host(recorder.done).tolist()
    except Exception as error:
        if error_of_device(error) is None:
            raise
        recorder.give_up()
        return recorder.done.tolist()


def failure_of(model: Model, batch: Run, error: Exception) -> SamplingError:
    """Return the error to raise if the model raised one, which ends all chains."""
    done, position = to_host(batch.done), model.core.last_position.get(threading.get_ident())
    where = "" if position is None else f" (last position q = {np.array2string(position, threshold=8)})"
    words = str(error).rstrip(".")
    return SamplingError(
        f"The chains stopped after {done.min()} to {done.max()} iterations: {type(error).__name__}: {words}{where}. The draws "
        "so far are in this exception's .partial."
    )


def counts(batch: Run, logs: list, *, ended: bool = True) -> dict[str, object]:
    """Return the attributes with counts of evaluations of all chains together, needed or not, and of failed ones.

    It is not known in which chains evaluations failed. The thread of a batch that has not `ended` counts by itself.
    """
    if ended:
        batch.count_evaluations()
    failures = [failure for log in logs for failure in log.found.values()]
    found = {f"n_{name}_evaluations": int(count) for name, count in batch.evaluations.items()}
    changes = found.pop("n_change_evaluations", 0)
    per_chain = {
        "iterations": batch.done,
        "divergences": batch.divergences,
        "warmup_divergences": batch.warmup_divergences,
    }
    try:
        known = {f"{name}_per_chain": to_host(count).tolist() for name, count in per_chain.items()}
    except Exception as error:  # they were lost with the device
        if error_of_device(error) is None:
            raise
        known = {f"{name}_per_chain": [] for name in per_chain}
    return {
        **found,
        **known,
        "n_log_density_evaluations": found.get("n_gradient_evaluations", 0) + changes,
        "failed_chains": [],
        "evaluation_failures": [
            {"message": each.message, "evaluations": each.count, "first_position": each.first.tolist()}
            for each in failures
        ],
        "step_size_searches_failed": batch.searches_failed,
        "began_again_after": [0] * len(batch.chains),
    }
