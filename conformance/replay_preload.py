"""Imported once by the server that workers of a replay are forked from."""

import contextlib
import importlib

from conformance.replay import MODULES

for name in MODULES:
    with contextlib.suppress(ImportError):  # told by the first cell that needs it
        importlib.import_module(name)
