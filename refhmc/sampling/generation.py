"""What follows from draws: the groups of a model's ``generated`` (:class:`refhmc.GeneratedQuantities`), made after sampling.

Chain k's random numbers come from PCG64(SeedSequence(entropy, spawn_key=(k, s))), s = 1 for the posterior predictive draws, 2
for those of the prior, 3 for their predictive ones, both of one chain, k = 0. They are not the stream of the chain's draws,
which are the same with and without these groups.
"""

from __future__ import annotations

import copy
import dataclasses
import json
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from refhmc.batch.backends import memory_there
from refhmc.core.arviz import dataset, with_groups
from refhmc.core.named_axes import PREDICTED, SAMPLES, check_axes, check_storable
from refhmc.errors import ModelError, ModelWarning, SamplingWarning
from refhmc.models.base import Model
from refhmc.models.generated import CLOSE, COMPARED, GeneratedQuantities
from refhmc.sampling.arguments import entropy_of
from refhmc.sampling.chain_run import chain_generator
from refhmc.sampling.progress import Counter
from refhmc.sampling.result import Group, Result

GROUPS = GeneratedQuantities._fields[:4]
STREAMS = {"posterior_predictive": 1, "prior": 2, "prior_predictive": 3}
OF_ONE_CHAIN = ("prior", "prior_predictive")
ROOM = 2**30  # bytes of what ``sample`` makes without being asked for it
BATCH = 2**18  # numbers that a function which takes many draws returns at a time


def generate(
    model: Model,
    result: Any,
    groups: Any = None,
    *,
    random_seed: Any = None,
    progressbar: bool = True,
) -> Any:
    """``result`` with groups that the model generates from its draws: those that ``sample`` makes, too, unless told not to.

    result : what ``sample`` returned: a :class:`refhmc.Result`, an ArviZ ``InferenceData`` or ``DataTree``, read from a file,
        too. The same kind comes back, with groups added, or replaced; ``result`` itself is left alone.
    groups : their names, such as "log_likelihood" or ["posterior_predictive", "prior"]; by default all that the model has.
        ``prior_predictive`` brings ``prior`` with it; data come always.
    random_seed : by default the result's own entropy, which repeats what ``sample`` makes.

    ``log_likelihood`` and ``posterior_predictive`` have the chains and draws of the result; ``prior`` and ``prior_predictive``
    one chain of as many draws. A group takes 8 bytes for each of its numbers: 4 chains of 1,000 draws with 10,000 observations
    take 320 MB.

    Warns (ModelWarning) where the result is of another model, or of other data, by the fingerprint in its attributes. Raises
    ValueError for groups that the model does not have, ModelError for a function that does not return what it should,
    MemoryError, and what the functions raise.
    """
    if not isinstance(model, Model):
        raise TypeError(f"model must be a refhmc.Model, got {type(model).__name__}")
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
        raise ValueError("result has no draws in its group posterior: generate makes groups from them")
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
    """Of chains and draws; 0, 1, ... where there are none, as in a store."""
    posterior = posterior.to_dataset() if hasattr(posterior, "to_dataset") else posterior
    return {axis: posterior[axis].values for axis in SAMPLES}


def warn_of_another(model: Model, attributes: Mapping[str, Any]) -> None:
    """ModelWarning where a result with these attributes is not of ``model``; nothing where they do not say."""
    there = attributes.get("model_fingerprint")
    if there is None or there == model.fingerprint():
        return
    warnings.warn(
        f"generate: the draws are of another model than {model.name!r} as it is given (theirs is called "
        f"{attributes.get('model', '')!r}): code, data or parts differ. The groups are what the given model makes of them",
        ModelWarning,
        stacklevel=3,
    )


def _posterior_of(result: Any) -> Result:
    """A result with the posterior of an ArviZ object, and with the attributes that say how it was made."""
    try:
        there = result["posterior"]
        entropy, chains = there.attrs["entropy"], json.loads(there.attrs["chains"])
        posterior = {str(name): there[name].values for name in there.data_vars}
        chains = [chains[int(k)] for k in labels_of_samples(there)["chain"]]  # some of them may have been taken
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise TypeError(
            f"result must be what sample returned, got {type(result).__name__} without refhmc's attributes"
        ) from error
    of_model = {name: there.attrs[name] for name in ("model", "model_fingerprint") if name in there.attrs}
    return Result({"posterior": posterior}, {"entropy": entropy, "chains": chains, **of_model})


def chosen(model: Model, groups: Any) -> list[str]:
    """The groups of ``True`` or ``None`` (all), ``False`` (none), a name, or several. Raises ValueError."""
    made = list(model.generated.made)
    if groups is None or groups is True:
        return made
    wanted = [] if groups is False else [groups] if isinstance(groups, str) else groups
    if not isinstance(wanted, Iterable):
        raise ValueError(f"groups to generate are True, False, or names out of {made}, got {groups!r}")
    wanted = list(wanted)
    for name in wanted:
        if name not in made:
            has = f"it has {', '.join(made)}" if made else "it has none"
            raise ValueError(
                f"model {model.name!r} generates no group {name!r}; {has}: give refhmc.Model(..., generated=)"
            )
    return [name for name in made if name in wanted or (name == "prior" and "prior_predictive" in wanted)]


def put_generated(result: Result, model: Model, names: list[str], entropy: int, counter: Counter) -> None:
    """The groups ``names``, each as it is finished, and the data."""
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


def put_generated_or_say(result: Result, model: Model, asked: Any, progressbar: Any) -> list[Warning]:
    """The same at the end of a run, for ``sample``'s argument ``generate``: what is large, or what Ctrl-C leaves unfinished, is
    left out and warned of."""
    if not result.posterior:
        return []
    all_of_them = chosen(model, asked)
    names = fitting(bytes_of(result, model, all_of_them), asked)
    why = f"take more than {ROOM / 2**30:.0f} GiB, and were not made"
    try:
        with Counter(progressbar) as counter:
            put_generated(result, model, names, result.attributes["entropy"], counter)
    except KeyboardInterrupt:
        why = "were not finished when Ctrl-C or SIGTERM came, after the last draw"
    left = [name for name in all_of_them if name not in result.groups]
    if not left or result.draws.shape[1] == 0:
        return []
    result.warnings.append(f"The groups {', '.join(left)} {why}: refhmc.generate(model, result) makes them.")
    return [SamplingWarning(result.warnings[-1])]


def bytes_of(result: Result, model: Model, names: list[str]) -> dict[str, int]:
    """How many bytes each of the groups takes, by what its function returns for the first draw."""
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
    """``function`` of the values (n, ...) of each draw, name -> (n, ...).

    One call for many draws, where for two that differ it gives what it gives for each, and in each call for some of its draws
    (the first ones, if it is a random one, which then has asked for its numbers in the same order); else a call for each. So
    how many draws a call takes does not show.
    """

    def at(rows: Any, rng: np.random.Generator | None) -> Group:
        generator = () if rng is None else (rng,)
        try:
            return _arrays(group, function({name: np.array(value[rows]) for name, value in values.items()}, *generator))
        except Exception as error:
            error.add_note(f"(in generated {group}, of draw {rows})")
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
    return made(1, rng) if found is None else found  # type: ignore[return-value]  # one at a time is never refused


def _of_many(at: Callable, rows: slice, rng: np.random.Generator | None) -> Group | None:
    """What one call gives for the draws ``rows``; None unless for some of them it is what a call for each gives."""
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
    """How many draws to give the function at a time: as many as fit into a batch, if it does for two what it does for each."""
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
    except Exception:  # written for one draw only
        return 1
    return max(1, BATCH // max([1, *(value.size for value in ones[0].values())])) if alike else 1


def _put(group: str, found: Group, rows: Any, values: Group) -> None:
    """``found[name][rows] = values[name]``, in a type that holds both."""
    if values.keys() != found.keys():
        raise ModelError(f"generated {group}: other names at draw {rows} than at the first: {list(values)}")
    for name, value in values.items():
        if value.shape != found[name][rows].shape:
            raise ModelError(
                f"generated {group}: {name!r} has the shape {value.shape} at draw {rows}, {found[name].shape[1:]} at the first"
            )
        if not np.can_cast(value.dtype, found[name].dtype, "safe"):
            found[name] = found[name].astype(np.promote_types(value.dtype, found[name].dtype))
        found[name][rows] = value


def _arrays(group: str, returned: Any) -> Group:
    """What a function returned, as arrays of numbers. Raises ModelError."""
    if not isinstance(returned, Mapping):
        raise ModelError(
            f"generated {group} must return a dictionary of named arrays, it returned {type(returned).__name__}"
        )
    found = {name: np.asarray(value) for name, value in returned.items()}
    for name, value in found.items():
        check_storable(f"generated {group}", name)
        if name in SAMPLES:
            raise ModelError(f"generated {group}: a variable cannot be called {name!r}")
        if value.dtype.kind not in "fiubc":
            raise ModelError(f"generated {group}: {name!r} must be numbers, it is {value.dtype}")
    return found


def check_groups(model: Model, q: np.ndarray, asked: Any, chains: int, draws: int) -> int:
    """Raise what is wrong with the groups that ``sample`` is to make, at the start q (d,), before anything is drawn; else
    how many bytes they take at most: all of them, and a copy of one whose chains are joined."""
    values = {name: np.asarray(value) for name, value in model.constrain(q).items()}
    needed = check_generated(model, values, chosen(model, asked), chains, draws)
    made = fitting(needed, asked)
    return sum(needed[name] for name in made) + max((needed[name] for name in made if name in STREAMS), default=0)


def check_generated(model: Model, values: Group, names: list[str], chains: int, draws: int) -> dict[str, int]:
    """How many bytes each of the groups ``names`` takes. Raises ModelError or ShapeError unless their functions return what
    they should at the ``values`` of one draw."""
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
                f"generated {group} raised {type(error).__name__}: {error}"
                + ("" if group == "prior" else f". It is given a dictionary with {', '.join(values)}")
            ) from error
        found = _arrays(group, returned)
        known[group] = {name: value.shape for name, value in found.items()}
        if group == "prior" and known[group] != shapes:
            raise ModelError(
                f"generated prior must draw the values of all variables, {shapes} by their shapes, it drew {known[group]}"
            )
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
        raise ModelError(f"dims: there is no variable {unknown[0]!r}, there are {', '.join(variables)}")
    return needed


def check_observations(shapes: Mapping[str, Mapping[str, tuple]]) -> None:
    """Raise ModelError for what is observed and is made in another shape; a log likelihood may be one number for several
    observations, those of its last axes."""
    for name, observed in shapes.get("observed_data", {}).items():
        for group in ("log_likelihood", "posterior_predictive", "prior_predictive"):
            made = shapes.get(group, {}).get(name, observed)
            wanted = observed[: len(made)] if group == "log_likelihood" else observed
            if made != wanted:
                raise ModelError(
                    f"generated {group}: {name!r} has the shape {made}, and observed_data has {observed} by this name: give "
                    "observations one shape in all groups, or another name"
                )


def fitting(needed: dict[str, int], asked: Any) -> list[str]:
    """Those of the groups that are made: of all, where nothing is ``asked`` for, what fits into ``ROOM``. Raises MemoryError
    for what is asked for and is more than the machine has."""
    total, there = sum(needed.values()), memory_there("arrays")
    if asked is None:
        found: list[str] = []
        for name, size in needed.items():
            wanting = name == "prior_predictive" and "prior" not in found
            if not wanting and sum(needed[each] for each in found) + size <= ROOM:
                found.append(name)
        return found
    if there is not None and total > there:
        raise MemoryError(
            f"the generated groups need about {total:,} bytes ({', '.join(f'{k} {v:,}' for k, v in needed.items())}), and the "
            f"machine has {there:,}: leave some out with sample(..., generate=False) or a list of names"
        )
    return list(needed)


def _copied(values: Group) -> Group:
    return {name: np.array(value) for name, value in values.items()}
