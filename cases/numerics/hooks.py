"""Inputs that a range cannot describe."""

import numpy as np


def first_key_kept(dims, rng):
    """A random mask that leaves at least the first key of each row."""
    keep = rng.random((dims["batch"], dims["time"])) < 0.5
    keep[:, 0] = True
    return {"keep": np.asarray(keep)}
