"""Which change is told as a repair: the one that a maintainer would write, where it is right for all kinds of values;
none where it is right by accident."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import onnx
import onnx.parser
import pytest
import torch

from conformance.diagnose.operators.captured_program import Call, Name, Operator, Program
from conformance.diagnose.operators.forced import Parting
from conformance.diagnose.operators.named import Mended, mended
from conformance.process.arrays import Array

PLAIN = np.random.default_rng(3).normal(0, 2, (4, 5)).astype(np.float32)
SPECIAL = np.where(np.arange(20).reshape(4, 5) % 7 == 0, np.inf, PLAIN).astype(np.float32)
SPECIAL[0, 0], SPECIAL[3, 4] = -np.inf, np.nan
ROWS = PLAIN[::-1].copy()
TIES = np.round(2 * PLAIN).astype(np.float32) / 2
IMAGE = np.random.default_rng(4).normal(0, 1, (1, 1, 6, 6)).astype(np.float32)
SQUARE = np.random.default_rng(5).normal(0, 1, (5, 5)).astype(np.float32)
SCALE = np.array([1, 2, 0.5, -1, 3], np.float32)


class Row(NamedTuple):
    """PyTorch's operator with its arguments, and a wrong lowering of it, whose names are ``x``, ``z``, and ``y`` for
    what it gives."""

    call: str
    arguments: tuple[Any, ...]
    nodes: str
    change: str | None
    """None where no change of one node is right."""
    x: Array = PLAIN
    z: Array | None = None
    constants: Mapping[str, Any] = {}
    keywords: Mapping[str, Any] = {}
    functions: str = ""
    """Those of the model."""


X, Z, W, B = Name("x"), Name("z"), Name("w"), Name("b")
F = np.float32
FOUND = {
    "a word": Row("gelu.default", (X,), 'y = Gelu<approximate="none">(x)', "its approximate tanh instead of none",
                  keywords={"approximate": "tanh"}),
    "a word that is missing": Row("gelu.default", (X,), "y = Gelu(x)", "with approximate tanh, which it lacks",
                                  keywords={"approximate": "tanh"}),
    "the word that PyTorch needs, of two that do": Row(
        "pixel_shuffle.default", (X, 2), 'y = DepthToSpace<blocksize = 2, mode = "CDR">(x)',
        "its mode CRD instead of CDR", np.resize(PLAIN, (1, 4, 3, 3)).astype(F)),
    "half_pixel": Row(
        "upsample_bilinear2d.default", (X, [9, 9], False),
        'y = Resize<mode="linear", coordinate_transformation_mode="asymmetric">(x, , , sizes)',
        "its coordinate_transformation_mode half_pixel instead of asymmetric", IMAGE,
        constants={"sizes": np.array([1, 1, 9, 9])}),
    "antialias": Row(
        "_upsample_bilinear2d_aa.default", (X, [3, 3], False),
        'y = Resize<mode="linear", exclude_outside = 1>(x, , , sizes)',
        "with antialias 1, which it lacks", IMAGE, constants={"sizes": np.array([1, 1, 3, 3])}),
    "a reduction that is missing": Row(
        "scatter_add.default", (X, 1, Name("i"), X), "y = ScatterElements<axis = 1>(x, i, x)",
        "with reduction add, which it lacks", constants={"i": np.zeros((4, 5), np.int64)}),
    "a flag": Row("cumsum.default", (X, 1), "y = CumSum<reverse = 1>(x, one)", "its reverse 0 instead of 1",
                  constants={"one": np.array(1)}),
    "a flag that is missing": Row("isposinf.default", (X,), "y = IsInf(x)", "with detect_negative 0, which it lacks",
                                  SPECIAL),
    "transB": Row("linear.default", (X, W, B), "y = Gemm(x, w, b)", "with transB 1, which it lacks",
                  constants={"w": SQUARE, "b": SCALE}),
    "keepdims": Row("amax.default", (X, [1]), "y = ReduceMax(x, axes)", "with keepdims 0, which it lacks",
                    constants={"axes": np.array([1])}),
    "largest": Row("topk.default", (X, 2, 1, False), "y, i = TopK(x, k)", "with largest 0, which it lacks",
                   constants={"k": np.array([2])}),
    "the padding that counts": Row(
        "avg_pool2d.default", (X, [3, 3], [1, 1], [1, 1]),
        "y = AveragePool<kernel_shape = [3, 3], pads = [1, 1, 1, 1]>(x)",
        "with count_include_pad 1, which it lacks", IMAGE),
    "strides that are missing": Row(
        "max_pool2d.default", (X, [2, 2], [2, 1]), "y = MaxPool<kernel_shape = [2, 2]>(x)",
        "with strides [2, 1], which it lacks", IMAGE),
    "a number of the call": Row("leaky_relu.default", (X, 0.2), "y = LeakyRelu<alpha = 0.01>(x)",
                                "its alpha 0.2 instead of 0.01"),
    "a number that the call has by default": Row(
        "layer_norm.default", (X, [5], W, B), "y = LayerNormalization<axis = -1, epsilon = 0.01>(x, w, b)",
        "its epsilon 1e-05 instead of 0.01", constants={"w": SCALE, "b": SCALE}),
    "a number of a formula": Row("hardswish.default", (X,),
                                 "s = HardSigmoid<alpha = 0.2, beta = 0.5>(x) y = Mul(x, s)",
                                 "its alpha 0.16666667 instead of 0.2"),
    "a constant of a formula": Row(
        "gelu.default", (X,), "a = Mul(x, half) e = Erf(a) p = Add(e, one) q = Mul(x, p) y = Mul(q, half)",
        "its input 1 0.70710677 instead of 0.5", constants={"half": F(0.5), "one": F(1)}),
    "a count": Row("select.int", (X, 1, 2), "y = Gather<axis = 1>(x, at)", "its input 1 2 instead of 1",
                   constants={"at": np.array(1)}),
    "an axis": Row("_softmax.default", (X, 0, False), "y = Softmax<axis = 1>(x)", "its axis 0 instead of 1"),
    "an order of axes": Row("permute.default", (X, [2, 0, 3, 1]), "y = Transpose<perm = [0, 2, 3, 1]>(x)",
                            "its perm [2, 0, 3, 1] instead of [0, 2, 3, 1]", np.repeat(IMAGE, 6, 1).repeat(6, 0)),
    "inputs": Row("sub.Tensor", (X, Z), "y = Sub(z, x)", "its inputs 0 and 1 the other way round", z=ROWS),
    "branches": Row("where.self", (Name("c"), X, Z), "c = Greater(x, z) y = Where(c, z, x)",
                    "its inputs 1 and 2 the other way round", z=ROWS),
    "an input that is missing": Row("clamp.default", (X, -0.5, 0.75), "y = Clip(x, low)",
                                    "with the max 0.75, which it lacks", constants={"low": F(-0.5)}),
    "strict": Row("le.Scalar", (X, 0.5), "y = Less(x, l)", "LessOrEqual instead of Less", TIES,
                  constants={"l": F(0.5)}),
    "not strict": Row("gt.Tensor", (X, Z), "y = GreaterOrEqual(x, z)", "Greater instead of GreaterOrEqual", TIES,
                      TIES[::-1].copy()),
    "a rounding": Row("floor_divide.default", (X, Z), "d = Div(x, z) y = Round(d)", "Floor instead of Round",
                      z=ROWS),
    "ceil": Row("ceil.default", (X,), "y = Round(x)", "Ceil instead of Round"),
    "IsInf": Row("isinf.default", (X,), "y = IsNaN(x)", "IsInf instead of IsNaN", SPECIAL),
    "IsNaN": Row("isnan.default", (X,), "y = IsInf(x)", "IsNaN instead of IsInf", SPECIAL),
    "a reduction": Row("sum.dim_IntList", (X, [1]), "y = ReduceMean<keepdims = 0>(x, axes)",
                       "ReduceSum instead of ReduceMean", constants={"axes": np.array([1])}),
    "Abs": Row("isclose.default", (X, Z, 0.25, 0.125),
               "d = Sub(x, z) a = Abs(d) r = Mul(z, rtol) t = Add(r, atol) y = LessOrEqual(a, t)",
               "with Abs before its input 0", z=(PLAIN * 1.2).astype(F),
               constants={"rtol": F(0.25), "atol": F(0.125)}),
    "Neg": Row("log_sigmoid_forward.default", (X,), "n = Neg(x) y = Softplus(n)", "with Neg after it"),
    "Not": Row("ne.Tensor", (X, Z), "y = Equal(x, z)", "with Not after it", TIES, TIES[::-1].copy()),
    "Cast": Row("sum.dim_IntList", (X, [1]), "y = ReduceSum<keepdims = 0>(x, axes)",
                "with Cast to INT64 before its input 0", PLAIN > 0, constants={"axes": np.array([1])}),
    "the type of a Cast": Row("mul.Tensor", (X, Z), "c = Cast<to = 7>(x) f = Cast<to = 1>(c) y = Mul(f, z)",
                              "its to FLOAT instead of INT64", z=ROWS),
    "Clip": Row("hardtanh.default", (X, -0.5, 0.75), "y = Identity(x)", "with Clip from -0.5 to 0.75"),
    "Transpose": Row("linear.default", (X, W), "y = MatMul(x, w)",
                     "with Transpose of the last two axes before its input 1", constants={"w": SQUARE}),
    "Mul": Row("sub.Tensor", (X, Z), "y = Sub(x, z)", "with Mul by 0.5 before its input 1", z=ROWS,
               keywords={"alpha": 0.5}),
    "a node too much": Row("neg.default", (X,), "a = Neg(x) y = Neg(a)", "left out"),
    "another tensor": Row("mul.Tensor", (X, Z), "y = Mul(x, x)", "z instead of x", z=ROWS),
    "what is wrong for NaN anyhow": Row("gt.Tensor", (X, Z), "l = Less(x, z) y = Not(l)",
                                        "LessOrEqual instead of Less (but not for NaN)", TIES, TIES[::-1].copy()),
    "a node of a function": Row(
        "isposinf.default", (X,), "y = own.positive<sign = 0>(x)",
        "in its function, at Or y: And instead of Or", SPECIAL, functions="""
        <domain: "own", opset_import: ["" : 20]> positive<sign>(x) => (r) {
            zero = Constant<value_float = 0.0>()
            i = IsInf<detect_negative: int = @sign>(x) g = Greater(x, zero) n = IsNaN(x) o = Not(n) p = And(g, o)
            r = Or(i, p)
        }"""),
}  # fmt: skip
NONE = {
    "a formula of another word": Row(
        "gelu.default", (X,), "a = Mul(x, c) e = Erf(a) p = Add(e, one) q = Mul(x, p) y = Mul(q, half)", None,
        constants={"half": F(0.5), "one": F(1), "c": F(2**-0.5)}, keywords={"approximate": "tanh"}),
    "two operators": Row("silu.default", (X,), "s = Erf(x) y = Max(x, s)", None),
    "two numbers": Row("hardswish.default", (X,), "s = HardSigmoid<alpha = 0.3, beta = 0.4>(x) y = Mul(x, s)", None),
    "remainders of another sign": Row("remainder.Tensor", (X, Z), "y = Mod<fmod = 1>(x, z)", None,
                                      z=ROWS),
    "digits": Row("round.decimals", (X,), "y = Round(x)", None, keywords={"decimals": 2}),
    "a product as a sum": Row("cumprod.default", (X, 1), "y = CumSum(x, one)", None, constants={"one": np.array(1)}),
    "half an angle": Row("atan2.default", (X, Z), "d = Div(x, z) y = Atan(d)", None, z=ROWS),
    "special values": Row("nan_to_num.default", (X, 0.0), "y = Neg(x)", None, SPECIAL),
    "two of three": Row("isclose.default", (X, Z, 0.25, 0.125),
                        "d = Sub(x, z) r = Mul(z, rtol) t = Add(r, atol) y = Less(d, t)", None,
                        z=(PLAIN * 1.2).astype(F), constants={"rtol": F(0.25), "atol": F(0.125)}),
    # right for what is drawn here by accident
    "positive alone": Row("logaddexp.default", (X, Z), "y = Min(x, z)", None,
                          np.abs(PLAIN) + 60, -60 - np.abs(PLAIN)),
    "ties alone": Row("heaviside.default", (X, Z), "g = Less(x, zero) y = Cast<to = 1>(g)", None, np.abs(PLAIN) + 1,
                      np.ones((4, 5), F) / 4, constants={"zero": F(0)}),
    "another float": Row("softshrink.default", (X, 3.5), "y = Add(x, l)", None, -4 - np.abs(PLAIN),
                         constants={"l": F(4.5)}),
    "a tolerance negated": Row(
        "isclose.default", (X, Z, 0.25, 0.125),
        "d = Sub(x, z) a = Abs(d) r = Mul(z, rtol) t = Add(r, atol) y = Less(a, t)", None,
        -np.abs(PLAIN), -np.abs(PLAIN * 1.1).astype(F), {"rtol": F(0.25), "atol": F(0.125)}),
}  # fmt: skip


def told(row: Row) -> Mended | None:
    """The node that is told, with its changes."""
    packet, overload = row.call.split(".")
    function = getattr(getattr(torch.ops.aten, packet), overload)
    constants = {name: np.asarray(value) for name, value in row.constants.items()}
    inputs = {"x": row.x, **({} if row.z is None else {"z": row.z})}
    start = {name: torch.from_numpy(value) for name, value in constants.items()}
    named = tuple(one.name for one in row.arguments if isinstance(one, Name))

    def bound(values: Mapping[str, Any]) -> list[Any]:
        if "c" in named:
            values = {**values, "c": values["x"] > values["z"]}
        return [values[one.name] if isinstance(one, Name) else one for one in row.arguments]

    operator = Operator(
        "result", f"aten.{packet}", tuple(name for name in named if name != "c"), ("result",),
        lambda values: (function(*bound(values), **row.keywords),), arguments=bound,
        pointwise=torch.Tag.pointwise in function.tags,
        call=Call(f"torch.ops.{function}", row.arguments, row.keywords), constants=tuple(row.keywords.values()),
    )  # fmt: skip
    program = Program([operator], ["result"], start, [*inputs], {"result": ["y"]})
    right = operator.compute({**start, **{name: torch.from_numpy(value) for name, value in inputs.items()}})[0]
    if isinstance(right, tuple):  # of which the graph has the first alone
        program.ties["result"] = ["y", *[None] * (len(right) - 1)]
    types = {"f": "float", "b": "bool", "i": "int64"}
    given = ", ".join(f"{types[value.dtype.kind]}[{','.join(map(str, value.shape))}] {name}"
                      for name, value in inputs.items())  # fmt: skip
    text = f'<ir_version: 9, opset_import: ["" : 20, "own" : 1]> wrong ({given}) => (float y) {{ {row.nodes} }}'
    model = onnx.parser.parse_model(text + row.functions)
    model.graph.initializer.extend(onnx.numpy_helper.from_array(value, name) for name, value in constants.items())

    def draws() -> Iterator[tuple[Sequence[Any], Mapping[str, Array]]]:
        rng = np.random.default_rng(7)
        yield [torch.from_numpy(value) for value in inputs.values()], inputs
        for _ in range(3):
            drawn = {name: rng.permuted(value, axis=-1) for name, value in inputs.items()}
            yield [torch.from_numpy(value) for value in drawn.values()], drawn

    return mended(model, list(model.graph.node), Parting(operator, "y", "value"), program, draws(), ())


@pytest.mark.parametrize("name", FOUND)
def test_the_change_that_was_planted_is_told_first(name):
    found, wanted = told(FOUND[name]), FOUND[name].change
    assert found is not None and found.changes and wanted is not None and wanted in found.changes[0], found
    lacks = None if found.lacks is None else f"with {found.lacks}, which it lacks"
    assert (found.changes[0] == lacks) == ("which it lacks" in wanted), found


@pytest.mark.parametrize("name", NONE)
def test_where_no_change_of_one_node_is_right_none_is_told(name):
    found = told(NONE[name])
    assert found is None or found.changes == []
