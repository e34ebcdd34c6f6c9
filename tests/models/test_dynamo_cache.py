"""The dynamo cache: the same bytes as plain torch, whatever happened between two exports."""

from collections.abc import Iterator
from typing import Any

import pytest

from conformance.models.exporters import dynamo_cache
from tests.kit.calls import count_calls

torch = pytest.importorskip("torch")
onnxscript = pytest.importorskip("onnxscript")

from onnxscript import opset18 as op  # noqa: E402
from onnxscript.function_libs.torch_lib.registration import default_registry  # noqa: E402
from torch._export import utils as export_utils  # noqa: E402
from torch.export import decomp_utils  # noqa: E402
from torch.onnx._internal.exporter import _schemas  # noqa: E402

DYNAMIC = torch.export.Dim.DYNAMIC

needs_known_torch = pytest.mark.skipif(
    torch.__version__.split(".")[:2] != dynamo_cache.TORCH_VERSION.split("."),
    reason=f"the cache steps aside unless torch is {dynamo_cache.TORCH_VERSION}",
)


@pytest.fixture(autouse=True)
def plain_torch(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Begin and end without the cache."""
    dynamo_cache.uninstall()
    monkeypatch.delenv(dynamo_cache.OFF_SWITCH, raising=False)
    yield
    dynamo_cache.uninstall()  # the next export of a cell installs it again


class Elementwise(torch.nn.Module):
    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Any) -> Any:
        return self.function(x)


class TwoOutputs(torch.nn.Module):
    def forward(self, x: Any, y: Any) -> Any:
        return torch.cat([x, y]).softmax(-1), x.sum() - y.mean()


def conv_bn_relu() -> Any:
    conv = torch.nn.Conv2d(3, 4, 3, padding=1)
    return torch.nn.Sequential(conv, torch.nn.BatchNorm2d(4), torch.nn.ReLU())


def asinh_as_log(x):  # type: ignore[no-untyped-def]
    """A translation of asinh that shows in the graph, as no built-in one has this form."""
    return op.Log(op.Add(x, op.Sqrt(op.Add(op.Mul(x, x), op.Constant(value_float=1.0)))))


def asinh_as_sinh(x):  # type: ignore[no-untyped-def]
    """Wrong on purpose: tells a registration that was noticed from one that was not."""
    return op.Sinh(x)


def export(model: Any, *args: Any, **options: Any) -> bytes:
    """Export as a user does; bytes in an order that does not vary."""
    model.eval()
    program = torch.onnx.export(model, args, dynamo=True, verbose=False, **options)
    return program.model_proto.SerializeToString(deterministic=True)  # type: ignore[no-any-return]


def operators(model: bytes) -> list[str]:
    import onnx

    return [node.op_type for node in onnx.load_model_from_string(model).graph.node]


ASINH = Elementwise(torch.asinh)
X = torch.linspace(-2, 2, 10).reshape(2, 5)
TABLE = {torch.ops.aten.asinh.default: asinh_as_log}

EXPORTS = {
    "asinh": (ASINH, (X,), {}),
    "conv-bn-relu": (conv_bn_relu(), (torch.ones(2, 3, 5, 7),), {}),
    "two-outputs": (TwoOutputs(), (X, X[:1] + 1), {}),
    "translation-table": (ASINH, (X,), {"custom_translation_table": TABLE}),
    "dynamic": (TwoOutputs(), (X, X + 1), {"dynamic_shapes": ({0: DYNAMIC}, {0: DYNAMIC})}),
    "converted-to-17": (ASINH, (X,), {"opset_version": 17}),
    "opset-18": (torch.nn.GELU(), (X,), {"opset_version": 18}),
    "opset-20": (torch.nn.GELU(), (X,), {"opset_version": 20}),
}


@needs_known_torch
@pytest.mark.parametrize("names", [
    pytest.param(["asinh", "translation-table"], id="few"),
    pytest.param([*EXPORTS], id="all", marks=pytest.mark.thorough),
])  # fmt: skip
def test_bytes_are_those_of_plain_torch(names):
    """All exports in one process, each right after the others, so that what leaks would show."""

    def export_all() -> list[bytes]:
        return [export(model, *args, **options) for model, args, options in map(EXPORTS.__getitem__, names)]

    infer, materialize = _schemas.op_signature_from_function, export_utils._materialize_cpp_cia_ops
    with count_calls(infer, materialize) as calls:
        plain = export_all()
    assert calls[infer.__name__] > 300 and calls[materialize.__name__] > 20
    made = {name: operators(model) for name, model in zip(names, plain, strict=True)}
    assert made["asinh"] == ["Asinh"] and "Log" in made["translation-table"]
    assert "Gelu" not in made.get("opset-18", []) and made.get("opset-20", ["Gelu"]) == ["Gelu"]

    assert dynamo_cache.install() is None
    assert [export_all() == plain for _ in range(2)] == [True, True]
    with count_calls(infer, materialize) as calls:  # a cache that never answers would pass every test of bytes
        export(ASINH, X)
    assert calls == {materialize.__name__: 2}, "the decomposition table is read once and split once"


@needs_known_torch
def test_operator_defined_after_an_export_is_seen():
    """Twice under one name: what C++ lists is then the same, what Python must look up is not."""

    def define_and_export(kernel: Any) -> bytes:
        assert not is_collected()
        library = torch.library.Library("conformance_cache", "DEF")
        try:
            library.define("late(Tensor x) -> Tensor")
            library.impl("late", kernel, "CompositeImplicitAutograd")
            assert is_collected()
            return export(Elementwise(lambda x: torch.ops.conformance_cache.late(x)), X)
        finally:
            library._destroy()

    def is_collected() -> bool:
        collected = decomp_utils._collect_all_valid_cia_ops()
        return any(operator.name() == "conformance_cache::late" for operator in collected)

    assert dynamo_cache.install() is None
    export(ASINH, X)
    made = [define_and_export(kernel) for kernel in (lambda x: x.sinh(), lambda x: x.cosh())]
    assert [operators(model) for model in made] == [["Sinh"], ["Cosh"]]


@needs_known_torch
def test_function_registered_anew_is_seen(monkeypatch):
    assert dynamo_cache.install() is None
    before = export(ASINH, X)
    replacement = onnxscript.values.TracedOnnxFunction(
        onnxscript.values.Opset("pkg.onnxscript.torch_lib", 1), asinh_as_sinh
    )
    with monkeypatch.context() as registration:
        registration.setattr(default_registry["aten::asinh"], "overloads", [replacement])
        assert operators(export(ASINH, X)) == ["Sinh"]
    assert export(ASINH, X) == before


def replaceable() -> list[object]:
    from onnxscript._framework_apis import torch_2_11
    from torch.export import exported_program

    return [
        torch_2_11.get_torchlib_ops,
        getattr(_schemas, "op_signature_from_function", None),  # torch 2.9 has none, and the cache steps aside
        export_utils._materialize_cpp_cia_ops,
        decomp_utils._collect_all_valid_cia_ops,
        exported_program._collect_all_valid_cia_ops,
    ]


def op_signature_from_function(func: Any, opset: int) -> None: ...


@pytest.mark.parametrize("module, name, other, words", [
    pytest.param(torch, "__version__", "2.16.0", ["2.16.0"], id="an unknown torch"),
    pytest.param(export_utils, "_materialize_cpp_cia_ops", None, ["_materialize_cpp_cia_ops"], id="an internal gone",
                 marks=needs_known_torch),
    pytest.param(_schemas, "op_signature_from_function", op_signature_from_function,
                 ["op_signature_from_function", "opset"], id="other parameters", marks=needs_known_torch),
])  # fmt: skip
def test_the_cache_steps_aside_where_torch_is_built_otherwise(monkeypatch, module, name, other, words):
    before = replaceable()
    with monkeypatch.context() as internals:
        if other is None:
            internals.delattr(module, name)
        else:
            internals.setattr(module, name, other)
        reason = dynamo_cache.install()
    assert reason is not None and "\n" not in reason and [word for word in words if word not in reason] == []
    assert replaceable() == before, "nothing is replaced"


def test_the_cache_can_be_switched_off(monkeypatch):
    before = replaceable()
    monkeypatch.setenv("CONFORMANCE_DYNAMO_CACHE", "0")
    assert dynamo_cache.install() == "dynamo cache: switched off by CONFORMANCE_DYNAMO_CACHE=0"
    assert replaceable() == before
