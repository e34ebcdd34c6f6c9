"""Symbolics apply to one export, are undone exactly, and it is known which inputs they drop."""

import copy
import functools
import importlib
import io
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

from conformance.models.exporters.symbolics import changed_since, registered, snapshot

X = torch.linspace(-2, 2, 6).reshape(2, 3)
UNSUPPORTED = errors.UnsupportedOperatorError


def exported(function: Callable[..., Any], opset: int = 17) -> list[str]:
    """Op types of the graph, exported for any batch; "domain::type" outside ONNX's own domain."""
    model, file = torch.nn.Module(), io.BytesIO()
    model.forward = lambda x: function(x)
    names: dict[str, Any] = {"input_names": ["x"], "dynamic_axes": {"x": {0: "batch"}}}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(model, (X,), file, dynamo=False, opset_version=opset, **names)
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


@pytest.mark.parametrize("operator, symbolic, opset, function, nodes", [
    *(("aten::asinh", emits("Asinh"), opset, torch.asinh, ["Asinh"]) for opset in (7, 9, 12, 17, 20)),
    # torch has gelu at 9 and 20: registered at 9 only, the symbolic would be passed over at 20
    ("aten::gelu", emits("Tanh"), 20, torch.nn.functional.gelu, ["Tanh"]),
    # a number that parse_args made is not a tensor input
    ("aten::celu", parse_args("v", "f")(emits("Celu")), 17, torch.celu, ["Celu"]),
    ("aten::asinh", emits("Asinh"), 17, torch.relu, ["Relu"]),
])  # fmt: skip
def test_a_symbolic_applies_at_the_opset_and_its_calls_are_counted(operator, symbolic, opset, function, nodes):
    with registered({operator: symbolic}, opset=opset) as usage:
        assert exported(function, opset=opset) == nodes
    assert usage.calls == {operator: int(nodes != ["Relu"])} and usage.ignored == {}


def test_node_may_be_called_like_its_operator(operator):
    # the exporter looks up the node's own name, at the version of its domain, which is 1
    name = "custom_for_tests::mix"
    with registered({name: emits(name)}, opset=17):
        assert name in exported(lambda x: operator(x, x, [x], None, 0))


def test_registrars_register_in_their_own_way():
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
    assert usage.calls == {"aten::asinh": 1, "aten::atan2": 1} and usage.ignored == {"aten::atan2": ("other",)}


def test_unknown_operator_is_unknown_again():
    before = snapshot()
    with registered({"aten::asinh": emits("Asinh")}, opset=17):
        assert changed_since(before) == ["aten::asinh"]
    assert changed_since(before) == []
    # torch's own unregistering fails this: it leaves an empty entry, and "min() arg is empty"
    with pytest.raises(UNSUPPORTED, match="'aten::asinh' to ONNX opset version 17"):
        exported(torch.asinh)


@pytest.mark.parametrize("name, registrars, error", [
    (None, [lambda: 1 / 0], ZeroDivisionError), ("no namespace", [], errors.OnnxExporterError),
])  # fmt: skip
def test_undone_when_registering_fails(name, registrars, error):
    symbolics = {"aten::asinh": emits("Asinh"), **({name: emits("Relu")} if name else {})}
    before = snapshot()
    with pytest.raises(error), registered(symbolics, registrars, opset=17):
        pytest.fail("entered")
    assert changed_since(before) == []
    register_custom_op_symbolic("aten::asinh", symbolic := emits("Asinh"), 17)
    assert registration.registry.get_function_group("aten::asinh").get(17) is symbolic, "watched"


@pytest.mark.parametrize("theirs", [9, 17])
def test_what_the_user_had_registered_is_back(theirs):
    """Also where it was unregistered inside."""
    register_custom_op_symbolic("aten::asinh", emits("Tan"), theirs)
    before = snapshot()
    with registered({"aten::asinh": emits("Asinh")}, opset=17):
        assert exported(torch.asinh) == ["Asinh"]
    assert changed_since(before) == []
    with registered({}, [lambda: torch.onnx.unregister_custom_op_symbolic("aten::asinh", theirs)], opset=17):
        assert changed_since(before) == ["aten::asinh"]
    assert changed_since(before) == []
    assert exported(torch.asinh) == ["Tan"]


def test_onnxscript_function_that_a_symbolic_registers_is_undone():
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


LATE = "torch.onnx._internal.torchscript_exporter.symbolic_opset14"


def load_late(progress: object) -> tuple[bool, list[str], bool]:
    """Return whether torch knew opset 14 before, which registrations changed, and whether attention is registered."""
    known, before = LATE in sys.modules, snapshot()
    with registered({"aten::asinh": emits("Asinh")}, opset=17):
        importlib.import_module(LATE)
    group = registration.registry.get_function_group("aten::scaled_dot_product_attention")
    return known, changed_since(before), group is not None


def test_builtins_that_torch_loads_late_survive(worker):
    """Whether or not the process knows them before, as the server that it is forked from imports most of them."""
    assert worker.call(load_late, timeout=60)[1:] == ([], True)


@pytest.mark.parametrize("missing", ["registry", "a new cache"])
def test_unknown_internals_are_one_clear_error(missing, monkeypatch):
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


Mix = Callable[..., torch.Tensor]


def ignored(symbolic: Callable[..., Any], model: Callable[..., Any]) -> tuple[str, ...]:
    """What `symbolic` ignores as custom_for_tests::mix in an export of `model`."""
    name = "custom_for_tests::mix"
    with registered({name: symbolic}, opset=17) as usage:
        exported(model)
    assert usage.calls[name] > 0
    return usage.ignored.get(name, ())


@parse_args("v", "t", "v", "v", "i")
def of_constants(g: Any, x: Any, scale: Any, parts: Any, bias: Any, mode: int) -> Any:
    return g.op("Elu", x, alpha_f=float(scale) + mode)


def through_other_nodes_and_symbolics(g: Any, x: Any, scale: Any, *_: Any) -> Any:
    from torch.onnx import symbolic_opset9

    shape = g.op("Shape", g.op("Cast", scale, to_i=1))
    return symbolic_opset9.relu(g, g.op("Expand", x, shape))


def inside_the_body_of_an_if(g: Any, x: Any, scale: Any, *_: Any) -> Any:
    from torch.onnx._internal.torchscript_exporter import jit_utils

    condition = g.op("Constant", value_t=torch.tensor(True))
    result, bodies, _ = jit_utils.add_op_with_blocks(g, "If", condition, n_blocks=2)
    for body, value in zip(bodies, (x, scale), strict=True):
        body.block.registerOutput(body.op("Abs", value))
    result.setType(x.type())
    return result


def by_a_node_that_leads_nowhere(g: Any, x: Any, scale: Any, *_: Any) -> Any:
    g.op("Mul", x, scale)
    return g.op("Abs", x)


MODELS: dict[str, Callable[[Mix, torch.Tensor], torch.Tensor]] = {
    "all": lambda mix, x: mix(x, x + 1, [x + 2, x + 3], x + 4, 0), "two": lambda mix, x: mix(x, x + 1, [], None, 0),
    "two, and more after it": lambda mix, x: mix(x, x + 1, [], None, 0) * x, "constants": lambda mix,
    x: mix(x, torch.tensor(2.0), [], None, 3), "one value twice": lambda mix, x: mix(x, x, [], None, 0),
}  # fmt: skip


@pytest.mark.parametrize("model, symbolic, dropped", [
    ("all", emits("Abs"), ("scale", "parts[0]", "parts[1]", "bias")),
    pytest.param("all", lambda g, x, s, parts, b, _: g.op("Sum", x, s, next(iter(parts.node().inputs())), b),
                 ("parts[1]",), id="one part"),
    pytest.param("all", lambda g, x, s, parts, b, mode: g.op("Sum", x, s, g.op("SequenceAt", parts, mode), b),
                 (), id="whole list"),
    ("constants", of_constants, ()), ("two", through_other_nodes_and_symbolics, ()),
    ("two", inside_the_body_of_an_if, ()), ("two", by_a_node_that_leads_nowhere, ("scale",)),
    # scale is computed from x, and x is used by what comes before and after
    pytest.param("two, and more after it", lambda g, x, scale, *_: g.op("Abs", scale), ("x",), id="another operator"),
    pytest.param("two, and more after it", lambda g, x, *_: x, ("scale",), id="returned unchanged"),
    ("one value twice", emits("Abs"), ()),
])  # fmt: skip
def test_dropped_inputs_are_named_by_the_schema(operator, model, symbolic, dropped):
    assert ignored(symbolic, functools.partial(MODELS[model], operator)) == dropped


def test_use_in_one_of_several_calls_is_enough(operator):
    def symbolic(g: Any, x: Any, scale: Any, parts: Any, bias: Any, mode: Any) -> Any:
        return g.op("Mul", x, scale) if mode.node().t("value") == 1 else g.op("Abs", x)

    def model(modes: list[int]) -> Callable[..., Any]:
        return lambda x: [operator(x, x + 1, [], x + 2, mode) for mode in modes]

    assert ignored(symbolic, model([0, 0])) == ("scale", "bias")
    for modes in ([0, 1], [1, 0]):
        assert ignored(symbolic, model(modes)) == ("bias",)


def test_operator_without_schema_lends_the_names_of_the_symbolic():
    class Scaled(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
            return x * scale

    def named(g: Any, x: Any, factor: Any, **_: Any) -> Any:
        return g.op("Abs", x)

    with registered({"prim::PythonOp": named}, opset=17) as usage:
        exported(lambda x: Scaled.apply(x, x + 1))
    assert usage.ignored == {"prim::PythonOp": ("factor",)}


def test_nested_registrations_are_undone_one_by_one():
    before = snapshot()
    with registered({"aten::asinh": emits("Asinh")}, opset=17) as outer:
        between = snapshot()
        with registered({"aten::asinh": emits("Sinh")}, opset=17) as inner:
            assert exported(torch.asinh) == ["Sinh"]
        assert changed_since(between) == []
        assert exported(torch.asinh) == ["Asinh"]
    assert changed_since(before) == []
    assert outer.calls == inner.calls == {"aten::asinh": 1}
