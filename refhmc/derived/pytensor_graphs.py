"""A PyMC model's log density and its derivatives as PyTensor graphs, compiled to Numba.

The inputs of a graph are the model's unconstrained values x_1 ... x_k, each with its own shape. Concatenated, they are q.
Let L(x) be PyMC's log density with the log-Jacobians of its transforms. PyTensor differentiates once in reverse mode, and
then along directions::

    g(x) = grad L        h(x, v) = dg(x + s v)/ds = H v        t(x, u, v) = dh(x + s u, v)/ds = D^3 L [u, v, .]     at s = 0

(A single vector q would need slices and joins, each a compiled operation: half of all operations.) The rows of the Hessian
are h(q, e_i). The contraction is hessian_contraction(M)_k = sum_ij M_ij d H_ij / dq_k = sum_i t(q, M_i, e_i)_k, with M_i the
i-th row of M, which is d evaluations of one graph. (Graphs for all rows at once grow with d, and take minutes to compile for
eight schools.) h and t are compiled when a metric first uses them.

The graph of t is larger than that of h, and PyTensor needs too long for it if L factors a matrix. Fourth-order differences
of h avoid it::

    t(x, u, v) ~ (8 (h(x + s u, v) - h(x - s u, v)) - (h(x + 2 s u, v) - h(x - 2 s u, v))) / (12 s)

Here s is such that ``max_k |s u_k| / max(1, |q_k|) = STEP``, the fifth root of the rounding error. This balances the truncation
error, of order s^4, with the rounding error divided by s. The relative error is about 3e-13 if the Hessian varies on scales
of 1.

Compiled code is cached for other processes (:mod:`refhmc.compile.compile_cache`) if PyTensor has a name for the graph. Its name
is a digest of the graph as PyTensor has rewritten it, with its constants. PyTensor caches the code of each operation. Graphs
with user-defined operations, with operations that run as Python, or with an array of a megabyte are not cached.
"""

from __future__ import annotations

import contextlib
import functools
import math
import re
import warnings
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import TYPE_CHECKING

import numba
import numpy as np
from numba import types as nb

from refhmc.compile.compiled import jit_of_user, shaped
from refhmc.compile.fingerprint import sha256
from refhmc.compile.identity import identity_of_text
from refhmc.compile.numba_internals import Dispatcher
from refhmc.compile.pointers import by_address
from refhmc.models.binding.adapters import kept
from refhmc.models.binding.functions import Deferred

if TYPE_CHECKING:
    import pymc as pm
    from pytensor.compile.sharedvalue import SharedVariable
    from pytensor.graph.basic import Apply, Variable
    from pytensor.graph.fg import FunctionGraph
    from pytensor.graph.op import Op
    from pytensor.graph.rewriting.basic import GraphRewriter

UNCHECKED = "local_remove_check_parameter"  # PyMC's rewrite
# With shapes, or PyTensor rewrites zeros of a shape forever (Dirichlet and Multinomial).
WITH_SHAPES = ("merge", "ShapeOpt", UNCHECKED)
BEFORE_INPLACE = 48.0  # the place among PyTensor's rewrites
STEP = 2**-10.4  # (2^-52)^(1/5)
PRODUCT = nb.void(nb.float64[::1], nb.float64[::1], nb.float64[::1])
SMALL = 10_000  # largest filled array that becomes a constant


class OfBoth(Deferred):
    """A function derived from a compiled ``value_and_gradient``, itself compiled only for compiled callers."""

    def __init__(self, text: Callable, value_and_gradient: Callable) -> None:
        super().__init__(lambda: kept(text, value_and_gradient))
        self.text = text

    def __call__(self, *arguments: np.ndarray) -> float | np.ndarray | None:
        return self.text(*arguments)


def density_of(value_and_gradient: Callable) -> OfBoth:
    return OfBoth(lambda q, data: value_and_gradient(q, data, np.empty(q.shape[0])), value_and_gradient)


def gradient_of(value_and_gradient: Callable) -> OfBoth:
    def gradient(q: np.ndarray, data: np.ndarray, out: np.ndarray) -> None:
        value_and_gradient(q, data, out)

    return OfBoth(gradient, value_and_gradient)


class Graphs:
    """L and its derivatives as PyTensor graphs of the values, and the coordinates of q in PyMC's names."""

    def __init__(self, model: pm.Model) -> None:
        import pytensor
        import pytensor.tensor as pt
        from pytensor.graph import rewrite_graph
        from pytensor.graph.replace import clone_replace

        self.shown: set[tuple[type[Warning], str]] = set()  # PyTensor's warnings so far
        values = [model.rvs_to_values[rv] for rv in model.free_RVs]
        point = model.initial_point()
        self.start = {value.name: np.asarray(point[value.name], dtype=float) for value in values}
        self.layout = Layout([value.shape for value in self.start.values()])
        self.variables = [rv.name for rv in model.unobserved_RVs]
        unobserved = model.replace_rvs_by_values(model.unobserved_RVs)
        of_values = [model.logp(), *unobserved]
        lengths = [each for each in model.dim_lengths.values() if each is not None]
        self.shared = shared_in(
            [*of_values, *model.basic_RVs, *model.rvs_to_values.values(), *model.data_vars, *lengths]
        )
        self.x = [pt.tensor(name, dtype="float64", shape=value.shape) for name, value in self.start.items()]
        of_x = dict(zip(values, self.x, strict=True))
        self.L, *self.unobserved = clone_replace(with_constants(of_values), of_x, rebuild_strict=False)
        # log(1 - sigmoid(x)) is -softplus(x) before it is differentiated, not after: sigmoid / (1 - sigmoid) is nan far out.
        self.stable_L: Variable = rewrite_graph(self.L, include=[*WITH_SHAPES, "stabilize"])
        self.g: list = pytensor.grad(self.stable_L, self.x, disconnected_inputs="ignore")

    @property
    def initial(self) -> np.ndarray:
        return np.concatenate([value.ravel() for value in self.start.values()])

    @property
    def dim(self) -> int:
        return self.layout.dim

    @property
    def names(self) -> list[str]:
        """PyMC's names of the unconstrained values: ``mu``, ``tau_log__``, ``theta[0]``, ``L[0][1]``."""
        return [
            name + "".join(f"[{i}]" for i in index)
            for name, value in self.start.items()
            for index in np.ndindex(value.shape)
        ]

    def direction(self, name: str) -> list:
        return [each.type(f"{name}_{each.name}") for each in self.x]

    @functools.cached_property
    def second_order(self) -> tuple[list, list]:
        """Return v and h(x, v)."""
        from pytensor.graph import rewrite_graph

        v = self.direction("v")
        # Canonicalize first: the graphs derived from it are rewritten in half the time.
        g = rewrite_graph(self.g, include=[*WITH_SHAPES, "canonicalize"])
        return v, along(g, self.x, v)

    def third_order(self) -> tuple[list, list, list]:
        """Return u, v and t(x, u, v)."""
        u, (v, h) = self.direction("u"), self.second_order
        return u, v, along(h, self.x, u)

    def value_and_gradient(self) -> Callable:
        cut, parts, put = self.layout.cut, self.layout.parts("g"), self.layout.put
        return Compilable(self.x, [self.stable_L, *self.g], self.shown).called_by(f"""
def value_and_gradient(q, data, out):
    value, {", ".join(parts)}, = graph({cut("q")})
    {put("out", "=", parts)}
    return value.item()
""")

    @functools.cached_property
    def product(self) -> Callable:
        """The product H(q) v, compiled once for the Hessian and for what is derived from it."""
        v, h = self.second_order
        cut, parts, put = self.layout.cut, self.layout.parts("h"), self.layout.put
        return Compilable([*self.x, *v], h, self.shown).called_by(f"""
def product(q, v, out):
    {", ".join(parts)}, = graph({cut("q")}, {cut("v")})
    {put("out", "=", parts)}
""")

    def hessian(self) -> Callable:
        return of_products(
            self.product,
            """
def hessian(q, data, out):
    d = q.shape[0]
    e = np.zeros(d)
    for i in range(d):
        e[i] = 1.0
        product()(q, e, out[i])
        e[i] = 0.0
    for i in range(d):
        for j in range(i):  # equal except for rounding
            out[i, j] = out[j, i]
""",
        )

    def hessian_contraction(self) -> Callable:
        u, v, t = self.third_order()
        cut, parts, put = self.layout.cut, self.layout.parts("t"), self.layout.put
        return Compilable([*self.x, *u, *v], t, self.shown).called_by(f"""
def hessian_contraction(q, data, M, out):
    d = q.shape[0]
    e = np.zeros(d)
    out[:] = 0.0
    for i in range(d):
        e[i] = 1.0
        row = M[i]
        {", ".join(parts)}, = graph({cut("q")}, {cut("row")}, {cut("e")})
        {put("out", "+=", parts, indent=8)}
        e[i] = 0.0
""")

    def contraction_by_differences(self) -> Callable:
        return of_products(
            self.product,
            f"""
def hessian_contraction(q, data, M, out):
    d = q.shape[0]
    e, h, x = np.zeros(d), np.empty(d), np.empty(d)
    out[:] = 0.0
    for i in range(d):
        length = np.max(np.abs(M[i]) / np.maximum(1.0, np.abs(q)))
        if length == 0.0:
            continue
        s = {STEP!r} / length
        e[i] = 1.0
        for n, weight in ((1.0, 8.0), (-1.0, -8.0), (2.0, -1.0), (-2.0, 1.0)):
            for j in range(d):
                x[j] = q[j] + n * s * M[i, j]
            product()(x, e, h)
            out += weight / (12.0 * s) * h
        e[i] = 0.0
""",
        )

    @property
    def known_by(self) -> dict[str, object]:
        """The graph of L as text, with its constants."""
        import pytensor

        return {
            "PyTensor's graph of the log density": pytensor.dprint(self.L, file="str", id_type=""),
            "its constants": constants_in([self.L]),
            "PyTensor": pytensor.__version__,
        }


def along(f: list, x: list, v: list) -> list:
    """Return df(x + s v)/ds at s = 0 by reverse mode twice: J^T c is linear in c, and its derivative along v is J v.

    f and J^T c are copied first. PyTensor's own ``Rop`` is wrong if one of them is computed from another, as for the
    gradients of a hierarchical model. It then takes the derivative given for one as all of its dependence.
    """
    from pytensor.gradient import Lop
    from pytensor.tensor.basic import tensor_copy

    f = [tensor_copy(each) for each in f]
    c = [each.zeros_like() for each in f]
    pulled = Lop(f, x, c, disconnected_inputs="ignore")
    return Lop([tensor_copy(each) for each in pulled], c, v, disconnected_inputs="ignore")


class Layout:
    """The positions of k values in a vector, and the code that extracts and inserts them."""

    def __init__(self, shapes: list[tuple[int, ...]]) -> None:
        self.shapes = shapes
        self.stops = np.cumsum([math.prod(shape) for shape in shapes], dtype=int).tolist()
        self.starts = [0, *self.stops[:-1]]

    @property
    def dim(self) -> int:
        return self.stops[-1]

    def __iter__(self) -> Iterator[tuple[int, int, tuple[int, ...]]]:
        return zip(self.starts, self.stops, self.shapes, strict=True)

    def parts(self, name: str) -> list[str]:
        return [f"{name}{k}" for k in range(len(self.shapes))]

    def cut(self, vector: str) -> str:
        """Return code for the values in a `vector`, as arguments."""
        return ", ".join(f"shaped({vector}[{i}:{j}], {shape})" for i, j, shape in self)

    def put(self, vector: str, sign: str, parts: list[str], indent: int = 4) -> str:
        """Return code that writes the values to a `vector`: ``out[3] = g1.item()``, or a loop."""
        lines = []
        for (i, j, shape), part in zip(self, parts, strict=True):
            if shape == ():
                lines.append(f"{vector}[{i}] {sign} {part}.item()")
            elif j > i:
                lines.append(f"for k in range({j - i}):")
                lines.append(f"    {vector}[{i} + k] {sign} {part}{'' if len(shape) == 1 else '.flat'}[k]")
        return ("\n" + " " * indent).join(lines)

    def split(self, q: np.ndarray) -> list[np.ndarray]:
        """Return the values (..., shape) in vectors q (..., d)."""
        return [q[..., i:j].reshape(q.shape[:-1] + shape) for i, j, shape in self]


def with_constants(graphs: list) -> list:
    """Return the graphs with the current values of shared data and dimension lengths as constants."""
    import pytensor.tensor as pt
    from pytensor.graph.replace import clone_replace

    now = {v: pt.constant(v.get_value(), name=v.name, dtype=v.dtype) for v in shared_in(graphs)}
    return clone_replace(graphs, now, rebuild_strict=False) if now else graphs


def shared_in(graphs: list) -> list:
    """Return the data and dimension lengths that ``pm.set_data`` changes."""
    from pytensor.compile.sharedvalue import SharedVariable
    from pytensor.graph.traversal import ancestors

    return [v for v in ancestors(graphs) if isinstance(v, SharedVariable) and not is_random(v)]


def is_random(shared: SharedVariable) -> bool:
    from pytensor.tensor.random.type import RandomType

    return isinstance(shared.type, RandomType)


def filled() -> GraphRewriter:
    """Return a rewrite that replaces small arrays filled with one number by constants.

    For filled arrays, Numba compiles messages about shapes, which takes longer than the rest of a small model.
    """
    import pytensor.tensor as pt
    from pytensor.graph.basic import Constant
    from pytensor.graph.rewriting.basic import in2out, node_rewriter

    @node_rewriter([pt.basic.Alloc])
    def filled_with_constants(graph: FunctionGraph, node: Apply) -> list | None:
        if not all(isinstance(each, Constant) for each in node.inputs):
            return None
        value, *lengths = (each.data for each in node.inputs)
        if math.prod(map(int, lengths)) > SMALL:
            return None
        return [pt.constant(np.broadcast_to(value, lengths).copy(), dtype=node.outputs[0].dtype)]

    return in2out(filled_with_constants, name="filled_with_constants")


def constants_in(graphs: list) -> list[np.ndarray]:
    from pytensor.graph.basic import Constant
    from pytensor.graph.traversal import ancestors

    constants = [each for each in ancestors(graphs) if isinstance(each, Constant)]
    return [np.asarray(each.data) for each in constants if hasattr(each.data, "shape")]


@contextlib.contextmanager
def each_once(shown: set[tuple[type[Warning], str]]) -> Iterator[None]:
    """Context whose warnings are issued at its end, except those in `shown`: PyTensor repeats them for each graph."""
    with warnings.catch_warnings(record=True) as caught:
        yield
    for each in caught:
        if (key := (each.category, str(each.message))) not in shown:
            shown.add(key)
            warnings.warn_explicit(each.message, each.category, each.filename, each.lineno)


class Compilable:
    """A PyTensor graph as a Numba ``function`` of the inputs that returns a tuple, compiled at its first call.

    Each warning of PyTensor is issued once for all graphs with the same set ``shown``.
    """

    def __init__(self, inputs: list, outputs: list, shown: set[tuple[type[Warning], str]]) -> None:
        import pytensor
        import pytensor.link.numba.dispatch.basic  # adds filters of warnings, which must outlast each_once

        # Without PyMC's parameter checks, which raise if one underflows: the density is then not finite, a divergence.
        mode = pytensor.compile.mode.get_mode("NUMBA").including(UNCHECKED).register((filled(), BEFORE_INPLACE))
        with each_once(shown):
            made = pytensor.function(inputs, outputs, mode=mode, on_unused_input="ignore")
        outer = getattr(made.vm.jit_fn, "py_func", made.vm.jit_fn)
        # PyTensor's cache stores a function that calls the graph's. Unwrap it, or LLVM compiles both.
        inner = outer.__globals__.get("jitable_func") if outer.__code__.co_names == ("jitable_func",) else None
        text = getattr(inner, "py_func", outer)
        self.function = numba.njit(inline="always")(text)
        self.operations = [each for each in text.__globals__.values() if isinstance(each, Dispatcher)]
        self.identity = identity_of_graph(made.maker.fgraph, outer)

    def called_by(self, text: str) -> Callable:
        """Return the compiled function with this source, which calls this one as ``graph``."""
        function = defined_by(text, shaped=shaped, graph=self.function)
        identity = None if self.identity is None else identity_of_text("\n".join([self.identity, text]), [])
        # PyTensor looks up LAPACK's routines as Python. (User-defined operations that run as Python have no name.)
        return jit_of_user(function, (self.function, *self.operations), identity, importable=True)


def of_products(product: Callable, text: str) -> Callable:
    """Return the compiled function with this source, which calls `product` by its pointer as ``product()``."""
    identity = getattr(product, "identity", None)
    name = None if identity is None else identity_of_text("\n".join([identity, text]), [])
    return jit_of_user(defined_by(text, product=by_address(product, PRODUCT)), (), name)


def defined_by(text: str, **names: object) -> Callable:
    defined: dict[str, Callable] = {}
    exec(compile(text, "<refhmc.from_pymc>", "exec"), {"__name__": __name__, "np": np, **names}, defined)
    (function,) = defined.values()
    return function


def identity_of_graph(graph: FunctionGraph, function: Callable) -> str | None:
    """Return the name under which the code of a rewritten graph is cached, or None if the code is not known.

    The name includes PyTensor's name of the ``function``, which is a digest of operations, edges and constants. It also
    includes the graph with its types as text, and the constants, so that it does not depend on PyTensor's digest alone.
    """
    import pytensor
    from pytensor.link.numba.dispatch import basic

    try:
        from pytensor.link.numba.cache import CACHED_SRC_FUNCTIONS
    except ImportError:  # earlier versions have no names
        return None
    name = CACHED_SRC_FUNCTIONS.get(function)
    if name is None:
        return None
    text = pytensor.dprint(graph.outputs, file="str", id_type="CHAR", print_type=True)
    text = re.sub(
        r" '[^']*'$", "", text, flags=re.MULTILINE
    )  # drop names of variables, some of which have random numbers
    constants = [
        f"{each.dtype} {each.shape} {sha256(np.ascontiguousarray(each).tobytes())}"
        for each in constants_in(graph.outputs)
    ]
    modules = {type(each).__module__ for each in operations_in(graph)} | modules_of_dispatch(basic)
    return identity_of_text("\n".join([name, text, *constants]), modules)


def operations_in(graph: FunctionGraph) -> Iterator[Op]:
    """Yield all operations, including the scalar one of an elementwise operation and those of a loop's body."""
    for node in graph.apply_nodes:
        yield from with_inner(node.op)


def with_inner(operation: Op) -> Iterator[Op]:
    yield operation
    if hasattr(operation, "fgraph"):
        yield from operations_in(operation.fgraph)
    for name in ("scalar_op", "core_op"):
        if hasattr(operation, name):
            yield from with_inner(getattr(operation, name))


def modules_of_dispatch(basic: ModuleType) -> set[str]:
    """Return the modules of the functions that implement PyTensor's operations for Numba."""
    written = [each for each in vars(basic).values() if hasattr(each, "registry")]
    return {each.__module__ for generic in written for each in generic.registry.values()}
