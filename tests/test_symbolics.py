"""Symbolics apply to one export, are undone exactly, and tell which inputs they dropped."""

from __future__ import annotations

import contextlib
import copy
import functools
import inspect
import io
import os
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import onnx
import pytest
import torch
from torch.onnx import errors, register_custom_op_symbolic
from torch.onnx._internal.torchscript_exporter import registration
from torch.onnx.symbolic_helper import parse_args

from conformance.export.symbolics import changed_since, registered, snapshot

X = torch.linspace(-2, 2, 6).reshape(2, 3)
UNSUPPORTED = errors.UnsupportedOperatorError


class Function(torch.nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self.function(*inputs)


def exported(
    model: torch.nn.Module | Callable[..., Any],
    *inputs: torch.Tensor,
    opset: int = 17,
) -> list[str]:
    """Op types of the graph, exported for any batch; "domain::type" outside ONNX's own domain."""
    if not isinstance(model, torch.nn.Module):
        model = Function(model)
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            model,
            inputs or (X,),
            file,
            dynamo=False,
            opset_version=opset,
            input_names=["x"],
            dynamic_axes={"x": {0: "batch"}},
        )
    graph = onnx.load_from_string(file.getvalue()).graph
    return [f"{n.domain}::{n.op_type}" if n.domain else n.op_type for n in graph.node]


def emits(op_type: str) -> Callable[..., Any]:
    """A symbolic that turns the first input into one node of this type."""
    return lambda g, x, *_: g.op(op_type, x)


@pytest.fixture(scope="session")
def complete_registry() -> Any:
    exported(torch.relu)  # the first export loads most of torch's own symbolics
    return registration.registry


@pytest.fixture(autouse=True)
def _own_registry(complete_registry: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test registers globally ends with it, without help from the code under test."""
    monkeypatch.setattr(complete_registry, "_registry", copy.deepcopy(complete_registry._registry))


@pytest.fixture(scope="session")
def operator() -> Iterator[Callable[..., torch.Tensor]]:
    """custom_for_tests::mix(x, scale, parts, bias, mode), which torch.onnx does not know."""
    library = torch.library.Library("custom_for_tests", "DEF")
    library.define("mix(Tensor x, Tensor scale, Tensor[] parts, Tensor? bias, int mode) -> Tensor")
    library.impl("mix", lambda x, *_: x.clone(), "CompositeExplicitAutograd")
    yield torch.ops.custom_for_tests.mix
    library._destroy()


# --- registered, for the opset of the export


@pytest.mark.parametrize("opset", [7, 9, 12, 17, 20])
def test_symbolic_applies_at_the_opset(opset: int) -> None:
    with registered({"aten::asinh": emits("Asinh")}, opset=opset) as usage:
        assert exported(torch.asinh, opset=opset) == ["Asinh"]
    assert usage.calls == {"aten::asinh": 1}
    assert usage.ignored == {}


def test_symbolic_wins_over_a_builtin_of_a_later_version() -> None:
    # torch has gelu at 9 and 20: registered at 9 only, the symbolic would be passed over at 20
    with registered({"aten::gelu": emits("Tanh")}, opset=20):
        assert exported(torch.nn.functional.gelu, opset=20) == ["Tanh"]


def test_node_may_be_called_like_its_operator(operator: Callable[..., torch.Tensor]) -> None:
    # the exporter looks up the node's own name, at the version of its domain, which is 1
    name = "custom_for_tests::mix"
    with registered({name: emits(name)}, opset=17):
        assert name in exported(lambda x: operator(x, x, [x], None, 0))


def test_parse_args_keeps_working() -> None:
    @parse_args("v", "f", "none")
    def symbolic(g: Any, x: Any, alpha: Any, unused: Any) -> Any:
        assert isinstance(alpha, float)
        return g.op("LeakyRelu", x, alpha_f=alpha)

    def described(function: Any) -> tuple[Any, ...]:
        return function._arg_descriptors, function.__name__, inspect.signature(function)

    op = "aten::rrelu_with_noise"
    with registered({op: symbolic}, opset=17):
        watched = registration.registry.get_function_group(op).get(17)
        assert watched is not symbolic
        assert described(watched) == described(symbolic)
    with registered({"aten::celu": parse_args("v", "f")(emits("Celu"))}, opset=17) as usage:
        assert exported(torch.celu) == ["Celu"]
    assert usage.ignored == {}, "a number that parse_args made is not a tensor input"


def test_registrars_register_in_their_own_way() -> None:
    def decorator() -> None:
        onnx_symbolic = functools.partial(registration.onnx_symbolic, opset=9)
        onnx_symbolic("aten::asinh")(emits("Asinh"))

    def function() -> None:
        register_custom_op_symbolic("aten::atan2", emits("Abs"), 9)

    before = snapshot()
    with registered({}, [decorator, function], opset=17) as usage:
        assert changed_since(before) == ["aten::asinh", "aten::atan2"]
        assert exported(lambda x: torch.atan2(x.asinh(), x)) == ["Asinh", "Abs"]
    assert changed_since(before) == []
    assert usage.calls == {"aten::asinh": 1, "aten::atan2": 1}
    assert usage.ignored == {"aten::atan2": ("other",)}


def test_symbolic_that_is_not_called_is_counted_as_such() -> None:
    with registered({"aten::asinh": emits("Asinh")}, opset=17) as usage:
        exported(torch.relu)
    assert usage.calls == {"aten::asinh": 0}


# --- undone exactly


def test_unknown_operator_is_unknown_again() -> None:
    before = snapshot()
    with registered({"aten::asinh": emits("Asinh")}, opset=17):
        assert changed_since(before) == ["aten::asinh"]
    assert changed_since(before) == []
    # torch's own unregistering fails this: it leaves an empty entry, and "min() arg is empty"
    with pytest.raises(UNSUPPORTED, match="'aten::asinh' to ONNX opset version 17"):
        exported(torch.asinh)


def test_undone_after_an_exception() -> None:
    before = snapshot()
    with pytest.raises(KeyboardInterrupt), registered({"aten::asinh": emits("Asinh")}, opset=17):
        raise KeyboardInterrupt
    assert changed_since(before) == []


@pytest.mark.parametrize("error", [ZeroDivisionError, errors.OnnxExporterError, ValueError])
def test_undone_when_registering_fails(error: type[Exception]) -> None:
    name = {errors.OnnxExporterError: "no namespace", ValueError: "onnx::Relu"}.get(error)
    fails = [lambda: 1 / 0] if name is None else []
    symbolics = {"aten::asinh": emits("Asinh")} | ({name: emits("Relu")} if name else {})
    before = snapshot()
    with pytest.raises(error), registered(symbolics, fails, opset=17):
        pytest.fail("entered")
    assert changed_since(before) == []
    register_custom_op_symbolic("aten::asinh", symbolic := emits("Asinh"), 17)
    assert registration.registry.get_function_group("aten::asinh").get(17) is symbolic, "watched"


def test_undone_one_after_another_and_nested() -> None:
    before = snapshot()
    for op_type in ("Asinh", "Sinh"):
        with registered({"aten::asinh": emits(op_type)}, opset=17):
            assert exported(torch.asinh) == [op_type]
    with registered({"aten::asinh": emits("Asinh")}, opset=17) as outer:
        between = snapshot()
        with registered({"aten::asinh": emits("Sinh")}, opset=17) as inner:
            assert exported(torch.asinh) == ["Sinh"]
        assert changed_since(between) == []
        assert exported(torch.asinh) == ["Asinh"]
    assert changed_since(before) == []
    assert outer.calls == inner.calls == {"aten::asinh": 1}


def test_builtin_is_back() -> None:
    with registered({"aten::relu": emits("Abs")}, opset=17):
        assert exported(torch.relu) == ["Abs"]
    assert exported(torch.relu) == ["Relu"]


@pytest.mark.parametrize("theirs", [9, 17])
def test_what_the_user_had_registered_is_back(theirs: int) -> None:
    register_custom_op_symbolic("aten::asinh", emits("Tan"), theirs)
    before = snapshot()
    with registered({"aten::asinh": emits("Asinh")}, opset=17):
        assert exported(torch.asinh) == ["Asinh"]
    assert changed_since(before) == []
    assert exported(torch.asinh) == ["Tan"]


def test_what_is_unregistered_inside_is_back() -> None:
    register_custom_op_symbolic("aten::asinh", emits("Asinh"), 9)
    before = snapshot()
    unregister = functools.partial(torch.onnx.unregister_custom_op_symbolic, "aten::asinh", 9)
    with registered({}, [unregister], opset=17):
        assert changed_since(before) == ["aten::asinh"]
    assert changed_since(before) == []


def test_onnxscript_function_that_a_symbolic_registers_is_undone() -> None:
    onnxscript = pytest.importorskip("onnxscript")
    namespace = onnxscript.values.Opset("custom_for_tests", 1)
    op = onnxscript.opset17

    @onnxscript.script(namespace, default_opset=op)
    def Double(x):  # type: ignore[no-untyped-def]
        return op.Add(x, x)

    before = snapshot()
    with registered({"aten::asinh": lambda g, x: g.onnxscript_op(Double, x)}, opset=17) as usage:
        assert exported(torch.asinh) == ["custom_for_tests::Double"]
        assert changed_since(before) == ["aten::asinh", "custom_for_tests::Double"]
    assert changed_since(before) == []
    assert usage.ignored == {}


def test_onnxscript_function_is_registered_as_it_is() -> None:
    class Script:  # what the exporter knows one by: it asks for the body and never calls it
        def to_function_proto(self) -> onnx.FunctionProto:
            raise NotImplementedError

    script = Script()
    register = functools.partial(register_custom_op_symbolic, "custom_for_tests::f", script, 1)
    with registered({}, [register], opset=17) as usage:
        assert registration.registry.get_function_group("custom_for_tests::f").get(1) is script
    assert usage.calls == {}


def test_builtins_that_torch_loads_late_survive() -> None:
    # in a fresh process, since this one has them all: the first export imports most of them
    program = (
        "from conformance.export.symbolics import *\n"
        "before = snapshot()\n"
        "with registered({'aten::asinh': lambda g, x: g.op('Asinh', x)}, opset=17):\n"
        "    import torch.onnx._internal.torchscript_exporter.symbolic_opset14\n"
        "assert not changed_since(before)\n"
        "from torch.onnx._internal.torchscript_exporter.registration import registry\n"
        "assert registry.get_function_group('aten::scaled_dot_product_attention') is not None\n"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", program], check=True, env=environment)


@pytest.mark.parametrize("missing", ["registry", "a new cache"])
def test_unknown_internals_are_one_clear_error(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    group = registration.registry.get_function_group("aten::relu")
    if missing == "registry":
        monkeypatch.delattr(registration, "registry")
    else:
        monkeypatch.setattr(group, "_cache", {}, raising=False)
    expected = f"torch {torch.__version__} keeps TorchScript symbolics in a way"
    for use in (snapshot, registered({}, opset=17).__enter__):
        with pytest.raises(RuntimeError, match=expected.replace("+", r"\+")):
            use()
    monkeypatch.undo()  # before anything else looks for the registry


# --- inputs that a symbolic drops


def ignored(symbolic: Callable[..., Any], model: Callable[..., Any]) -> tuple[str, ...]:
    """What `symbolic` ignores as custom_for_tests::mix in an export of `model`."""
    name = "custom_for_tests::mix"
    with registered({name: symbolic}, opset=17) as usage:
        exported(model)
    assert usage.calls[name] > 0
    return usage.ignored.get(name, ())


Mix = Callable[..., torch.Tensor]


def test_dropped_inputs_are_named_by_the_schema(operator: Mix) -> None:
    def model(x: torch.Tensor) -> torch.Tensor:
        return operator(x, x + 1, [x + 2, x + 3], x + 4, 0)

    def first(g: Any, x: Any, scale: Any, parts: Any, bias: Any, mode: Any) -> Any:
        return g.op("Abs", x)

    def one_part(g: Any, x: Any, scale: Any, parts: Any, bias: Any, mode: Any) -> Any:
        return g.op("Sum", x, scale, next(iter(parts.node().inputs())), bias)

    def all_parts(g: Any, x: Any, scale: Any, parts: Any, bias: Any, mode: Any) -> Any:
        return g.op("Sum", x, scale, *parts.node().inputs(), bias)

    def whole_list(g: Any, x: Any, scale: Any, parts: Any, bias: Any, mode: Any) -> Any:
        return g.op("Sum", x, scale, g.op("SequenceAt", parts, mode), bias)

    assert ignored(first, model) == ("scale", "parts[0]", "parts[1]", "bias")
    assert ignored(one_part, model) == ("parts[1]",)
    assert ignored(all_parts, model) == ()
    assert ignored(whole_list, model) == ()


def test_none_and_constants_are_not_dropped(operator: Mix) -> None:
    def model(x: torch.Tensor) -> torch.Tensor:
        return operator(x, torch.tensor(2.0), [], None, 3)

    @parse_args("v", "t", "v", "v", "i")
    def symbolic(g: Any, x: Any, scale: Any, parts: Any, bias: Any, mode: int) -> Any:
        return g.op("Elu", x, alpha_f=float(scale) + mode)

    assert ignored(symbolic, model) == ()


def test_use_through_further_nodes_and_symbolics_counts(operator: Mix) -> None:
    from torch.onnx import symbolic_opset9

    def symbolic(g: Any, x: Any, scale: Any, *_: Any) -> Any:
        shape = g.op("Shape", g.op("Cast", scale, to_i=1))
        return symbolic_opset9.relu(g, g.op("Expand", x, shape))

    assert ignored(symbolic, lambda x: operator(x, x + 1, [], None, 0)) == ()


def test_use_inside_the_body_of_an_if_counts(operator: Mix) -> None:
    from torch.onnx._internal.torchscript_exporter import jit_utils

    def symbolic(g: Any, x: Any, scale: Any, *_: Any) -> Any:
        condition = g.op("Constant", value_t=torch.tensor(True))
        result, bodies, _ = jit_utils.add_op_with_blocks(g, "If", condition, n_blocks=2)
        for body, value in zip(bodies, (x, scale), strict=True):
            body.block.registerOutput(body.op("Abs", value))
        result.setType(x.type())
        return result

    assert ignored(symbolic, lambda x: operator(x, x + 1, [], None, 0)) == ()


def test_use_by_a_node_that_leads_nowhere_does_not_count(operator: Mix) -> None:
    def symbolic(g: Any, x: Any, scale: Any, *_: Any) -> Any:
        g.op("Mul", x, scale)
        return g.op("Abs", x)

    assert ignored(symbolic, lambda x: operator(x, x + 1, [], None, 0)) == ("scale",)


def test_use_by_another_operator_does_not_count(operator: Mix) -> None:
    # scale is computed from x, x is used by what comes before and after
    def model(x: torch.Tensor) -> torch.Tensor:
        return operator(x, x + 1, [], None, 0) * x

    assert ignored(lambda g, x, scale, *_: g.op("Abs", scale), model) == ("x",)


def test_input_returned_unchanged_is_used(operator: Mix) -> None:
    model = functools.partial(lambda x: operator(x, x + 1, [], None, 0) * 2)
    assert ignored(lambda g, x, scale, *_: x, model) == ("scale",)


def test_node_that_a_symbolic_keeps_uses_all_inputs(operator: Mix) -> None:
    # None has the exporter copy the node as it is, which this one then cannot be stored as
    name = "custom_for_tests::mix"
    with registered({name: lambda *_: None}, opset=17) as usage, contextlib.suppress(RuntimeError):
        exported(lambda x: operator(x, x + 1, [], None, 0))
    assert usage.calls == {name: 1}
    assert usage.ignored == {}


def test_one_value_for_two_inputs_is_used_as_both(operator: Mix) -> None:
    assert ignored(emits("Abs"), lambda x: operator(x, x, [], None, 0)) == ()


def test_use_in_one_of_several_calls_is_enough(operator: Mix) -> None:
    def symbolic(g: Any, x: Any, scale: Any, parts: Any, bias: Any, mode: Any) -> Any:
        return g.op("Mul", x, scale) if mode.node().t("value") == 1 else g.op("Abs", x)

    def model(modes: list[int]) -> Callable[..., Any]:
        return lambda x: [operator(x, x + 1, [], x + 2, mode) for mode in modes]

    assert ignored(symbolic, model([0, 0])) == ("scale", "bias")
    for modes in ([0, 1], [1, 0]):
        assert ignored(symbolic, model(modes)) == ("bias",)


def test_operator_without_schema_lends_the_names_of_the_symbolic() -> None:
    class Scaled(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
            return x * scale

    def named(g: Any, x: Any, factor: Any, **_: Any) -> Any:
        return g.op("Abs", x)

    def unnamed(g: Any, *inputs: Any, **_: Any) -> Any:
        return g.op("Abs", inputs[0])

    for symbolic, name in ((named, "factor"), (unnamed, "1")):
        with registered({"prim::PythonOp": symbolic}, opset=17) as usage:
            exported(lambda x: Scaled.apply(x, x + 1))
        assert usage.ignored == {"prim::PythonOp": (name,)}


# --- deformable convolution, whose first registration in a tutorial drops three inputs


def deform_conv(g: Any, *inputs: Any) -> Any:
    x, weight, offset, mask, bias, *numbers = inputs
    stride, padding, dilation = ([_int(v) for v in numbers[i : i + 2]] for i in (0, 2, 4))
    groups, offset_groups, use_mask = (_int(v) for v in numbers[6:])
    return g.op(
        "DeformConv",
        x,
        weight,
        offset,
        bias,
        *([mask] if use_mask else []),
        strides_i=stride,
        pads_i=padding * 2,
        dilations_i=dilation,
        group_i=groups,
        offset_group_i=offset_groups,
    )


def _int(value: Any) -> int:
    return int(value.node().t("value"))


@pytest.mark.parametrize("masked", [False, True])
def test_deform_conv(masked: bool) -> None:
    ops = pytest.importorskip("torchvision.ops")
    model = ops.DeformConv2d(3, 4, 3)
    inputs = [torch.rand(1, 3, 5, 5), torch.rand(1, 18, 3, 3), torch.rand(1, 9, 3, 3)][: 2 + masked]
    name = "torchvision::deform_conv2d"

    @parse_args(*"vvvvv", *"iiiiiiii", "b")
    def lossy(g: Any, x: Any, weight: Any, offset: Any, *_: Any) -> Any:
        return g.op("custom::deform_conv2d", x, offset)

    with registered({name: lossy}, opset=17) as usage:
        assert "custom::deform_conv2d" in exported(model, *inputs)
    assert usage.ignored == {name: ("weight", "mask", "bias")}

    with registered({name: deform_conv}, opset=19) as usage:
        assert "DeformConv" in exported(model, *inputs, opset=19)
    assert usage.ignored == ({} if masked else {name: ("mask",)})

    # torch 2.9 does not fill in the name.
    with pytest.raises(UNSUPPORTED, match=r"unrecognized namespace (torchvision::deform_conv2d|\{op_name\})"):
        exported(model, *inputs)
