"""Defects whose culprit is known: does the suite name the exporter, the optimizer, a kernel, the conversion, PyTorch,
the case or the host, and does it ever name another?

The tables lie in ``tests/plants/culprits``; ``score`` says what counts as named.
"""

from evidence.culprits.page import rows, write

__all__ = ["rows", "write"]
