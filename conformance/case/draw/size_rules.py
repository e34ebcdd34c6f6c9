"""Rules for inputs that are sizes, scales and lengths: how large something is, or is made."""

from __future__ import annotations

import math

import numpy as np

from conformance.case.draw.sites import Rule, Site
from conformance.process.arrays import Array

# ---- sizes -----------------------------------------------------------------------------------------------------


def sizes(site: Site) -> Array:
    return site.draw(1, 4)


def splits_of(total: int, count: int, rng: np.random.Generator) -> Array:
    cuts = np.sort(rng.integers(0, total, size=count - 1, endpoint=True))
    return np.diff([0, *cuts, total])


def target(site: Site) -> Array | None:
    """The shape that Reshape gives: as many elements as there are, at times with a -1 for one of them."""
    shape = site.shape_of(0)
    if shape is None or len(site.shape) != 1:
        return None
    total, rank = math.prod(shape), site.count
    if rank == 0:
        return np.zeros(0) if total == 1 else None
    if total == 0:
        sizes = [*shape[:rank], *[1] * (rank - len(shape))]
        return np.array(sizes) if math.prod(sizes) == 0 and site.attribute("allowzero", 0) else None
    sizes = product(total, rank, site.rng)
    if site.rng.integers(3) == 0:
        sizes[int(site.rng.integers(rank))] = -1
    return np.array(sizes)


def primes(number: int) -> list[int]:
    found, divisor = list[int](), 2
    while divisor * divisor <= number:
        while number % divisor == 0:
            found.append(divisor)
            number //= divisor
        divisor += 1
    return [*found, number] if number > 1 else found


def broadcast(site: Site) -> Array | None:
    """A shape that the first input can be expanded to."""
    shape = site.shape_of(0)
    if shape is None or len(site.shape) != 1:
        return None
    rank = site.count
    own = [1] * (rank - len(shape)) + [*shape[max(0, len(shape) - rank) :]]
    return np.array([site.rng.integers(1, 3, endpoint=True) if size == 1 else size for size in own])


def grid_size(site: Site) -> Array | None:
    """N, C, then the sizes of the grid, of which N is that of theta."""
    batch = site.dim(0, 0)
    if batch is None or site.count < 3:
        return None
    return np.array([batch, *site.rng.integers(1, 4, size=site.count - 1, endpoint=True)])


def crop(site: Site) -> Array | None:
    """Sizes to crop or to pad each axis to."""
    shape = site.shape_of(0)
    axes = site.attribute("axes", None)
    if shape is None:
        return None
    sizes = [shape[axis] for axis in axes] if axes else [*shape]
    if len(sizes) != site.count:
        return None
    return np.array([site.rng.integers(1, 2 * size + 1, endpoint=True) for size in sizes])


def split(site: Site) -> Array | None:
    """Sizes of pieces, which add up to the size of the axis; a single number is the size of each piece."""
    total = site.dim(0, site.attribute("axis", 0))
    if total is None:
        return None
    if not site.shape:
        return site.draw(1, max(1, total))
    return splits_of(total, site.count, site.rng) if site.count else None


def blocks(site: Site) -> tuple[list[int], list[int]] | None:
    """Return an image and a block of Col2Im of which there are as many blocks and elements as its input has."""
    shape = site.shape_of(0)
    rank = next((len(v) for p in (1, 2) if (v := site.value_of(p)) is not None and v.ndim == 1), site.count)
    if shape is None or len(shape) != 3 or not rank:
        return None
    given = [None if (value := site.value_of(place)) is None else [int(n) for n in value] for place in (1, 2)]
    strides, dilations = (site.attribute(name, [1] * rank) for name in ("strides", "dilations"))
    pads = site.attribute("pads", [0] * (2 * rank))
    rng = np.random.default_rng(site.seed)
    for _ in range(100):
        block = given[1] or product(int(rng.choice(divisors(shape[1]))), rank, rng)
        reach = [dilations[d] * (block[d] - 1) + 1 - pads[d] - pads[d + rank] for d in range(rank)]
        counts = product(shape[2], rank, rng)
        image = given[0] or [(counts[d] - 1) * strides[d] + reach[d] for d in range(rank)]
        fits = math.prod((image[d] - reach[d]) // strides[d] + 1 for d in range(rank)) == shape[2]
        if shape[1] % math.prod(block) == 0 and min(image) > 0 and fits:
            return image, block
    return None


def divisors(number: int) -> list[int]:
    return [size for size in range(1, number + 1) if number % size == 0]


def product(number: int, count: int, rng: np.random.Generator) -> list[int]:
    """Return so many whole numbers whose product is a number."""
    sizes = [1] * count
    for prime in primes(number):
        sizes[int(rng.integers(count))] *= prime
    return sizes


def image(site: Site) -> Array | None:
    found = blocks(site)
    return None if found is None else np.array(found[0])


def block(site: Site) -> Array | None:
    found = blocks(site)
    return None if found is None else np.array(found[1])


def _resized_axes(site: Site) -> list[int] | None:
    """Return the axes that a Resize changes; None where they are not known, or their number is not its input's."""
    shape, axes = site.shape_of(0), site.attribute("axes", None)
    if shape is None or not site.count:
        return None
    where = [axis % len(shape) for axis in axes] if axes else [*range(len(shape))]
    return where if len(where) == site.count else None


def scales(site: Site) -> Array | None:
    """Scales of Resize and Upsample: batch and channels stay, the other axes of Resize change by halves.

    ONNX does not say which value is the nearest for an Upsample by other than whole numbers.
    """
    shape, where = site.shape_of(0), _resized_axes(site)
    if shape is None or where is None:
        return None
    down = site.node.op_type == "Resize"
    some = [1.0, 2.0, 3.0, *([0.5, 0.6, 1.5] if down else [])]
    scales = [1.0 if len(shape) > 2 and axis < 2 else float(site.rng.choice(some)) for axis in where]
    if site.attribute("keep_aspect_ratio_policy", "stretch") != "stretch":
        scales = [scales[-1]] * len(scales)
    return np.array([max(scale, 1.0 / max(1, shape[axis])) for scale, axis in zip(scales, where, strict=True)])


def resized(site: Site) -> Array | None:
    """Sizes of Resize: batch and channels stay."""
    shape, where = site.shape_of(0), _resized_axes(site)
    if shape is None or where is None:
        return None
    return np.array([
        shape[axis] if len(shape) > 2 and axis < 2 else site.rng.integers(1, 2 * shape[axis] + 1, endpoint=True)
        for axis in where
    ])  # fmt: skip


def region(site: Site) -> Array | None:
    """A region of Resize, starts and then ends, as parts of each axis."""
    half = site.count // 2
    starts, ends = site.rng.uniform(0, 0.4, size=half), site.rng.uniform(0.6, 1, size=half)
    return np.concatenate([starts, ends])


# ---- lengths ---------------------------------------------------------------------------------------------------


def lengths(axis: int, place: int = 0) -> Rule:
    """Lengths of sequences, each of at least one and at most the size of an axis of another input."""

    def rule(site: Site) -> Array | None:
        size = site.dim(place, axis)
        return None if not size else site.draw(1, size)

    return rule


def lengths_of_reversal(site: Site) -> Array | None:
    size = site.dim(0, site.attribute("time_axis", 0))
    return None if not size else site.draw(1, size)


def writes(site: Site) -> Array | None:
    """Return where TensorScatter writes: as far before the end as its update is long."""
    axis = site.attribute("axis", -2)
    size, written = site.dim(0, axis), site.dim(1, axis)
    return None if size is None or written is None or written > size else site.draw(0, size - written)


def frame(site: Site) -> Array | None:
    """The length of a frame of STFT, which is that of its window where there is one."""
    window, signal = site.dim(2, 0), site.dim(0, 1)
    if window is not None:
        return np.full(site.shape, window)
    return None if signal is None else site.draw(min(2, signal), max(2, signal // 2))


def fft(site: Site) -> Array | None:
    size = site.dim(0, 1)
    return None if size is None else site.draw(1, size + 2)


def regions(site: Site) -> Array | None:
    """Regions of RoiAlign, from one corner to the other, within the image."""
    shape = site.shape_of(0)
    if shape is None or not site.shape or site.shape[-1] not in (4, 5):
        return None
    scale = 1.0 / float(site.attribute("spatial_scale", 1.0))
    height, width = shape[-2] * scale, shape[-1] * scale
    corner = site.rng.uniform(0, 0.5, size=(*site.shape[:-1], 2)) * [width, height]
    size = site.rng.uniform(0.2, 0.5, size=corner.shape) * [width, height]
    boxes = np.concatenate([corner, corner + size], -1)
    if site.shape[-1] == 4:
        return boxes
    numbers = site.rng.integers(0, shape[0], size=(*site.shape[:-1], 1))
    return np.concatenate([numbers, np.round(boxes)], -1)


def one_of(attribute: str) -> Rule:
    """Make numbers of which most are among those of an attribute."""

    def rule(site: Site) -> Array | None:
        keys = site.attribute(attribute, None)
        return np.asarray(site.rng.choice([*keys, *keys, max(keys) + 1], size=site.shape)) if keys else None

    return rule


def words(site: Site) -> Array | None:
    """Numbers of TfIdfVectorizer, of which most are in its pool."""
    pool = site.attribute("pool_int64s", None)
    if not pool:
        return None
    return np.asarray(site.rng.choice([*pool, *pool, max(pool) + 1], size=site.shape))
