"""The dynamo cache: the same bytes as plain torch, whatever happened between two exports."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from conformance.export import dynamo_cache

torch = pytest.importorskip("torch")
onnxscript = pytest.importorskip("onnxscript")

from onnxscript import opset18 as op  # noqa: E402
from onnxscript.function_libs.torch_lib.registration import default_registry  # noqa: E402
from torch._export import utils as export_utils  # noqa: E402
from torch.export import decomp_utils  # noqa: E402
from torch.onnx._internal.exporter import _schemas  # noqa: E402
from torch.onnx._internal.exporter._registration import ONNXRegistry  # noqa: E402

DYNAMIC = torch.export.Dim.DYNAMIC

needs_known_torch = pytest.mark.skipif(
    torch.__version__.split(".")[:2] != dynamo_cache.TORCH_VERSION.split("."),
    reason=f"the cache steps aside unless torch is {dynamo_cache.TORCH_VERSION}",
)


@pytest.fixture(autouse=True)
def plain_torch(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Begin without the cache, and leave the process as it was found."""
    was_active = bool(dynamo_cache._originals)
    dynamo_cache.uninstall()
    monkeypatch.delenv(dynamo_cache.OFF_SWITCH, raising=False)
    yield
    dynamo_cache.uninstall()
    if was_active:
        dynamo_cache.install()


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
    "linear": (torch.nn.Linear(5, 3), (X,), {}),
    "conv-bn-relu": (conv_bn_relu(), (torch.ones(2, 3, 5, 7),), {}),
    "two-outputs": (TwoOutputs(), (X, X[:1] + 1), {}),
    "translation-table": (ASINH, (X,), {"custom_translation_table": TABLE}),
    "dynamic": (TwoOutputs(), (X, X + 1), {"dynamic_shapes": ({0: DYNAMIC}, {0: DYNAMIC})}),
    "dynamic-conv": (
        conv_bn_relu(),
        (torch.ones(2, 3, 5, 7),),
        {"dynamic_shapes": ({0: DYNAMIC, 2: DYNAMIC, 3: DYNAMIC},)},
    ),
    "converted-to-17": (ASINH, (X,), {"opset_version": 17}),
    "opset-18": (torch.nn.GELU(), (X,), {"opset_version": 18}),
    "opset-20": (torch.nn.GELU(), (X,), {"opset_version": 20}),
}


@needs_known_torch
def test_bytes_are_those_of_plain_torch() -> None:
    """All exports in one process, each right after the others, so that what leaks would show."""

    def export_all() -> dict[str, bytes]:
        return {name: export(model, *args, **options) for name, (model, args, options) in EXPORTS.items()}

    plain = export_all()
    assert operators(plain["asinh"]) == ["Asinh"]
    assert "Log" in operators(plain["translation-table"])
    assert "Gelu" not in operators(plain["opset-18"])
    assert operators(plain["opset-20"]) == ["Gelu"]

    assert dynamo_cache.install() is None
    for _ in range(2):
        cached = export_all()
        assert [name for name in EXPORTS if cached[name] != plain[name]] == []


@needs_known_torch
def test_what_is_remembered_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counts instead of times: a cache that never answers would pass every test of bytes."""
    inferred: list[str] = []
    materialized: list[bool] = []
    infer, materialize = _schemas.op_signature_from_function, export_utils._materialize_cpp_cia_ops

    def counting_infer(
        func: Any, domain: str, name: Any = None, overload: str = "", *, since_version: int = 1
    ) -> Any:
        inferred.append(domain)
        return infer(func, domain, name, overload, since_version=since_version)

    def counting_materialize() -> None:
        materialized.append(True)
        materialize()

    monkeypatch.setattr(_schemas, "op_signature_from_function", counting_infer)
    monkeypatch.setattr(export_utils, "_materialize_cpp_cia_ops", counting_materialize)
    export(ASINH, X)
    assert len(inferred) > 300
    assert len(materialized) > 20

    assert dynamo_cache.install() is None
    export(ASINH, X)
    inferred.clear()
    materialized.clear()
    export(ASINH, X)
    assert inferred == []
    assert len(materialized) == 2  # the decomposition table is read once and split once


@needs_known_torch
def test_registries_share_nothing_that_can_change() -> None:
    assert dynamo_cache.install() is None
    first, second = ONNXRegistry.from_torchlib(20), ONNXRegistry.from_torchlib(20)
    [mine], [other] = first.functions["aten::asinh"], second.functions["aten::asinh"]
    assert mine is not other
    assert mine.signature == other.signature
    assert mine.signature is not other.signature
    assert mine.signature.params is not other.signature.params
    first.functions["aten::asinh"].clear()
    assert second.functions["aten::asinh"] == [other]


@needs_known_torch
def test_operator_defined_after_an_export_is_seen() -> None:
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

    kernels = [lambda x: x.sinh(), lambda x: x.cosh()]
    plain = [define_and_export(kernel) for kernel in kernels]
    assert [operators(model) for model in plain] == [["Sinh"], ["Cosh"]]

    assert dynamo_cache.install() is None
    export(ASINH, X)
    assert [define_and_export(kernel) for kernel in kernels] == plain


@needs_known_torch
def test_function_registered_anew_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    assert dynamo_cache.install() is None
    before = export(ASINH, X)
    replacement = onnxscript.values.TracedOnnxFunction(
        onnxscript.values.Opset("pkg.onnxscript.torch_lib", 1), asinh_as_sinh
    )
    with monkeypatch.context() as registration:
        registration.setattr(default_registry["aten::asinh"], "overloads", [replacement])
        cached = export(ASINH, X)
        dynamo_cache.uninstall()
        assert export(ASINH, X) == cached
        assert operators(cached) == ["Sinh"]
        assert dynamo_cache.install() is None
        assert export(ASINH, X) == cached
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


@needs_known_torch
def test_uninstall_restores_everything() -> None:
    before = replaceable()
    assert dynamo_cache.install() is None
    during = replaceable()
    assert dynamo_cache.install() is None
    assert replaceable() == during
    assert not any(new is old for new, old in zip(during, before, strict=True))
    dynamo_cache.uninstall()
    dynamo_cache.uninstall()
    assert replaceable() == before


def check_steps_aside(*words: str) -> None:
    before = replaceable()
    reason = dynamo_cache.install()
    assert reason is not None
    assert "\n" not in reason
    assert [word for word in words if word not in reason] == []
    assert replaceable() == before


def test_off_switch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONFORMANCE_DYNAMO_CACHE", "0")
    check_steps_aside("switched off", "CONFORMANCE_DYNAMO_CACHE=0")


def test_steps_aside_for_an_unknown_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "__version__", "2.16.0")
    check_steps_aside("2.16.0")


@needs_known_torch
def test_steps_aside_when_an_internal_has_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as internals:
        internals.delattr(export_utils, "_materialize_cpp_cia_ops")
        reason = dynamo_cache.install()
    assert reason is not None
    assert "_materialize_cpp_cia_ops" in reason
    assert dynamo_cache._originals == []


@needs_known_torch
def test_steps_aside_when_an_internal_takes_other_parameters(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def op_signature_from_function(func: Any, opset: int) -> None: ...

    monkeypatch.setattr(_schemas, "op_signature_from_function", op_signature_from_function)
    check_steps_aside("op_signature_from_function", "opset")


@needs_known_torch
def test_steps_aside_when_a_user_has_a_function_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decomp_utils, "_collect_all_valid_cia_ops", lambda: set())
    check_steps_aside("_collect_all_valid_cia_ops")
