"""Plant faults in networks that TensorRT's parser made, by TensorRT's API, and see which the evaluation finds.

One layer of a sound network is changed at a time: a property gets another value, two inputs change places, or the
layer is left out. Each stands in a model in which that changes what it means.
"""

from __future__ import annotations

import functools
import importlib
import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from conformance.process.arrays import Array
from conformance.process.errors import attempt
from conformance.process.worker import aside
from conformance.runtimes import outputs_of, registry
from conformance.runtimes.onnxgraph.mapped import read_graph
from conformance.runtimes.tensorrt.build import make_log, parse
from conformance.runtimes.tensorrt.network.evaluation import NetworkEvaluator
from conformance.runtimes.tensorrt.network.looks import other_outputs
from conformance.runtimes.tensorrt.network.parsed_network import class_of, read_network
from conformance.runtimes.tensorrt.rtx import MODULE
from evidence.parsed_outputs import SECONDS, compared
from tests.kit.models import model_of

LEFT_OUT, EXCHANGED = "the layer left out", "two inputs exchanged"
SAME = "nothing"
"""Reasons for which the evaluation does not find a fault."""
IMAGE = "(float[1,2,7,8] x) => (float y)"
ROWS = "(float[3,4,5] x) => (float y)"
TWO = "(float[4,4] x, float[4,4] z) => (float y)"

PLANTS: Sequence[tuple[str, str, str]] = [
    (
        f"{IMAGE} {{ y = Conv<pads=[1,1,1,1]>(x, w, b) }}",
        "CONVOLUTION",
        "kernel, bias, pre_padding, post_padding, stride_nd, dilation_nd, padding_mode",
    ),
    (
        f"{IMAGE} {{ y = ConvTranspose<pads=[1,1,1,1], strides=[2,2]>(x, v) }}",
        "DECONVOLUTION",
        "kernel, pre_padding, post_padding, stride_nd, dilation_nd",
    ),
    (
        f"{IMAGE} {{ y = AveragePool<kernel_shape=[3,3], pads=[1,1,1,1], strides=[2,2]>(x) }}",
        "POOLING",
        "pre_padding, post_padding, window_size_nd, stride_nd, average_count_excludes_padding",
    ),
    (
        f"{IMAGE} {{ y = MaxPool<kernel_shape=[3,3], strides=[2,2], ceil_mode=1>(x) }}",
        "POOLING",
        "type, window_size_nd, padding_mode",
    ),
    (
        f'{IMAGE} {{ s = Constant<value_ints=[1,2,9,5]>()  y = Resize<mode="linear">(x, , , s) }}',
        "RESIZE",
        "resize_mode, coordinate_transformation",
    ),
    (
        f'{IMAGE} {{ s = Constant<value_ints=[1,2,9,5]>()  y = Resize<mode="cubic">(x, , , s) }}',
        "RESIZE",
        "cubic_coeff, exclude_outside",
    ),
    (
        f'{IMAGE} {{ s = Constant<value_floats=[1.0,1.0,1.5,2.5]>()  y = Resize<mode="nearest">(x, , s) }}',
        "RESIZE",
        "nearest_rounding, scales",
    ),
    (f"{IMAGE} {{ y = LRN<size=3>(x) }}", "LRN", "alpha, beta, k"),
    (
        "(float[1,2,5,5] x, float[1,3,3,2] g) => (float y) { y = GridSample(x, g) }",
        "GRID_SAMPLE",
        "interpolation_mode, align_corners, sample_mode",
    ),
    (f"{ROWS} {{ y = Elu<alpha=0.5>(x) }}", "ACTIVATION", f"type, alpha, {LEFT_OUT}"),
    (f"{ROWS} {{ y = HardSigmoid(x) }}", "ACTIVATION", "alpha, beta"),
    (f"{ROWS} {{ a = Abs(x)  y = Exp(a) }}", "UNARY", f"op, {LEFT_OUT}"),
    (f"{TWO} {{ y = Sub(x, z) }}", "ELEMENTWISE", f"op, {EXCHANGED}, {LEFT_OUT}"),
    (f"{TWO} {{ y = MatMul(x, z) }}", "MATRIX_MULTIPLY", f"op0, op1, {EXCHANGED}"),
    (f"{TWO} {{ y = Where(c, x, z) }}", "SELECT", EXCHANGED),
    (f"{TWO} {{ y = Concat<axis=0>(x, z) }}", "CONCATENATION", f"axis, {EXCHANGED}"),
    (f"{ROWS} {{ y = Softmax<axis=0>(x) }}", "SOFTMAX", f"axes, {LEFT_OUT}"),
    (f"{ROWS} {{ a = Constant<value_ints=[1]>()  y = ReduceMax(x, a) }}", "REDUCE", "op, axes, keep_dims"),
    (f"{ROWS} {{ k = Constant<value_ints=[2]>()  y, i = TopK<axis=2>(x, k) }}", "TOPK", "op, axes"),
    (f"{ROWS} {{ i = Constant<value_ints=[2,0]>()  y = Gather<axis=0>(x, i) }}", "GATHER", "axis"),
    (f"{ROWS} {{ y = Transpose<perm=[2,0,1]>(x) }}", "SHUFFLE", "first_transpose, second_transpose"),
    (f"{ROWS} {{ a = Constant<value_int=1>()  y = CumSum(x, a) }}", "CUMULATIVE", "exclusive, reverse"),
    (f"{ROWS} {{ y = LayerNormalization(x, r) }}", "NORMALIZATION", "axes, epsilon"),
    (
        f"{ROWS} {{ i = ArgMax<axis=0>(x)  d = Constant<value_int=4>()  o = Constant<value_floats=[2.0,3.0]>() "
        " y = OneHot<axis=0>(i, d, o) }",
        "ONE_HOT",
        "axis",
    ),
    (f"{ROWS} {{ k = Constant<value_floats=[1.0,2.0,3.0,4.0,5.0]>()  y = Mul(x, k) }}", "CONSTANT", "weights"),
    (f'{ROWS} {{ y = Einsum<equation="abc->bca">(x) }}', "EINSUM", "equation"),
]
"""Models, a kind of layer in each, and what is changed of the first such layer, one thing at a time."""


@dataclass(frozen=True)
class Planted:
    """A fault, and what was seen of it."""

    model: str
    kind: str
    what: str
    said: str
    """SAME where nothing; empty where TensorRT did not take the change."""


class _Trial:
    """A network of one model."""

    def __init__(self, file: Path) -> None:
        self._trt: Any = importlib.import_module(MODULE)
        self._model = read_graph(file)
        log = make_log(self._trt)
        self._builder = self._trt.Builder(log)
        self._network = parse(self._trt, log, self._builder, file)

    def change(self, kind: str, what: str) -> bool:
        """Change the first layer of a kind; whether TensorRT took the change."""
        layers = map(self._network.get_layer, range(self._network.num_layers))
        layer = next(layer for layer in layers if layer.type.name == kind)
        layer.__class__ = class_of(self._trt, kind)
        if what == EXCHANGED:
            last = layer.num_inputs - 1
            first, second = layer.get_input(last - 1), layer.get_input(last)
            layer.set_input(last - 1, second)
            layer.set_input(last, first)
            return True
        if what == LEFT_OUT:
            return self._leave_out(layer)
        old = getattr(layer, what)
        setattr(layer, what, (old * 2 if old == 1 else old >> 1) if what == "axes" else _other(old))
        return repr(getattr(layer, what)) != repr(old)

    def _leave_out(self, layer: Any) -> bool:
        made, given = layer.get_output(0), layer.get_input(0)
        name = made.name
        for number in range(self._network.num_layers):
            reader = self._network.get_layer(number)
            for index in range(reader.num_inputs):
                if (tensor := reader.get_input(index)) is not None and tensor.name == name:
                    reader.set_input(index, given)
        if name == self._network.get_output(0).name:
            self._network.unmark_output(made)
            copy = self._network.add_identity(given).get_output(0)
            made.name, copy.name = f"{name} as it was", name
            self._network.mark_output(copy)
        return True

    def said(self, inputs: Mapping[str, Array], right: Sequence[Array]) -> str:
        """Say how the network differs from what is right; SAME where it does not."""
        network = read_network(self._trt, self._network)
        if (look := next(other_outputs(network, self._model), None)) is not None:
            return look
        found = NetworkEvaluator(network).run(inputs)
        word, said = compared([found[output.name] for output in self._model.graph.output], right)
        return SAME if word == "right" else said


def _other(value: Any) -> Any:
    """Return another value of the same kind."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    if isinstance(value, float):
        return value * 1.5 + 0.25
    if isinstance(value, np.ndarray):
        return (value * 1.5 + 0.25).astype(value.dtype)
    if isinstance(value, str):
        return value[:-2] + value[-2:][::-1]
    members = getattr(type(value), "__members__", None)
    if members:
        each = list(members.values())
        return each[(each.index(value) + 1) % len(each)]
    if type(value).__name__ == "Permutation":
        order = list(value)
        return type(value)([*order[1:2], order[0], *order[2:]])
    if isinstance(value, list):  # scales
        return [each * 1.5 for each in value]
    return type(value)([size + 1 for size in value])


def _inputs(model: Any) -> dict[str, Array]:
    rng = np.random.default_rng(3)
    shapes = {value.name: [dim.dim_value for dim in value.type.tensor_type.shape.dim] for value in model.graph.input}
    return {name: rng.uniform(-1, 1, shape).astype(np.float32) for name, shape in shapes.items()}


def _planted(text: str, kind: str, what: str) -> str:
    """Return what is said of one fault; empty where TensorRT did not take it, or the network was wrong before."""
    from onnx import save

    rng = np.random.default_rng(0)
    arrays = {name: rng.normal(size=shape).astype(np.float32) for name, shape in
              {"w": (3, 2, 3, 3), "b": (3,), "v": (2, 3, 3, 3), "r": (5,)}.items()}  # fmt: skip
    arrays["c"] = np.tri(4) > 0
    model = model_of(
        f"g {text}", 19, **{name: one for name, one in arrays.items() if re.search(rf"[ (]{name}[,)]", text)}
    )
    inputs = _inputs(model)
    right = outputs_of(model, registry.LITERAL, (), inputs)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "model.onnx"
        save(model, file)
        trial = _Trial(file)
        if trial.said(inputs, right) != SAME or not trial.change(kind, what):
            return ""
        said = attempt(functools.partial(trial.said, inputs, right))
        return f"not computed: {said}" if isinstance(said, Exception) else said


@functools.cache
def planted(quick: bool) -> list[Planted]:
    """Plant each fault; those that TensorRT took."""
    found = []
    for text, kind, changes in PLANTS[:: 9 if quick else 1]:
        for what in changes.split(", "):
            said = attempt(functools.partial(aside.ask, functools.partial(_planted, text, kind, what), SECONDS))
            found.append(Planted(text, kind, what, "" if isinstance(said, Exception) else said))
    return [one for one in found if one.said]


def is_found(one: Planted) -> bool:
    """Return whether the evaluation accuses the network."""
    return one.said != SAME and not one.said.startswith("not computed")
