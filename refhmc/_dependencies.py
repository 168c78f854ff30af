"""Import of modules that need the dependencies of refhmc. ``refhmc.check`` only needs NumPy and SciPy."""

from __future__ import annotations

import importlib

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType

# Packages that pyproject.toml lists as dependencies, apart from NumPy and SciPy.
DEPENDENCIES = ("numba", "arviz", "xarray", "h5netcdf", "h5py", "rich", "platformdirs", "threadpoolctl")
INSTALL = (
    "Install refhmc with its dependencies: run `python -m pip install .` in its folder. "
    "Without them, refhmc.check works on functions of NumPy arrays."
)


def import_module(module: str, whom: str) -> ModuleType:
    """Return the module. If a dependency is missing, the ImportError names it, `whom` it is for and the install command."""
    try:
        return importlib.import_module(module)
    except ImportError as missing:
        if missing.name not in DEPENDENCIES:
            raise
        raise missing_dependency(missing.name, whom) from None


def missing_dependency(package: str, whom: str) -> ImportError:
    """Return the error for a dependency that is not installed and that `whom` needs."""
    return ImportError(f"{whom} needs {package}, which is not installed. {INSTALL}", name=package)
