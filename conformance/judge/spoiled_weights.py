"""Find what is wrong in a converted file beside its original: weights that are not the original's rounded, tensors
that are read by another scale than they were written with, and ranges that leave out what the original computes.

Converters choose weights in many ways: by more than the nearest level, corrected for what others lose, balanced
between layers. So nothing is accused by its values alone. What looks wrong is put right, and it is wrong only if the
outputs are then nearer to the original's, by more than chance would make them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from conformance.compare.noise import decibels, power
from conformance.judge.spoiled_how import UNLIKE, describe_spoiled
from conformance.models.precision.by_others import precision_of
from conformance.models.precision.folded import folded_weights
from conformance.models.precision.held_weights import RANGES, HeldWeight, held_weights, standing_for
from conformance.process.arrays import Array, Inputs
from conformance.process.disk.onnx_models import on_disk
from conformance.process.errors import or_else
from conformance.runtimes import opener
from conformance.runtimes.onnxgraph.cut import expose
from conformance.runtimes.onnxgraph.mapped import MappedModel
from conformance.runtimes.onnxgraph.reads import Graph, copy_of, initializers
from conformance.runtimes.registry import LITERAL

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

OFF = 0.51
"""Steps from the original up to which a value is rounded to the nearest: half of one, and what float32 adds."""
WORSE = 2.0
"""A weight is wrong that makes so many times the noise power of rounding to the nearest, where no slip explains
it: what optimizes a weight for its layer makes less than rounding does."""
CHANCE = 1.02
"""Noise powers count as the same up to this ratio: a slip that is known and loses nothing on
these draws is wrong all the same."""
LOST = 1.25
"""The ratio of the noise powers of the whole file before and after something is put right that shows it wrong."""
CLIPPED = 4.0
"""A weight clips too much that makes so many times the noise power of a range that leaves nothing out."""
OUTSIDE, BEYOND, WIDER = 0.05, 0.15, 10.0
"""The share of a tensor's values that has to lie outside of its range, by how much of the range's width, and how many
times the noise power of the file has to be gone with a range that leaves none of them out."""
MOST_TRIED = 24
"""Weights that are tried, those that are furthest off first."""


@dataclass(frozen=True, eq=False)
class WeightBeside:
    """A weight with the original's that it stands for, and the order of axes that makes this of it."""

    weight: HeldWeight
    name: str
    right: Array
    order: tuple[int, ...]

    @cached_property
    def instead(self) -> Array:
        """The nearest to the original of all that the constant could stand for."""
        return self.weight.nearest(self.right)


class ConvertedFile:
    """A converted file and its original, on the same draws."""

    def __init__(
        self, original: ModelProto, converted: ModelProto, feeds: Sequence[Inputs], runtime: str,
        libraries: Sequence[str],
    ) -> None:  # fmt: skip
        """``runtime`` computes what the converted file means; the original runs in ONNX Runtime without its
        optimizer. Raises what that raises."""
        self.original, self.converted = original, converted
        self._feeds, self._runtime, self._libraries = feeds, runtime, libraries
        self._wanted = self._outputs(original, LITERAL)

    def _outputs(self, model: ModelProto, runtime: str) -> list[list[Array]]:
        return outputs_of_each(model, runtime, self._libraries, self._feeds)

    def _noise(self, outputs: Sequence[Sequence[Array]]) -> float:
        """Return the power of the noise beside that of the signal, of all outputs that are floats."""
        total = 0.0
        for given, wanted in zip(outputs, self._wanted, strict=True):
            for got, right in zip(given, wanted, strict=True):
                if right.dtype.kind != "f" or got.shape != right.shape:
                    continue
                kept = np.isfinite(right)
                off = got.astype(np.float64)[kept] - right.astype(np.float64)[kept]
                if not np.isfinite(off).all():
                    return math.inf
                total += power(off) / (power(right.astype(np.float64)[kept]) or 1.0)
        return total

    @cached_property
    def own(self) -> float:
        """The noise of the file as it is."""
        return self.with_model(self.converted)

    @cached_property
    def beside(self) -> list[WeightBeside]:
        """The constants of the file that stand for some of the original."""
        models = (MappedModel(Path(), one) for one in (self.original, self.converted))
        folded = [*filter(None, folded_weights(*models))]
        done = {one.weight.name for one in folded}
        others = [one for one in held_weights(self.converted) if one.name not in done]
        return [WeightBeside(*each) for each in (*folded, *standing_for(others, self.original))]

    def with_model(self, model: ModelProto) -> float:
        """Return the noise of the file, changed; infinite where it does not run."""
        return or_else(math.inf, lambda: self._noise(self._outputs(model, self._runtime)))

    def with_put_right(self, some: Sequence[WeightBeside]) -> float:
        """Return the noise of the file where some weights are the nearest to the original's."""
        constants = {one.weight.name: one.weight.rounded(one.right, False) for one in some}
        return self.with_model(with_constants(self.converted, constants))

    def with_weight(self, one: WeightBeside, array: Array) -> float:
        """Return the noise of the original where one weight has other values."""
        values = array.transpose(np.argsort(one.order)).astype(np.float32)
        model = with_constants(self.original, {one.name: values})
        return or_else(math.inf, lambda: self._noise(self._outputs(model, LITERAL)))

    def tensors(self, names: Sequence[str], *, converted: bool = False) -> dict[str, Array]:
        """Return the values that tensors of the original, or of the file, have on all draws, in one row."""
        model, runtime = (self.converted, self._runtime) if converted else (self.original, LITERAL)
        graph = Graph(model)
        made = [name for name in names if name in graph.makers]
        shown = expose(model, made, instead=True)
        each = outputs_of_each(shown, runtime, self._libraries, self._feeds) if made else []
        found = {name: [row[place].ravel() for row in each] for place, name in enumerate(made)}
        found |= {name: [feed[name].ravel() for feed in self._feeds] for name in names if name in graph.inputs}
        return {name: np.concatenate(arrays).astype(np.float64) for name, arrays in found.items()}


def outputs_of_each(
    model: ModelProto, runtime: str, libraries: Sequence[str], feeds: Sequence[Inputs]
) -> list[list[Array]]:
    """Return the outputs of a model for each of some inputs; raises what the runtime raises."""
    with on_disk(model) as file, opener(runtime)(file, libraries) as session:
        return [session.run(feed) for feed in feeds]


def with_constants(model: ModelProto, values: Mapping[str, Array]) -> ModelProto:
    """Return a copy of a model with other values of constants, of their shapes."""
    from onnx import numpy_helper

    copy = copy_of(model)
    for tensor in copy.graph.initializer:
        if tensor.name in values:
            tensor.CopyFrom(numpy_helper.from_array(values[tensor.name].copy(order="C"), tensor.name))
    for node in copy.graph.node:
        if node.op_type == "Constant" and node.output[0] in values:
            tensor = next(entry.t for entry in node.attribute if entry.name == "value")
            tensor.CopyFrom(numpy_helper.from_array(values[node.output[0]].copy(order="C"), tensor.name))
    return copy


def spoiled(file: ConvertedFile) -> list[str]:
    """Return sentences about what is wrong in a converted file, each shown by what putting it right gives back."""
    if not math.isfinite(file.own) and not any(_not_finite(one) for one in held_weights(file.converted)):
        return []  # which does not run, or is all wrong: that is seen elsewhere
    return [*_pairs(file), *_weights(file), *_whole_numbers(file), *_ranges(file)]


def _not_finite(weight: HeldWeight) -> bool:
    return not bool(np.isfinite(weight.value).all())


# ---- weights -------------------------------------------------------------------------------------------------


def _weights(file: ConvertedFile) -> Iterator[str]:
    stands = file.beside
    rounded = [one for one in stands if one.weight.step.any()]
    off = [one for one in rounded if _is_off(one)]
    if (
        len(off) == len(rounded) > 1
        and all(map(_is_unlike, off))
        and file.own > WORSE * file.with_put_right(off)  # balanced layers lose nothing as they are
    ):
        yield f"none of its {len(off)} weights is like the original's: it was made of another model"
        return
    for one in sorted(off, key=_excess, reverse=True)[:MOST_TRIED]:
        slip = describe_spoiled(one.weight, one.name, one.right, one.instead)
        own, instead = (file.with_weight(one, array) for array in (one.weight.value, slip.repaired))
        if own > (1 / CHANCE if slip.known else WORSE) * instead and file.own >= file.with_put_right([one]) / CHANCE:
            yield slip.text
    for one in rounded:
        wide = None if one in off else one.weight.widest(one.right)
        if wide is not None and power(one.weight.value - one.right) > CLIPPED * power(wide - one.right):
            own, instead = (file.with_weight(one, array) for array in (one.weight.value, wide))
            if own > CLIPPED * instead:
                yield describe_spoiled(one.weight, one.name, one.right, wide).text
    staying = [one for one in stands if not one.weight.step.any() and (one.weight.value != one.right).any()]
    if precision_of(file.converted) is None and not rounded:  # which rounds float32 itself
        return
    # What corrects a bias for the rounding of other weights is not worse than the original's. It takes data, which a
    # file has not seen that measures its activations as it runs: what is no better than the original is wrong there.
    least = 1 / CHANCE if _measures_itself(file.converted) else LOST
    if staying and file.own > least * file.with_put_right(staying):
        for one in staying[:MOST_TRIED]:
            if len(staying) == 1 or file.own > least * file.with_put_right([one]):
                yield describe_spoiled(one.weight, one.name, one.right, one.right).text


def _measures_itself(model: ModelProto) -> bool:
    """Return whether the scales of activations are computed as the model runs, and none is a constant of the file."""
    kinds = {node.op_type for node in model.graph.node}
    return "DynamicQuantizeLinear" in kinds and not any(kind in _WRITES for kind in kinds)


def _is_off(one: WeightBeside) -> bool:
    """Return whether a value is further off than the nearest is, by more than float32 explains."""
    own, least = np.abs(one.weight.value - one.right), np.abs(one.instead - one.right)
    epsilon = 1e-6 if one.weight.grid is None else one.weight.grid.epsilon
    slack = (OFF - 0.5) * one.weight.step + epsilon * np.abs(one.right)
    return not bool((own <= least + slack).all())  # NaN is further off


def _is_unlike(one: WeightBeside) -> bool:
    """Return whether a weight is nothing of the original's, not in another order or scale either."""
    if decibels(power(one.right), power(one.weight.value - one.right)) >= UNLIKE:  # NaN is not
        return False
    return not describe_spoiled(one.weight, one.name, one.right, one.instead).known


def _excess(one: WeightBeside) -> float:
    own, least = power(one.weight.value - one.right), power(one.instead - one.right)
    return own / (least + 1e-30) if math.isfinite(own) else math.inf


# ---- tensors of whole numbers --------------------------------------------------------------------------------

_PASSING = {"Reshape", "Transpose", "Flatten", "MaxPool", "Squeeze", "Unsqueeze", "Identity", "Slice", "Gather",
            "Expand", "Split", "DepthToSpace", "SpaceToDepth"}  # fmt: skip
_WRITES = {"QLinearConv": 6, "QLinearMatMul": 6, "QLinearAdd": 6, "QLinearMul": 6, "QGemm": 7, "QuantizeLinear": 1,
           "QLinearSigmoid": 3, "QLinearLeakyRelu": 3, "QLinearSoftmax": 3, "QLinearGlobalAveragePool": 3,
           "QLinearAveragePool": 3, "QLinearReduceMean": 3}  # fmt: skip
"""The place of the scale of what an operator writes; its zero point is the next."""


def _pairs(file: ConvertedFile) -> Iterator[str]:
    """Yield the tensors that are read by another scale or zero point than they are written with."""
    model, constants = file.converted, initializers(file.converted)
    graph = Graph(model)
    for at, node in enumerate(graph.nodes):
        for place, name in enumerate(node.input):
            writer = _writer(graph, name)
            if writer is None or not _reads_levels(node, place):
                continue
            first = _WRITES[writer.op_type]
            written = _scale_and_zero(writer, first, constants)
            read = _scale_and_zero(node, place + 1, constants)
            if written is None or read is None or written == read:
                continue
            changed = copy_of(model)
            given = changed.graph.node[at].input
            for offset in range(2):
                if len(given) > place + 1 + offset and len(writer.input) > first + offset:
                    given[place + 1 + offset] = writer.input[first + offset]
            if file.own > file.with_model(changed) / CHANCE:
                which = 0 if written[0] != read[0] else 1
                what = ("scale", "zero point")[which]
                mine, theirs = (f"{one[0] if len(one) == 1 else one[:3]}" for one in (read[which], written[which]))
                yield (f"{node.op_type} {node.name} reads the tensor {name} by another {what} than "
                       f"{writer.op_type} {writer.name} writes it with, {mine} in place of {theirs}")  # fmt: skip


def _writer(graph: Graph, name: str) -> NodeProto | None:
    maker = graph.node_of(name)
    while maker is not None and maker.op_type in _PASSING and maker.input[0]:
        maker = graph.node_of(maker.input[0])
    return maker if maker is not None and maker.op_type in _WRITES else None


def _reads_levels(node: NodeProto, place: int) -> bool:
    places = {"QLinearAdd": (0, 3), "QLinearMul": (0, 3), "QLinearMatMul": (0, 3), "QLinearConv": (0,), "QGemm": (0,)}
    if node.op_type in places:
        return place in places[node.op_type]
    return place == 0 and (node.op_type == "DequantizeLinear" or node.op_type.startswith("QLinear"))


def _scale_and_zero(
    node: NodeProto, place: int, constants: Mapping[str, Array]
) -> tuple[list[float], list[float]] | None:
    """Return the scale and the zero point at two inputs of a node; None where one is computed."""
    found = []
    for name in [*node.input[place : place + 2], ""][:2]:
        if name and name not in constants:
            return None
        found.append(constants[name].astype(np.float64).ravel().tolist() if name else [0.0])
    return found[0], found[1]


_SHAPES = {"Shape", "Size"}
_NOT_WHOLE = {"Bernoulli", "ConstantOfShape", "DequantizeLinear", "Multinomial", "RandomNormal", "RandomUniform"}
"""Operators that make floats, or draw numbers, of whole numbers."""


def _whole_numbers(file: ConvertedFile) -> Iterator[str]:
    """Yield whole numbers (positions, sizes, masks) that are computed of no float, and are others in the file."""
    names = _exact_names(file.original) & _exact_names(file.converted)
    given = [name for name in Graph(file.converted).makers if name in names]
    right, got = file.tensors(given), file.tensors(given, converted=True)
    for name in given:
        if name in right and name in got and not np.array_equal(right[name], got[name]):
            moved = _moved(got[name], right[name])
            yield f"the whole numbers of the tensor {name} are not those of the original{moved}"
            return  # those behind it are others too


def _moved(got: Array, right: Array) -> str:
    by = np.unique(got - right) if got.shape == right.shape else np.zeros(0)
    return f", they are off by {by[0]:+g}" if len(by) == 1 else ""


def _exact_names(model: ModelProto) -> set[str]:
    """Return the tensors of whole numbers and booleans that are computed without looking at a float."""
    from onnx import TensorProto

    floats = {TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.DOUBLE}
    inputs = {value.name: value.type.tensor_type.elem_type for value in model.graph.input}
    kinds = inputs | {tensor.name: tensor.data_type for tensor in model.graph.initializer}
    known = {name for name, kind in kinds.items() if kind not in floats}
    found: set[str] = set()
    for node in model.graph.node:
        value = next((entry.t for entry in node.attribute if entry.name == "value"), None)
        casts = node.op_type == "Cast" and any(entry.name == "to" and entry.i in floats for entry in node.attribute)
        exact = node.op_type in _SHAPES or (not casts and {*filter(None, node.input)} <= known)
        if node.op_type == "Constant":
            exact = value is not None and value.data_type not in floats
        if exact and node.op_type not in _NOT_WHOLE and not any(entry.HasField("g") for entry in node.attribute):
            known.update(filter(None, node.output))
            found.update(filter(None, node.output))
    return found


# ---- ranges --------------------------------------------------------------------------------------------------


def _ranges(file: ConvertedFile) -> Iterator[str]:
    """Yield the tensors whose range leaves out much of what the original computes. Where that is so of an input, the
    file was made for other data, and nothing is known of its ranges."""
    from onnx import TensorProto, numpy_helper

    def kind(zero: TensorProto) -> str:
        return str(TensorProto.DataType.Name(zero.data_type)).lower()

    model = file.converted
    tensors = {tensor.name: tensor for tensor in model.graph.initializer}
    ranges = []
    for node in model.graph.node:
        if node.op_type != "QuantizeLinear" or node.input[0] in tensors or len(node.input) < 3:
            continue
        scale, zero = (tensors.get(name) for name in node.input[1:3])
        if scale is None or zero is None or kind(zero) not in RANGES:
            continue
        if np.prod(scale.dims) == np.prod(zero.dims) == 1:
            ranges.append((node.input[0], scale, zero))
    graph = Graph(file.original)
    known = {*graph.inputs, *graph.makers}
    values = file.tensors([*dict.fromkeys(name for name, *_ in ranges if name in known)])
    narrow = []
    for name, scale, zero in ranges:
        if name not in values or not values[name].size:
            continue
        low, high = RANGES[kind(zero)]
        step, middle = (float(numpy_helper.to_array(one).item()) for one in (scale, zero))
        ends = (low - middle) * step, (high - middle) * step
        outside = float(np.mean((values[name] < ends[0] - step) | (values[name] > ends[1] + step)))
        beyond = max(ends[0] - values[name].min(), values[name].max() - ends[1])
        if outside > OUTSIDE and beyond > BEYOND * (ends[1] - ends[0]):
            narrow.append((name, scale, zero, ends, outside))
    if any(name in graph.inputs for name, *_ in narrow):
        return
    for name, scale, zero, ends, outside in narrow:
        low, high = RANGES[kind(zero)]
        reached = float(values[name].min()), float(values[name].max())
        for least, most in (reached, (0.0, reached[1]), (reached[0], 0.0)):
            step = max(most - least, 1e-30) / (high - low)
            middle = np.clip(round(low - least / step), low, high)
            before = {one.name: numpy_helper.to_array(one) for one in (scale, zero)}
            other = with_constants(model, {
                name: np.full(array.shape, value, array.dtype)
                for (name, array), value in zip(before.items(), (step, middle), strict=True)})  # fmt: skip
            if file.own > WIDER * file.with_model(other):
                yield (f"the range of the tensor {name} is {ends[0]:.3g} to {ends[1]:.3g}, which leaves out "
                       f"{outside:.0%} of what the original computes there ({least:.3g} to {most:.3g})")  # fmt: skip
                break
