"""Match the rows of an output with the right rows, where rows may come in any order."""

from __future__ import annotations

import numpy as np

from conformance.process.arrays import Array


def matched_rows(rows: Array, wanted: Array) -> Array:
    """``rows`` in the order of the rows of ``wanted`` that they are nearest to, each used once."""
    matched: Array = rows[row_order(rows, wanted)]
    return matched


def row_order(rows: Array, wanted: Array) -> list[int]:
    """For each row of ``wanted`` the number of the row of ``rows`` that it is nearest to, each used once.

    Sorting would not do: two rows whose first values tie up to rounding sort differently on the two sides.
    """
    free = np.ones(len(rows), dtype=bool)
    order: list[int] = []
    flat = rows.reshape(len(rows), -1).astype(np.float64)
    for right in wanted.reshape(len(wanted), -1).astype(np.float64):
        distance = np.where((flat == right) | (np.isnan(flat) & np.isnan(right)), 0.0, np.abs(flat - right))
        furthest = np.nan_to_num(distance, nan=np.inf).max(axis=1, initial=0.0)
        furthest[~free] = np.inf
        nearest = int(furthest.argmin())
        order.append(nearest if free[nearest] else int(free.argmax()))
        free[order[-1]] = False
    return order
