"""Imported once by the server that worker processes are forked from: all that they need, in their common memory.

The objects that these imports make stay to the end. With the garbage collector off, which would look through them
again and again, the imports take a quarter less time; frozen, the objects do not count in the workers' collections
either, each of which would take a tenth of a second in the midst of an export.
"""

import contextlib
import gc
import importlib

from conformance.worker.warm import MODULES

gc.disable()
for name in MODULES:
    with contextlib.suppress(ImportError):  # told by the first cell that needs the module
        importlib.import_module(name)
gc.freeze()
gc.enable()
