"""From the functions of a model to the pointers of the compiled core (:mod:`refhmc.core.types`).

The functions of built-in models already follow the in-place protocol, with data in one matrix. A user's functions are
adapted. They are compiled with Numba if possible, and otherwise called as Python by trampolines, so that one set of compiled
kernels serves both.

=======================  ===================================================================================
file                     contents
=======================  ===================================================================================
``functions.py``         the record of a model's functions, and the numbers of arguments that they may have
``returned.py``          checks of the values that they return
``packing.py``           data in one matrix, and compiled functions that unpack them
``adapters.py``          compiled functions in the protocol of the core, built from those of a user
``python_functions.py``  the same functions called as Python
``trampolines.py``       compiled functions that call these
``core.py``              :class:`Core`, which chooses among them and has the pointers
=======================  ===================================================================================
"""
