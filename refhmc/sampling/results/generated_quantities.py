"""Groups generated from draws after sampling, as defined by a model's ``generated`` (:class:`refhmc.GeneratedQuantities`).

Chain k's random numbers come from PCG64(SeedSequence(entropy, spawn_key=(k, s))), with s = 1 for posterior predictive draws,
s = 2 for prior draws and s = 3 for prior predictive draws; the last two have one chain, k = 0. These streams differ from those
of the chains, so that draws are the same with and without these groups.
"""

from __future__ import annotations

import copy
import dataclasses
import json
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from refhmc.batch.backends import memory_there
from refhmc.core.arviz import dataset, dataset_of, with_groups
from refhmc.core.named_axes import PREDICTED, SAMPLES, check_axes, check_variables
from refhmc.errors import ModelError, ModelWarning, SamplingWarning, _see
from refhmc.models.base import Model
from refhmc.models.generated import CLOSE, COMPARED, GeneratedQuantities
from refhmc.sampling.chains.task import chain_generator
from refhmc.sampling.checks.seed import Seed, entropy_of
from refhmc.sampling.progress import Counter
from refhmc.sampling.results.result import Group, Result

GroupChoice = bool | str | Sequence[str]  # argument generate of sample

GROUPS = GeneratedQuantities._fields[:4]
STREAMS = {"posterior_predictive": 1, "prior": 2, "prior_predictive": 3}
OF_ONE_CHAIN = ("prior", "prior_predictive")
DEFAULT_BYTES = 2**30  # bytes of groups that ``sample`` generates by default
BATCH = 2**18  # numbers returned by one call for many draws


def generate(
    model: Model,
    result: Any,
    groups: GroupChoice | None = None,
    *,
    random_seed: Seed | None = None,
    progressbar: bool = True,
) -> Any:
    """Add groups that the model generates from draws, such as posterior predictive draws.

    :func:`refhmc.sample` adds the same groups by default if they are small. ``log_likelihood`` and ``posterior_predictive``
    have the chains and draws of `result`; ``prior`` and ``prior_predictive`` have one chain with as many draws. A group takes
    8 bytes per number: 4 chains of 1,000 draws with 10,000 observations take 320 MB. A ModelWarning is issued if `result`
    comes from another model or other data, according to the fingerprint in its attributes.

    Parameters
    ----------
    model : Model
        The sampled model, with functions in its argument ``generated`` (:class:`refhmc.GeneratedQuantities`).
    result : Result, InferenceData or DataTree
        What :func:`refhmc.sample` returned, or an ArviZ object read from a file. It is not changed.
    groups : str or sequence of str, optional
        Names of groups, such as ``"log_likelihood"`` or ``["posterior_predictive", "prior"]``. Defaults to all groups of the
        model. ``prior_predictive`` includes ``prior``. Observed and constant data are always added.
    random_seed : int, sequence of int, SeedSequence or Generator, optional
        Seed of the random numbers. Defaults to the entropy of `result`, which repeats the groups that ``sample`` makes.
    progressbar : bool, default True
        Show progress if this takes more than a second.

    Returns
    -------
    Result, InferenceData or DataTree
        A copy of `result`, of the same type, with the groups added or replaced.

    Raises
    ------
    ValueError
        If the model does not generate one of the groups, or `result` has no draws.
    TypeError
        If `model` is not a model or `result` was not returned by ``sample``.
    ModelError
        If a function of the model returns anything other than named arrays of fixed shapes. Exceptions of these functions are
        raised unchanged.
    MemoryError
        If the groups need more memory than there is.

    See Also
    --------
    predict : Predict at new inputs.

    Examples
    --------
    >>> import refhmc
    >>> model = refhmc.models.EightSchools()
    >>> result = refhmc.sample(model, draws=100, tune=100, generate=False, progressbar=False, raw=True)
    >>> refhmc.generate(model, result, "log_likelihood").groups["log_likelihood"]["y"].shape
    (4, 100, 8)
    """
    if not isinstance(model, Model):
        raise TypeError(f"model must be a refhmc.Model; got {type(model).__name__}.")
    names = chosen(model, groups)
    if isinstance(result, Result):
        attributes = dict(result.attributes)
        if "predicted" in attributes:
            attributes["predicted"] = [each for each in attributes["predicted"] if each not in names]
        groups_there = dict(result.groups)
        raw = dataclasses.replace(
            result, groups=groups_there, attributes=attributes, dims=model.dims, coords=model.coords
        )
    else:
        raw = _posterior_of(result)
    warn_of_another(model, raw.attributes)
    if not raw.posterior:
        raise ValueError("result must have draws in its group posterior; got none.")
    fitting(bytes_of(raw, model, names), True)
    before = dict(raw.groups)
    entropy = int(raw.attributes["entropy"]) if random_seed is None else entropy_of(random_seed)
    with Counter(progressbar) as counter:
        put_generated(raw, model, names, entropy, counter)
    if isinstance(result, Result):
        return raw
    made = {name: group for name, group in raw.groups.items() if group is not before.get(name)}
    added = {}
    for name, group in made.items():
        leading = () if name in model.generated.data else SAMPLES
        added[name] = dataset(group, model.dims, model.coords, leading)
        added[name].attrs.update(result["posterior"].attrs)
        if name not in OF_ONE_CHAIN and leading:
            added[name] = added[name].assign_coords(labels_of_samples(result["posterior"]))
    return with_groups(result, added)


def labels_of_samples(posterior: Any) -> dict[str, np.ndarray]:
    """Return the labels of chains and draws; they are 0, 1, ... if there are none, as in a store."""
    return {axis: dataset_of(posterior)[axis].values for axis in SAMPLES}


def warn_of_another(model: Model, attributes: Mapping[str, object]) -> None:
    """Warn if a result with these attributes comes from another model than `model`."""
    there = attributes.get("model_fingerprint")
    if there is None or there == model.fingerprint():
        return
    warnings.warn(
        f"The draws in result come from the model {attributes.get('model', '')!r}, whose code, data or parts differ from those "
        f"of the given model {model.name!r}. The new groups describe the given model. Pass the model that was sampled, unless "
        f"the difference is intended. {_see('other-model')}",
        ModelWarning,
        stacklevel=3,
    )


def _posterior_of(result: Any) -> Result:
    """Return a result with the posterior and the attributes of an ArviZ object."""
    try:
        there = result["posterior"]
        entropy, chains = there.attrs["entropy"], json.loads(there.attrs["chains"])
        posterior = {str(name): there[name].values for name in there.data_vars}
        chains = [chains[int(k)] for k in labels_of_samples(there)["chain"]]  # chains may have been selected
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise TypeError(
            f"result must be returned by refhmc.sample; got {type(result).__name__} without its attributes."
        ) from error
    of_model = {name: there.attrs[name] for name in ("model", "model_fingerprint") if name in there.attrs}
    return Result({"posterior": posterior}, {"entropy": entropy, "chains": chains, **of_model})


def chosen(model: Model, groups: GroupChoice | None) -> list[str]:
    """Return the groups selected by True or None (all), False (none), a name, or names; raises ValueError."""
    made = list(model.generated.made)
    if groups is None or groups is True:
        return made
    wanted = [] if groups is False else [groups] if isinstance(groups, str) else groups
    if not isinstance(wanted, Iterable):
        raise ValueError(f"generate must be None, True, False or names of groups among {made}; got {groups!r}.")
    wanted = list(wanted)
    for name in wanted:
        if name not in made:
            has = ", ".join(made) if made else "none"
            raise ValueError(
                f"generate must name groups of model {model.name!r} ({has}); got {name!r}. Define the group by "
                "refhmc.Model(..., generated=...)."
            )
    return [name for name in made if name in wanted or (name == "prior" and "prior_predictive" in wanted)]


def put_generated(result: Result, model: Model, names: list[str], entropy: int, counter: Counter) -> None:
    """Put the groups `names` into the result, one after another, and the data."""
    groups, functions = result.groups, model.generated.made
    groups.update(model.generated.data)
    chains, draws = next(iter(result.posterior.values())).shape[:2]
    if draws == 0:
        return
    for name in names:
        function, values, numbers = functions[name], result.posterior, result.attributes.get("chains", range(chains))
        if name == "prior":
            function, values = (lambda _, rng, draw=functions[name]: draw(rng)), {}
        elif name == "prior_predictive":
            values = groups["prior"]
        numbers = [0] if name in OF_ONE_CHAIN else list(numbers)
        if name in STREAMS:
            parts = [
                over_draws(name, function, _of_chain(values, i), draws, counter.part(name, i, len(numbers)), generator)
                for i, generator in enumerate(chain_generator(entropy, k, STREAMS[name]) for k in numbers)
            ]
            groups[name] = {each: np.stack([part[each] for part in parts]) for each in parts[0]}
        else:
            rows = {each: value.reshape(-1, *value.shape[2:]) for each, value in values.items()}
            found = over_draws(name, function, rows, chains * draws, counter.part(name, 0, 1))
            groups[name] = {each: value.reshape(chains, draws, *value.shape[1:]) for each, value in found.items()}


def put_generated_or_say(
    result: Result, model: Model, asked: GroupChoice | None, progressbar: bool | Callable
) -> list[Warning]:
    """Put the groups into a result at the end of a run; return warnings about groups that are too large or interrupted."""
    if not result.posterior:
        return []
    all_of_them = chosen(model, asked)
    names = fitting(bytes_of(result, model, all_of_them), asked)
    why = f"they take more than {DEFAULT_BYTES / 2**30:.0f} GiB"
    try:
        with Counter(progressbar) as counter:
            put_generated(result, model, names, result.attributes["entropy"], counter)
    except KeyboardInterrupt:
        why = "Ctrl-C or SIGTERM came after the last draw"
    left = [name for name in all_of_them if name not in result.groups]
    if not left or result.draws.shape[1] == 0:
        return []
    result.warnings.append(
        f"The groups {', '.join(left)} were not generated, because {why}. The draws are complete. Call "
        f"refhmc.generate(model, result) to add the groups. {_see('missing-groups')}"
    )
    return [SamplingWarning(result.warnings[-1])]


def bytes_of(result: Result, model: Model, names: list[str]) -> dict[str, int]:
    """Return the bytes of each group, from what its function returns for the first draw."""
    chains, draws = next(iter(result.posterior.values())).shape[:2]
    if chains * draws == 0:
        return dict.fromkeys(names, 0)
    first = {name: np.array(value[0, 0]) for name, value in result.posterior.items()}
    return check_generated(model, first, names, chains, draws)


def _of_chain(values: Group, i: int) -> Group:
    return {name: value[i] for name, value in values.items()}


def over_draws(
    group: str,
    function: Callable,
    values: Group,
    n: int,
    report: Callable[[int, int], None],
    rng: np.random.Generator | None = None,
) -> Group:
    """Apply `function` to the values (n, ...) of each draw; return a dictionary of arrays (n, ...).

    One call takes many draws if it gives the same as one call per draw. This is checked for two different draws, and in each
    call for some of its draws (the first ones for a random function, which must ask for its numbers in the same order).
    Otherwise there is one call per draw. So the result does not depend on the number of draws per call.
    """

    def at(rows: int | slice, rng: np.random.Generator | None) -> Group:
        generator = () if rng is None else (rng,)
        try:
            return _arrays(group, function({name: np.array(value[rows]) for name, value in values.items()}, *generator))
        except Exception as error:
            error.add_note(f"Raised by generated {group} at draw {rows}.")
            raise

    def made(step: int, rng: np.random.Generator | None) -> Group | None:
        found: Group = {}
        for i in range(0, n, step):
            rows: slice | int = i
            if step == 1:
                returned: Group | None = at(i, rng)
            else:
                rows = slice(i, min(i + step, n))
                returned = _of_many(at, rows, rng)
            if returned is None:
                return None
            if not found:
                found = {name: np.empty((n, *value.shape[step > 1 :]), value.dtype) for name, value in returned.items()}
            _put(group, found, rows, returned)
            report(min(i + step, n), n)
        return found

    step = _draws_a_call(at, values, n, rng)
    found = made(step, copy.deepcopy(rng))
    return made(1, rng) if found is None else found  # type: ignore[return-value]  # one call per draw always works


def _of_many(at: Callable, rows: slice, rng: np.random.Generator | None) -> Group | None:
    """Return the values of one call for the draws `rows`, or None if they differ from those of single calls."""
    before, count = copy.deepcopy(rng), rows.stop - rows.start
    compared = min(COMPARED, 1 + count // 10)
    try:
        together = at(rows, rng)
    except Exception:
        return None
    some = np.linspace(0, count - 1, compared).astype(int) if rng is None else range(compared)
    alike = all(value.shape[:1] == (count,) for value in together.values()) and all(
        _alike({name: value[k] for name, value in together.items()}, at(rows.start + int(k), before)) for k in some
    )
    return together if alike else None


def _alike(one: Group, other: Group) -> bool:
    return one.keys() == other.keys() and all(
        one[name].shape == value.shape and np.allclose(one[name], value, rtol=CLOSE, atol=0.0, equal_nan=True)
        for name, value in other.items()
    )


def _draws_a_call(at: Callable, values: Group, n: int, rng: np.random.Generator | None) -> int:
    """Return the number of draws per call: a full batch if one call for two draws equals two calls, else 1."""
    different = np.zeros(n, dtype=bool)
    for value in values.values():
        different |= (value != value[:1]).reshape(n, -1).any(axis=1)
    if not different.any():
        return 1
    two = [0, int(np.argmax(different))]
    rngs = [copy.deepcopy(rng), copy.deepcopy(rng)]
    ones = [at(i, rngs[0]) for i in two]
    try:
        both = at(two, rngs[1])
        alike = all(value.shape[:1] == (2,) for value in both.values()) and all(
            _alike({name: value[k] for name, value in both.items()}, one) for k, one in enumerate(ones)
        )
    except Exception:  # the function takes one draw only
        return 1
    return max(1, BATCH // max([1, *(value.size for value in ones[0].values())])) if alike else 1


def _put(group: str, found: Group, rows: int | slice, values: Group) -> None:
    """Assign ``found[name][rows] = values[name]``, in a type that holds both."""
    if values.keys() != found.keys():
        raise ModelError(
            f"generated {group} must return the same names at each draw; got {list(values)} at draw {rows}."
        )
    for name, value in values.items():
        if value.shape != found[name][rows].shape:
            raise ModelError(
                f"generated {group} must return {name!r} with the shape {found[name].shape[1:]} of the first draw; got "
                f"{value.shape} at draw {rows}."
            )
        if not np.can_cast(value.dtype, found[name].dtype, "safe"):
            found[name] = found[name].astype(np.promote_types(value.dtype, found[name].dtype))
        found[name][rows] = value


def _arrays(group: str, returned: object) -> Group:
    """Return the values of a function as arrays of numbers; raises ModelError."""
    if not isinstance(returned, Mapping):
        raise ModelError(f"generated {group} must return a dictionary of named arrays; got {type(returned).__name__}.")
    found = {name: np.asarray(value) for name, value in returned.items()}
    check_variables(f"generated {group}", found)
    return found


def check_groups(model: Model, q: np.ndarray, asked: GroupChoice | None, chains: int, draws: int) -> int:
    """Check the groups of ``sample`` at the start `q` (d,), before the first draw; return the bytes that they take at most.

    These include a copy of one group while its chains are joined.
    """
    values = {name: np.asarray(value) for name, value in model.constrain(q).items()}
    needed = check_generated(model, values, chosen(model, asked), chains, draws)
    made = fitting(needed, asked)
    return sum(needed[name] for name in made) + max((needed[name] for name in made if name in STREAMS), default=0)


def check_generated(model: Model, values: Group, names: list[str], chains: int, draws: int) -> dict[str, int]:
    """Return the bytes of each of the groups `names`.

    Raises ModelError or ShapeError unless their functions return valid arrays at the `values` of one draw.
    """
    shapes = {name: value.shape for name, value in values.items()}
    known, needed = {"posterior": shapes}, dict.fromkeys(names, 0)
    made = model.generated.made
    for group in names:
        rng = np.random.default_rng(20261124)
        arguments: dict[str, tuple] = {"prior": (rng,), "log_likelihood": (_copied(values),)}
        try:
            with np.errstate(all="ignore"):
                returned = made[group](*arguments.get(group, (_copied(values), rng)))
        except Exception as error:
            raise ModelError(
                f"generated {group} raised {type(error).__name__}: {error}."
                + ("" if group == "prior" else f" Its argument is a dictionary with {', '.join(values)}.")
            ) from error
        found = _arrays(group, returned)
        known[group] = {name: value.shape for name, value in found.items()}
        if group == "prior" and known[group] != shapes:
            raise ModelError(f"generated prior must draw all variables with the shapes {shapes}; got {known[group]}.")
        numbers = sum(value.size for value in found.values())
        needed[group] = 8 * numbers * int(draws) * (1 if group in OF_ONE_CHAIN else int(chains))
    known |= {group: {k: v.shape for k, v in data.items()} for group, data in model.generated.data.items()}
    for group, there in known.items():
        check_axes(group, there, model.dims, model.coords)
    check_observations(known)
    unknown = [
        name for name in model.dims if name not in PREDICTED and not any(name in group for group in known.values())
    ]
    if unknown and len(names) == len(made):
        variables = dict.fromkeys(name for group in known.values() for name in group)
        raise ModelError(f"dims must name variables among {', '.join(variables)}; got {unknown[0]!r}.")
    return needed


def check_observations(shapes: Mapping[str, Mapping[str, tuple]]) -> None:
    """Raise ModelError if a group has another shape than the observations of that name.

    A log likelihood may lack the last axes of its observations.
    """
    for name, observed in shapes.get("observed_data", {}).items():
        for group in ("log_likelihood", "posterior_predictive", "prior_predictive"):
            made = shapes.get(group, {}).get(name, observed)
            wanted = observed[: len(made)] if group == "log_likelihood" else observed
            if made != wanted:
                raise ModelError(
                    f"generated {group}: {name!r} must have the shape {observed} of observed_data; got {made}. Use one shape "
                    "in all groups, or another name."
                )


def fitting(needed: dict[str, int], asked: GroupChoice | None) -> list[str]:
    """Return the groups to generate: those that were requested, or by default those that fit into ``DEFAULT_BYTES``.

    Raises MemoryError if requested groups need more memory than the machine has.
    """
    if asked is None:
        found: list[str] = []
        for name, size in needed.items():
            wanting = name == "prior_predictive" and "prior" not in found
            if not wanting and sum(needed[each] for each in found) + size <= DEFAULT_BYTES:
                found.append(name)
        return found
    total = sum(needed.values())
    there = memory_there("arrays") if total else None
    if there is not None and total > there:
        raise MemoryError(
            f"The generated groups need about {total:,} bytes ({', '.join(f'{k} {v:,}' for k, v in needed.items())}), but only "
            f"{there:,} bytes are available. Leave some out by generate=False or a list of names."
        )
    return list(needed)


def _copied(values: Group) -> Group:
    return {name: np.array(value) for name, value in values.items()}
