"""Everything that a function reaches is in its fingerprint by content; location, layout and caller are not.

Each change below is made in a source, which runs twice in separate namespaces.
"""

from __future__ import annotations

import copy
import importlib
import json
import os
import pickle
import subprocess
import sys
import textwrap
import types

import numba
import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

import refhmc
from refhmc.compile.fingerprint import CHANGES, Fingerprint, differences, fingerprint, package_identity, settled
from refhmc.compile.pointer_type import Pointer
from tests.helpers.sweeps import representatives

HEADER = "import math, functools, collections, dataclasses, enum, typing\nimport numpy as np, numba\n"


def run(text: str, name: str = "a_script", file: str = "here.py") -> dict:
    namespace = {"__name__": name}
    exec(compile(HEADER + textwrap.dedent(text), file, "exec", dont_inherit=True), namespace)
    return namespace


def parts(text: str, **options) -> Fingerprint:
    """Return the parts of ``log_density`` and, if there are any, of ``data``, after the source has run."""
    namespace = run(text, **options)
    return fingerprint({key: namespace[key] for key in ("log_density", "data") if key in namespace})


# label -> (text, what is replaced, by what)
CHANGED = {
    "the code of log_density": [
        ("def log_density(q, data): return np.sin(q[0])", "np.sin", "np.cos"),
        ("def log_density(q, data): return q[0] * 2", "2", "2.0"),
        ("def log_density(q, data): return q[0] * 0.0", "0.0", "-0.0"),
        ("def log_density(q, data): return q[0] * 1", "1", "True"),
        ("def log_density(q, data): return q[0] in {1, 2, 3}", "2", "4"),
        ("def log_density(q, data): return q[0] > 1", ">", ">="),
        ("def log_density(q, data): return math.exp(q[0] - 1)", "-", "+"),
        ("def log_density(q, data): return -sum(v * v for v in q)", "v * v", "v * v * v"),
        ("def log_density(q, data): return -sum([v * v for v in q])", "v * v", "v + v"),
        ("def log_density(q, data): return (lambda z: z * 2.5)(q[0])", "2.5", "3.5"),
        ("def log_density(q, data):\n def inner(z): return z - 1\n return inner(q[0])", "z - 1", "z - 2"),
        ("def log_density(q, data):\n from math import sin as f\n return f(q[0])", "import sin", "import cos"),
        ("def log_density(q, data):\n try: return q[0]\n except ValueError: return 0", "ValueError", "TypeError"),
        ("log_density = lambda q, data: -q[0]", "-q", "+q"),
        ("log_density = numba.njit(lambda q, data: -q[0])", "-q", "+q"),
        ("log_density = functools.lru_cache(lambda q, data: -q[0])", "-q", "+q"),
    ],
    "the global `scale` read by log_density": [
        ("scale = 1.0\ndef log_density(q, data): return q[0] / scale", "1.0", "10.0"),
        ("scale = 0.0\ndef log_density(q, data): return q[0] / scale", "0.0", "-0.0"),
        ("scale = 1\ndef log_density(q, data): return q[0] / scale", "scale = 1", "scale = True"),
        ("scale = float('nan')\ndef log_density(q, data): return q[0] / scale", "nan", "inf"),
        ("scale = np.float32(1)\ndef log_density(q, data): return q[0] / scale", "float32", "float64"),
        ("scale = np.zeros(3)\ndef log_density(q, data): return q[0] / scale[0]", "3", "4"),
        ("scale = np.zeros(4)\ndef log_density(q, data): return q[0] / scale[0]", "np.zeros(4)", "np.zeros((2, 2))"),
        ("scale = np.zeros(4)\ndef log_density(q, data): return q[0] / scale[0]", "(4)", "(4, int)"),
        ("scale = np.array([0.0])\ndef log_density(q, data): return scale", "0.0", "-0.0"),
        ("scale = np.array([1, None])\ndef log_density(q, data): return scale", "None", "'a'"),
        ("scale = np.array([(1, 2.0)], [('a', int), ('b', float)])\ndef log_density(q, data): return scale", "2.0", "3.0"),
        ("scale = np.longdouble(1) * np.arange(3)\ndef log_density(q, data): return scale", "(1)", "(2)"),
        ("scale = [1, [2, 3]]\ndef log_density(q, data): return scale", "[2, 3]", "(2, 3)"),
        ("scale = {'a': [1]}\ndef log_density(q, data): return scale", "'a'", "'b'"),
        ("scale = {1, (2, 3)}\ndef log_density(q, data): return scale", "(2, 3)", "(3, 2)"),
        ("scale = collections.OrderedDict(a=1, b=2)\ndef log_density(q, data): return scale", "a=1, b=2", "b=2, a=1"),
        ("scale = np.sin\ndef log_density(q, data): return scale(q)", "np.sin", "np.cos"),
        ("scale = math.sin\ndef log_density(q, data): return scale(q)", "math.sin", "math.cos"),
        ("scale = np.linalg.norm\ndef log_density(q, data): return scale(q)", "linalg.norm", "linalg.det"),
        ("scale = 3\ndef log_density(q, data): return [v * scale for v in q]", "3", "4"),
        ("scale = 3\ndef log_density(q, data): return (lambda z: z * scale)(q)", "3", "4"),
        ("scale = 10**5000\ndef log_density(q, data): return scale", "5000", "5001"),
        ("scale = slice(1, None)\ndef log_density(q, data): return q[scale]", "1", "2"),
        ("class E(enum.Enum): A = 1; B = 2\nscale = E.A\ndef log_density(q, data): return scale", "E.A", "E.B"),
        ("scale = np.poly1d([1, 2])\ndef log_density(q, data): return scale(q)", "np.poly1d([1, 2])", "3"),
        ("def f(x): return x\ndef g(x): return x\nscale = f\ndef log_density(q, data): return f(g(scale(q)))",
         "scale = f", "scale = g"),
        ("scale = 1\ndef log_density(q, data): return scale", "scale = 1\n", "\n"),
    ],
    "the variable `s` that log_density closes over": [
        ("def make(s):\n def f(q, data): return q[0] / s\n return f\nlog_density = make(1.0)", "1.0", "2.0"),
        ("def make(s):\n f = numba.njit(lambda q, data: q[0] / s)\n return f\nlog_density = make(1.0)", "1.0", "2.0"),
        ("def make(s):\n def f(q, data):\n  def g():\n   s = 1\n   def h():\n    nonlocal s\n    s = 3\n   h()\n  g()\n"
         "  return q[0] / s\n return f\nlog_density = make(1.0)", "1.0", "2.0"),
    ],
    "the code of helper": [
        ("def helper(x): return x + 1\ndef log_density(q, data): return helper(q[0])", "x + 1", "x + 2"),
        ("helper = numba.njit(lambda x: x + 1)\ndef log_density(q, data): return helper(q[0])", "x + 1", "x + 2"),
        ("@numba.vectorize\ndef helper(x): return x + 1\ndef log_density(q, data): return helper(q[0])", "x + 1", "x + 2"),
        ("def helper(x): return log_density(x, 1)\ndef log_density(q, data): return helper(q[0])", "1)", "2)"),
        ("def helper(x): return x\nhelper = functools.partial(helper)\ndef log_density(q, data): return helper(q)",
         "return x", "return -x"),
        ("def helper(x): return x\nhelper = np.vectorize(helper)\ndef log_density(q, data): return helper(q)",
         "return x", "return -x"),
    ],
    "the global `rate` read by helper": [
        ("rate = 1\ndef helper(x): return rate * x\ndef log_density(q, data): return helper(q[0])", "1", "2"),
        ("rate = 1\ndef helper(x): return rate * outer(x)\ndef outer(x): return helper(x)\n"
         "def log_density(q, data): return outer(q[0])", "1", "2"),
    ],
    "the default of `k` in log_density": [
        ("def log_density(q, data, k=1): return q[0] / k", "k=1", "k=2"),
        ("def log_density(q, data, *, k=1): return q[0] / k", "k=1", "k=2"),
    ],
    "the argument `k` that is given to log_density": [
        ("def f(q, data, k): return q[0] / k\nlog_density = functools.partial(f, k=1)", "k=1", "k=2"),
    ],
    "the attribute `k` of log_density": [
        ("def log_density(q, data): return log_density.k\nlog_density.k = 1", "k = 1", "k = 2"),
        ("class P:\n def __init__(self, k): self.k = k\n def __call__(self, q, data): return q[0] / self.k\nlog_density = P(1)",
         "P(1)", "P(2)"),
        ("@dataclasses.dataclass(frozen=True)\nclass P:\n k: int\n def __call__(self, q, data): return self.k\n"
         "log_density = P(1)", "P(1)", "P(2)"),
    ],
    "log_density": [
        ("class P:\n __slots__ = ('k',)\n def __call__(self, q, data): return self.k\nlog_density = P()\nlog_density.k = 1",
         "k = 1", "k = 2"),
    ],
    "the attribute `k` of log_density's object": [
        ("class P:\n def __init__(self, k): self.k = k\n def f(self, q, data): return q[0] / self.k\nlog_density = P(1).f",
         "P(1)", "P(2)"),
    ],
    "the code of P.f": [
        ("class P:\n def f(self, q, data): return 1\nlog_density = P().f", "return 1", "return 2"),
        ("class P:\n def f(self): return 1\nclass Q(P): pass\nobject = Q()\ndef log_density(q, data): return object.f()",
         "return 1", "return 2"),
        ("class P:\n @staticmethod\n def f(q): return 1\ndef log_density(q, data): return P.f(q)", "return 1", "return 2"),
        ("class P:\n @classmethod\n def f(cls, q): return 1\ndef log_density(q, data): return P.f(q)",
         "return 1", "return 2"),
        ("class P:\n @functools.cached_property\n def f(self): return 1\np = P()\ndef log_density(q, data): return p.f",
         "return 1", "return 2"),
        ("class P(typing.NamedTuple):\n a: int\n def f(self): return 1\np = P(3)\ndef log_density(q, data): return p.f()",
         "return 1", "return 2"),
        ("class P:\n @property\n def f(self): return 1\np = P()\ndef log_density(q, data): return p.f", "return 1", "return 2"),
    ],
    "the content of the class P": [
        ("class P:\n rate = 1\np = P()\ndef log_density(q, data): return p.rate", "rate = 1", "rate = 2"),
    ],
    "the options that log_density is compiled with": [
        ("@numba.njit('float64(float64)')\ndef log_density(q): return q", "'float64(float64)'", "'float64(float32)'"),
        ("@numba.njit(fastmath=False)\ndef log_density(q, data): return q[0]", "False", "True"),
    ],
    "the variable `f` that log_density closes over": [
        ("def negated(f):\n @functools.wraps(f)\n def g(q, data): return -f(q, data)\n return g\n"
         "def one(q, data): return 1\ndef two(q, data): return 2\nboth = [one, two]\nlog_density = negated(math.sin)",
         "math.sin", "math.cos"),
    ],
    "data": [
        ("def log_density(q, data): return 0\ndata = np.arange(6.0)", "np.arange(6.0)", "np.arange(6.0).reshape(2, 3)"),
        ("def log_density(q, data): return 0\ndata = {'x': np.arange(6.0)}", "6.0", "7.0"),
        ("def log_density(q, data): return 0\ndata = collections.namedtuple('D', 'x y')(1, 2)", "1, 2", "2, 1"),
        ("def log_density(q, data): return 0\nimport scipy.sparse\ndata = [scipy.sparse.eye(3).tocsr()]", "eye(3)", "eye(4)"),
    ],
}  # fmt: skip
CASES = [(label, *case) for label, cases in CHANGED.items() for case in cases]


@pytest.mark.parametrize(("label", "text", "old", "new"), CASES, ids=[f"{c[0]}-{k}" for k, c in enumerate(CASES)])
def test_changes_are_detected_and_named(label, text, old, new):
    assert text.count(old) >= 1
    changed = new.join(text.rsplit(old, 1)) if label != "the code of log_density" else text.replace(old, new)
    before, again, after = parts(text), parts(text), parts(changed)
    assert before == again
    found = differences(after.parts, before.parts)
    assert any(clause.startswith((f"{label} differs: here", f"{label} is only")) for clause in found), found
    assert before.digest != after.digest
    assert not before.unknown


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("def log_density(q, data): return -q[0]", "\n\n# why\ndef log_density(q, data):\n    'What.'\n    return -q[0]  # so"),
        ("def log_density(q, data): return -q[0]", "def log_density(q: list, data: int = ...) -> float: return -q[0]"),
        ("class P:\n def f(self): return 1\np = P()\ndef log_density(q, data): return p.f()",
         "class P:\n 'P.'\n def f(self):\n  'f.'\n  return 1\n def __repr__(self): return 'p'\np = P()\n"
         "def log_density(q, data): return p.f()"),
        ("s = {'a', 'b', 'c', ('d', 1)}\ndef log_density(q, data): return s",
         "s = {('d', 1), 'c', 'b', 'a'}\ndef log_density(q, data): return s"),
        ("t = {'a': 1, 'b': 2}\ndef log_density(q, data): return t",
         "t = {'b': 2, 'a': 1}\ndef log_density(q, data): return t"),
        ("y = np.arange(6.0).reshape(2, 3)\ndef log_density(q, data): return y",
         "y = np.asfortranarray(np.arange(6.0).reshape(2, 3))\ndef log_density(q, data): return y"),
        ("y = np.array([np.nan])\ndef log_density(q, data): return y",
         "y = -np.array([np.nan])\ndef log_density(q, data): return y"),
        ("unread = 1\ndef log_density(q, data): return q.unread", "unread = 2\ndef log_density(q, data): return q.unread"),
        ("calls = 0\ndef log_density(q, data):\n global calls\n calls += 1\n return 0",
         "calls = 7\ndef log_density(q, data):\n global calls\n calls += 1\n return 0"),
        ("def make(n):\n def f(q, data):\n  nonlocal n\n  n += 1\n  return 0\n return f\nlog_density = make(0)",
         "def make(n):\n def f(q, data):\n  nonlocal n\n  n += 1\n  return 0\n return f\nlog_density = make(9)"),
        ("import logging, threading\nlog = logging.getLogger('a')\nlock = threading.Lock()\nrng = np.random.default_rng(1)\n"
         "def log_density(q, data): return log, lock, rng",
         "import logging, threading\nlog = logging.getLogger('b')\nlock = threading.Lock()\nlock.acquire()\n"
         "rng = np.random.default_rng(2)\ndef log_density(q, data): return log, lock, rng"),
    ],
)  # fmt: skip
def test_irrelevant_changes_are_ignored(first, second):
    one, other = parts(first), parts(second, name="__main__", file="there.py")
    if "= ..." in second:  # a default does matter
        assert differences(one.parts, other.parts) == ["the default of `data` in log_density is only there (Ellipsis)"]
    else:
        assert one == other
        assert not one.unknown


def test_uninspectable_parts_are_named_and_stable():
    text = """
        import io, sys
        class Odd:
            def __reduce_ex__(self, protocol): raise RuntimeError("no")
        odd, file, steps, ufunc = Odd(), sys.__stdout__, (i for i in range(3)), np.frompyfunc(abs, 1, 1)
        def log_density(q, data): return odd, file, steps, ufunc
    """
    one, other = parts(text), parts(text)
    assert one == other
    assert [label.split("`")[1] for label in one.unknown] == ["file", "odd", "steps", "ufunc"]
    assert "the global `odd` read by log_density (a_script.Odd; RuntimeError)" in one.unknown
    assert "0x" not in json.dumps(one.parts)


def test_assigned_globals_are_marked_as_changing():
    known = parts("""
        table, count = None, 0
        def make(n):
            def log_density(q, data):
                global table, count
                nonlocal n
                table, count, n = table or read(), count + 1, n + 1
                return table
            return log_density
        log_density = make(0)
    """)
    changing = [label for label, words in known.parts.items() if words == CHANGES]
    assert changing == ["the global `count` read by log_density", "the global `table` read by log_density",
                        "the variable `n` that log_density closes over"]  # fmt: skip


@pytest.mark.sweep
def test_a_long_chain_of_callees_is_followed_to_its_end():
    """The chain is longer than Python's recursion limit."""
    text = "scale = 1\ndef f0(x): return x * scale\n" + "".join(
        f"def f{k + 1}(x): return f{k}(x)\n" for k in range(1200)
    )
    text += "def log_density(q, data): return f1200(q)"
    before, after = parts(text), parts(text.replace("scale = 1", "scale = 2"))
    assert differences(after.parts, before.parts) == ["the global `scale` read by f0 differs: here 2, there 1"]
    assert not before.unknown


@pytest.mark.parametrize(
    ("value", "other"),
    [
        (
            "np.array([(1, 2.0)], [('a', 'i1'), ('b', float)])[0]",
            "np.array([(1, 3.0)], [('a', 'i1'), ('b', float)])[0]",
        ),
        ("np.dtype([('a', int)])", "np.dtype([('b', int)])"),
        ("np.dtype('>f8')", "np.dtype('<f8')"),
        ("np.zeros(3).view(np.memmap)", "np.ones(3).view(np.memmap)"),
        ("np.ma.array([1, 2], mask=[0, 1])", "np.ma.array([1, 2], mask=[1, 0])"),
        ("np.datetime64('2020-01-01')", "np.datetime64('2020-01-02')"),
        ("types.MappingProxyType({1: 2})", "types.MappingProxyType({1: 3})"),
        ("types.SimpleNamespace(a=1)", "types.SimpleNamespace(a=2)"),
        ("collections.deque([1, 2])", "collections.deque([2, 1])"),
        ("collections.defaultdict(int, a=1)", "collections.defaultdict(int, a=2)"),
        ("collections.namedtuple('P', 'a b')(1, 2)", "collections.namedtuple('P', 'a b')(1, 3)"),
        ("enum.Flag('E', 'A B').A", "enum.Flag('E', 'A B').B"),
        ("fractions.Fraction(1, 3)", "fractions.Fraction(1, 4)"),
        ("decimal.Decimal('1.0')", "decimal.Decimal('1.00')"),
        ("operator.itemgetter(1)", "operator.itemgetter(2)"),
        ("(k for k in range(3))", "(k for k in range(4))"),
        ("memoryview(b'a')", "memoryview(b'b')"),
    ],
)
def test_a_change_of_any_object_is_noticed_or_it_is_reported_as_not_compared(value, other):
    text = "import types, fractions, decimal, operator\ndata = {}\ndef log_density(q, data): return data"
    first, again, changed = (parts(text.replace("{}", each)) for each in (value, value, other))
    assert first == again
    assert first.unknown or differences(first.parts, changed.parts)


@pytest.mark.slow  # Numba compiles them
def test_numbas_containers_are_reported_as_not_compared():
    text = """
        import numba.typed
        d = numba.typed.Dict()
        d["a"] = numba.typed.List([1.0, 2.0])
        def log_density(q, data): return d
    """
    assert parts(text) == parts(text)
    assert parts(text).unknown


def test_numbas_types_are_known_by_name():
    """Not by the number that a process assigns to each."""
    text = "kind = numba.float64[:]\nsignature = numba.int64(kind)\ndef log_density(q, data): return kind, signature"
    found = parts(text).parts
    assert found["the global `kind` read by log_density"] == "Array array(float64, 1d, A)"
    assert (
        found["the global `signature` read by log_density"]
        == "Signature (Array(float64, 1, 'A', False, aligned=True),) -> int64"
    )


def test_modules_of_the_user_are_followed_and_others_are_named(monkeypatch):
    mine, part = types.ModuleType("mine"), types.ModuleType("mine.part")
    exec("def f(x): return x + g(x)\ndef g(x): return 1\ndef unread(x): return 2", mine.__dict__)
    exec("level = 3", part.__dict__)
    mine.part = part
    for module in (mine, part):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    text = "import mine\ndef log_density(q, data):\n import mine.part as p\n return mine.f(q) + p.level + np.sum(q)"
    before = parts(text)
    assert before.packages == ("numpy",)
    for change, label in (
        ("def g(x): return 2", "the code of g"),
        ("def f(x): return x - g(x)", "the code of mine.f"),
        ("def unread(x): return 3", None),
    ):
        keep = dict(mine.__dict__)
        exec(change, mine.__dict__)
        found = differences(parts(text).parts, before.parts)
        assert [clause.split(" differs")[0] for clause in found] == ([label] if label else [])
        mine.__dict__.update(keep)
    part.level = 4
    assert any(
        "`mine.part.level` differs: here 4, there 3" in clause
        for clause in differences(parts(text).parts, before.parts)
    )


def test_a_package_is_known_by_version_and_files(tmp_path, monkeypatch):
    assert package_identity("numpy").startswith(np.__version__ + ", files ")
    assert package_identity("refhmc").startswith(refhmc.__version__ + ", files ")
    home = tmp_path / "site-packages" / "somebodys_models"
    home.mkdir(parents=True)
    monkeypatch.syspath_prepend(home.parent)
    identities = set()
    for body in ("q", "-q", "q"):
        (home / "__init__.py").write_text(f"__version__ = '1.2'\ndef f(q): return {body}\n")
        package_identity.cache_clear()
        sys.modules.pop("somebodys_models", None)
        importlib.invalidate_caches()
        found = parts("import somebodys_models as s\ndef log_density(q, data): return s.f(q)")
        assert found.packages == ("somebodys_models",)
        identities.add(package_identity("somebodys_models"))
    sys.modules.pop("somebodys_models", None)
    package_identity.cache_clear()
    assert len(identities) == 2
    assert all(identity.startswith("1.2, files ") for identity in identities)


SCRIPT = """
import functools, json, math, sys
import numpy as np
from refhmc.compile.fingerprint import fingerprint

NAMES = frozenset({"alpha", "beta", "gamma", ("delta", 1.5)})
WEIGHTS = {name: len(str(name)) for name in NAMES}
class Prior:
    scales = {"a", "b", "c"}
    def __init__(self, location):
        self.location, self.memory, self.anything = location, {}, object()
    def __call__(self, x):
        return [math.log(s) if name in {"p", "q", "r", None} else x for s, name in zip(self.location, "abc")]
prior = Prior([1.0, 2.0, float("nan")])
helper = lambda x, *, table=(np.arange(4.0), NAMES): even(x - 1) + sum(v * table[0][0] for v in range(3))
def even(n): return n < 1 or odd(n - 1)
def odd(n): return n > 0 and even(n - 1)
def decorated(f):
    @functools.wraps(f)
    def inside(q, data):
        class Local:
            def value(self): return [f(q, data) for _ in range(2)]
        return Local().value()[0]
    return inside
@decorated
def log_density(q, data):
    print("called", file=sys.stderr)
    return prior(helper(q)) + sum(WEIGHTS[n] for n in NAMES if n != __name__) + (lambda: np.sin(q))()
found = fingerprint({"log_density": log_density, "gradient": prior.__call__, "constrain": lambda q: {"x": q}})
if __name__ == "__main__":
    print(json.dumps([found.parts, found.unknown]))
"""


def test_the_same_script_is_the_same_in_every_process(tmp_path):
    """Independent of hash seed and folder, and of whether it is run, imported, or run from compiled code."""
    answers = []
    for k, command in enumerate((["script.py"], ["script.py"], ["-c", IMPORTING], ["-OO", "script.py"])):
        folder = tmp_path / f"folder {k}"
        folder.mkdir()
        (folder / "script.py").write_text("\n" * k + SCRIPT)
        environment = {**os.environ, "PYTHONHASHSEED": str(k), "PYTHONPATH": os.pathsep.join([str(folder), *sys.path])}
        done = subprocess.run([sys.executable, *command], cwd=folder, env=environment, capture_output=True, check=True)
        answers.append(json.loads(done.stdout))
    assert all(answer == answers[0] for answer in answers)
    found, unknown = answers[0]
    assert unknown == []
    assert len(found) > 20
    assert "0x" not in json.dumps(found)
    assert str(tmp_path) not in json.dumps(found)


IMPORTING = "import json, script; print(json.dumps([script.found.parts, script.found.unknown]))"

# Values from a small world, so that two drawn apart are often equal, and often nearly so.
LEAVES = st.sampled_from(
    [
        None,
        True,
        0,
        1,
        0.0,
        -0.0,
        1.0,
        float("nan"),
        "",
        "0",
        b"0",
        1j,
        np.float64(0),
        np.int64(0),
        np.zeros(1),
        np.zeros(2),
    ]
    + [np.zeros((1, 1)), np.zeros(1, int), np.array([np.nan]), np.array([-0.0]), np.array(["a"]), np.zeros(0)]
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.tuples(inner)
        | st.dictionaries(st.sampled_from(["", "0", 0]), inner, max_size=2)
    ),
    max_leaves=4,
)


def same(a, b) -> bool:
    """Return whether type and content are equal, independently of the implementation."""
    if type(a) is not type(b):
        return False
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, np.ndarray | np.generic):
        if (a.dtype, a.shape) != (b.dtype, b.shape):
            return False
        pairs = zip(np.ravel(a).tolist(), np.ravel(b).tolist(), strict=True)
        return all(same(x, y) for x, y in pairs)
    if isinstance(a, float):
        return (a != a and b != b) or (a == b and np.signbit(a) == np.signbit(b))
    return a == b


@hypothesis_settings(max_examples=400, deadline=None)
@given(a=VALUES, b=VALUES)
def test_two_values_have_one_fingerprint_if_and_only_if_they_are_the_same(a, b):
    assert (fingerprint({"x": a}) == fingerprint({"x": b})) == same(a, b)
    assert fingerprint({"x": a}) == fingerprint({"x": copy.deepcopy(a)})


def test_recursive_containers_end():
    def around(n, value):
        ring: list = [value]
        for _ in range(n):
            ring = [ring]
        inner = ring
        while isinstance(inner[0], list):
            inner = inner[0]
        inner.append(ring)
        return fingerprint({"x": ring})

    assert around(1, 0) == around(1, 0)
    assert len({around(n, value).digest for n in (1, 2) for value in (0, 1)}) == 4
    deep: list = []
    for _ in range(100_000):
        deep = [deep]
    assert fingerprint({"x": deep}).unknown == ("x (builtins.list; RecursionError)",)


def test_a_part_that_changes_when_it_is_called_is_marked_and_others_are_not():
    namespace = run("""
        memory, scale = {}, 2.0
        def log_density(q, data):
            memory[q] = scale
            return scale
    """)

    def now():
        return fingerprint({"log_density": namespace["log_density"]})

    before = now()
    namespace["log_density"](1.0, None)
    known = settled(before, now())
    assert [label for label, words in known.parts.items() if words == CHANGES] == [
        "the global `memory` read by log_density"
    ]
    namespace["scale"] = 3.0
    for one, other in ((now(), known), (known, now())):
        (found,) = differences(one.parts, other.parts)
        assert found.startswith("the global `scale` read by log_density differs")


def test_every_function_of_a_model_and_its_data_are_part_of_it():
    def function(value):
        namespace = {"value": value}
        exec("def f(q, data, *more): return value", namespace)
        return namespace["f"]

    keys = [
        key
        for key in refhmc.models.Funnel(2).functions._fields
        if key not in ("log_density", "gradient", "log_density_change")
    ]
    given = {key: function(1) for key in ("log_density", "gradient", *keys, "constrain")}

    def of(**changes):
        options = {"names": ["a", "b"], "data": (1.0, np.zeros(3)), "discontinuous": [1], **given, **changes}
        return refhmc.Model(2, **options).made_of().parts

    before = of()
    for key in given:
        (found,) = differences(of(**{key: function(2)}), before)
        assert found == f"the global `value` read by {key} differs: here 2, there 1"
    changed = {
        "names": ["a", "c"],
        "data": (1.0, np.zeros(4)),
        "discontinuous": [0],
        "log_density_change": lambda q, j, x: 0,
    }
    for key, value in changed.items():
        found = differences(of(**{key: value}), before)
        assert found
        assert all(clause.split(" ")[0].startswith(key) or key in clause for clause in found)
    (found,) = differences(of(data=(1.0, np.zeros(4))), before)
    assert found.startswith("data[1] differs: here float64 array of shape (4,)")
    text = "class T(refhmc.array_api.ArrayImplementation):\n dim = 2\n"
    text += " def value_and_gradient(self, q): return 0 * q[..., 0], -q"
    one, other = (
        of(on_arrays=eval("lambda xp: T()", {**run(f"import refhmc\n{each}")}))
        for each in (text, text.replace("0", "1"))
    )
    (found,) = differences(one, other)
    assert found.startswith("the code of T.value_and_gradient differs")
    assert any(clause.startswith("on_arrays is only here") for clause in differences(one, before))
    text = "class D(typing.NamedTuple):\n x: float = 1.0\n def square(self): return self.x ** 2"
    one, other = (of(data=run(each)["D"]()) for each in (text, text.replace("** 2", "** 3")))
    (found,) = differences(one, other)
    assert found.startswith("the code of D.square differs")


SEEN = ["banana", "gaussian", "heart", "eight-schools", "kidscore", "garch", "jolly-seber", "change-point", "pac-bayes"]


@pytest.mark.parametrize("name", representatives(refhmc.models.by_name(), SEEN))
def test_a_model_of_refhmc_is_the_same_before_and_after_it_is_evaluated_and_as_a_copy(name):
    model, again = (refhmc.models.by_name()[name]() for _ in range(2))
    before = model.made_of()
    q = np.full(model.dim, 0.1) if model.initial is None else model.initial
    value = model.log_density(q)
    model.gradient(q), model.constrain(q)
    copied = pickle.loads(pickle.dumps(model))
    assert value == copied.log_density(q)
    # Not equal for an ODE, which is solved with its sensitivities here: the solver then takes other steps.
    assert model.core.value_and_gradient(q)[0] == pytest.approx(value, rel=1e-12)
    assert before == again.made_of() == model.made_of() == copied.made_of()
    assert not before.unknown
    assert "0x" not in json.dumps(before.parts)
    if model.reference is not None:
        assert len(copied.reference.mean) == len(copied.reference.variance) == len(model.reference_names)
    if model.reference is not None and model.reference.draw is not None:
        assert copied.reference.draw(np.random.default_rng(0), 7).shape == (7, model.dim)


@pytest.mark.sweep
def test_a_users_equation_is_part_of_the_model():
    text = """
        def rhs(t, x, theta, out): out[0] = theta[0] * x[0] * RATE
        def jacobian(t, x, theta, out): out[0, 0], out[0, 1] = theta[0] * RATE, x[0] * RATE
        def hessian(t, x, theta, out): out[0, 0, 1] = out[0, 1, 0] = RATE
        RATE = 1.0
    """

    def of(text):
        functions = [run(text)[name] for name in ("rhs", "jacobian", "hessian")]
        arguments = {"initial_state": [0.1], "times": range(3), "y": np.ones((3, 1)), "sigma": 0.05, "prior_mean": [1]}
        return refhmc.models.ODE(*functions, **arguments).made_of()

    before = of(text)
    assert before == of(text)
    assert not before.unknown
    found = differences(of(text.replace("1.0", "2.0")).parts, before.parts)
    assert [clause.startswith("the global `RATE` read by ") for clause in found] == [True] * len(found) != []


def test_a_block_of_a_model_is_known_by_the_model_the_block_and_the_values_held():
    """Its data are scratch memory, written at each evaluation."""
    funnel = refhmc.models.Funnel(3)
    blocks = [refhmc.conditional(m, block, q) for m, block, q in (
        (funnel, "x", [0.5, 1, 1, 1]), (refhmc.models.Funnel(3), "x", [0.5, 1, 1, 1]), (funnel, "x", [0.6, 1, 1, 1]),
        (funnel, ("v",), [0.5, 1, 1, 1]), (refhmc.models.Funnel(4), [1, 2, 3], [0.5, 1, 1, 1, 1]),
    )]  # fmt: skip
    before = [block.made_of() for block in blocks]
    blocks[0].data[:] += 1.0  # as an evaluation may
    assert before[0] == before[1] == blocks[0].made_of()
    assert len({each.digest for each in before}) == 4
    (found,) = differences(before[2].parts, before[0].parts)
    assert found.startswith("the values held differs")


def test_code_generated_by_a_package_is_inspected():
    """As PyTensor generates a function per graph, all with the same name, in its own module."""

    def written(text="x + c", c=1.0):
        namespace = {**vars(np.linalg), "c": c}
        exec(f"def of_graph(x): return {text}", namespace)
        return fingerprint({"f": namespace["of_graph"]})

    assert written() == written()
    assert len({each.digest for each in (written(), written("x - c"), written(c=2.0), written(c=np.ones(2)))}) == 4
    assert fingerprint({"f": np.linalg.norm}).parts.keys() == {"f"}


def test_a_type_of_numba_is_known_without_the_number_that_a_process_gives_it():
    """Also a type derived from Numba's, so that code cached by another process is found."""
    for kind in (
        numba.types.float64,
        numba.types.Array(numba.types.int64, 1, "C"),
        Pointer(numba.types.void(numba.types.float64)),
    ):
        other = object.__new__(type(kind))
        other.__dict__.update(kind.__dict__, _code=-1)
        assert fingerprint({"kind": other}).parts == fingerprint({"kind": kind}).parts
    longer = Pointer(numba.types.void(numba.types.float64, numba.types.float64))
    assert fingerprint({"kind": longer}).parts != fingerprint({"kind": kind}).parts
