"""The place where no values differ: of a model that the checker refuses, an export that stops, a wrong dtype."""

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import pytest
import torch
from onnx import helper
from onnxscript import opset18 as op
from torch.onnx._internal.exporter import _decomp, _dispatching

from conformance.case.plan.settings import Settings
from conformance.cells.runner import Runner
from conformance.diagnose.operators.dynamo import SeenByDynamo, of_graph
from conformance.process.worker.isolation import Worker
from conformance.results.records import text
from conformance.results.records.location import places_of
from tests.kit.cases import case_of, details, module_of, say, verdict
from tests.kit.planting import planted, untyped, wrapping
from tests.kit.warm_python import warm_python
from tests.plants.edits import behind, plus
from tests.plants.plant import Planted, Planting
from tests.plants.planting import exported

pytestmark = pytest.mark.own_store


@pytest.fixture(autouse=True, scope="module")
def _warm() -> Iterator[None]:
    with warm_python():
        yield


PYTHON = """
import torch
import torch.nn.functional as F
class Net(torch.nn.Module):
    def part(self, x):
        y = torch.tanh(x)
        return F.hardswish(y * 3)  # here
    def forward(self, x):
        return torch.relu(self.part(torch.sin(x)) + 1)
"""
TRACE = """
import torch
class Trace(torch.nn.Module):
    def forward(self, x):
        y = torch.sin(x)
        return y + torch.trace(y)
"""
HERE = {"line": "beside.py:7", "source": "return F.hardswish(y * 3)  # here", "operator": "aten.hardswish"}
TORCHSCRIPT, DYNAMO = "export: {torchscript: [17]}", "export: {dynamo: [18]}"
NET, SMALL = module_of("Net"), {"smallest": True, "smallest_seconds": 600.0}


def symbolic(function: Callable[..., Any], operator: str = "hardswish") -> Planting:
    """The symbolic of TorchScript's exporter for an operator is another one."""

    @contextlib.contextmanager
    def planting(times: Planted) -> Iterator[None]:
        from torch.onnx._internal.torchscript_exporter.registration import registry

        def wrong(*arguments: Any) -> Any:
            times.note()
            return function(*arguments)

        group = registry.get_function_group(f"aten::{operator}")
        with mock.patch.object(group, "get", lambda opset: wrong):
            yield

    return planting


def lowering(function: Callable[..., Any], operator: str = "hardswish") -> Planting:
    """The function of torchlib for an operator is another one."""

    def dispatched(original: Any, node: Any, registry: Any) -> Any:
        own = str(node.target).startswith(f"aten.{operator}.")
        return (function, "") if own else original(node, registry)

    return wrapping(_dispatching, "dispatch", dispatched)


def decomposition(function: Callable[..., Any], operator: Any) -> Planting:
    """An operator is decomposed in another way before it is translated."""

    def table(original: Any, registry: Any) -> Any:
        return {**original(registry), operator: function}

    return wrapping(_decomp, "create_onnx_friendly_decomposition_table", table)


def of_no_overload(x: Any) -> Any:
    return torch.ops.aten.add(x)


def unknown(g: Any, x: Any) -> Any:
    return g.op("NoSuchOperator", x)


def stopping(*_: Any) -> Any:
    raise RuntimeError("not thought of")


def mixed(x: Any) -> Any:
    return op.Mul(op.HardSigmoid(x), op.Cast(x, to=11))


def of_another_rank(x: Any) -> Any:
    one = op.Constant(value_ints=[1])
    return op.Unsqueeze(op.HardSwish(x), op.Sub(one, one))  # which nobody sees before constants are folded


def mean_of_rows(x: Any, *_: Any, **__: Any) -> Any:
    return op.ReduceMean(x, op.Constant(value_ints=[1]), keepdims=0)


def as_double(g: Any, x: Any) -> Any:
    return g.op("Cast", g.op("HardSwish", x), to_i=11)


def off_by_little(g: Any, x: Any) -> Any:
    return g.op("Mul", g.op("HardSwish", x), g.op("Constant", value_t=torch.tensor(1.00003)))


def from_zero(g: Any, x: Any) -> Any:
    return g.op("Sub", g.op("Constant", value_t=torch.tensor(0.0)), x)


def of_no_mode(g: Any, x: Any, _: Any) -> Any:
    return g.op("DepthToSpace", x, blocksize_i=2, mode_s="CDR")


def from_one(*_: Any, **__: Any) -> Any:
    return op.Constant(value_floats=[1.0, 2.0, 3.0, 4.0])


class Refused(NamedTuple):
    """A planted defect, the verdict on its cell, and what the record has of the operator."""

    export: str
    planting: Planting
    found: tuple[str, str]
    told: dict[str, Any]
    said: str
    check: str = "export"
    case: str = NET
    small: tuple[str, ...] = ("aten.hardswish",)


REFUSED = {
    "an operator that ONNX lacks": Refused(
        TORCHSCRIPT, symbolic(unknown), ("check", "ValidationError"),
        {**HERE, "how": "refused", "type": "NoSuchOperator"}, "the checker refuses what becomes of beside.py:7"),
    "types that do not go together": Refused(
        DYNAMO, lowering(mixed), ("check", "InferenceError"),
        {**HERE, "how": "refused", "type": "Mul", "stage": "translation"},
        "the checker refuses what becomes of beside.py:7"),
    "a shape that a pass shows, which is not to blame": Refused(
        DYNAMO, lowering(of_another_rank), ("check", "InferenceError"),
        {**HERE, "how": "refused", "type": "Unsqueeze", "stage": "translation", "passes": None},
        "the checker refuses what becomes of beside.py:7"),
    "a symbolic that raises": Refused(
        TORCHSCRIPT, symbolic(stopping), ("export", "RuntimeError"), {**HERE, "how": "raises"},
        "the exporter stops at beside.py:7"),
    "a lowering that raises": Refused(
        DYNAMO, lowering(stopping), ("export", "ConversionError"), {**HERE, "how": "raises"},
        "the exporter stops at beside.py:7"),
    "a decomposition that raises": Refused(
        DYNAMO, decomposition(of_no_overload, torch.ops.aten.trace.default), ("export", "ConversionError"),
        {"operator": "aten.trace", "line": "beside.py:6", "source": "return y + torch.trace(y)", "how": "raises"},
        "the exporter stops at beside.py:6", case=module_of("Trace"), small=("aten.trace",)),
    "a dtype": Refused(
        TORCHSCRIPT, symbolic(as_double), ("compare", "WrongDtype"),
        {"operator": "aten.hardswish", "how": "dtype", "got": "float64", "wanted": "float32"},
        "its inputs agree; got the dtype float64, wanted float32", "accuracy",
        say("forward: F.hardswish(torch.sin(x) * 3)", 'inputs: {x: "float32[batch, 4]"}', "dims: {batch: 1..4}")),
    "a dtype that a node after it does not take": Refused(
        DYNAMO, lowering(mean_of_rows, "mean"), ("check", "InferenceError"),
        {"operator": "aten.mean", "how": "refused", "type": "Mul", "got": "float32", "wanted": "float64"},
        "for what is computed of it: got the dtype float32, wanted float64",
        case=say("forward: torch.sin(x.mean(1, dtype=torch.float64)) * 2", 'inputs: {x: "float32[batch, 4]"}',
                 "dims: {batch: 1..4}"),
        small=("aten.mean",)),
    "a mode that the operator does not have": Refused(
        TORCHSCRIPT, symbolic(of_no_mode, "pixel_shuffle"), ("load", "Fail"),
        {"operator": "aten.pixel_shuffle", "type": "DepthToSpace", "breaks": "mode CDR is none of CRD, DCR"},
        "  its inputs break the operator's rules: mode CDR", "accuracy",
        say("forward: F.pixel_shuffle(torch.sin(x), 2)", 'inputs: {x: "float32[batch, 4, 2, 2]"}',
            "dims: {batch: 1..4}"), ("aten.pixel_shuffle",)),
    "values that are off by little": Refused(
        TORCHSCRIPT, symbolic(off_by_little), ("compare", "WrongValue"), {**HERE, "how": "value"},
        "first wrong operator at beside.py:7", "accuracy"),
    "a call without tensors": Refused(
        DYNAMO, lowering(from_one, "arange"), ("compare", "WrongValue"), {"operator": "aten.arange"},
        "its inputs agree", "accuracy",
        say("forward: torch.arange(4.0) * 2 + x", 'inputs: {x: "float32[batch, 4]"}', "dims: {batch: 1..4}"),
        ("aten.arange",)),
}  # fmt: skip
OF_OWN_CODE = (
    "an operator that ONNX lacks", "a dtype", "a mode that the operator does not have",
    "values that are off by little",
)  # fmt: skip
"""Whose symbolic, which a file that is no exporter's registers, is seen to make the node."""


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=[pytest.mark.thorough] * (row.export == DYNAMO)) for name, row in REFUSED.items()
])  # fmt: skip
def test_the_operator_is_named_with_its_line_and_its_smallest_function(bench, name):
    row = REFUSED[name]
    with planted(row.planting):
        python = TRACE if "Trace" in row.case else PYTHON
        record = bench.run(say(row.case, row.export), python, check=row.check, **SMALL)
    fault = "case" if name in OF_OWN_CODE else "exporter"
    assert verdict(record) == ("failed", *row.found, fault) and record.operator is not None, record.reason
    assert {key: record.operator.get(key) for key in row.told} == row.told, record.operator
    assert any(line.startswith(row.said) for line in details(record))
    assert record.smallest is not None and record.smallest["operators"] == [*row.small], record.smallest
    if "decomposition" in name:
        assert "Declaration: aten::add.Tensor(" in f"{record.reason}"


def test_a_zero_of_the_other_sign_is_named_behind_a_wrong_infinity(bench):
    with planted(symbolic(from_zero, "neg")):
        record = bench.run(say(case_of("torch.reciprocal(-torch.relu(x)) * 2"), TORCHSCRIPT))
    assert verdict(record) == ("failed", "compare", "WrongInf", "case"), record.reason
    assert (record.operator["operator"], record.operator["type"]) == ("aten.neg", "Sub"), record.operator
    assert any("neg(0) got 0, wanted -0" in line for line in details(record))


SECOND = {
    "the checker refuses": (TORCHSCRIPT, partial(symbolic, unknown), "the checker refuses what becomes of"),
    "the exporter stops": (TORCHSCRIPT, partial(symbolic, stopping), "the exporter stops at"),
    "the exporter stops, dynamo": (DYNAMO, partial(lowering, stopping), "the exporter stops at"),
}  # fmt: skip


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=[pytest.mark.thorough] * (row[0] == DYNAMO)) for name, row in SECOND.items()
])  # fmt: skip
def test_a_second_operator_is_told_and_another_call_of_the_first_is_none(bench, name):
    export, wrong, said = SECOND[name]
    case = say(NET.replace("Net", "Twice"), export)
    python = f"{PYTHON}\nclass Twice(Net):\n    def forward(self, x):\n        return self.part(self.part(x))\n"
    with planted(wrong()):
        alone = bench.run(case.replace("1..4", "1..5"), python, check="export").operator
    with planted(wrong("tanh")), wrong()(Planted()):  # which is met where another process asks for it
        record = bench.run(case, python, check="export")
    assert alone is not None and alone["line"] == "beside.py:7" and "second" not in alone, alone
    assert record.operator is not None and record.operator["operator"] == "aten.tanh", record.operator
    second = record.operator["second"]
    assert (second["operator"], second["line"]) == ("aten.hardswish", "beside.py:7"), second
    said = f"with that put right, {said} beside.py:7  return F.hardswish(y * 3)  # here  (aten.hardswish) as well"
    assert said in details(record), details(record)


def test_values_that_are_wrong_beside_a_refused_operator_are_told(bench):
    with planted(symbolic(unknown), symbolic(unary("Cos"), "sin")):
        record = bench.run(say(NET, TORCHSCRIPT), PYTHON, check="export")
    told = record.operator or {}
    assert told["operator"] == "aten.hardswish", told
    assert {key: told["second"][key] for key in ("operator", "line", "how")} == {
        "operator": "aten.sin", "line": "beside.py:9", "how": "value"}, told["second"]  # fmt: skip
    assert any(line.startswith("with that put right, beside.py:9  ") for line in details(record)), details(record)


def test_values_that_pytorch_leaves_open_beside_a_refused_operator_are_not(bench):
    forward = "F.hardswish(x)[:, :2] + torch.topk(torch.zeros_like(x), 2)[1]"  # of which one slice hands on
    with planted(symbolic(unknown), exported(untyped(behind("TopK", plus(1, "int64"), 1)))):
        record = bench.run(case_of(forward, x="[batch, 4]"), check="export")
    assert record.operator is not None and record.operator["operator"] == "aten.hardswish", record.as_dict()
    assert "second" not in record.operator, record.operator


def test_what_asserts_sizes_is_no_call_of_a_program():
    """As torch.export has it of a size that it takes for another than 1."""
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    graph.call_function(torch.ops.aten._assert_scalar.default, (False, "Ne(s0, 1)"))
    graph.output((graph.call_function(torch.ops.aten.sin.default, (x,)),))
    program = of_graph(torch.fx.GraphModule(torch.nn.Module(), graph), SeenByDynamo(), {})
    assert [one.operator for one in program.operators] == ["aten.sin"]
    assert float(program.run([torch.zeros(())])[0]) == 0.0


@pytest.mark.parametrize("export", [
    "torchscript: {opsets: [17], symbolics: {aten::hardswish: tests.kit.fatal.lowers}}",
    pytest.param("dynamo: {opsets: [18], translations: {aten::hardswish: tests.kit.fatal.lowers}}",
                 marks=pytest.mark.thorough),
])  # fmt: skip
def test_an_export_that_ends_its_process_has_the_operator_and_line(bench, export):
    cell = bench.cells(say(NET, f"export: {{{export}}}"), PYTHON)[0]
    with Worker() as worker:
        record = Runner(Settings(store=bench.store), 60, worker)(cell)
    assert (record.stage, record.error, record.fault) == ("export", "SIGSEGV", "exporter")
    known = {"stage": "translation", "how": "crashes", "place": "file", "file": "beside.py"}
    assert record.operator == HERE | known
    assert "the process ends at beside.py:7" in text.failure(record)


def test_a_refused_node_that_no_call_stands_behind_is_named_itself(bench):
    """As a pass over the graph may add one: before anything that was translated, from an input."""

    def add(model: Any) -> int:
        model.graph.node.insert(0, helper.make_node("NoSuchOperator", [model.graph.input[0].name], ["z"], "added"))
        model.graph.output.append(helper.make_tensor_value_info("z", 1, None))
        return 1

    with planted(exported(add)):
        record = bench.run(say(NET, TORCHSCRIPT), PYTHON, check="export")
    told = record.operator or {}
    assert (told.get("place"), told.get("node"), told.get("type")) == ("node", "added", "NoSuchOperator"), record
    places = [Path(file).name for file, _ in places_of(record)]
    assert (record.fault, "operator" in told, places) == ("exporter", False, ["planted.yaml"]), record
    assert any("added" in line for line in details(record)), details(record)


def unary(kind: str) -> Callable[..., Any]:
    return lambda g, x: g.op(kind, x)


def sliced_by_numbers(g: Any, x: Any) -> Any:
    def constant(value: Any) -> Any:
        return g.op("Constant", value_t=torch.tensor(value))

    size = g.op("Gather", g.op("Shape", x), constant(0))
    return g.op("Slice", g.op("HardSwish", x), g.op("Sub", size, size), size, constant([0]))


def test_a_node_that_breaks_the_rules_of_its_operator_is_the_one_beside_another_defect(bench):
    """Of the nodes that one operator became: starts and ends that are numbers and no lists of them."""
    case = say(NET, TORCHSCRIPT)
    for plants in ([], [symbolic(unary("Cos"), "sin")]):
        fault = "exporter" if plants else "case"  # whose code makes the first wrong operator
        with planted(symbolic(sliced_by_numbers), *plants):
            record = bench.run(case.replace("1..4", f"1..{5 + len(plants)}"), PYTHON)
        assert (record.status, record.fault, record.conclusion) == ("failed", fault, "rules"), record.operator
        places = [record.operator or {}, (record.operator or {}).get("second") or {}]
        (told,) = (one for one in places if one.get("operator") == "aten.hardswish")
        assert (told["line"], told["type"]) == ("beside.py:7", "Slice"), told
        assert told.get("breaks", told) == "the starts: no axes instead of one axis", told
    assert not any("or another of" in line for line in details(record))
    assert any(one.get("operator") == "aten.sin" for one in places), places
