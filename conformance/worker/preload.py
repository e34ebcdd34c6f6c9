"""Imported once by the server that worker processes are forked from: all that they need, in their common memory.

None of the objects made by these imports goes away again. Without the garbage collector, which would look through
them again and again, the imports take a quarter less time; frozen, they do not count in the workers' collections
either, each of which would take a tenth of a second in the midst of an export.
"""

import contextlib
import gc
import importlib

from conformance.worker.warm import MODULES

gc.disable()
for name in MODULES:
    with contextlib.suppress(ImportError):  # told by the first cell that needs it
        importlib.import_module(name)
gc.freeze()
gc.enable()
