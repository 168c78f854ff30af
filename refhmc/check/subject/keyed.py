"""Kernels of JAX, ``(key, state) -> (state, info)``, as their authors write them.

    kernel(key, state) -> (state, info)    with init(q) or init(key, q); without init, the state is the position
    an object with .init and .step         BlackJAX's algorithms: step(key, state) -> (state, info)
    an object with .init and .sample       NumPyro's kernels: sample(state, args, kwargs) -> state, with a key in the state

A state is any pytree. Its position is the part that equals q after ``init(q)``; if several parts do, the one whose name is
conventional (``answers.POSITIONS``). A kernel of one chain is called for many chains under ``jax.vmap``, or one at a time if it
cannot be traced. A kernel that answers only batches is called with a batch of keys or with one key.

JAX is not imported here: a kernel of JAX is possible only if its author has imported it.
"""

from __future__ import annotations

import importlib
import operator
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from refhmc.check.subject.answers import POSITIONS
from refhmc.check.subject.foreign import Foreign, SubjectError, first_line, like_of
from refhmc.check.subject.operator import Iterates, TransitionOperator, make_operator
from refhmc.check.subject.shapes import GENERATORS, RANDOMNESS, needed_by, parameters, required

AT_ONCE = 1024  # chains of one call under vmap
VMAPPED, BATCHED, ONE_KEY, ALONE = "one chain, under vmap", "a batch with its keys", "a batch with one key", "one chain"
SEEDS = 2**31  # both signs of a seed would need 64 bits


class Author(NamedTuple):
    """Functions of the author, ``init(key, q)`` and ``step(key, state)``; the fields are those of :class:`Keyed`."""

    init: Callable[[Any, Any], Any]
    step: Callable[[Any, Any], Any]
    read: Callable[[Any], Any] | None
    where: str = ""
    keeps_key: bool = False


class Keyed(NamedTuple):
    """A kernel of JAX for ``chains`` chains: ``init(keys, Q)`` returns states, ``step(keys, states)`` the answer.

    ``way`` is one of the ways to call it. ``where`` names the position in a state. ``read(states)`` returns the positions
    (n, d), and ``part(state)`` that of one chain as a pytree. ``make_key(seed)`` returns a key of the right kind.
    With ``keeps_key`` the state contains the key, so that a step gets none. ``inside()`` is a context with the precision of the
    caller, and ``author`` the functions without ``jit`` and ``vmap``.
    """

    init: Foreign
    step: Foreign
    way: str
    chains: int
    read: Callable[[Any], np.ndarray]
    part: Callable[[Any], Any]
    where: str
    make_key: Callable[[int], Any]
    keeps_key: bool
    inside: Callable[[], Any]
    author: Author
    dim: int

    def keys(self, rng: np.random.Generator, n: int) -> Any:
        """Return a batch of n keys that depends on two numbers of ``rng``."""
        random = sys.modules["jax"].random
        first, second = (int(seed) for seed in rng.integers(SEEDS, size=2))
        with self.inside():
            return random.split(random.fold_in(self.make_key(first), second), n)

    def states(self, keys: Any, Q: np.ndarray) -> Any:
        """Return the states that start at Q, (n, d)."""
        return self.init.raw(keys, Q)

    def move(self, keys: Any, states: Any) -> Any:
        """Return the states after one transition of each chain."""
        answer = self.step.raw(keys, states)
        return new_state(answer, states, self.step.name)

    def after(self, rng: np.random.Generator, Q: np.ndarray) -> np.ndarray:
        """Return the positions after one transition from Q, (n, d), with new keys of ``rng``."""
        n = len(Q)
        Q = np.resize(Q, (max(n, self.chains), Q.shape[1]))  # another number of chains would be compiled again
        states = self.states(self.keys(rng, len(Q)), Q)
        return self.read(self.move(None if self.keeps_key else self.keys(rng, len(Q)), states))[:n]

    def author_init(self, key: Any, q: Any) -> Any:
        """Return the author's state at q, of one chain, or of a batch if ``way`` is one."""
        with self.inside():
            return self.author.init(key, q)

    def author_step(self, key: Any, state: Any) -> Any:
        """Return the author's answer for such a state, without ``jit`` and ``vmap``."""
        with self.inside():
            return self.author.step(key, state)

    def compiled_step(self) -> Callable[[Any, Any], Any]:
        """Return ``author_step`` compiled by JAX, if that is possible."""
        return within(self.inside, compiled(sys.modules["jax"], self.author.step))

    @property
    def foreign(self) -> tuple[Foreign, ...]:
        """The functions of the author."""
        return self.step, self.init

    @property
    def note(self) -> str:
        """How the kernel is called and read, for the notes of a report."""
        key = "; the state contains the key" if self.keeps_key else ""
        return f"called with JAX keys as {self.way}; the position is {self.where}{key}"


# ---------------------------------------------------------------------------------------------------- recognition


def keyed_or_none(
    kernel: Any, Q: np.ndarray, *, init: Any = None, batched: bool = False, **options: Any
) -> Keyed | None:
    """Return a kernel that takes keys of JAX as :class:`Keyed`, or None for a kernel with a generator of NumPy.

    If the names of its parameters do not decide, it is called with a generator first. Raise SubjectError if a kernel that needs
    a key does not work with one. ``options`` are those of :func:`find_keyed`.
    """
    if "jax" not in sys.modules or kernel is None:
        return None
    named, undecided = _wants_key(kernel)
    if not named and (not undecided or _answers_generator(kernel, Q, init, batched)):
        return None
    try:
        return find_keyed(kernel, Q, init=init, batched=batched, **options)
    except SubjectError as wrong:
        certain = isinstance(wrong, PositionError) or _is_numpyro(kernel)
        if certain or (named and not _answers_generator(kernel, Q, init, batched)):
            raise
        return None


def _wants_key(kernel: Any) -> tuple[bool, bool]:
    """Return whether ``kernel`` has a parameter with the name of a key, and whether its names leave that undecided."""
    if _is_numpyro(kernel):
        return True, False
    step = kernel.step if not callable(kernel) and hasattr(kernel, "init") and hasattr(kernel, "step") else kernel
    if not callable(step):
        return False, False
    names = list(parameters(step))
    compiled = type(step).__module__.partition(".")[0] in ("jax", "jaxlib")
    return any(map(_is_key_name, names)), needed_by(step) == 2 and (compiled or not RANDOMNESS & set(names))


def _is_key_name(name: str) -> bool:
    return name.lower().rstrip("s").endswith("key")


def _is_numpyro(kernel: Any) -> bool:
    return hasattr(kernel, "sample_field") and all(callable(getattr(kernel, f, None)) for f in ("init", "sample"))


def _answers_generator(kernel: Any, Q: np.ndarray, init: Any, batched: bool) -> bool:
    """Return whether a kernel answers with a generator of NumPy."""
    try:
        transitions = make_operator(kernel, init=init, batched=batched, chains=len(Q))
        transitions.apply(np.random.default_rng(0), Q if batched else Q[:1], 1)
    except Exception:
        return False
    return True


def find_keyed(
    kernel: Any,
    Q: np.ndarray,
    *,
    init: Callable | None = None,
    read: Callable | None = None,
    batched: bool = False,
    chains: int = 128,
    like: Any = None,
    name: str | None = None,
    at_once: int = AT_ONCE,
) -> Keyed:
    """Return the kernel for whole batches, by trying it from the positions Q, (n, d) with n at least 2.

    Raise SubjectError if it works in none of the ways.
    """
    jax = sys.modules["jax"]
    name = str(name or getattr(kernel, "__qualname__", None) or type(kernel).__name__)
    inside = _settings(jax)
    with inside():
        try:
            author = author_of(kernel, len(Q[0]), init, read, like)
        except Exception as error:
            raise SubjectError(f"{name}.init raised {type(error).__name__}: {first_line(error)}") from error
        wrong: list[SubjectError] = []
        for make_key in (jax.random.key, jax.random.PRNGKey):
            for way, start, step, n in _ways(jax, author, batched, chains, at_once):
                start_of, step_of = (
                    Foreign(within(inside, start), f"{name}.init"),
                    Foreign(within(inside, step), name),
                )
                made = Keyed(
                    start_of,
                    step_of,
                    way,
                    n,
                    np.asarray,
                    np.asarray,
                    "",
                    make_key,
                    author.keeps_key,
                    inside,
                    author,
                    len(Q[0]),
                )
                try:
                    return _tried(jax, made, author, Q, batched=way in (BATCHED, ONE_KEY))
                except SubjectError as error:
                    wrong.append(error)
    raise next((x for x in wrong if isinstance(x, PositionError)), wrong[0])


class PositionError(SubjectError):
    """Raised if the position in a state is unclear; no other way of calling the kernel helps."""


def _settings(jax: Any) -> Callable[[], Any]:
    """Return a context with the caller's precision, which is a property of the thread."""
    wide = bool(jax.config.jax_enable_x64)
    enable = jax.enable_x64 if hasattr(jax, "enable_x64") else importlib.import_module("jax.experimental").enable_x64
    return lambda: enable(wide)


def within(inside: Callable[[], Any], function: Callable) -> Callable:
    def called(*arguments: Any) -> Any:
        with inside():
            return function(*arguments)

    return called


# --------------------------------------------------------------------------------------------------- the author's form


def author_of(
    kernel: Any, d: int, init: Callable | None = None, read: Callable | None = None, like: Any = None
) -> Author:
    """Return the author's functions in the order (key, state), in d dimensions."""
    jax, step = sys.modules["jax"], kernel
    if _is_numpyro(kernel):
        return _numpyro(jax, kernel, d, like)
    if init is None and not callable(kernel):
        init, step, read = kernel.init, kernel.step, read or getattr(kernel, "read", None)
    position = _position_of(jax, like)
    if init is None:
        return Author(lambda key, q: position(q), _ordered(step), read)
    begin = _ordered(init, start=True)
    return Author(lambda key, q: begin(key, position(q)), _ordered(step), read)


def _ordered(function: Callable, start: bool = False) -> Callable[[Any, Any], Any]:
    """Return ``function`` as f(key, value), by the names of its parameters; an ``init`` may need no key."""
    names = [name.lower() for name in parameters(function)]
    keys = [i for i, name in enumerate(names) if _is_key_name(name) or name in GENERATORS]
    if start and not keys and len(required(function)) == 1:
        return lambda key, value: function(value)
    if keys[:1] == [1] or (start and not keys):
        return lambda key, value: function(value, key)
    return function


def _position_of(jax: Any, like: Any) -> Callable[[Any], Any]:
    """Return the function that makes the author's position of q, (d,) or (n, d); ``like`` may be any pytree of arrays."""
    if isinstance(like, (dict, tuple, list)) or (like is not None and hasattr(like, "_fields")):
        leaves, tree = jax.tree_util.tree_flatten(like)
        shapes = [np.shape(leaf) for leaf in leaves]
        ends = np.cumsum([int(np.prod(shape)) for shape in shapes])

        def parts(q: Any) -> Any:
            if q.shape[-1] != ends[-1]:
                raise ValueError(f"like has {ends[-1]} numbers, but the target has {q.shape[-1]} dimensions")
            pieces = jax.numpy.split(q, ends[:-1], axis=-1)
            arrays = [jax.numpy.reshape(x, (*q.shape[:-1], *shape)) for x, shape in zip(pieces, shapes, strict=True)]
            return jax.tree_util.tree_unflatten(tree, arrays)

        return parts
    kind = getattr(like, "dtype", None)
    if kind is not None or like is None:
        return lambda q: jax.numpy.asarray(q, dtype=kind)
    return like_of(like)


def _numpyro(jax: Any, kernel: Any, d: int, like: Any) -> Author:
    """Return the functions of one of NumPyro's kernels, without warm-up; positions are unconstrained."""
    read = operator.attrgetter(kernel.sample_field)
    if like is None and getattr(kernel, "model", None) is not None:
        like = read(kernel.init(jax.random.key(0), 0, None, (), {}))  # the structure of a position
    position = _position_of(jax, like)
    kernel.init(jax.random.key(0), 0, position(jax.numpy.zeros(d)), (), {})  # it keeps functions of the first call

    def step(key: Any, state: Any) -> Any:
        return kernel.sample(state if key is None else state._replace(rng_key=key), (), {})

    def init(key: Any, q: Any) -> Any:
        return kernel.init(key, 0, position(q), (), {})

    return Author(init, step, read, f"state.{kernel.sample_field}", keeps_key=True)


# ------------------------------------------------------------------------------------------------- ways to call it


def _ways(
    jax: Any, author: Author, batched: bool, chains: int, at_once: int
) -> Iterator[tuple[str, Callable, Callable, int]]:
    """Yield the ways to call the author's functions, each with its ``init`` and ``step`` for batches, and a size."""
    several = jax.vmap(author.init)
    if not batched:
        yield VMAPPED, jax.jit(several), jax.jit(jax.vmap(author.step)), at_once
    for way in (BATCHED, ONE_KEY):
        start, step = (_with_one_key(f) if way == ONE_KEY else f for f in (author.init, author.step))
        yield way, jax.jit(several), compiled(jax, step), chains
        yield way, start, compiled(jax, step), chains
        if way == BATCHED and not batched:  # a kernel of one chain that cannot be traced
            yield ALONE, *_one_by_one(author), 1


def _with_one_key(function: Callable) -> Callable:
    return lambda keys, value: function(None if keys is None else keys[0], value)


def compiled(jax: Any, function: Callable) -> Callable:
    """Return ``function`` compiled by JAX, or unchanged from its first call if that cannot be traced."""
    chosen = jax.jit(function)

    def called(*arguments: Any) -> Any:
        nonlocal chosen
        try:
            return chosen(*arguments)
        except (TypeError, jax.errors.JAXTypeError):
            chosen = function
            return chosen(*arguments)

    return called


def _one_by_one(author: Author) -> tuple[Callable, Callable]:
    """Return ``init`` and ``step`` that call the author's functions for one chain after the other."""

    def start(keys: Any, Q: Any) -> list:
        return [author.init(key, q) for key, q in zip(keys, Q, strict=True)]

    def step(keys: Any, states: list) -> list:
        keys = [None] * len(states) if keys is None else keys
        answers = [author.step(key, state) for key, state in zip(keys, states, strict=True)]
        return [new_state(answer, state, "the kernel") for answer, state in zip(answers, states, strict=True)]

    return start, step


def _tried(jax: Any, made: Keyed, author: Author, Q: np.ndarray, batched: bool) -> Keyed:
    """Return ``made`` with its position, after one transition from Q; SubjectError if it does not answer."""
    n = made.chains if made.way != ALONE else len(Q)
    Q = np.resize(Q, (n, Q.shape[1]))
    keys = made.keys(np.random.default_rng(0), n)
    states = made.states(keys, Q)
    one, many = jax.tree_util.tree_flatten_with_path, made.way != ALONE
    leaves = one(states)[0] if many else [(path, _stacked(states, k)) for k, (path, _) in enumerate(one(states[0])[0])]
    if author.read is not None:
        where, part, of_batch = author.where or "read(state)", author.read, batched
    else:
        where, chosen = find_position(jax, leaves, Q, made.init.name)
        of_batch = True  # the same leaves of a batch

        def part(state: Any) -> Any:
            found = jax.tree_util.tree_leaves(state)
            return [found[k] for k in chosen]

    made = made._replace(read=_reading(jax, made, part, of_batch), part=part, where=where)
    after = made.read(made.move(None if made.keeps_key else keys, states))
    if after.shape != Q.shape:
        raise SubjectError(f"{made.step.name}: the position has shape {after.shape} instead of {Q.shape}")
    return made


def _stacked(states: Sequence, k: int) -> Any:
    """Return leaf k of a list of states as one array."""
    leaves = [sys.modules["jax"].tree_util.tree_leaves(state)[k] for state in states]
    return leaves if is_key(leaves[0]) else np.stack([np.asarray(leaf) for leaf in leaves])


def is_key(leaf: Any) -> bool:
    """Return whether a leaf of a pytree is a key, or a batch of keys."""
    return "key" in str(getattr(leaf, "dtype", ""))


def _reading(jax: Any, made: Keyed, part: Callable, of_batch: bool) -> Callable[[Any], np.ndarray]:
    """Return the function of the states of a batch that returns the positions, from ``part(state)``, any pytree.

    ``of_batch``: ``part`` may be called for a batch of states.
    """

    def joined(value: Any) -> np.ndarray:
        arrays = [made.step.array(leaf, None, "the position").real for leaf in jax.tree_util.tree_leaves(value)]
        return np.concatenate([array.reshape(len(array), -1) for array in arrays], axis=1)

    def read(states: Any) -> np.ndarray:
        if made.way == ALONE:
            return np.concatenate([joined(jax.tree_util.tree_map(lambda x: x[None], part(state))) for state in states])
        return joined(part(states) if of_batch else jax.vmap(part)(states))

    return read


# -------------------------------------------------------------------------------------------- positions in states


def find_position(jax: Any, leaves: list[tuple], Q: np.ndarray, name: str) -> tuple[str, list[int]]:
    """Return the name of the position in the states, and the numbers of its ``leaves``, which are (path, batch) each.

    Every node of the tree is a candidate if its leaves, as rows, equal Q. If several do, a conventional name decides.
    """
    nodes: dict[tuple, list[int]] = {}
    for k, (path, _) in enumerate(leaves):
        for length in range(len(path) + 1):
            nodes.setdefault(path[:length], []).append(k)
    text = jax.tree_util.keystr
    found: dict[tuple[int, ...], str] = {}
    named = set()
    for path, numbers in nodes.items():
        same = tuple(numbers)
        if same not in named and _equals([leaves[k][1] for k in numbers], Q):
            found[same] = f"state{text(path)}"
            if _label(path) in POSITIONS:
                named.add(same)
    if len(found) > 1 and len(named) == 1:
        found = {same: found[same] for same in named}
    if len(found) == 1:
        ((chosen, where),) = found.items()
        return where, list(chosen)
    if found:
        several = ", ".join(found.values())
        raise PositionError(f"{name}: several parts of the state equal the position ({several}). Give read=.")
    parts = ", ".join(f"state{text(path)} {getattr(leaf, 'shape', '')}" for path, leaf in leaves) or "nothing"
    raise PositionError(
        f"{name}: no part of the state of {len(Q)} chains equals the position, of shape {Q.shape} ({parts}). Give read=."
    )


def _label(path: tuple) -> str:
    """Return the name of a node of a pytree, or an empty string."""
    return str(getattr(path[-1], "name", getattr(path[-1], "key", ""))) if path else ""


def _equals(leaves: list, Q: np.ndarray) -> bool:
    """Return whether the leaves, as rows, are Q up to the rounding of their type."""
    if any(is_key(leaf) or np.shape(leaf)[:1] != (len(Q),) for leaf in leaves):
        return False
    rows = [np.asarray(leaf).reshape(len(Q), -1) for leaf in leaves]
    values = np.concatenate(rows, axis=1)
    return values.dtype.kind == "f" and values.shape == Q.shape and np.array_equal(values, Q.astype(values.dtype))


def new_state(answer: Any, before: Any, name: str) -> Any:
    """Return the state in an answer: the answer itself, or its first part, whichever has the structure of the last state."""
    structure = sys.modules["jax"].tree_util.tree_structure
    wanted, first = structure(before), answer[0] if isinstance(answer, tuple) and answer else None
    if structure(answer) == wanted:
        return answer
    if first is not None and (structure(first) == wanted or type(first) is type(before)):
        return first
    if type(answer) is type(before) and type(answer) is not tuple:
        return answer
    kinds = [type(x).__name__ for x in (answer, before)]
    raise SubjectError(f"{name} returned a {kinds[0]} instead of a state ({kinds[1]}) or a pair (state, info)")


# -------------------------------------------------------------------------------------------------- transitions


def keyed_operator(kernel: Keyed) -> TransitionOperator:
    """Return m transitions of the kernel, for ``check.sampler``."""
    batch = kernel.chains if kernel.way in (BATCHED, ONE_KEY) else 1

    def apply(rng: np.random.Generator, X: np.ndarray, m: int) -> Iterates:
        n = len(X)
        size = max(n, kernel.chains)  # a call with another number of chains would be compiled again
        states = kernel.states(kernel.keys(rng, size), np.resize(X, (size, X.shape[1])))
        x, path, moves = kernel.read(states)[:n], [], np.zeros(n, dtype=int)
        for _ in range(m):
            states = kernel.move(None if kernel.keeps_key else kernel.keys(rng, size), states)
            y = kernel.read(states)[:n]
            moves += (y != x).any(axis=-1)
            path.append(y)
            x = y
        return Iterates(np.stack(path), moves)

    return TransitionOperator(apply, batch, kernel.foreign, kernel.step.name, at_once=kernel.chains)


def keyed_in(
    kernel: Any, dim: int | None, dimensions: Iterable[int], place: Callable[[int], np.ndarray], **options: Any
) -> Keyed | None:
    """Return :func:`keyed_or_none` in ``dim`` dimensions, or in the first of ``dimensions`` in which the kernel works.

    ``place(d)`` returns positions in d dimensions.
    """
    if "jax" not in sys.modules:
        return None
    errors = []
    for d in dimensions if dim is None else (dim,):
        try:
            return keyed_or_none(kernel, place(d), **options)
        except PositionError:
            raise
        except SubjectError as wrong:
            errors.append(wrong)
    raise errors[0]
