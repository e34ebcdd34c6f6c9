"""OpenVINO on the CPU: kernels of its own, in floating point and, for models with Q/DQ, in 8 bits."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from conformance.process.arrays import Array
from conformance.process.errors import NoVerdict, or_else
from conformance.runtimes import registry
from conformance.runtimes.evaluator_rules import open_clip
from conformance.runtimes.flattening import old, write_out
from conformance.runtimes.inferred import infer
from conformance.runtimes.onnxgraph.mapped import read_graph
from conformance.runtimes.onnxgraph.reads import all_nodes, held

if TYPE_CHECKING:
    from onnx import ModelProto

DEVICE = "CPU"
SETTINGS = {
    "INFERENCE_PRECISION_HINT": "f32",  # else processors with bf16 or fp16 units compute in these
    "EXECUTION_MODE_HINT": "ACCURACY",
    "INFERENCE_NUM_THREADS": 1,
    "NUM_STREAMS": 1,
}
"""One thread, and no arithmetic that is narrower than the model says."""

_NAMES = {"f32": "float32", "f64": "float64", "f16": "float16", "bf16": "bfloat16", "i8": "int8", "u8": "uint8"}
_MOVES = {
    "Broadcast", "Concatenation", "Const", "Convert", "Gather", "Input", "Output", "Pad", "Reorder", "Reshape",
    "ShapeOf", "Split", "StridedSlice", "Subgraph", "Tile", "Transpose", "FakeQuantize",
}  # fmt: skip
"""Layers that move or convert values, or are several layers."""


class OpenVinoSession:
    def __init__(self, model: Path, libraries: Sequence[str], settings: Mapping[str, object] = SETTINGS) -> None:
        if libraries:
            raise NoVerdict("OpenVINO cannot load ONNX Runtime's custom-operator libraries")
        self._model = _compiled(model, settings)
        # an input that is given back as it is has the name of the output; that of its node stays
        self._names = [{port.get_node().get_friendly_name(), *port.get_names()} for port in self._model.inputs]
        self.arithmetic: Mapping[str, object] = {
            "provider": f"OpenVINO {DEVICE}", "optimizer": True, "storage": "float32", **_kernels(self._model),
        }  # fmt: skip

    def run(self, inputs: Mapping[str, Array]) -> list[Array]:
        found = [next((name for name in names if name in inputs), None) for names in self._names]
        # an input that a model gives back through nothing but an identity may have lost its name to the output
        nameless = iter([name for name in inputs if name not in found] if found.count(None) else [])
        chosen = [next(nameless, None) if name is None else name for name in found]
        if None in chosen:
            raise NoVerdict("OpenVINO has an input under another name, which cannot be given")
        feed = {place: _taken(np.asarray(inputs[str(name)], order="C")) for place, name in enumerate(chosen)}
        results = self._model(feed, share_inputs=False, share_outputs=False)
        return [_typed(port, np.array(results[place])) for place, port in enumerate(self._model.outputs)]


def _taken(array: Array) -> Array:
    """Return an input as OpenVINO copies it: bfloat16 as float16 of the same bits, as which it would else round it to
    float16 and read the bits as bfloat16."""
    return array.view(np.float16) if array.dtype.name == "bfloat16" else array


def _typed(port: Any, array: Array) -> Array:
    """Return bfloat16 as such, whose bits OpenVINO gives as float16, and no texts as texts, which it gives as
    floats."""
    if str(port.get_element_type().get_type_name()) == "string" and not array.size:
        return array.astype(str)
    if str(port.get_element_type().get_type_name()) != "bf16" or array.dtype != np.float16:
        return array
    others = importlib.import_module("ml_dtypes")
    return array.view(others.bfloat16)


def _compiled(model: Path, settings: Mapping[str, object]) -> Any:
    import onnx

    core = imported().Core()
    if not old(read_graph(model)):
        return core.compile_model(str(model), DEVICE, settings)
    loaded = onnx.load(model)
    write_out(loaded)
    return core.compile_model(core.read_model(loaded.SerializeToString()), DEVICE, settings)


@contextlib.contextmanager
def open_model(model: Path, libraries: Sequence[str]) -> Iterator[OpenVinoSession]:
    yield OpenVinoSession(model, libraries)


@contextlib.contextmanager
def open_in_float32(model: Path, libraries: Sequence[str]) -> Iterator[OpenVinoSession]:
    """Leave in float32 what stands between QuantizeLinear and DequantizeLinear, by a property that OpenVINO takes and
    its pages do not name (2026.4)."""
    yield OpenVinoSession(model, libraries, {**SETTINGS, **dict(registry.named("openvino").wide)})


def absence() -> str | None:
    missing = importlib.util.find_spec("openvino") is None
    return "openvino is not installed (pip install onnx-export-conformance[openvino])" if missing else None


def imported() -> ModuleType:
    """The module ``openvino``, without its telemetry, which would send from a thread and a process that outlive the
    cell."""
    telemetry = "openvino_telemetry"
    modules: dict[str, Any] = sys.modules
    loaded = modules.get(telemetry)
    modules[telemetry] = None
    try:
        return importlib.import_module("openvino")
    finally:
        del sys.modules[telemetry]
        if loaded is not None:
            sys.modules[telemetry] = loaded


def _kernels(model: Any) -> dict[str, object]:
    """Find what really computes a compiled model.

    ``arithmetic`` names the dtypes of the kernels that compute rather than move values, ``kernels`` counts kernels by
    layer and dtype.
    """
    counts: Counter[tuple[str, str]] = Counter()
    for layer in model.get_runtime_model().get_ops():
        facts = layer.get_rt_info()
        kind, dtype = (str(facts[name].astype(str)) for name in ("layerType", "runtimePrecision"))
        if kind not in ("Const", "Input", "Output"):
            counts[kind, _NAMES.get(dtype, dtype)] += 1
    computing = {dtype for kind, dtype in counts if kind not in _MOVES} or {"float32"}
    return {
        "arithmetic": ", ".join(sorted(computing)),
        "kernels": {f"{kind} {dtype}": count for (kind, dtype), count in sorted(counts.items())},
    }


def no_witness(model: Path, inputs: Mapping[str, Array]) -> str | None:
    """Say why what OpenVINO computes of a model says nothing about it; None where it does.

    Its CPU kernels compute float64 in float32 and int64 in int32, and let a division of integers by zero pass.
    """
    import onnx

    loaded = infer(onnx.load(model))
    if _has_doubles(loaded):
        return "it computes float64 in float32"
    if any(map(_beyond_int32, inputs.values())) or any(map(_beyond_int32, _computed(loaded, inputs))):
        return "it computes int64 in int32, and there are values beyond that"
    if _may_divide_by_zero(loaded, inputs):
        return "it lets integers be divided by zero"
    return open_clip(loaded, inputs)


def _beyond_int32(array: object) -> bool:
    if not isinstance(array, np.ndarray) or array.dtype.kind not in "iu" or not array.size:
        return False
    limits = np.iinfo(np.int32)
    return bool(array.max() > limits.max or array.min() < limits.min)


_GROW = frozenset((
    "Add", "CumSum", "MatMul", "Mul", "Neg", "Pow", "ReduceProd", "ReduceSum", "ReduceSumSquare", "Sub", "Sum",
))  # fmt: skip
"""Operators of whole numbers whose results may be larger than what they are given."""


def _computed(model: ModelProto, inputs: Mapping[str, Array]) -> list[object]:
    """Return the results of operators by which whole numbers grow, as ONNX's evaluator computes them; none where the
    inputs have no whole numbers, or the evaluator cannot compute the model."""
    from onnx.reference import ReferenceEvaluator

    growing = {name for node in model.graph.node if node.op_type in _GROW for name in node.output}
    if not growing or not any(array.dtype.kind in "iu" for array in inputs.values()):
        return []
    found = or_else({}, lambda: dict[str, Any](ReferenceEvaluator(model).run(None, dict(inputs), intermediate=True)))
    return [array for name, array in found.items() if name in growing]


def _has_doubles(model: ModelProto) -> bool:
    from onnx import TensorProto

    values = (*model.graph.input, *model.graph.output, *model.graph.value_info)
    return (
        any(value.type.tensor_type.elem_type == TensorProto.DOUBLE for value in values)
        or any(constant.data_type == TensorProto.DOUBLE for constant in model.graph.initializer)
        or any(
            attribute.t.data_type == TensorProto.DOUBLE or (attribute.name, attribute.i) == ("to", TensorProto.DOUBLE)
            for node in all_nodes(model)
            for attribute in node.attribute
        )
    )


def _may_divide_by_zero(model: ModelProto, inputs: Mapping[str, Array]) -> bool:
    """Return whether the model may divide integers by zero.

    A division, or its remainder, by anything but constants and inputs other than zero.
    """
    from onnx import TensorProto, numpy_helper

    nodes = [*all_nodes(model)]
    constants = {constant.name: constant for constant in model.graph.initializer} | held(nodes)
    values = (*model.graph.input, *model.graph.output, *model.graph.value_info)
    types = {value.name: value.type.tensor_type.elem_type for value in values}
    types |= {name: constant.data_type for name, constant in constants.items()}
    floats = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.DOUBLE)
    for node in nodes:
        if node.op_type not in ("Div", "Mod") or any(types.get(name) in floats for name in node.input):
            continue
        by, given = constants.get(node.input[1]), inputs.get(node.input[1])
        numbers = given if by is None else numpy_helper.to_array(by)
        if numbers is None or not np.all(numbers):
            return True
    return False
