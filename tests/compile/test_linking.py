"""A compiled function is the same in the process that compiles it and in those that load it."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys

import numba
import pytest
from llvmlite.binding import ExecutionEngine
from numba import types as nb
from numba.core import compiler

from refhmc.compile import linking
from refhmc.compile.compiled import jit, jit_anew, jit_sum, silence_experimental
from refhmc.compile.pointer_type import Pointer, keep_address

ROOT = pathlib.Path(__file__).resolve().parents[2]

# Sums that LLVM orders otherwise in a copy within a caller than in the function by itself.
SUMS = """
import sys
import numba
import numpy as np
from numba import types as nb
from refhmc.core import types
from refhmc.compile.compiled import jit, silence_experimental
from refhmc.models import logistic_regression as logistic
from refhmc.numerics import linalg

@jit
def projected(z, w, out):
    logistic.project(z, w, out)
    return linalg.dot(out, out)

PROJECT = nb.FunctionType(nb.void(types.MATRIX, types.VECTOR, types.VECTOR))

@numba.njit(nb.void(PROJECT, types.MATRIX, types.VECTOR, types.VECTOR))
def by_pointer(project, z, w, out):
    project(z, w, out)

def by_themselves():
    by_pointer(logistic.project, z, w, out)
    return linalg.dot(out, out).hex(), [value.hex() for value in out]

silence_experimental()
rng, out = np.random.default_rng(1), np.empty(14)
z, w = rng.standard_normal((14, 270)), rng.standard_normal(270)
before = by_themselves() if "called by themselves before" in sys.argv else None
both = projected(z, w, out)
model = -logistic.log_density(out[:13], z)
values = [value.hex() for value in out]
print("alone", before or by_themselves())
assert before is None or before == by_themselves(), "a copy was taken for the function itself"
print(both.hex(), model.hex(), values, sum(projected.stats.cache_misses.values()))
"""


def python(cache, *arguments):
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "REFHMC_CACHE_DIR": str(cache), "PYTHONPATH": path}
    command = [sys.executable, "-P", *map(str, arguments)]
    return subprocess.run(command, env=environment, cwd=cache.parent, check=True, capture_output=True, text=True).stdout


@pytest.mark.sweep
def test_compiled_or_loaded_a_sum_has_one_order(tmp_path):
    """Also if the parts were called separately before, so that a linker has two copies of each."""
    script = tmp_path / "sums.py"
    script.write_text(SUMS, encoding="utf-8")
    cache = tmp_path / "cache"
    cold, warm, other = (
        python(cache, script, *words).rsplit(maxsplit=1) for words in ([], [], ["called by themselves before"])
    )
    assert [cold[1], warm[1], other[1]] == ["1", "0", "0"]
    assert cold[0] == warm[0] == other[0]  # alone, too, called before or after what has copies of them


ORDERS = """
import sys
from llvmlite.binding import ObjectFileRef
from numba import types as nb
from refhmc.core import types
from refhmc.compile.compile_cache import cache_directory, read_sealed
from refhmc.compile.compiled import compile_pointer
from refhmc.models import gaussian

signatures = {"callee": nb.float64(*[types.VECTOR] * 3), "caller": types.VALUE_AND_GRADIENT.signature}
functions = {"callee": gaussian.form, "caller": gaussian.value_and_gradient}
for word in sys.argv[1:]:
    compile_pointer(functions[word], signatures[word], word)
for path in sorted(cache_directory().glob("gaussian.*.nbc")):
    if not path.name.endswith(".part.nbc"):
        (_, _, (code, _)), *_ = read_sealed(path)
        print(path.stem, [part.data().hex() for part in ObjectFileRef.from_data(code).sections() if part.is_text()])
"""


@pytest.mark.sweep
def test_machine_code_does_not_depend_on_what_was_compiled_before(tmp_path):
    """For a function and its caller, compiled in either order, or in separate processes."""
    script = tmp_path / "orders.py"
    script.write_text(ORDERS, encoding="utf-8")
    orders = [[["caller", "callee"]], [["callee", "caller"]], [["callee"], ["caller"]]]
    codes = [[python(tmp_path / f"cache {k}", script, *words) for words in each][-1] for k, each in enumerate(orders)]
    assert codes[0].count("gaussian.") == 2
    assert codes[0] == codes[1] == codes[2]


ENTRY = """
import numpy as np
from llvmlite.binding import parse_bitcode
from refhmc.compile import compiled
from refhmc.core import types
from refhmc.compile.compile_cache import cache_directory, read_sealed
from refhmc.numerics import linalg

@compiled.entry(lambda: compiled.nb.float64(types.VECTOR), "the entry")
def length(x):
    return linalg.dot(x, x) ** 0.5

print(length(np.array([3.0, 4.0])), compiled.log[-1].from_cache)
(path,) = cache_directory().glob("*length*.nbc")
(_, _, (_, text)), *_ = read_sealed(path)
print(sum(not f.is_declaration for f in parse_bitcode(text).functions))
"""


@pytest.mark.sweep
def test_object_code_is_cached_for_functions_called_only_by_python(tmp_path):
    """Without intermediate code for callers to copy; it runs when it is loaded."""
    (tmp_path / "entry.py").write_text(ENTRY)
    assert [python(tmp_path / "cache", tmp_path / "entry.py").split() for _ in range(2)] == [
        ["5.0", "False", "0"],
        ["5.0", "True", "0"],
    ]


@pytest.mark.sweep
@pytest.mark.parametrize("word", ["softabs", "logistic"])
def test_compiled_or_loaded_the_draws_are_the_same(tmp_path, word):
    cold, warm = tmp_path / "cold.json", tmp_path / "warm.json"
    for out in (cold, warm):
        python(tmp_path / "cache", ROOT / "validation" / "pinned_runs.py", "--only", word, "--out", out)
    first, second = (json.loads(out.read_text(encoding="utf-8"))["runs"] for out in (cold, warm))
    assert len(first) >= 4
    assert not any("error" in run for run in first.values())
    assert {name: run["sha256"] for name, run in first.items()} == {name: run["sha256"] for name, run in second.items()}


compiles = pytest.mark.skipif(bool(numba.config.DISABLE_JIT), reason="nothing is compiled")


@jit_anew
def halved(x):
    return x / 2


@jit_anew
def factorial(n):
    return n * factorial(n - 1) if n > 1 else 1


@jit_anew
def refuses(x, text):
    print("said by compiled code:", text)
    if x < 0:
        raise ValueError("negative", x)
    return x


def libraries(dispatcher):
    return [type(version.library) for version in dispatcher.overloads.values()]


@compiles
def test_callees_of_compiled_code_are_parts_until_python_calls_them():
    quarter = jit_anew(lambda x: halved(halved(x)))
    assert quarter(3.0) == 0.75
    assert libraries(halved) == []
    assert libraries(halved.part()) == [linking.PartLibrary]
    assert halved(3.0) == 1.5
    assert libraries(halved) == [linking.SelfContainedLibrary]
    assert jit_anew(lambda x: halved(x) + 1)(3.0) == 2.5
    assert len(halved.part().overloads) == 1
    assert numba.njit(lambda x: halved(x) - 1)(3.0) == 0.5  # from code that Numba compiles as it does otherwise


@compiles
def test_compiled_code_calls_a_part_although_the_whole_is_compiled():
    """With the declared type, which the source does not determine."""
    one = jit_anew(lambda x: 1)
    one.compile(nb.float64(nb.float64))
    assert isinstance(jit_anew(lambda x: one(x))(2.0), float)
    assert libraries(one.part()) == [linking.PartLibrary]
    assert isinstance(jit_anew(lambda x: one(x))(2), int)
    assert libraries(one.part()) == 2 * [linking.PartLibrary]


@compiles
def test_a_part_does_not_take_over_how_its_caller_sums():
    """It would, if that caller came first."""
    scaled = jit(lambda x: 3.0 * x + 1.0)
    both = jit_sum(lambda x: scaled(x) + scaled(2.0 * x))
    assert both(1.0) == 11.0
    (part,) = scaled.part().overloads.values()
    assert "reassoc" in both.inspect_llvm(both.signatures[0])
    assert "reassoc" not in str(part.library._final_module)


@compiles
def test_a_part_may_call_itself():
    assert jit_anew(lambda n: factorial(n))(10) == 3628800
    assert factorial(5) == 120


@compiles
def test_a_part_prints_and_raises_as_the_whole_does(capfd):
    """Both need Python objects in addition to the code."""
    caller = jit_anew(lambda x, text: refuses(x, text))
    assert caller(2.0, "all is well") == 2.0
    with pytest.raises(ValueError, match=r"\('negative', -1.0\)"):
        caller(-1.0, "or is it")
    assert libraries(refuses) == []
    assert capfd.readouterr().out.splitlines() == [
        "said by compiled code: all is well",
        "said by compiled code: or is it",
    ]


@pytest.mark.sweep
@compiles
def test_part_is_cached_and_loaded(tmp_path):
    """By a process whose own function is linked with it."""
    script = tmp_path / "part.py"
    script.write_text(
        "import sys; import numpy as np; from refhmc.compile.compiled import jit\n"
        "from refhmc.numerics.linalg import dot\n"
        "@jit\ndef one(x): return dot(x, x)\n"
        "@jit\ndef two(x): return 2 * dot(x, x)\n"
        "print((one if sys.argv[1] == 'one' else two)(np.ones(3)), dot.part().stats.cache_misses.total(), len(dot.overloads))",
        encoding="utf-8",
    )
    assert python(tmp_path / "cache", script, "one").split() == ["3.0", "1", "0"]
    assert python(tmp_path / "cache", script, "two").split() == ["6.0", "0", "0"]


@compiles
def test_a_pointer_s_address_is_looked_up_once(monkeypatch):
    """Also for a function passed on its own and by several callers; a wrong type is rejected each time."""
    double, real = jit_anew(lambda x: 2.0 * x), Pointer(nb.float64(nb.float64))
    callers = [numba.njit(nb.float64(real, nb.float64))(f) for f in (lambda f, x: f(x), lambda f, x: 1.0 + f(f(x)))]
    silence_experimental()
    assert [call(double, 3.0) for call in callers] == [6.0, 13.0]
    asked = []
    monkeypatch.setattr(ExecutionEngine, "get_function_address", lambda self, name: asked.append(name))
    assert [call(double, 5.0) for call in callers] == [10.0, 21.0]
    assert not asked
    monkeypatch.undo()
    whole = jit_anew(lambda x: 1)
    whole.compile((nb.float64,))
    for _ in range(2):
        with pytest.raises(TypeError, match="mismatch of return type"):
            callers[0](whole, 3.0)
    with pytest.raises(TypeError, match="compiled by Numba, with the signature .* got <built-in"):
        keep_address(abs, real)


def test_options_are_equal_if_numba_finds_them_equal():
    """Numba's comparison is the reference, for options set, unset, and set to their defaults."""
    several = [compiler.Flags() for _ in range(5)]
    several[1].nrt = several[4].nrt = True
    several[2].nrt = False
    several[3].forceinline = True
    for a in several:
        for b in several:
            equal = a == b
            assert (linking.Flags(a) == linking.Flags(b)) is (linking.Flags(a) == b) is (b == linking.Flags(a)) is equal
            assert hash(linking.Flags(a)) == hash(a)
    assert linking.Flags() != "something else"
