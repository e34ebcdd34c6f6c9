"""The ONNX side of the double: what TensorRT refuses, which shapes depend on data, and the answers themselves."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, helper, numpy_helper

Array = np.ndarray[Any, Any]

ELEMENTS = {
    TensorProto.FLOAT: "FLOAT", TensorProto.FLOAT16: "HALF", TensorProto.INT8: "INT8", TensorProto.INT32: "INT32",
    TensorProto.INT64: "INT64", TensorProto.BOOL: "BOOL", TensorProto.UINT8: "UINT8", TensorProto.BFLOAT16: "BF16",
    TensorProto.DOUBLE: "FLOAT",
}  # fmt: skip
"""TensorRT's word for ONNX's element types. It takes float64 for float32 and says so in a warning at most."""

BY_DATA = {"NonZero", "Unique", "Compress", "NonMaxSuppression", "StringSplit"}
"""Operators whose output has a shape that only the values of their input tell."""

SHAPE_POSITIONS = {
    "Reshape": (1,), "Expand": (1,), "Tile": (1,), "ConstantOfShape": (0,), "Range": (0, 1, 2), "Slice": (1, 2, 3, 4),
    "Pad": (1, 3), "Resize": (2, 3), "Upsample": (1,), "Unsqueeze": (1,), "Squeeze": (1,), "TopK": (1,),
    "OneHot": (1,), "Split": (1,), "CenterCropPad": (1,),
}  # fmt: skip
"""Inputs that say what shape comes out, by operator; ReduceX's axes are constants in what exporters write."""


SAME_TYPE = {"Add": "SUM", "Sub": "SUB", "Mul": "PROD", "Div": "DIV", "Max": "MAX", "Min": "MIN", "Pow": "POW"}
"""Operators whose inputs are of one type, and what TensorRT calls them."""


class Refusal(NamedTuple):
    """Why the parser does not take a node: the name of an ErrorCode, where, its words, the node, and in which bodies
    it stands."""

    code: str
    node: int
    function: str
    text: str
    proto: Any = None
    inside: tuple[str, ...] = ()
    file: str = "ModelImporter.cpp"


def read(data: bytes, major: int) -> "Model | Refusal":
    """The model, or why the parser cannot read it."""
    from google.protobuf.message import DecodeError

    try:
        return Model(data, major)
    except DecodeError:
        text = "Assertion failed: model->ParseFromCodedStream(&codedInput): Failed to parse the ONNX model."
        return Refusal("MODEL_DESERIALIZE_FAILED", -1, "deserializeOnnxModel", text)


class Model:
    """An ONNX model as TensorRT of a major version sees it."""

    def __init__(self, data: bytes, major: int) -> None:
        self.proto = onnx.load_from_string(data)
        self.graph = self.proto.graph
        self.int64 = major >= 10
        self.functions = {(one.domain, one.name) for one in self.proto.functions} if major >= 10 else set()
        self.initializers = {one.name: one for one in self.graph.initializer}

    @property
    def inputs(self) -> list[onnx.ValueInfoProto]:
        return [one for one in self.graph.input if one.name not in self.initializers]

    def element(self, name: str) -> int:
        """The ONNX element type of a tensor; 0 where it is not told."""
        return self._elements.get(name, 0)

    @cached_property
    def _elements(self) -> dict[str, int]:
        values = (*self.inferred.value_info, *self.graph.input, *self.graph.output)
        found = {one.name: one.type.tensor_type.elem_type for one in values}
        return found | {one.name: one.data_type for one in self.graph.initializer}

    @cached_property
    def inferred(self) -> onnx.GraphProto:
        return onnx.shape_inference.infer_shapes(self.proto, data_prop=True).graph

    def shape(self, name: str) -> tuple[int, ...]:
        """As the graph declares or infers it."""
        values = (*self.graph.input, *self.inferred.output, *self.inferred.value_info)
        return shape_of(next(one for one in values if one.name == name))

    def dtype(self, name: str) -> str:
        """The name of the TensorRT DataType; ValueError where there is none."""
        word = ELEMENTS.get(self.element(name))
        if word is None:
            kind = TensorProto.DataType.Name(self.element(name))
            raise ValueError(f"Found unsupported datatype ({self.element(name)}, {kind}) for tensor {name}")
        return "INT32" if word == "INT64" and not self.int64 else word

    def refusals(self, unsupported: Sequence[str]) -> Iterator[Refusal]:
        """What the parser reports, in its order."""
        for one in (*self.inputs, *self.graph.output):
            if one.type.tensor_type.elem_type not in ELEMENTS:
                text = (
                    'Assertion failed: convertDtype(onnxDtype.elem_type(), &trtDtype) && "Failed to convert ONNX '
                    'date type to TensorRT data type."'
                )
                yield Refusal("UNSUPPORTED_NODE", -1, "importInput", text, file=one.name)
        for index, node in enumerate(self.graph.node):
            yield from self._refused(index, node, unsupported)

    def _refused(
        self, index: int, node: NodeProto, unsupported: Sequence[str], inside: tuple[str, ...] = ()
    ) -> Iterator[Refusal]:
        """Of a node and those in its bodies, which count from 0 again from TensorRT 10."""
        for attribute in node.attribute:
            if attribute.HasField("g"):
                name = node.name or f"node_of_{node.output[0]}"
                around = (*inside, f"{name} ({node.op_type})", f"{attribute.g.name} ({attribute.name})")
                for number, inner in enumerate(attribute.g.node):
                    yield from self._refused(number if self.int64 else index, inner, unsupported, around)
        custom = node.domain not in ("", "ai.onnx") and (node.domain, node.op_type) not in self.functions
        if custom or node.op_type in unsupported:
            yield self._unknown(index, node, custom)._replace(proto=node, inside=inside)
        elif len({self.element(name) for name in node.input if self.element(name)}) > 1 and node.op_type in SAME_TYPE:
            words = " and ".join(ELEMENTS.get(self.element(name), "?").title() for name in node.input)
            name = node.name or f"node_of_{node.output[0]}"
            operation = SAME_TYPE[node.op_type]
            text = (
                f"Invalid Node - {name}\nITensor::getDimensions: Error Code 4: API Usage Error ({name}: "
                f"ElementWiseOperation {operation} must have same input types. But they are of types {words}. "
                "In validateTypes at /_src/optimizer/common/nodes/elementWiseNode.cpp:40)"
            )
            yield Refusal("INVALID_NODE", index, "parseNode", text, node, inside)
        elif node.op_type in ("QuantizeLinear", "DequantizeLinear") and len(node.input) > 2 and node.input[2]:
            zero = self.initializers.get(node.input[2]) or self._constants.get(node.input[2])
            if zero is not None and (zero.data_type != TensorProto.INT8 or numpy_helper.to_array(zero).any()):
                text = (
                    "Assertion failed: shiftIsAllZeros(zeroPoint): Non-zero zero point is not supported. Please set "
                    "kENABLE_UINT8_AND_ASYMMETRIC_QUANTIZATION_DLA to enable asymmetric quantization if it is on DLA."
                )
                yield Refusal("INVALID_NODE", index, "buildZeroPointTensor", text, node, inside)

    def _unknown(self, index: int, node: NodeProto, custom: bool) -> Refusal:
        """Of an operator without an importer: it may be a plugin's, which 8.6 says of ONNX's own operators too."""
        lost = 'creator && "Plugin not found, are the plugin name, version, and namespace correct?"'
        if not self.int64:
            text = f"No importer registered for op: {node.op_type}. Assertion failed: {lost}"
            return Refusal("UNSUPPORTED_NODE", index, "importFallbackPluginImporter", text)
        if custom:
            return Refusal("INVALID_NODE", index, "checkFallbackPluginImporter", lost)
        return Refusal("UNSUPPORTED_NODE", index, f"check{node.op_type}", "false")

    @cached_property
    def _constants(self) -> dict[str, TensorProto]:
        nodes = (node for node in self.graph.node if node.op_type == "Constant" and node.attribute)
        return {node.output[0]: node.attribute[0].t for node in nodes}

    @property
    def half(self) -> bool:
        """Whether anything is computed in fp16."""
        return TensorProto.FLOAT16 in self._elements.values()

    @property
    def quantized(self) -> bool:
        return any(node.op_type in ("QuantizeLinear", "DequantizeLinear") for node in self.graph.node)

    @cached_property
    def shape_inputs(self) -> set[str]:
        """Inputs whose values decide shapes: TensorRT takes them from the host, and profiles for their values."""
        made = {name: node for node in self.graph.node for name in node.output}
        wanted = [name for node in self.graph.node for name in _shape_names(node)]
        seen: set[str] = set()
        while wanted:
            name = wanted.pop()
            node = made.get(name)
            if name in seen or (node and node.op_type in ("Shape", "Size", *BY_DATA)):
                continue
            seen.add(name)
            wanted += node.input if node else ()
        whole = (TensorProto.INT32, TensorProto.INT64)
        return {one.name for one in self.inputs if one.name in seen and len(shape_of(one)) < 2
                and one.type.tensor_type.elem_type in whole}  # fmt: skip

    @cached_property
    def by_data(self) -> set[str]:
        """Tensors whose shape depends on values that are only there at run time."""
        data = {one.name for one in self.inputs} - self.shape_inputs
        shaped: set[str] = set()
        for node in self.graph.node:
            reads = {name for name in node.input if name}
            if node.op_type in ("Shape", "Size"):
                data |= set(node.output) if reads & shaped else set()
                continue
            if reads & shaped or _shape_names(node) & data or (node.op_type in BY_DATA and reads & data):
                shaped |= set(node.output)
            if reads & (data | shaped):
                data |= set(node.output)
        return shaped

    def session(self) -> Any:
        """ONNX Runtime's, which computes what the graph says; raises what that raises."""
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 4
        return onnxruntime.InferenceSession(self.proto.SerializeToString(), options, ["CPUExecutionProvider"])

    def inside(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """The tensors inside that no fusion removes: here a fusion puts each Relu into the node before it."""
        fused = {name for node in self.graph.node if node.op_type == "Relu" for name in node.input}
        made = [name for node in self.graph.node if node.op_type != "Constant" for name in node.output]
        outputs = {one.name for one in self.graph.output}
        names = [name for name in made if name and name not in fused | outputs and self.element(name) in ELEMENTS]
        if not names:
            return {}
        copy = onnx.ModelProto()
        copy.CopyFrom(self.proto)
        copy.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
        whole = Model(copy.SerializeToString(), 10 if self.int64 else 8)
        return dict(zip(names, whole.run(inputs, whole.session(), names), strict=True))

    def output_shapes(self, inputs: Mapping[str, Array], session: Any) -> dict[str, tuple[int, ...]]:
        """The shapes that follow from the inputs' shapes, with -1 where they depend on data.

        TensorRT computes them symbolically; the double runs the model on zeros, as nothing but shapes plays a part.
        """
        found = {one.name: shape_of(one) for one in self.inferred.output}
        told = {one.name for one in self.inferred.output if one.type.tensor_type.HasField("shape")}
        names = [name for name, shape in found.items() if name not in told or -1 in shape]
        names = [name for name in names if name not in self.by_data]
        if not names:
            return found
        zeros = {name: np.zeros_like(array) for name, array in inputs.items()}
        return found | {n: a.shape for n, a in zip(names, self.run(zeros, session, names), strict=True)}

    def run(self, inputs: Mapping[str, Array], session: Any, names: Sequence[str] | None = None) -> list[Array]:
        """The answers, in the dtypes that TensorRT gives: float64 is float32, and int64 is int32 where it has no
        int64."""
        types = {one.name: helper.tensor_dtype_to_np_dtype(one.type.tensor_type.elem_type) for one in self.inputs}
        answers = session.run(names, {name: array.astype(types[name]) for name, array in inputs.items()})
        narrower = {"float64": np.float32, **({} if self.int64 else {"int64": np.int32})}
        return [one.astype(narrower.get(str(one.dtype), one.dtype)) for one in map(np.asarray, answers)]


def shape_of(value: onnx.ValueInfoProto) -> tuple[int, ...]:
    """-1 for what is not a number."""
    dims = value.type.tensor_type.shape.dim
    return tuple(one.dim_value if one.HasField("dim_value") else -1 for one in dims)


def _shape_names(node: NodeProto) -> set[str]:
    positions = SHAPE_POSITIONS.get(node.op_type, ())
    return {node.input[index] for index in positions if index < len(node.input) and node.input[index]}
