"""Everything that refhmc imports from the internals of Numba and llvmlite, which may change in any version.

To support another version of Numba, check the uses of these names.
"""

# ruff: noqa: F401
from llvmlite import ir
from llvmlite.binding import Linkage, ModuleRef, add_symbol, parse_assembly, parse_bitcode
from numba.core import cgutils, compiler, imputils
from numba.core.caching import FunctionCache
from numba.core.codegen import JITCodeLibrary, JITCPUCodegen
from numba.core.compiler import Compiler, CompileResult, compile_result
from numba.core.compiler_lock import global_compiler_lock
from numba.core.cpu import CPUContext
from numba.core.dispatcher import Dispatcher
from numba.core.environment import Environment, _rebuild_env, lookup_environment
from numba.core.errors import NumbaError, NumbaExperimentalFeatureWarning, UnsupportedBytecodeError, UnsupportedError
from numba.core.registry import cpu_target
from numba.core.serialize import dumps
from numba.core.sigutils import normalize_signature
from numba.core.types import Dispatcher as TypeOfDispatcher
from numba.core.typing import Signature, templates
from numba.experimental.function_type import FunctionModel
from numba.np.arrayobj import make_array, populate_array
