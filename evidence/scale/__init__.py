"""Find out whether wrong values in large files are found, each planted in one place, beside sound changes."""

from evidence.scale.page import rows, write

__all__ = ["rows", "write"]
