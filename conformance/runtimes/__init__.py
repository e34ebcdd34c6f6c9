"""Runtimes: what runs an exported model. A small protocol, a module for each runtime, a table of all (``registry``).

A runtime is a function that opens a model file and returns a ``Session``. No runtime imports torch, so that a model
with its inputs can be run on a host without it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from conformance.process.disk.onnx_models import on_disk
from conformance.runtimes import registry

if TYPE_CHECKING:
    from onnx import ModelProto

    from conformance.process.arrays import Array
    from conformance.runtimes.tensorrt import Build


class Session(Protocol):
    """A loaded model."""

    arithmetic: Mapping[str, object]
    """What really computes: provider, storage and arithmetic dtype, optimizer on or off."""

    def run(self, inputs: Mapping[str, Array]) -> list[Array]:
        """All outputs in graph order, the tensors of a sequence one by one (``sequences``); ``inputs`` are arrays of
        the graph's input dtypes, keyed by graph input name."""
        ...


Open = Callable[[Path, Sequence[str]], AbstractContextManager[Session]]
"""Opens the model at a path with custom-operator libraries; raises what the runtime raises."""


def opener(name: str, build: Build | None = None, config: Mapping[str, str] | None = None) -> Open:
    """The runtime of that name. ``build`` is what an engine is built with, ``config`` has ONNX Runtime's session
    options; a runtime that does not take them opens without. Raises KeyError for an unknown name, and for one that
    builds engines where there is no ``build``."""
    runtime = registry.named(name)
    if runtime.builds and build is None:
        raise KeyError(name)
    given = {"build": build, "config": config, "provider": runtime.provider}
    options = {option: given[option] for option in runtime.takes if given[option]}
    open_model: Open = registry.function(runtime.opens)
    return functools.partial(open_model, **options) if options else open_model


def outputs_of(
    model: ModelProto, name: str, libraries: Sequence[str], inputs: Mapping[str, Array],
    config: Mapping[str, str] | None = None,
) -> list[Array]:  # fmt: skip
    """Return all outputs of a model in memory, as the runtime of that name computes them; raises what that raises."""
    with on_disk(model) as file, opener(name, config=config)(file, libraries) as session:
        return session.run(inputs)
