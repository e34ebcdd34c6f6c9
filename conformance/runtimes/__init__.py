"""Runtimes: what runs an exported model. One small protocol, one module each.

A runtime is a function that opens a model file and returns a ``Session``. None of them imports torch,
so that a model with its inputs can be run on a host without it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from conformance.arrays import Array

if TYPE_CHECKING:
    from conformance.runtimes.tensorrt import Build


class Session(Protocol):
    """A loaded model."""

    arithmetic: Mapping[str, Any]
    """What really computes: provider, storage and arithmetic dtype, optimizer on or off."""

    def run(self, inputs: Mapping[str, Array]) -> list[Array]:
        """All outputs in graph order; arrays of the graph's input dtypes, keyed by graph input name."""
        ...


Open = Callable[[Path, Sequence[str]], AbstractContextManager[Session]]
"""Opens the model at a path with custom-operator libraries; raises what the runtime raises."""


def opener(name: str, build: Build | None = None, config: Mapping[str, str] | None = None) -> Open:
    """The runtime of that name; ``build`` is what ``tensorrt`` builds an engine with, ``config`` has the session
    options of ``onnxruntime``.

    ``onnxruntime-unoptimized`` is only used to find who is at fault, ``onnxruntime-literal`` for what a converted
    model means, which no option changes.
    """
    if name == "onnx-reference":
        from conformance.runtimes.onnxreference import open_model

        return open_model
    if name.startswith("onnxruntime"):
        from conformance.runtimes import onnxruntime

        if name == "onnxruntime-literal":
            return onnxruntime.open_literal
        ways = {
            "onnxruntime": onnxruntime.open_optimized,
            "onnxruntime-unoptimized": onnxruntime.open_unoptimized,
        }
        return functools.partial(ways[name], config=config) if config else ways[name]
    if name == "tensorrt" and build is not None:
        from conformance.runtimes import tensorrt

        return functools.partial(tensorrt.open_model, build=build)
    raise KeyError(name)


def _tensorrt_absence() -> str | None:
    from conformance.runtimes.tensorrt import absence

    return absence()


ABSENT: Mapping[str, Callable[[], str | None]] = {"tensorrt": _tensorrt_absence}
"""By runtime that a host may lack: why it cannot run here, or None."""
