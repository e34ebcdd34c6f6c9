"""Python's garbage collector, and what it need not look through again and again."""

from __future__ import annotations

import atexit
import gc
import sys
from functools import cache


def leave_out_present() -> None:
    """Have the collector leave out all objects that there are now, until the process ends."""
    gc.freeze()
    _return_at_exit()


@cache
def _return_at_exit() -> None:
    atexit.register(_return)


def _return() -> None:
    """Return the objects to the collector where torch is imported.

    Bindings that torch loads report each of their functions that is still there at the very end as leaked. Without
    torch that last look through all objects would take time for nothing.
    """
    if "torch" in sys.modules:
        gc.unfreeze()
