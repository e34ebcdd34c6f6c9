"""Values that stand out from the others: they are judged among themselves, so that they excuse no others."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from conformance.process.arrays import Array

APART = 16.0
"""A value stands out that is this many times the root mean square of the others.

One that is less far off is within what any single value may be (``noise.PEAK``), and adds little to what is allowed
of the others. Among errors that are normally distributed none stands out by chance, and hardly one where rows differ
in size (``docs/evidence/precision.md``).
"""

FEWEST = 32
"""Of fewer values that are not zero none stands out: the smaller half of a few may by chance be far smaller than the
others. Where a conversion leaves nearly all values exactly as they are, the few that it changes may be jumps, which
might have been anywhere else."""


def parts(size: Array, own: Array, floor: float, smallest: float) -> Iterator[Array]:
    """Return where the values are that are judged together, part by part.

    In the first part are those of which neither the ``size`` nor the ``own`` error stands out, in the next part those
    of the rest of which that is true, and so on. A value that is of another size in PyTorch is of that size too. An
    own error of up to ``floor`` times the root mean square of the sizes does not count, as that much is allowed in
    any case; nor does what is below the ``smallest`` number of the format.
    """
    rest = np.ones(size.shape, dtype=bool)
    while rest.any():
        part = rest.copy()
        part[rest] = ordinary(np.maximum(size, own)[rest], smallest)
        least = max(floor * float(np.sqrt(np.mean(np.square(size[part])))), smallest)
        inside = part.copy()
        part[inside] = ordinary(own[inside], least)
        yield part
        rest &= ~part


def ordinary(values: Array, least: float) -> Array:
    """Return which values do not stand out from the others: all of them, where none does.

    That begins with the smaller half, and takes in what is at most ``APART`` times the root mean square of those that
    are in already. Zeros say nothing of how large the others are. A value of at most ``APART`` times ``least`` does
    not stand out.
    """
    inside = np.ones(values.shape, dtype=bool)
    above = values[values > 0]
    if len(above) < FEWEST:
        return inside
    limit, count = APART * least, len(above) // 2
    half = np.partition(above, count - 1)[:count]
    limit = max(limit, APART * float(np.sqrt(np.mean(np.square(half)))), float(half.max()))
    largest = float(above.max())
    while limit < largest:
        wider = APART * float(np.sqrt(np.mean(np.square(above[above <= limit]))))
        if wider <= limit:
            inside = values <= limit
            break
        limit = wider
    return inside
