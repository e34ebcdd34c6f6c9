"""Defects put into what exporters, converters and runtimes give, for as long as a test runs cells.

Where they are put, and how models are changed, is in ``tests.plants.planting`` and ``tests.plants.edits``.
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

from conformance.diagnose.nodes.other_runtime import forget
from tests.plants.edits import Edit
from tests.plants.plant import Planted, Planting


@contextlib.contextmanager
def planted(*plantings: Planting) -> Iterator[None]:
    """Hold defects inside the block, each of which has to be met there."""
    met = [Planted() for _ in plantings]
    forget()
    with contextlib.ExitStack() as stack:
        stack.callback(forget)
        for planting, times in zip(plantings, met, strict=True):
            stack.enter_context(planting(times))
        yield
    assert all(one.times for one in met), "a defect was not met"


def untyped(edit: Edit) -> Edit:
    """The same, in a model that then declares no types and shapes of inner tensors, which would contradict."""

    def changed(model: Any) -> int:
        times = edit(model)
        del model.graph.value_info[:]
        return times

    return changed


def wrapping(owner: Any, name: str, wrapper: Callable[..., Any]) -> Planting:
    """A function of a package is wrong: it gives ``wrapper(original, *arguments)``."""

    @contextlib.contextmanager
    def planting(times: Planted) -> Iterator[None]:
        original = getattr(owner, name)

        def wrong(*arguments: Any, **options: Any) -> Any:
            times.note()
            return wrapper(original, *arguments, **options)

        with mock.patch.object(owner, name, wrong):
            yield

    return planting
