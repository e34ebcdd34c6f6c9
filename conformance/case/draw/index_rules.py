"""Rules for inputs that are axes, bounds and indices: which part of something is meant."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from conformance.case.draw.sites import NoValues, Rule, Site
from conformance.process.arrays import Array

# ---- axes ------------------------------------------------------------------------------------------------------


def axis(site: Site) -> Array | None:
    shape = site.shape_of(0)
    return None if not shape else site.draw(-len(shape), len(shape) - 1)


def axis_of_signal(site: Site) -> Array | None:
    """An axis of DFT, of which the last one holds the parts of complex numbers."""
    shape = site.shape_of(0)
    return None if shape is None or len(shape) < 3 else site.draw(1, len(shape) - 2)


def axes(site: Site) -> Array | None:
    """Axes of which none comes twice."""
    shape = site.shape_of(0)
    return None if shape is None else distinct(site, len(shape))


def new_axes(site: Site) -> Array | None:
    shape = site.shape_of(0)
    return None if shape is None else distinct(site, len(shape) + site.count)


def distinct(site: Site, rank: int, among: Sequence[int] | None = None) -> Array | None:
    """Return different axes; raise NoValues for a size at which there are more of them than axes."""
    axes = [*range(rank)] if among is None else among
    if site.count > rank:
        raise NoValues(f"{site.count} different axes are asked for, of a tensor that has {rank}")
    if site.count > len(axes):
        return None
    chosen = site.rng.permutation(axes)[: site.count]
    return chosen - (rank if site.rng.integers(2) else 0)


def axes_of_one(site: Site) -> Array | None:
    shape = site.shape_of(0)
    if shape is None:
        return None
    return distinct(site, len(shape), [axis for axis, size in enumerate(shape) if size == 1])


def axes_where(site: Site, place: int) -> list[int] | None:
    """Return the axes that an operator's vectors are about: those of another input, or the first ones."""
    shape, axes = site.shape_of(0), site.value_of(place)
    if shape is None:
        return None
    where = [int(axis) % len(shape) for axis in axes.reshape(-1)] if axes is not None else [*range(len(shape))]
    return where if len(where) >= site.count or axes is not None else None


def starts(site: Site) -> Array | None:
    return bounds(site, lambda size: (-size, max(0, size - 1)))


def ends(site: Site) -> Array | None:
    return bounds(site, lambda size: (0, size + 1))


def bounds(site: Site, ends: Callable[[int], tuple[int, int]]) -> Array | None:
    shape = site.shape_of(0)
    if not shape:
        return None
    axes = axes_where(site, 3)
    sizes = [shape[axis] for axis in axes[: site.count]] if axes else []
    sizes = [*sizes, *[min(shape)] * (site.count - len(sizes))]
    return np.array([site.rng.integers(*ends(size), endpoint=True) for size in sizes])


def steps(site: Site) -> Array:
    return site.draw(1, 2) * (1 if site.rng.integers(3) else -1)


def pads(site: Site) -> Array | None:
    """Pads before and after each axis. Those of reflections are smaller than the axis."""
    shape = site.shape_of(0)
    if shape is None:
        return None
    axes = axes_where(site, 3) or []
    sizes = [shape[axis] for axis in axes[: site.count // 2]] * 2
    if len(sizes) != site.count:
        return None
    reflects = site.attribute("mode", "constant") in ("reflect", "wrap", "edge")
    return np.array([site.rng.integers(0, max(0, size - 1) if reflects else 3, endpoint=True) for size in sizes])


# ---- indices ---------------------------------------------------------------------------------------------------


def index(site: Site) -> Array | None:
    """Indices along an axis of the first input, some from its end."""
    size = site.dim(0, site.attribute("axis", 0))
    return None if not size else site.draw(-size, size - 1)


def below(place: int, axis: int) -> Rule:
    """Make indices along an axis of another input, for operators that take no negative ones."""

    def rule(site: Site) -> Array | None:
        size = site.dim(place, axis)
        return None if not size else site.draw(0, size - 1)

    return rule


def once_along(site: Site) -> Array | None:
    """Indices along an axis of which none comes twice, as nothing says which of two then counts."""
    axis = site.attribute("axis", 0)
    size = site.dim(0, axis)
    if not size or not site.shape or not -len(site.shape) <= axis < len(site.shape):
        return None
    count = site.shape[axis]
    if count > size:
        return site.draw(0, size - 1)
    shape = [*site.shape]
    shape[axis] = size
    every = np.arange(size).reshape([-1 if place == axis % len(shape) else 1 for place in range(len(shape))])
    return np.take(site.rng.permuted(np.broadcast_to(every, shape), axis=axis), range(count), axis=axis)


def tuples(site: Site) -> Array | None:
    """Tuples of indices along the last axis."""
    shape = site.shape_of(0)
    batch = site.attribute("batch_dims", 0)
    if shape is None or not site.shape or batch + site.shape[-1] > len(shape):
        return None
    sizes = shape[batch : batch + site.shape[-1]]
    if 0 in sizes:
        return None
    columns = [site.rng.integers(-size, size, size=site.shape[:-1]) for size in sizes]
    return np.stack(columns, -1) if columns else np.zeros(site.shape)


def tuples_once(site: Site) -> Array | None:
    """Tuples of indices of which none comes twice."""
    shape = site.shape_of(0)
    if shape is None or not site.shape or site.shape[-1] > len(shape):
        return None
    sizes = shape[: site.shape[-1]]
    count, all_places = math.prod(site.shape[:-1]), math.prod(sizes)
    if count > all_places or all_places > 2**20:
        return None if 0 in sizes else tuples(site)
    places = site.rng.permutation(all_places)[:count]
    return np.stack(np.unravel_index(places, sizes), -1).reshape(site.shape) if sizes else np.zeros(site.shape)


def k(site: Site) -> Array | None:
    size = site.dim(0, site.attribute("axis", -1))
    return None if not size else site.draw(1, size)


def diagonal(site: Site) -> Array | None:
    shape = site.shape_of(0)
    return None if not shape else site.draw(-shape[-1], shape[-1])


def hot(site: Site) -> Array:
    """Indices of OneHot, of which those beyond the depth are all off."""
    depth = site.value_of(1)
    size = int(depth.reshape(-1)[0]) if depth is not None and depth.size else 4
    return site.draw(-size, size - 1)


def position(site: Site) -> Array:
    return site.draw(0, 0)
