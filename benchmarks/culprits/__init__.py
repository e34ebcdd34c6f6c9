"""Defects whose culprit is known: does the suite name the exporter, the optimizer, a kernel, the conversion, PyTorch,
the case or the host, and does it ever name another?

``plant`` says what a plant is, ``planting`` and ``edits`` how it is put where it belongs, ``sound`` has the cases
that pass without it. The tables are a module for each culprit; ``score`` says what counts as named.
"""

from benchmarks.culprits.page import rows, write
from benchmarks.culprits.run import study

__all__ = ["rows", "study", "write"]
