"""The values of a graph's tensors, a few at a time, so that they never all have to be held."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from conformance.process.arrays import Array, Inputs
from conformance.process.errors import attempt
from conformance.runtimes import outputs_of, registry
from conformance.runtimes.onnxgraph.cut import cut
from conformance.runtimes.onnxgraph.reads import Graph
from conformance.runtimes.registry import LITERAL

if TYPE_CHECKING:
    from onnx import ModelProto

CHUNK = 2**26
"""Bytes of tensors that are asked for at a time, as PyTorch's values have them."""


class Stops(Exception):
    """The graph cannot be computed up to a tensor; the text is the runtime's."""


class Tensors:
    """The tensors of a model's main graph at one input, computed node by node (``LITERAL``) or by another runtime."""

    def __init__(
        self,
        model: ModelProto,
        libraries: Sequence[str],
        inputs: Inputs,
        names: Sequence[str],
        sizes: Mapping[str, int],
        runtime: str = LITERAL,
    ) -> None:
        """``names`` are those that will be asked for, in that order, ``sizes`` their bytes as far as known."""
        self._model, self._libraries, self._inputs, self._runtime = model, libraries, inputs, runtime
        self.graph = Graph(model)
        known = {*self.graph.makers}
        self._uses = Counter(name for name in names if name in known)
        self._names = [*self._uses]
        self._places = {name: index for index, name in enumerate(self._names)}
        self._sizes = sizes
        self._arrays: dict[str, Array | Stops | None] = {}
        self.given: dict[str, Array] = {}
        """Tensors that are given in place of what the graph computes for them (``put``)."""

    def __contains__(self, name: str) -> bool:
        return name in self._places

    def __getitem__(self, name: str) -> Array | None:
        """The value of a tensor, forgotten once it was asked for as often as it is named; None for what is no
        tensor. Raises Stops."""
        if name in self.given:
            return self.given[name]
        if name not in self._arrays:
            self._fetch(self._places[name])
        value = self._arrays[name]
        self._uses[name] -= 1
        if self._uses[name] <= 0:
            del self._arrays[name]
        if isinstance(value, Stops):
            raise value
        return value

    def put(self, name: str, array: Array) -> None:
        """Go on with another value of a tensor, from which all that is asked for later is computed."""
        self.given[name] = array
        self._arrays.clear()

    def back(self, name: str, array: Array) -> None:
        """Take back a tensor that will be asked for once more."""
        self._arrays[name] = array
        self._uses[name] = 1

    def _fetch(self, start: int) -> None:
        end, total = start, 0
        while end < len(self._names) and (end == start or total + self._size(end) <= CHUNK):
            total += self._size(end)
            end += 1
        names = [name for name in self._names[start:end] if name not in self._arrays and name not in self.given]
        while True:  # the first half again, as long as something in it cannot be computed
            asked = self._model, self.graph, names, self._libraries, self._inputs, self.given, self._runtime
            arrays = attempt(partial(run, *asked))
            if not isinstance(arrays, Exception) and len(arrays) == len(names):
                self._arrays.update(zip(names, arrays, strict=True))
                return
            if len(names) == 1:
                failed = isinstance(arrays, Exception)  # else it is a sequence of tensors
                self._arrays[names[0]] = Stops(f"{type(arrays).__name__}: {arrays}") if failed else None
                return
            names = names[: len(names) // 2]

    def _size(self, index: int) -> int:
        return self._sizes.get(self._names[index], 0)


def run(
    model: ModelProto,
    graph: Graph,
    names: Sequence[str],
    libraries: Sequence[str],
    inputs: Inputs,
    given: Mapping[str, Array] | None = None,
    runtime: str = LITERAL,
) -> list[Any]:
    """Return the values of these tensors, of which only what they need is computed; ``given`` are tensors with values
    that are taken in place of what the graph computes for them. Of a runtime that can look inside, it is None for a
    tensor that it does not have. Raises what the runtime raises."""
    known = given or {}
    asked = [name for name in names if name not in known]
    if not asked:
        return [known[name] for name in names]
    inside = registry.named(runtime).inside
    if inside:
        whole = cut(model, graph, asked, known) if known else model
        found: list[Any] = registry.function(f"{inside}:values")(whole, asked, libraries, {**inputs, **known})
    else:
        found = outputs_of(cut(model, graph, asked, known), runtime, libraries, {**inputs, **known})
    if len(asked) == len(names):  # as they come: a sequence is several tensors
        return found
    values = {**known, **dict(zip(asked, found, strict=True))}
    return [values[name] for name in names]
