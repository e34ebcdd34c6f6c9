"""Values that a range cannot describe, made with NumPy. ``rng`` is the draw's own generator: use no other."""

import numpy as np


def sorted_rows(shape, dims, rng):
    """Rows in rising order, as searchsorted and interpolation tables need them."""
    return np.sort(rng.standard_normal(shape).astype(np.float32), axis=-1)


def padded_batch(dims, rng):
    """A batch of sequences of different lengths, at least one long; what lies beyond a length is -100.

    Lengths and sequences depend on one another, so they are drawn together.
    """
    lengths = rng.integers(1, dims["time"], size=dims["batch"], endpoint=True)
    tokens = rng.integers(0, 9, size=(dims["batch"], dims["time"]), endpoint=True)
    tokens[np.arange(dims["time"]) >= lengths[:, None]] = -100
    return {"lengths": lengths, "tokens": tokens}
