"""What a pass proves: the share of a module's calls that its cells see, what asking costs, and defects in branches
that hardly reach the output."""

from evidence.coverage.page import rows, write

__all__ = ["rows", "write"]
