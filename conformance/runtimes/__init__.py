"""Runtimes: what runs an exported model. A small protocol, a module for each runtime, a table of all (``registry``).

A runtime is a function that opens a model file and returns a ``Session``. No runtime imports torch, so that a model
with its inputs can be run on a host without it.
"""

from __future__ import annotations

import contextlib
import copy
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

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


class GuardedSession:
    """A loaded model that shares no memory with who runs it: it gets copies, and what it gives is copied at once into
    plain arrays.

    Else a runtime that writes into its inputs would have the right outputs computed of other ones, one that gives all
    calls one buffer would be accused of not repeating, and arrays with an arithmetic of their own would compare
    themselves.
    """

    def __init__(self, session: Session) -> None:
        self.direct = session
        """The session without that, for measuring how long it takes."""
        self.arithmetic = session.arithmetic

    def run(self, inputs: Mapping[str, Array]) -> list[Array]:
        return [_plain(output) for output in self.direct.run({name: _copied(inputs[name]) for name in inputs})]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.direct, name)


def _copied(value: Any) -> Any:
    """Return a copy of an input, which may be a sequence of arrays, or none."""
    import numpy as np  # the table of runtimes is read where nothing runs

    return np.array(value, order="C") if isinstance(value, np.ndarray) else copy.deepcopy(value)


def _plain(value: object) -> Array:
    """Return a copy as an array of no other class. TypeError for what is no array, nor a number."""
    import numpy as np

    array: Array = np.array(value, order="C")  # also of a class that is derived from NumPy's
    if array.dtype.hasobject:
        if not all(isinstance(one, str) for one in array.flat):
            raise TypeError(f"a {type(value).__name__} in place of an array")
        return array.astype(str)
    return array


Open = Callable[[Path, Sequence[str]], AbstractContextManager[GuardedSession]]
"""Opens the model at a path with custom-operator libraries; raises what the runtime raises."""


def opener(name: str, build: Build | None = None, config: Mapping[str, str] | None = None) -> Open:
    """The runtime of that name. ``build`` is what an engine is built with, ``config`` has ONNX Runtime's session
    options; a runtime that does not take them opens without. Raises KeyError for an unknown name, and for one that
    builds engines where there is no ``build``."""
    runtime = registry.named(name)
    if runtime.builds and build is None:
        raise KeyError(name)
    given: dict[str, Any] = {"build": build, "config": config, "provider": runtime.provider}
    options = {option: given[option] for option in runtime.takes if given[option]}
    open_model: Callable[..., AbstractContextManager[Session]] = registry.function(runtime.opens)
    return functools.partial(_guarded, open_model, **options)


@contextlib.contextmanager
def _guarded(
    open_model: Callable[..., AbstractContextManager[Session]], model: Path, libraries: Sequence[str], **options: Any
) -> Iterator[GuardedSession]:
    with open_model(model, libraries, **options) as session:
        yield GuardedSession(session)


def outputs_of(
    model: ModelProto, name: str, libraries: Sequence[str], inputs: Mapping[str, Array],
    config: Mapping[str, str] | None = None,
) -> list[Array]:  # fmt: skip
    """Return all outputs of a model in memory, as the runtime of that name computes them; raises what that raises."""
    with on_disk(model) as file, opener(name, config=config)(file, libraries) as session:
        return session.run(inputs)
