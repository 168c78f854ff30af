"""Compilation with Numba: decorators, cache, fingerprints, pointers, functions of the user."""

from refhmc._dependencies import import_module

import_module("numba", "This module of refhmc")  # without it, an error that names the install command
