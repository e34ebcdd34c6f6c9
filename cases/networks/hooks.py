"""Values that a range cannot describe, made with NumPy. ``rng`` is the draw's own generator: use no other."""

import numpy as np


def padded(shape, dims, rng):
    """A mask of rows of different lengths: ones, at least one, then zeros."""
    batch, length = shape
    lengths = rng.integers(1, length, size=(batch, 1), endpoint=True)
    return (np.arange(length) < lengths).astype(np.int64)


def lengths(shape, dims, rng):
    """Lengths of sequences in falling order, the first as long as the sequences are: as packing takes them."""
    found = rng.integers(1, dims["time"], size=shape, endpoint=True)
    found[0] = dims["time"]
    return -np.sort(-found)
