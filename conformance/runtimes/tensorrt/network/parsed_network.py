"""A network that TensorRT's parser made, as plain data: tensors, layers, and what each layer says of itself.

It is read by TensorRT's Python API (``ILayer`` and the classes derived from it), which gives a layer back without
its kind's own properties until it is told its class.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from conformance.process.errors import attempt
from conformance.runtimes.tensorrt.build import make_log, parse
from conformance.runtimes.tensorrt.rtx import MODULE, as_known

_WITHOUT_LAYERS = {"CONDITIONAL_INPUT": "iifconditionalinputlayer", "CONDITIONAL_OUTPUT": "iifconditionaloutputlayer"}
"""Kinds whose class is not called as they are."""
_GROUPS = ("loop", "conditional", "attention")
"""Properties that name what a layer belongs to."""


@dataclass(frozen=True)
class NetworkTensor:
    """Describe a tensor of a network."""

    name: str
    dtype: str
    """As TensorRT calls it, such as ``FLOAT`` or ``INT64``."""
    shape: tuple[int, ...] | None
    """-1 where a size is known at run time alone; None where the rank is."""


@dataclass(frozen=True)
class NetworkLayer:
    """Hold a layer of a network; tensors go by their number."""

    kind: str
    """As TensorRT calls it, such as ``ELEMENTWISE``."""
    name: str
    inputs: tuple[int | None, ...]
    outputs: tuple[int, ...]
    says: Mapping[str, Any] = field(default_factory=dict)
    """By the name of a property: words for members of enumerations, tuples for dims, arrays for weights, numbers for
    tensors. A property that TensorRT does not give for this layer is left out."""
    group: int | None = None
    """The loop, condition or attention that it belongs to."""

    def __str__(self) -> str:
        return f"layer {self.name} ({self.kind})"


@dataclass(frozen=True)
class ParsedNetwork:
    """Hold a network as plain data."""

    tensors: tuple[NetworkTensor, ...]
    layers: tuple[NetworkLayer, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]

    @functools.cached_property
    def makers(self) -> Mapping[int, NetworkLayer]:
        """Return the layer that makes each tensor."""
        return {tensor: layer for layer in self.layers for tensor in layer.outputs}

    def unread_inputs(self) -> list[str]:
        """List the inputs of the network that no layer reads and that are no output."""
        read = {tensor for layer in self.layers for tensor in layer.inputs} | {*self.outputs}
        return [self.tensors[tensor].name for tensor in self.inputs if tensor not in read]


def parse_file(model: Path) -> ParsedNetwork:
    """Return the network that the parser of TensorRT for RTX makes of a model. Raises UnsupportedModel, and
    Unavailable for a version that is not known here."""
    trt = importlib.import_module(MODULE)
    with as_known(trt):
        log = make_log(trt)
        log.forget()
        builder = trt.Builder(log)
        return read_network(trt, parse(trt, log, builder, model))


def read_network(trt: Any, network: Any) -> ParsedNetwork:
    """Return a parsed ``INetworkDefinition`` as plain data."""
    return _Reading(trt).read(network)


class _Reading:
    def __init__(self, trt: Any) -> None:
        self._trt = trt
        self._tensors: list[NetworkTensor] = []
        self._known: dict[int, tuple[int, Any]] = {}
        """By the id of an object of TensorRT's its number, and the object, which keeps its id as long as it lives."""

    def read(self, network: Any) -> ParsedNetwork:
        inputs = tuple(self._number(network.get_input(index)) for index in range(network.num_inputs))
        layers = tuple(self._layer(network.get_layer(index)) for index in range(network.num_layers))
        outputs = tuple(self._number(network.get_output(index)) for index in range(network.num_outputs))
        return ParsedNetwork(tuple(self._tensors), layers, inputs, outputs)

    def _number(self, tensor: Any) -> int:
        known = self._known.get(id(tensor))
        if known is None:
            known = self._known[id(tensor)] = len(self._tensors), tensor
            self._tensors.append(NetworkTensor(tensor.name, _word(tensor.dtype), _dims(tensor.shape)))
        return known[0]

    def _optional(self, tensor: Any) -> int | None:
        return None if tensor is None else self._number(tensor)

    def _group(self, owner: Any) -> int:
        return self._known.setdefault(id(owner), (len(self._known), owner))[0]

    def _layer(self, layer: Any) -> NetworkLayer:
        kind = _word(layer.type)
        own = class_of(self._trt, kind)
        says: dict[str, Any] = {}
        if own is not None:
            layer.__class__ = own
            says = self._says(layer, own)
        group = next((self._group(says.pop(name)) for name in _GROUPS if name in says), None)
        return NetworkLayer(
            kind, layer.name,
            tuple(self._optional(layer.get_input(index)) for index in range(layer.num_inputs)),
            tuple(self._number(layer.get_output(index)) for index in range(layer.num_outputs)),
            says, group,
        )  # fmt: skip

    def _says(self, owner: Any, of: type) -> dict[str, Any]:
        says: dict[str, Any] = {}
        for name in properties(of, self._trt.ILayer):
            value = attempt(functools.partial(getattr, owner, name))
            if isinstance(value, Exception):
                continue
            if name == "attention":
                says |= self._says(value, type(value))
            says[name] = self._plain(value) if name not in _GROUPS else value
        return says

    def _plain(self, value: Any) -> Any:
        trt = self._trt
        if isinstance(value, trt.Dims):
            return _dims(value)
        if isinstance(value, trt.ITensor):
            return self._number(value)
        if isinstance(value, np.ndarray):
            return value.copy()
        if isinstance(value, trt.Permutation):
            return tuple(value)
        if hasattr(type(value), "__members__"):
            return _word(value)
        return value


def class_of(trt: Any, kind: str) -> type | None:
    """Return the class of a kind of layer; None of one that TensorRT's Python lacks."""
    classes = {name.lower(): getattr(trt, name) for name in dir(trt) if name.endswith("Layer")}
    return classes.get(_WITHOUT_LAYERS.get(kind, f"i{kind.replace('_', '').lower()}layer"))


def properties(of: type, base: type) -> list[str]:
    """List the properties of a class that its base does not have, or has another meaning for, as for ``type``."""
    own = [each for each in of.__mro__ if each is not base and each not in base.__mro__]
    return [name for each in own for name, value in vars(each).items() if isinstance(value, property)]


def _word(member: Any) -> str:
    """Return what a member of an enumeration of TensorRT is called."""
    return str(member).rpartition(".")[2]


def _dims(dims: Any) -> tuple[int, ...] | None:
    """Return sizes; None of those that TensorRT does not know the number of."""
    sizes = attempt(lambda: tuple(int(size) for size in dims))
    return None if isinstance(sizes, Exception) else sizes
