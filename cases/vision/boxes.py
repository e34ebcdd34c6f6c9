"""Boxes for detection cases."""

import numpy as np


def draw(dims, rng):
    """Boxes that overlap often, with corners in order, and scores that are all different."""
    n = dims["n"]
    corner = rng.uniform(0, 6, size=(n, 2))
    size = rng.uniform(1, 6, size=(n, 2))
    boxes = np.concatenate([corner, corner + size], axis=1).astype(np.float32)
    scores = (rng.permutation(n) / n + 0.01).astype(np.float32)
    return {"boxes": boxes, "scores": scores}
