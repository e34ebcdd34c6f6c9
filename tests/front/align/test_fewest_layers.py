"""The fewest layers of a converted file that give back most of what it loses, and whether they do so when kept."""

import ast
import re
from types import SimpleNamespace

import numpy as np
import onnx
import onnxruntime.quantization as quantization
import pytest

from conformance.diagnose.nodes.fewest_layers import in_words_of_converter
from conformance.diagnose.nodes.loss import sqnr
from conformance.front.commands.align.answer import align
from conformance.front.commands.align.question import AlignQuestion
from conformance.runtimes import outputs_of
from conformance.runtimes.onnxgraph.reads import Graph
from conformance.runtimes.registry import LITERAL
from tests.front.align.support import said
from tests.kit.models import model_of

RANDOM = np.random.default_rng(7)
WEIGHTS = {
    f"w{number}": (RANDOM.standard_normal((16, 16)) / 4).astype(np.float32) for number in range(1, 6)
}  # fmt: skip
NET = """net (float[n, 16] x) => (float[n, 16] y) {
    [one] a = MatMul (x, w1)
    [ra] b = Relu (a)
    [two] c = MatMul (b, w2)
    [rb] d = Relu (c)
    [three] e = MatMul (d, w3)
    [rc] f = Relu (e)
    [four] g = MatMul (f, w4)
    [rd] h = Relu (g)
    [five] y = MatMul (h, w5)
}"""
X = {"x": RANDOM.standard_normal((8, 16)).astype(np.float32)}
OUTLIER = WEIGHTS["w3"].copy()
OUTLIER[3, 2] = 9
"""One large weight, of what nobody reads: in one scale for all of them the others keep three bits."""
UNREAD = WEIGHTS["w4"].copy()
UNREAD[2, :] = 0


class Batches(quantization.CalibrationDataReader):
    def __init__(self):
        self.left = iter([X])

    def get_next(self):
        return next(self.left, None)


def quantized(folder, name, keep=()):
    quantization.quantize_static(
        folder / "net.onnx", folder / name, Batches(), nodes_to_exclude=[*keep], op_types_to_quantize=["MatMul"],
        extra_options={"ActivationSymmetric": True},
    )  # fmt: skip


def aligned(folder, second):
    files = [folder / "net.onnx", folder / second]
    return said(align(AlignQuestion("", [], folder / "store" / "models", files=files, dims=["n=8..8"])))


def decibels(folder, name):
    got, wanted = (outputs_of(onnx.load(folder / file), LITERAL, [], X) for file in (name, "net.onnx"))
    return sqnr(got, wanted)


@pytest.fixture
def net(tmp_path):
    def make(**weights):
        onnx.save(model_of(NET, **{**WEIGHTS, **weights}), tmp_path / "net.onnx")
        return tmp_path

    return make


def test_the_layer_that_loses_most_is_named_and_gives_it_back_when_the_converter_keeps_it(net):
    folder = net(w3=OUTLIER, w4=UNREAD)
    quantized(folder, "int8.onnx")
    text = aligned(folder, "int8.onnx")
    assert "kept as in net.onnx, 3 of 9 layers give back 80 % of what is lost" in text
    (names,) = re.findall(r"nodes_to_exclude=(\[.*?\]) \(ONNX Runtime", text)
    kept = ast.literal_eval(names)
    assert kept == ["three", "rc", "four"]  # which reads what "three" makes, and would quantize it by itself
    quantized(folder, "kept.onnx", keep=kept)
    assert decibels(folder, "kept.onnx") > decibels(folder, "int8.onnx") + 7


def test_what_all_layers_lose_together_is_said_to_be_spread(net):
    folder = net()
    quantized(folder, "int8.onnx")
    assert "lost all over: half of the nodes would not give back 80 % of it" in aligned(folder, "int8.onnx")


def test_of_a_file_that_loses_nothing_nothing_is_said(net):
    folder = net()
    quantized(folder, "none.onnx", keep=["one", "two", "three", "four", "five"])
    text = aligned(folder, "none.onnx")
    assert "kept as in" not in text and "lost all over" not in text


def test_a_range_that_stands_for_a_clip_loses_nothing_of_it(net, tmp_path):
    """ONNX Runtime's quantizer leaves a Relu out whose values the range behind it ends at zero."""
    folder = net()
    quantization.quantize_static(folder / "net.onnx", folder / "int8.onnx", Batches())
    operators = {node.op_type for node in onnx.load(folder / "int8.onnx").graph.node}
    assert "Relu" not in operators
    found = re.findall(r"most is lost at .*?: (-?[\d.]+) dB by itself", aligned(folder, "int8.onnx"))
    assert float(found[0]) > 25


def by_nncf(model):
    """As NNCF names what it adds: its package is in no environment of the tests."""
    model.graph.node.append(onnx.helper.make_node("DequantizeLinear", ["q", "s"], ["w"], "DequantizeLinear_w1_1"))


def by_casts(model):
    model.graph.node.append(onnx.helper.make_node("Cast", ["x"], ["x_half"], "x_cast", to=onnx.TensorProto.FLOAT16))


def by_quantizer(model):
    model.graph.node.append(onnx.helper.make_node("QuantizeLinear", ["x", "s"], ["x_q"], "x_QuantizeLinear"))


@pytest.mark.parametrize("by, said", [
    (by_nncf, "nncf.IgnoredScope(names=['one', 'two'])"),
    (by_casts, "node_block_list=['one', 'two'] (convert_float_to_float16), nodes_to_exclude (AutoCast)"),
    (by_quantizer, "nodes_to_exclude=['one', 'two'] (ONNX Runtime, ModelOpt, Olive; NNCF: names of an IgnoredScope)"),
])  # fmt: skip
def test_what_is_to_be_kept_is_said_in_the_words_of_who_converts(by, said):
    one, other = model_of(NET, **WEIGHTS), model_of(NET, **WEIGHTS)
    by(other)
    pair = SimpleNamespace(**{name: SimpleNamespace(graph=Graph(model)) for name, model in
                              (("one", one), ("other", other))})  # fmt: skip
    assert in_words_of_converter(pair, ["one", "two"]) == said
