"""Defects planted in converted files: where each stands, and what a verdict has to say to have named it rightly.

The list was written before anything of the suite was changed for it. Each is planted in a sound file of a real
converter, and the file is then checked beside its original as a user would, without any option.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

Array = np.ndarray[Any, np.dtype[Any]]


class File:
    """A converted file that is changed in place, with its original."""

    def __init__(self, model: ModelProto, original: ModelProto) -> None:
        self.model, self.original = model, original

    def of(self, name: str) -> Array:
        return numpy_helper.to_array(self._tensor(self.model, name)).copy()

    def right(self, name: str) -> Array:
        """The value that the original has for a weight."""
        return numpy_helper.to_array(self._tensor(self.original, name)).copy()

    def put(self, name: str, array: Array) -> None:
        tensor = self._tensor(self.model, name)
        assert tuple(tensor.dims) == array.shape, (name, tensor.dims, array.shape)
        assert numpy_helper.to_array(tensor).tobytes() != array.tobytes(), f"nothing is planted in {name}"
        tensor.CopyFrom(numpy_helper.from_array(array.copy(order="C"), name))

    def node(self, name: str) -> NodeProto:
        (found,) = (node for node in self.model.graph.node if node.name == name)
        return found

    @staticmethod
    def _tensor(model: ModelProto, name: str) -> TensorProto:
        (found,) = (tensor for tensor in model.graph.initializer if tensor.name == name)
        return found


Spoil = Callable[[File], None]


@dataclass(frozen=True)
class Plant:
    what: str
    file: str
    """``CONVERTER:NETWORK``, as ``convert`` takes it."""
    spoil: Spoil
    place: Sequence[str]
    """Names of which a verdict has to have one: of the weight, of a node that reads it or of the tensor."""
    kind: Sequence[str]
    """Words of which it has to have one: those for such a defect."""


def scaled(name: str, by: float, at: Any = ...) -> Spoil:
    def spoil(file: File) -> None:
        array = file.of(name)
        array[at] = (array[at].astype(np.float64) * by).astype(array.dtype)
        file.put(name, array)

    return spoil


def moved(name: str, by: float, at: Any = ...) -> Spoil:
    def spoil(file: File) -> None:
        array = file.of(name)
        array[at] = (array[at].astype(np.float64) + by).astype(array.dtype)
        file.put(name, array)

    return spoil


def made(name: str, how: Callable[[Array], Array]) -> Spoil:
    return lambda file: file.put(name, how(file.of(name)))


def each(*spoils: Spoil) -> Spoil:
    def spoil(file: File) -> None:
        for one in spoils:
            one(file)

    return spoil


def every_scale(by: float, end: str) -> Spoil:
    """All scales of weights, by the end of their names."""

    def spoil(file: File) -> None:
        names = [tensor.name for tensor in file.model.graph.initializer if tensor.name.endswith(end)]
        assert names
        each(*(scaled(name, by) for name in names))(file)

    return spoil


def exchanged(axis: int, one: int, other: int) -> Callable[[Array], Array]:
    def how(array: Array) -> Array:
        order = np.arange(array.shape[axis])
        order[[one, other]] = order[[other, one]]
        return np.take(array, order, axis)

    return how


def rounded_otherwise(how: Callable[[Array], Array], weight: str, name: str, scale: str, axis: int) -> Spoil:
    """Levels of int8 that are not the nearest."""

    def spoil(file: File) -> None:
        right, scales = file.right(weight), file.of(scale)
        shape = [-1 if place == axis and scales.size > 1 else 1 for place in range(right.ndim)]
        levels = how(right / scales.reshape(shape))
        file.put(name, np.clip(levels, -127, 127).astype(file.of(name).dtype))

    return spoil


def floored_blocks(weight: str, name: str, scale: str, block: int) -> Spoil:
    def spoil(file: File) -> None:
        levels = np.floor(file.right(weight) / np.repeat(file.of(scale), block, 0))
        file.put(name, np.clip(levels, -8, 7).astype(np.int8).astype(file.of(name).dtype))

    return spoil


def truncated(weight: str, bits: int, turned: bool = False) -> Spoil:
    """A float16 or bfloat16 weight made of the leading bits, towards zero."""

    def spoil(file: File) -> None:
        right = file.right(weight)
        if bits == 16:
            near = right.astype(np.float16)
            over = np.abs(near.astype(np.float32)) > np.abs(right)
            array = np.where(over, np.nextafter(near, np.float16(0)), near)
        else:
            array = (right.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32).astype(ml_dtypes.bfloat16)
        file.put(weight, array.T if turned else array)

    return spoil


def turned(name: str, axis: int) -> Spoil:
    """Scales along another axis."""

    def spoil(file: File) -> None:
        for entry in file.node(name).attribute:
            if entry.name == "axis":
                entry.i = axis

    return spoil


def turned_blocks(node: str, scales: str) -> Spoil:
    def spoil(file: File) -> None:
        array = np.ascontiguousarray(file.of(scales).T)
        tensor = next(one for one in file.model.graph.initializer if one.name == scales)
        tensor.CopyFrom(numpy_helper.from_array(array, scales))
        turned(node, 1)(file)

    return spoil


def parted(node: str, place: int, how: Callable[[Array], Array]) -> Spoil:
    """Another scale or zero point for one of the nodes that share it."""

    def spoil(file: File) -> None:
        one = file.node(node)
        array, name = how(file.of(one.input[place])), f"{one.input[place]}_of_one"
        file.model.graph.initializer.append(numpy_helper.from_array(np.asarray(array), name))
        one.input[place] = name

    return spoil


def scales_exchanged(one: str, other: str) -> Spoil:
    """Scale and zero point of two tensors, in all that read them."""

    def spoil(file: File) -> None:
        for part in ("scale", "zero_point"):
            first, second = file.of(f"{one}_{part}"), file.of(f"{other}_{part}")
            if first != second:
                file.put(f"{one}_{part}", second), file.put(f"{other}_{part}", first)

    return spoil


def q_and_dq_exchanged(one: str, other: str) -> Spoil:
    def spoil(file: File) -> None:
        first, second = file.node(one), file.node(other)
        first.op_type, second.op_type = second.op_type, first.op_type

    return spoil


def left_in_float(node: str, weight: str, place: int = 1) -> Spoil:
    """A layer with the weight of the original in place of the quantized one."""

    def spoil(file: File) -> None:
        name = f"{weight}_left"
        file.model.graph.initializer.append(numpy_helper.from_array(file.right(weight), name))
        file.node(node).input[place] = name

    return spoil


def nibbles(array: Array) -> Array:
    return (array >> 4) | (array << 4)


def one_more(tensor: str, by: int = 1) -> Spoil:
    """Positions that begin one later, or the last ones of a cache: whole numbers of a tensor moved by one."""

    def spoil(file: File) -> None:
        graph = file.model.graph
        graph.initializer.append(numpy_helper.from_array(np.array(by, np.int64), "one_more"))
        at = next(at for at, node in enumerate(graph.node) if tensor in node.output)
        maker = graph.node[at]
        maker.output[[*maker.output].index(tensor)] = f"{tensor}_before"
        graph.node.insert(at + 1, helper.make_node("Add", [f"{tensor}_before", "one_more"], [tensor], "moved"))

    return spoil


def order_of(node: str, one: int, other: int) -> Spoil:
    def spoil(file: File) -> None:
        given = file.node(node).input
        given[one], given[other] = given[other], given[one]

    return spoil


def reads_also(node: str, place: int, name: str) -> Spoil:
    def spoil(file: File) -> None:
        file.node(node).input[place] = name

    return spoil


SCALE, ZERO = ("scale", "times"), ("zero point", "shifted", "offset")
MOVED, FLOAT = ("transposed", "exchanged", "order", "reversed", "nibbles"), ("other values", "is not")
AXIS, PAIR, RANGE = (
    ("axis",),
    ("reads", "another scale", "another zero point", "undoes"),
    ("range", "saturate", "clip"),
)
ROUND, COARSE = ("truncated", "floor", "nearest", "rounded"), ("nearest", "levels", "bits")
PLACES, CACHE = ("first wrong", "Add", "Gather", "place"), ("Concat", "key", "value", "past")

PLANTS: Sequence[Plant] = (
    # ---- a scale ----
    Plant("a channel's scale doubled", "static-s8:mlp", scaled("0.weight_scale", 2, 3), ["0.weight"], SCALE),
    Plant("a channel's scale halved", "static-s8:depthwise", scaled("onnx::Conv_33_scale", 0.5, 2),
          ["Conv_33"], SCALE),
    Plant("a channel's scale 10 % too large", "static-u8s8:cnn", scaled("onnx::Conv_35_scale", 1.1, 5),
          ["Conv_35"], SCALE),
    Plant("a block's scale doubled", "int4:gated-21", scaled("val_0_scales", 2, (7, 1)), ["val_0"], SCALE),
    Plant("a block's scale halved", "int4-qdq:gated-21", scaled("val_2_DQ_scales", 0.5, (0, 9)), ["val_2"], SCALE),
    Plant("an output's scales 25 % too large", "int4-level4:attention-21", scaled("val_11_scales", 1.25, 4),
          ["val_11"], SCALE),
    Plant("a block's scale doubled", "int8-weights:attention-21", scaled("val_19_scales", 2, (3, 0)), ["val_19"],
          SCALE),
    Plant("all weights' scales 5 % too large", "static-qdq:mlp", every_scale(1.05, "weight_scale"),
          ["weight"], SCALE),
    Plant("all scales 5 % too large", "int4:gated-21", every_scale(1.05, "_scales"), ["val_"], SCALE),
    Plant("a channel's scale doubled", "nncf:mlp", scaled("scale_2.weight_1", 2, 5), ["2.weight"], SCALE),
    Plant("a channel's scale 50 % too large", "modelopt-int4:gated", scaled("onnx::MatMul_14_scale", 1.5, (0, 8)),
          ["MatMul_14"], SCALE),
    Plant("a weight's scale 5 % too large", "dynamic:mlp", scaled("2.weight_Transposed_scale", 1.05), ["2.weight"],
          SCALE),
    Plant("a channel's scale doubled", "static-qoperator-channel:cnn", scaled("onnx::Conv_35_scale", 2, 2),
          ["Conv_35"], SCALE),
    Plant("a block's scale doubled", "int2:attention-21", scaled("val_3_scales", 2, (5, 1)), ["val_3"], SCALE),
    Plant("a weight's scale halved", "modelopt-fp8:attention", scaled("onnx::MatMul_101_scale_1", 0.5, 3),
          ["MatMul_101"], (*SCALE, *RANGE)),
    # ---- a zero point ----
    Plant("a weight's zero point off by 3", "static-qdq:cnn", moved("onnx::Conv_35_zero_point", 3),
          ["Conv_35"], ZERO),
    Plant("a block's zero point off by 2", "int4:gated-21", moved("val_3_zero_points", -2, (4, 0)), ["val_3"], ZERO),
    Plant("an activation's zero point off by 40", "static-qdq:attention",
          moved("/norm/LayerNormalization_output_0_zero_point", 40), ["LayerNormalization"], (*ZERO, *RANGE)),
    Plant("a weight's zero point off by 2", "dynamic:attention", moved("onnx::MatMul_101_zero_point", 2),
          ["MatMul_101"], ZERO),
    Plant("a tensor is read with another zero point", "static-qoperator:cnn",
          parted("/2/2.0/Conv_quant", 2, lambda zero: zero + 5), ["2.0/Conv"], (*ZERO, *PAIR)),
    Plant("a group's zero point off by 2", "nncf-int4-asym:gated-21",
          made("val_0_zero_point", lambda zero: np.where(np.arange(64) == 6, (zero.astype(np.int8) + 2) % 16,
                                                         zero.astype(np.int8)).astype(zero.dtype)),
          ["val_0"], ZERO),
    Plant("a block's zero point off by 8", "int8-weights:gated-21", moved("val_2_zero_points", 8, (2, 1)), ["val_2"],
          ZERO),
    # ---- an order ----
    Plant("two blocks of a row exchanged", "int4:gated-21",
          made("val_0_Q4", lambda q: np.concatenate([q[:9], q[9:10, ::-1], q[10:]])), ["val_0"], MOVED),
    Plant("rows in reverse", "int4-qdq:gated-21", made("val_3_DQ_Q4", lambda q: q[::-1]), ["val_3"], MOVED),
    Plant("the two halves of each byte exchanged", "int4:attention-21", made("val_11_Q4", nibbles),
          ["val_11"], MOVED),
    Plant("a square weight transposed", "static-s8:attention",
          made("onnx::MatMul_103_quantized", np.transpose), ["MatMul_103"], MOVED),
    Plant("two output channels exchanged", "dynamic-channel:gated",
          made("onnx::MatMul_14_quantized", exchanged(1, 4, 5)), ["MatMul_14"], MOVED),
    Plant("a kernel turned round", "static-qoperator:cnn",
          made("onnx::Conv_35_quantized", lambda q: q[..., ::-1, ::-1]), ["Conv_35"], MOVED),
    Plant("a square weight transposed", "nncf-int8-weights:attention-21", made("val_19_quantized", np.transpose),
          ["val_19"], MOVED),
    Plant("a square weight transposed", "ort-fp16:attention", made("onnx::MatMul_103", np.transpose), ["MatMul_103"],
          (*MOVED, *FLOAT)),
    # ---- a layer that is not converted as the others are ----
    Plant("a layer left unquantized", "static-qdq:mlp", left_in_float("/2/Gemm", "2.weight"), ["2.weight", "/2/Gemm"],
          ("float32", "unquantized")),
    Plant("a layer left unquantized", "int4-qdq:gated-21", left_in_float("node_linear_1_matmul_Q4", "val_2"),
          ["val_2", "linear_1"], ("float32", "unquantized")),
    Plant("a layer in 2 bits in place of 4", "int4-qdq:gated-21",
          made("val_0_DQ_Q4", lambda q: (q.astype(np.int8) // 4 * 4).astype(q.dtype)), ["val_0"], COARSE),
    Plant("a layer in 4 bits in place of 8", "static-s8:cnn",
          made("onnx::Conv_35_quantized", lambda q: (q // 16 * 16).astype(np.int8)), ["Conv_35"], COARSE),
    # ---- a weight that was to stay ----
    Plant("a row of an embedding is zeros", "int4:embedded-21", scaled("table.weight", 0, 7),
          ["table.weight"], FLOAT),
    Plant("the weight of a norm 10 % larger", "int4:embedded-21", scaled("norm.weight", 1.1), ["norm.weight"], FLOAT),
    Plant("an element of a bias moved", "dynamic:mlp", moved("0.bias", 0.3, 5), ["0.bias"], FLOAT),
    Plant("the bias of a norm moved", "dynamic:attention", moved("norm.bias", 0.1, 9), ["norm.bias"], FLOAT),
    Plant("a bias negated", "nncf:mlp", scaled("2.bias", -1), ["2.bias"], FLOAT),
    Plant("a bias is zeros", "int8-weights:embedded-21", scaled("end.bias", 0), ["end.bias"], FLOAT),
    Plant("an element of a norm 5 % larger", "ort-fp16-kept:attention", scaled("norm.weight", 1.05, 11),
          ["norm.weight"], FLOAT),
    # ---- an axis ----
    Plant("scales along the other axis", "static-s8:attention", turned("onnx::MatMul_103_DequantizeLinear", 0),
          ["MatMul_103"], AXIS),
    Plant("scales along the other axis", "nncf:attention", turned("DequantizeLinear_onnx::MatMul_99_1", 0),
          ["MatMul_99"], AXIS),
    Plant("blocks along the other axis", "int4-qdq:attention-21",
          turned_blocks("node_MatMul_18_DQ_Q4", "val_19_DQ_scales"), ["val_19"], AXIS),
    # ---- quantizing and dequantizing ----
    Plant("quantized by twice the scale", "static-qdq:mlp",
          parted("/1/Relu_output_0_QuantizeLinear", 1, lambda scale: scale * np.float32(2)), ["Relu_output_0"], PAIR),
    Plant("Q and DQ exchanged", "static-s8:residual",
          q_and_dq_exchanged("/second/Conv_output_0_QuantizeLinear", "/second/Conv_output_0_DequantizeLinear"),
          ["/second/Conv_output_0"], ("QuantizeLinear",)),
    Plant("the scales of two tensors exchanged", "static-qdq:mlp", scales_exchanged("x", "/2/Gemm_output_0"),
          ["tensor x", "Gemm_output_0"], (*SCALE, *RANGE)),
    Plant("dequantized by another zero point", "suite-int8:attention",
          parted("/norm/LayerNormalization_output_0_DequantizeLinear_2", 2, lambda zero: zero + np.int8(5)),
          ["LayerNormalization"], PAIR),
    # ---- a range ----
    Plant("a range an eighth of what is needed", "static-qdq:mlp", scaled("/1/Relu_output_0_scale", 1 / 8),
          ["Relu_output_0"], RANGE),
    Plant("a range a quarter of what is needed", "static-s8:attention",
          scaled("/norm/LayerNormalization_output_0_scale", 1 / 4), ["LayerNormalization"], RANGE),
    Plant("a range a sixth of what is needed", "static-percentile:cnn", scaled("/0/0.2/Clip_output_0_scale", 1 / 6),
          ["Clip_output_0"], RANGE),
    Plant("a weight clipped to a third", "static-s8:mlp", made("2.weight_quantized", lambda q: np.clip(q, -42, 42)),
          ["2.weight"], (*RANGE, *COARSE)),
    Plant("a range an eighth of what is needed", "nncf:cnn", scaled("scale_x_1", 1 / 8), ["tensor x"], RANGE),
    # ---- a rounding ----
    Plant("truncated in place of rounded", "static-s8:mlp",
          rounded_otherwise(np.trunc, "0.weight", "0.weight_quantized", "0.weight_scale", 0), ["0.weight"], ROUND),
    Plant("floored in place of rounded", "int4-qdq:gated-21",
          floored_blocks("val_2", "val_2_DQ_Q4", "val_2_DQ_scales", 16), ["val_2"], ROUND),
    Plant("truncated in place of rounded", "suite-int8:depthwise",
          rounded_otherwise(np.trunc, "2.weight", "2.weight_quantized", "2.weight_scale", 0), ["2.weight"], ROUND),
    Plant("truncated to bfloat16", "autocast-bf16:mlp", truncated("0.weight", 8), ["0.weight"], ROUND),
    Plant("truncated to float16", "ort-fp16:mlp", truncated("2.weight", 16), ["2.weight"], ROUND),
    # ---- 16 bits ----
    Plant("an element overflowed", "ort-fp16:mlp", made("2.weight", lambda w: np.where(
        np.arange(w.size).reshape(w.shape) == 77, np.inf, w).astype(w.dtype)), ["2.weight"], (*FLOAT, "infinite")),
    Plant("an element doubled", "common-fp16:attention", scaled("onnx::MatMul_101", 2, (3, 4)),
          ["MatMul_101"], FLOAT),
    Plant("a channel is zeros", "autocast-fp16:residual", scaled("second.weight", 0, 2), ["second.weight"], FLOAT),
    # ---- a decoder ----
    Plant("positions off by one", "ort-fp16-io32:step", one_more("/Add_output_0"), ["/Add", "place"],
          (*PLACES, *FLOAT)),
    Plant("positions off by one", "nncf:step", one_more("/Add_output_0"), ["/Add", "place"], (*PLACES, *FLOAT)),
    Plant("one entry of the cache too many is seen", "dynamic:step", one_more("/Add_6_output_0"), ["/Add_6"], PLACES),
    Plant("past and new keys in another order", "suite-fp16:step", order_of("/Concat_3", 0, 1),
          ["Concat_3", "present_key"], CACHE),
    Plant("values are kept of the keys", "suite-int8:step", reads_also("/Concat_4", 1, "/Transpose_1_output_0"),
          ["Concat_4", "present_value"], CACHE),
    # ---- floats on a grid, and scales that are powers of 2 ----
    Plant("a channel's scale doubled", "torchao-weights:mlp-21", scaled("view_6", 2, 3), ["2.weight"], SCALE),
    Plant("a block's scale doubled", "torchao-int4:gated-21", scaled("val_40", 2, (slice(16, 32), 9)), ["val_2"],
          SCALE),
    Plant("a weight's zero point off by 3", "torchao-weights:gated-21", moved("_to_copy_1", 3), ["val_2"], ZERO),
    Plant("two outputs exchanged", "torchao-int4:gated-21", made("val_60", exchanged(1, 4, 9)), ["val_3"], MOVED),
    Plant("a value on no grid", "torchao-int4:mlp-21", moved("view_7", 0.05, (3, 4)), ["view_7"], ("values differ",)),
    Plant("a weight's scale halved", "quark-power-of-2:mlp", scaled("0.weight_scale", 0.5), ["0.weight"], SCALE),
    Plant("a weight clipped to a third", "quark-power-of-2:mlp",
          made("4.weight_quantized", lambda q: np.clip(q, -42, 42)), ["4.weight"], (*RANGE, *COARSE)),
)  # fmt: skip
