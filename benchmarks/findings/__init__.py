"""One run with many planted causes, each in several cells: is each cause one finding, and each finding one cause?"""

from benchmarks.findings.page import rows, write

__all__ = ["rows", "write"]
