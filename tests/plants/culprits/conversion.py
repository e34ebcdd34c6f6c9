"""The conversion to fp16 or int8 is wrong: scales, zero points, weights, constants, nodes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tests.plants import edits
from tests.plants import sound as of
from tests.plants.edits import Edit, left_out, named, of_output, times
from tests.plants.plant import Plant, Planting, Written
from tests.plants.planting import after_conversion, converted, raising


def _last_scale_smaller(scales: Any) -> Any:
    scales[-1] /= 16
    return scales


def _in_four_bits(values: Any) -> Any:
    return values // 32 * 32


def _other_channel(values: Any) -> Any:
    return np.roll(values, 1, axis=0)


def _bfloat16(model: Any) -> int:
    from onnx import TensorProto, numpy_helper

    changed = 0
    for tensor in model.graph.initializer:
        if tensor.data_type == TensorProto.FLOAT16:
            bits = numpy_helper.to_array(tensor).astype(np.float32).view(np.uint32) & np.uint32(0xFFFF0000)
            values = bits.view(np.float32).astype(np.float16)
            tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
            changed += 1
    return changed


def _output_in_float16(model: Any) -> int:
    from onnx import TensorProto

    model.graph.output[0].type.tensor_type.elem_type = TensorProto.FLOAT16
    return of_output(edits.cast_to("FLOAT16"))(model)


def _four_rows(nodes: edits.Nodes, name: str) -> str:
    return nodes("Reshape", name, nodes.constant([4, 6, 6, 5], "int64"))


def _beyond_fp16(nodes: edits.Nodes, name: str) -> str:
    """A product that does not fit, and is divided again."""
    from onnx import TensorProto

    large = nodes("Cast", nodes("Mul", name, nodes.constant(1e6)), to=TensorProto.FLOAT16)
    return nodes("Mul", nodes("Cast", large, to=TensorProto.FLOAT), nodes.constant(1e-6))


def _transposed(nodes: edits.Nodes, name: str) -> str:
    return nodes("Transpose", name, perm=[0, 2, 1, 3])


def _not_a_node(model: Any) -> int:
    model.graph.node[0].op_type = "PlantedOperator"
    return 1


INT8: list[tuple[str, Written, Edit]] = [
    ("a scale of weights off by two", of.NET, named("first.weight_scale", edits.scaled(2))),
    ("the scale of one channel off", of.NET, named("second.weight_scale", _last_scale_smaller)),
    ("the scales in another order", of.NET_TIGHT, named("first.weight_scale", _other_channel)),
    ("a range of activations an eighth", of.NET, named("/Relu_output_0_scale", edits.scaled(1 / 8))),
    ("a range of activations eight times", of.NET_TIGHT, named("/Relu_output_0_scale", edits.scaled(8))),
    ("a zero point far off", of.NET_TIGHT, named("/Relu_output_0_zero_point", lambda zero: zero + 40)),
    ("weights in 3 bits", of.NET, named("weight_quantized", _in_four_bits)),
    ("weights of another channel", of.NET, named("first.weight_quantized", _other_channel)),
    ("one channel gone", of.NET, of_output(times([1, 1, 0, 1, 1]))),  # type: ignore[arg-type]
    ("transposed", of.NET, of_output(_transposed)),
    ("everything 13 percent more", of.NET, of_output(times(1.13))),
    ("a node left out", of.NET, left_out("Relu")),
]
FP16: list[tuple[str, Written, Edit]] = [
    ("one percent more", of.NET, of_output(times(1.01))),
    ("a constant off", of.NET, named("first.bias", lambda values: values + 0.05)),
    ("weights in bfloat16", of.NET_TIGHT, _bfloat16),
    ("a product beyond fp16", of.NET, of_output(_beyond_fp16)),
    ("a node left out", of.NET, left_out("Relu")),
    ("a shape baked in", of.NET, of_output(_four_rows)),
]
EARLY: list[tuple[str, str, Edit]] = [
    ("the axis of the scales is another", "int8", edits.attribute("DequantizeLinear", axis=1)),
    ("no scale is above zero", "int8", named("weight_scale", edits.scaled(0))),
    ("the output comes out in fp16", "fp16", _output_in_float16),
    ("an operator that does not exist", "fp16", _not_a_node),
    ("a zero point of weights that is not zero", "int8", named("weight_zero_point", lambda zero: zero + 3)),
]


def plants() -> Iterator[Plant]:
    for precision, table in (("int8", INT8), ("fp16", FP16)):
        for name, case, edit in table:
            yield _plant(f"{name}, {precision}", precision, after_conversion(edit), case)
    for name, precision, edit in EARLY:
        yield _plant(f"{name}, {precision}", precision, converted(edit))
    broken = raising(
        "conformance.models.precision.fp16.convert", lambda: RuntimeError("planted: the converter is broken")
    )
    yield _plant("the converter raises, fp16", "fp16", broken)


def _plant(name: str, precision: str, planting: Planting, case: Written = of.NET) -> Plant:
    settings = {"examples": 2}
    return Plant(name, "conversion", case, planting, check="fidelity", precision=precision, settings=settings)
