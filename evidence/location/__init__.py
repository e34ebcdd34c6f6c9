"""Which operator and line the suite names for exports that are wrong on purpose, and for sound ones."""

from evidence.location.page import rows, write

__all__ = ["rows", "write"]
