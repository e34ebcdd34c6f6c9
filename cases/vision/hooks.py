"""Inputs that a range cannot describe: boxes, and sampling grids."""

import numpy as np


def draw(dims, rng):
    """Boxes that overlap often, with corners in order, and scores that are all different."""
    n = dims["n"]
    corner = rng.uniform(0, 6, size=(n, 2))
    size = rng.uniform(1, 6, size=(n, 2))
    boxes = np.concatenate([corner, corner + size], axis=1).astype(np.float32)
    scores = (rng.permutation(n) / n + 0.01).astype(np.float32)
    return {"boxes": boxes, "scores": scores}


def halfway(dims, rng):
    """A sampling grid that points halfway between two pixels, some of them beyond the border."""
    k, sizes = dims["k"], np.array([dims["w"], dims["h"]])  # grids are (x, y)
    places = rng.integers(-2, sizes + 1, size=(dims["batch"], k, 3, 2)) + 0.5
    return {"grid": ((2 * places + 1) / sizes - 1).astype(np.float32)}
