"""int8 by ONNX Runtime's quantizer, set up for explicit Q/DQ as TensorRT takes it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from conformance.models.precision.int8_rules import WEIGHTED, channel_axis
from conformance.models.precision.ranges import quietly
from conformance.process.disk.onnx_models import is_large, save
from conformance.process.errors import Stopped
from conformance.runtimes.onnxgraph.reads import nodes

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto
    from onnxruntime.quantization.calibrate import TensorsData

OPERATORS = WEIGHTED
"""What is quantized where a case does not say: the operators that int8 makes faster."""
_SECONDS = 1e-5
"""CPU seconds of the quantizer for each of its operators and each node, which it looks through for each (ONNX Runtime
1.32; 7.8 s for 400 among 2,000, 31 s for 800 among 4,000; ``findings/quantizer-time-grows-with-the-square.sh``)."""


def expected_seconds(graph: GraphProto, operators: Collection[str] = OPERATORS) -> float:
    """Estimate the CPU seconds that ``quantize`` takes, which grow with the square of the nodes."""
    return _SECONDS * len(graph.node) * sum(node.op_type in operators for node in graph.node)


def quantize(
    model: ModelProto,
    ranges: TensorsData,
    operators: Sequence[str],
    kept: Collection[str],
    folder: Path,
    reduce_range: bool = False,
) -> ModelProto:
    """The model with Q/DQ around the nodes of ``operators``, but for nodes named in ``kept``; ``reduce_range`` leaves
    the weights 7 bits.

    ``ranges`` are ``ranges.measure``'s. Raises Stopped at ``convert`` (NothingToQuantize) where there is no such node
    with float operands. The quantizer wants files, and changes what it is given; ``folder`` is for copies.
    """
    import onnx
    from onnxruntime.quantization import QuantFormat, QuantType, quantize_static, save_tensors_data

    before, source, result = _counts(model), folder / "float.onnx", folder / "quantized.onnx"
    save(model, source)
    save_tensors_data(ranges, folder / "ranges.json")
    with quietly():
        quantize_static(
            source,
            result,
            None,
            quant_format=QuantFormat.QDQ,
            use_external_data_format=is_large(model),
            activation_type=QuantType.QInt8,
            weight_type=QuantType.QInt8,
            calibrate_method=ranges.calibration_method,
            calibration_cache_path=folder / "ranges.json",
            per_channel=True,
            reduce_range=reduce_range,
            op_types_to_quantize=list(operators),
            nodes_to_exclude=sorted({*kept, *_not_for_the_quantizer(model)}),
            extra_options={
                "ActivationSymmetric": True,
                "WeightSymmetric": True,
                "QuantizeBias": False,
                "QDQDisableWeightAdjustForInt32Bias": True,
                "DedicatedQDQPair": True,  # TensorRT fuses a pair with one operator, and does not share it
                "OpTypesToExcludeOutputQuantization": list(operators),
                "TensorQuantOverrides": {name: [{"symmetric": True}] for name in _one_scale(model)},
            },
        )
    quantized = onnx.load(result)
    if _counts(quantized)["QuantizeLinear"] == before["QuantizeLinear"]:
        kinds = {node.op_type for node in nodes(model.graph)}
        left = [name for name in operators if name in kinds]
        what = "none"
        if left:
            what = f"only {', '.join(left)} without float operands, or excluded, or inside an If or a Loop"
        text = f"there is nothing to quantize: of {', '.join(operators)} the model has {what}"
        raise Stopped("convert", "NothingToQuantize", text, "case")
    return quantized


def _counts(model: ModelProto) -> Counter[str]:
    return Counter(node.op_type for node in model.graph.node)


def _not_for_the_quantizer(model: ModelProto) -> Iterator[str]:
    """Nodes that the quantizer would change: it sets the ``beta`` of a Gemm to 1, though the bias stays float."""
    for node in model.graph.node:
        if node.op_type == "Gemm" and any(entry.name == "beta" and entry.f != 1 for entry in node.attribute):
            yield node.name


def _one_scale(model: ModelProto) -> Iterator[str]:
    """Weights that can have only one scale, to which the quantizer would give one scale for each channel.

    These are weights of a grouped ConvTranspose, stacks of matrices that are multiplied, first operands, and weights
    that several nodes read along different axes.
    """
    weights = {initializer.name: len(initializer.dims) for initializer in model.graph.initializer}
    axes: dict[str, set[int | None]] = {}
    for node in model.graph.node:
        for operand, name in enumerate(node.input[:2]):
            if name in weights and node.op_type in WEIGHTED:
                stacked = node.op_type == "MatMul" and weights[name] != 2
                axes.setdefault(name, set()).add(None if stacked else channel_axis(node, operand))
    return (name for name, wanted in axes.items() if None in wanted or len(wanted) > 1)


def quantized_nodes(model: ModelProto) -> list[str]:
    """The names of the nodes whose operands are quantized."""
    made = {name for node in model.graph.node if node.op_type == "DequantizeLinear" for name in node.output}
    return [
        node.name
        for node in model.graph.node
        if node.op_type not in ("QuantizeLinear", "DequantizeLinear") and made & {*node.input}
    ]
