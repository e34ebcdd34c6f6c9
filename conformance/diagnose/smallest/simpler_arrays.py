"""Make the arrays of a failing model or function smaller and simpler."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeVar

from conformance.case.draw.simplest import simpler, smaller
from conformance.process.arrays import Array, equal

if TYPE_CHECKING:
    from typing import Self

    from conformance.diagnose.search import Step

MOST_SIZES = 8
"""Of how many different sizes of axes smaller ones are tried."""
MOST_ARRAYS = 12
"""For how many arrays simpler values are tried."""


class Fed(Protocol):
    """A candidate with arrays, any of which may be another one."""

    @property
    def arrays(self) -> Mapping[str, Array]:
        """Its inputs and constants by name."""

    def with_arrays(self, arrays: Mapping[str, Array]) -> Self:
        """Return it with other arrays in place of some."""

    def of_size(self, size: int, fewer: int, arrays: Mapping[str, Array]) -> Iterator[Self]:
        """Yield it with arrays that are cut from a size to ``fewer``, and with that number in place of the size
        elsewhere too."""


_F = TypeVar("_F", bound=Fed)


def smaller_sizes(candidate: _F) -> Iterator[Step[_F]]:
    """Yield a step for each size: all axes of one size together, as they mostly belong together."""
    sizes = {size for array in candidate.arrays.values() for size in array.shape if size > 1}
    for size in sorted(sizes, reverse=True)[:MOST_SIZES]:
        yield partial(_of_size, size)


def _of_size(size: int, candidate: _F) -> Iterator[_F]:
    for fewer, cut in smaller(candidate.arrays, size):
        yield from candidate.of_size(size, fewer, cut)


def simpler_values(candidate: _F) -> Iterator[Step[_F]]:
    """Yield a step for each array."""
    for name in [*candidate.arrays][:MOST_ARRAYS]:
        yield partial(_of_values, name)


def _of_values(name: str, candidate: _F) -> Iterator[_F]:
    array = candidate.arrays[name]
    for other in simpler(array):
        if not equal(other, array):
            yield candidate.with_arrays({name: other})
