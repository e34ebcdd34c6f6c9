"""A model as TensorRT's parser understands it, on any host: parsed by TensorRT for RTX, computed in NumPy.

No kernel of TensorRT runs, so that a value that is wrong here is the parser's, and one that is right says nothing of
engines.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from conformance.process.arrays import Array
from conformance.process.errors import NoVerdict, Unavailable
from conformance.runtimes.onnxgraph.mapped import read_graph
from conformance.runtimes.tensorrt.build import UnsupportedModel
from conformance.runtimes.tensorrt.network.evaluation import NetworkEvaluator
from conformance.runtimes.tensorrt.network.layer_call import BrokenLayer, UncoveredLayer, cast_to
from conformance.runtimes.tensorrt.network.looks import check_looks
from conformance.runtimes.tensorrt.network.parsed_network import ParsedNetwork, parse_file
from conformance.runtimes.tensorrt.rtx import absence, version

if TYPE_CHECKING:
    from onnx import ValueInfoProto


class RenamedInput(RuntimeError):
    """TensorRT's parser gives an input another name than the model. Cause: it names a tensor anew for a body that
    takes it in. Remedy: another name for the input of the loop's or branch's body."""


def arithmetic() -> dict[str, object]:
    """Return what computes a network, and in which arithmetic. Raises ImportError where there is no TensorRT for
    RTX."""
    return {
        "provider": f"NumPy, of the network that the parser of TensorRT for RTX {version()} made",
        "optimizer": False, "storage": "float32", "arithmetic": "float64 within a layer",
    }  # fmt: skip


def refused(said: str) -> NoVerdict:
    """Return what a model is skipped with that TensorRT's parser refuses, as it ``said``."""
    return NoVerdict(f"TensorRT's parser refuses the model, which the check parse is about: {said}")


class NetworkSession:
    """Computes what TensorRT's parser made of a model."""

    def __init__(
        self, network: ParsedNetwork, outputs: Sequence[str], model: Path, libraries: Sequence[str] = ()
    ) -> None:
        """``outputs`` are the model's, in its order; ``libraries`` are what it needs in ONNX Runtime."""
        self.network, self._outputs, self._model, self._libraries = network, outputs, model, libraries
        self.arithmetic: Mapping[str, object] = arithmetic()

    def run(self, inputs: Mapping[str, Array]) -> list[Array]:
        """Return the model's outputs. Where the evaluator cannot compute a layer, raises OtherOutputs or UnreadInput
        for what can be seen without values, else NoVerdict."""
        names = [self.network.tensors[each].name for each in self.network.inputs]
        if missing := [name for name in names if name not in inputs]:
            raise NoVerdict(
                f"the model has inputs that nothing is given for, so that it has no values: {', '.join(missing)}"
            )
        with self._without_verdict(inputs):
            found = NetworkEvaluator(self.network).run(inputs)
        return [np.asarray(found[name]) for name in self._outputs]

    def in_float64(self, inputs: Mapping[str, Array]) -> list[Array]:
        """Return the outputs as they are where no tensor is rounded to float32 before them. Raises what NumPy
        raises."""
        found = NetworkEvaluator(self.network, np.float64).run(inputs)
        kinds = {self.network.tensors[each].name: self.network.tensors[each].dtype for each in self.network.outputs}
        return [cast_to(found[name], kinds[name]) for name in self._outputs]

    def inside(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Return the tensors outside of loops and branches by name, up to the first that cannot be computed."""
        return NetworkEvaluator(self.network).inside(inputs)

    @contextlib.contextmanager
    def _without_verdict(self, inputs: Mapping[str, Array]) -> Iterator[None]:
        try:
            yield
        except UncoveredLayer as error:
            check_looks(self.network, self._model, self._libraries, inputs)
            text = f"the meaning of a layer of TensorRT's network is not written down here: {error}"
            raise NoVerdict(text) from None
        except BrokenLayer as error:
            # the parser made no network that can be computed, or its layers are read wrongly here. Nobody is accused
            # of that, and the cell's values are not compared.
            check_looks(self.network, self._model, self._libraries, inputs)
            raise NoVerdict(f"TensorRT's network could not be computed in NumPy: {error}") from error


@contextlib.contextmanager
def open_network(model: Path, libraries: Sequence[str], *, doubles: bool = False) -> Iterator[NetworkSession]:
    """Open a model. Raises Unavailable where this host has no TensorRT for RTX, NoVerdict for a model that its
    parser refuses, which is for the check ``parse`` to say, and for one of float64 unless ``doubles`` are to be
    computed in float32, and RenamedInput."""
    missing = absence()
    if missing is not None:
        raise Unavailable(missing)
    try:
        network = parse_file(model)
    except UnsupportedModel as error:
        raise refused(str(error)) from None
    graph = read_graph(model).graph
    if not doubles:
        _check_doubles([*graph.input, *graph.output])
    known = {one.name for one in graph.input}
    outputs = [output.name for output in graph.output]
    named = [network.tensors[tensor].name for tensor in network.inputs]
    if odd := [name for name in named if name not in known]:
        said = f"the parsed network calls an input {odd[0]}; the model's are {', '.join(sorted(known))}"
        if {*odd} <= {f"__{name}" for name in known.intersection(outputs)}:
            raise NoVerdict(f"{said}; NVIDIA documents so of an input that is an output too")
        raise RenamedInput(said)
    yield NetworkSession(network, outputs, model, libraries)


def _check_doubles(declared: Sequence[ValueInfoProto]) -> None:
    """Raise NoVerdict for float64, which TensorRT computes in float32, as NVIDIA documents."""
    from onnx import TensorProto

    for value in declared:
        if value.type.tensor_type.elem_type == TensorProto.DOUBLE:
            raise NoVerdict(f"{value.name} is float64, which TensorRT computes in float32, as NVIDIA documents")
