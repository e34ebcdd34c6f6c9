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


def padded_images(shape, dims, rng):
    """Masks of images of different sizes in the upper left corner of their batch: at least half of each side."""
    batch, height, width = shape
    rows = rng.integers(height // 2, height, size=(batch, 1, 1), endpoint=True)
    columns = rng.integers(width // 2, width, size=(batch, 1, 1), endpoint=True)
    return ((np.arange(height)[:, None] < rows) & (np.arange(width) < columns)).astype(np.int64)


def images(shape, dims, rng):
    """Noise from 0 to 1. An image of one colour gives many boxes one score, and which of them are kept is open."""
    return rng.uniform(0, 1, shape).astype(np.float32)
