"""Count the mistakes in lowerings that the catalogue of operators finds by itself."""

from evidence.lowerings.page import rows, write

__all__ = ["rows", "write"]
