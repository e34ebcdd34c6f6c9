"""Verdicts that hang on the processor: what is shown, what is declared, and what a baseline makes of it. The
instruction sets of a host are given, so that each test sees both kinds on any host."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from conformance.baseline import compare_runs, gate, load
from conformance.bundle import replay
from conformance.bundle.layout import Bundle
from conformance.plan.catalogue import plan
from conformance.records import processor, text
from conformance.records.record import Record
from conformance.records.run_file import read_run
from conformance.records.settle import Expectation, settle
from conformance.runtimes import onnxruntime
from conformance.verdict import saturation
from conformance.worker.clock import Clock
from conformance.worker.progress import Progress
from tests import hosts
from tests.support import PASSED, Bench, load_case, problems_of, say, verdict

OLDER, NEWER, ARM = frozenset({"avx2", "f16c"}), frozenset({"avx2", "avx512_vnni"}), frozenset({"asimddp"})
NO_VNNI = "{has: avx2, lacks: [avx512_vnni, avx_vnni]}"
RECORDED = Path(__file__).parent / "hosts" / "lacks_vnni"

NET = """
import torch


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(32, 4)

    def forward(self, x):
        return self.layer(x)
"""
BODY = """
module: beside.Net
inputs: {x: "float32[batch, 32]"}
dims: {batch: 1..4}
runtimes: onnxruntime
specials: false
export: {torchscript: [17]}
precisions: {int8: {}}
"""


def declares(cpu: str, more: str = "") -> str:
    when = f"{{runtime: onnxruntime, precision: int8, cpu: {cpu}{more}}}"
    return say(BODY, f"fails: [{{when: {when}, stage: compare, because: eight-bit sums saturate}}]")


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path, tmp_path / "store")


def run(bench: Bench, instructions: frozenset[str], body: str = BODY) -> Record:
    """The int8 cell, as on a host with these instruction sets."""
    (cell,) = (one for one in bench.cells(body, NET) if (one.check, one.precision) == ("accuracy", "int8"))
    return bench.run_cell(cell, examples=2, instructions=instructions)


@pytest.fixture
def saturating(monkeypatch):
    """``saturating(heals)``: an ONNX Runtime whose answers are half of what they should be, but with the switch where
    that ``heals``."""

    def plant(heals: bool = True) -> None:
        original = onnxruntime.open_optimized

        @contextlib.contextmanager
        def planted(model, libraries, config=None):
            with original(model, libraries, {**(config or {}), **saturation.SWITCH}) as session:
                sound = session.run
                if not (heals and saturation.SWITCH.items() <= (config or {}).items()):
                    session.run = lambda inputs: [one / 2 for one in sound(inputs)]
                yield session

        monkeypatch.setattr(onnxruntime, "open_optimized", planted)

    return plant


# ---- what is shown ------------------------------------------------------------------------------------------


def test_saturation_is_named_where_the_switch_heals_it_and_the_text_says_what_to_do(bench, saturating):
    saturating()
    record = run(bench, OLDER)
    assert verdict(record) == ("failed", "compare", "WrongValue", "runtime")
    assert record.cause == {
        "name": "saturation", "shown_by": {"session.x64quantprecision": "1"}, "lacks": ["avx512_vnni", "avx_vnni"],
    }  # fmt: skip
    shown = text.failure(record.as_dict())
    assert "ONNX Runtime with session.x64quantprecision=1: is right" in shown
    for advice in (
        'config: {session.x64quantprecision: "1"}',
        "reduce_range: true",
        "cpu: {lacks: [avx512_vnni, avx_vnni]}",
    ):
        assert advice in shown


@pytest.mark.parametrize("instructions", [NEWER, frozenset({"avx_vnni"})], ids=["avx512_vnni", "avx_vnni"])
def test_on_a_processor_with_vnni_saturation_is_not_spoken_of(bench, saturating, instructions):
    saturating()
    record = run(bench, instructions)
    assert verdict(record) == ("failed", "compare", "WrongValue", "runtime")
    assert record.cause is None
    assert "x64quantprecision" not in text.failure(record.as_dict())


def test_a_processor_without_vnni_alone_is_no_proof(bench, saturating):
    saturating(heals=False)
    record = run(bench, OLDER)
    assert verdict(record) == ("failed", "compare", "WrongValue", "runtime")
    assert record.cause is None
    shown = text.failure(record.as_dict())
    assert "session.x64quantprecision=1: the same outputs" in shown
    assert "reduce_range" not in shown


def test_a_runtime_without_the_switch_leaves_it_open(bench, saturating, monkeypatch):
    """ONNX Runtime takes keys that it does not know without a word, so that they are looked for in its library."""
    saturating()
    monkeypatch.setattr(onnxruntime, "knows", lambda key: False)
    record = run(bench, OLDER)
    assert record.cause is None
    assert "this ONNX Runtime has no session.x64quantprecision" in text.failure(record.as_dict())


def test_a_model_without_quantized_nodes_is_not_asked():
    assert not saturation.possible({"MatMul": 3}, OLDER)
    assert saturation.possible({"MatMulInteger": 1}, OLDER)
    assert not saturation.possible({"MatMulInteger": 1}, NEWER)


def test_where_the_switch_is_set_uint8_shows_saturation_and_the_text_says_what_to_do(bench, monkeypatch):
    original = onnxruntime.open_optimized

    @contextlib.contextmanager
    def planted(model, libraries, config=None):
        points = {one.name: one.data_type for one in onnx.load(str(model)).graph.initializer}
        with original(model, libraries, config) as session:
            sound = session.run
            if onnx.TensorProto.UINT8 not in points.values():
                session.run = lambda inputs: [one / 2 for one in sound(inputs)]
            yield session

    monkeypatch.setattr(onnxruntime, "open_optimized", planted)
    body = say(BODY, "onnxruntime: {config: {session.x64quantprecision: 1}}")
    record = run(bench, OLDER, body)
    assert verdict(record) == ("failed", "compare", "WrongValue", "runtime")
    assert record.cause["shown_by"] == {"activations": "uint8"}
    shown = text.failure(record.as_dict())
    assert "ONNX Runtime with activations=uint8: is right" in shown
    assert "does not reach all products of two activations" in shown
    assert run(bench, NEWER, body).cause is None


def test_activations_in_uint8_mean_the_same_and_other_int8_stays():
    point = numpy_helper.from_array(np.array(3, np.int8), "point")
    scale = numpy_helper.from_array(np.array(0.1, np.float32), "scale")
    weights = numpy_helper.from_array(np.arange(-4, 4, dtype=np.int8).reshape(4, 2), "weights")
    make = helper.make_node
    nodes = [
        make("QuantizeLinear", ["x", "scale", "point"], ["q"]),
        make("DequantizeLinear", ["q", "scale", "point"], ["d"]),
        make("DequantizeLinear", ["weights", "scale", "point"], ["w"]), make("MatMul", ["d", "w"], ["y"]),
        make("QuantizeLinear", ["y", "scale", "point"], ["z"]),
    ]  # fmt: skip
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes, "g", [value("x", 1, [3, 4])], [value("y", 1, [3, 2]), value("z", 3, [3, 2])], [point, scale, weights]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    changed = saturation.unsigned(model)
    assert [node.input[2] for node in changed.graph.node if len(node.input) == 3] == [
        "point/uint8", "point/uint8", "point", "point",
    ], "weights and what the model returns are as they were"  # fmt: skip
    inputs = {"x": np.linspace(-20, 20, 12, dtype=np.float32).reshape(3, 4)}
    right, same = (ReferenceEvaluator(one).run(None, inputs) for one in (model, changed))
    assert all((one == other).all() for one, other in zip(right, same, strict=True))
    assert saturation.unsigned(changed) is None


def test_what_a_branch_takes_from_around_it_stays_int8():
    point = numpy_helper.from_array(np.array(3, np.int8), "point")
    scale = numpy_helper.from_array(np.array(0.1, np.float32), "scale")
    value = helper.make_tensor_value_info
    branch = helper.make_graph([], "branch", [], [value("q", onnx.TensorProto.INT8, [2])])
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "scale", "point"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "scale", "point"], ["d"]),
        helper.make_node("If", ["condition"], ["y"], then_branch=branch, else_branch=branch),
    ]
    inputs = [value("x", onnx.TensorProto.FLOAT, [2]), value("condition", onnx.TensorProto.BOOL, [])]
    outputs = [value("d", onnx.TensorProto.FLOAT, [2]), value("y", onnx.TensorProto.INT8, [2])]
    graph = helper.make_graph(nodes, "g", inputs, outputs, [point, scale])
    assert saturation.unsigned(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])) is None


def test_a_cell_that_came_close_to_its_limit_says_why(bench, monkeypatch):
    """It passes here, and would be further away on a processor that does not saturate."""
    original = onnxruntime.open_optimized

    @contextlib.contextmanager
    def planted(model, libraries, config=None):
        with original(model, libraries, {**(config or {}), **saturation.SWITCH}) as session:
            sound = session.run
            if not config:
                session.run = lambda inputs: [one * np.float32(1.008) for one in sound(inputs)]
            yield session

    monkeypatch.setattr(onnxruntime, "open_optimized", planted)
    record = run(bench, OLDER)
    assert verdict(record) == PASSED
    assert record.worst["ratio"] > 0.1
    assert record.cause["name"] == "saturation"
    assert run(bench, NEWER).cause is None


# ---- what is declared ---------------------------------------------------------------------------------------


def test_a_failure_declared_of_a_kind_of_processor_is_expected_there_alone(bench, saturating):
    saturating()
    older, newer = run(bench, OLDER, declares(NO_VNNI)), run(bench, NEWER, declares(NO_VNNI))
    assert (older.status, older.reason) == ("xfailed", "eight-bit sums saturate")
    assert older.declared_for == {"has": ["avx2"], "lacks": ["avx512_vnni", "avx_vnni"]}
    assert newer.status == "failed"
    assert newer.declared_for is None


def test_where_it_works_the_entry_is_out_of_date_on_that_kind_of_processor_alone(bench):
    body = say(declares(NO_VNNI), 'onnxruntime: {config: {session.x64quantprecision: "1"}}')
    assert run(bench, OLDER, body).status == "xpassed"
    assert verdict(run(bench, NEWER, body)) == PASSED
    assert verdict(run(bench, ARM, body)) == PASSED


def test_an_entry_about_some_draws_is_of_a_kind_of_processor_too(bench, saturating):
    saturating()
    body = declares(NO_VNNI, ", at: {batch: 4}")
    assert run(bench, OLDER, body).reason.startswith("output 0: SQNR 6.0 dB")  # the other sizes fail undeclared
    monkey = say(body, 'onnxruntime: {config: {session.x64quantprecision: "1"}}')
    record = run(bench, OLDER, monkey)
    assert (record.status, record.error) == ("failed", "UnexpectedPass")
    assert verdict(run(bench, NEWER, monkey)) == PASSED


@pytest.mark.parametrize("instructions", [OLDER, NEWER, ARM], ids=["older", "newer", "arm64"])
def test_conditions_on_the_processor_change_no_cell(tmp_path, monkeypatch, instructions):
    monkeypatch.setattr(processor, "instructions", lambda: instructions)
    body = say(BODY, f"fails: [{{when: {{cpu: {NO_VNNI}}}, stage: compare, because: wrong in fp32 too}}]")
    cells = [cell.id for cell in plan(load_case(tmp_path, body, NET))]
    assert "accuracy[planted-torchscript-op17-onnxruntime-int8]" in cells


@pytest.mark.parametrize("kind, there, about", [
    ({"lacks": ["avx512_vnni", "avx_vnni"]}, OLDER, True),
    ({"lacks": ["avx512_vnni", "avx_vnni"]}, NEWER, False),
    ({"has": ["avx512_vnni", "avx_vnni"]}, NEWER, True),
    ({"has": ["avx512_vnni", "avx_vnni"]}, OLDER, False),
    ({"has": ["avx2"], "lacks": ["avx512_vnni"]}, ARM, False),
    ({"has": ["asimddp"]}, ARM, True),
    ({}, frozenset(), True),
])  # fmt: skip
def test_has_means_any_of_them_and_lacks_none(kind, there, about):
    assert processor.is_of_kind(kind, there) == about


def expectation(**more) -> Expectation:
    return Expectation("compare", None, "because", None, "cases/x.yaml:3", True, **more)


def test_settling_leaves_entries_about_other_hosts_aside():
    passed = {
        "id": "x", "case": "x", "exporter": "dynamo", "opset": 20, "runtime": "onnxruntime", "precision": "int8",
        "check": "accuracy", "source": {},
    }  # fmt: skip
    entry = expectation(cpu={"has": ["avx2"], "lacks": ["avx512_vnni"]})
    assert settle(Record(**passed), [entry], NEWER).status == "passed"
    assert settle(Record(**passed), [entry], OLDER).status == "xpassed"
    assert settle(Record(**passed), [entry, expectation()], NEWER).status == "xpassed"
    assert Expectation.from_dict(entry.as_dict()) == entry


@pytest.mark.parametrize("cpu, words", [
    ("{lacks: [avx512_vni]}", "avx512_vnni"),
    ("{has: sse9}", "avx2"),
    ("{}", "name instruction sets under has"),
    ("{has: avx2, lacks: [avx2, f16c]}", "no processor has avx2 and lacks the same"),
    ("avx2", "cpu"),
])  # fmt: skip
def test_a_kind_of_processor_that_makes_no_sense_is_told_with_its_place(tmp_path, cpu, words):
    body = declares(cpu).replace("\n", "\n  ")
    (problem, *_) = problems_of(tmp_path, f"planted:\n  about: x\n  {body.strip()}\n")
    assert words in problem.message
    assert problem.line == 10


def test_a_graph_does_not_depend_on_the_processor(tmp_path):
    body = say(BODY, "graph: [{when: {cpu: {has: avx2}}, nodes: {Gemm: 1}}]").replace("\n", "\n  ")
    (problem,) = problems_of(tmp_path, f"planted:\n  about: x\n  {body.strip()}\n")
    assert "does not depend on the processor" in problem.message


# ---- what is advised can be typed -----------------------------------------------------------------------------


def test_session_options_reach_onnx_runtime_and_the_record(bench):
    record = run(bench, OLDER, say(BODY, "onnxruntime: {config: {session.x64quantprecision: 1}}"))
    assert verdict(record) == PASSED
    assert record.arithmetic["config"] == {"session.x64quantprecision": "1"}


def test_a_session_option_that_this_onnx_runtime_does_not_know_stops_the_cell(bench):
    record = run(bench, OLDER, say(BODY, "onnxruntime: {config: {session.x64quantprecison: 1}}"))
    assert verdict(record) == ("failed", "load", "UnknownOption", "case")
    assert "did you mean 'session.x64quantprecision'?" in record.reason


def test_a_reduced_range_leaves_weights_of_seven_bits(bench):
    body = BODY.replace("int8: {}", "int8: {reduce_range: true}")
    cells = {one.check: one for one in bench.cells(body, NET) if one.precision == "int8"}
    records = {check: bench.run_cell(cell, examples=2) for check, cell in cells.items()}
    assert {verdict(record) for record in records.values()} == {PASSED}
    assert records["fidelity"].conversion["reduce_range"] is True
    models = [onnx.load(file) for file in bench.store.rglob("model.onnx")]
    (model,) = (one for one in models if any(node.op_type == "QuantizeLinear" for node in one.graph.node))
    weights = [
        numpy_helper.to_array(one) for one in model.graph.initializer if one.data_type == onnx.TensorProto.INT8
    ]
    assert 32 <= max(int(np.abs(one.astype(int)).max()) for one in weights) <= 64


def test_a_reduced_range_is_for_int8(tmp_path):
    body = BODY.replace("int8: {}", "fp16: {reduce_range: true}").replace("\n", "\n  ")
    (problem,) = problems_of(tmp_path, f"planted:\n  about: x\n  {body.strip()}\n")
    assert problem.message == "reduce_range is for int8"


# ---- bundles ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("more", ["", ", at: {batch: 4}"], ids=["cell", "draws"])
def test_a_bundle_carries_the_condition_and_settles_it_where_it_is_replayed(tmp_path, monkeypatch, more, saturating):
    from tests.test_bundle import pack

    code, place = pack(tmp_path, declares(NO_VNNI, more), NET, "--runtime", "onnxruntime", "--precision", "int8")
    assert code == 0
    bundle = Bundle(place)
    (entry,) = bundle.entries

    def replayed(instructions: frozenset[str]) -> Record:
        monkeypatch.setattr(replay, "instructions", lambda: instructions)
        return replay.run_entry(Progress(), place, entry, "onnxruntime", tmp_path / "engines")

    monkeypatch.setattr(onnxruntime, "open_optimized", _with_the_switch(onnxruntime.open_optimized))
    assert replayed(NEWER).status == "passed"
    fewer = replayed(OLDER)
    assert fewer.status == "passed"  # a wrong value need not show in the examples that are packed
    assert (fewer.examples < replayed(NEWER).examples) == bool(more)
    saturating()
    assert replayed(NEWER).status == "failed"
    if not more:
        record = replayed(OLDER)
        assert (record.status, record.cause["name"]) == ("xfailed", "saturation")


def _with_the_switch(original):
    return lambda model, libraries, config=None: original(model, libraries, {**(config or {}), **saturation.SWITCH})


# ---- baselines ----------------------------------------------------------------------------------------------


def header(*instructions: str, **more) -> dict:
    return {
        "schema": 1,
        "seconds": 1.0,
        "environment": {"cpu": {"name": "A", "instructions": [*instructions]}, **more},
    }


def change(before: dict, after: dict, old: dict, new: dict):
    from tests.baseline.support import record

    (found,) = compare_runs((before, [record(**old)]), (after, [record(**new)]))
    return found


XFAILED = {"status": "xfailed", "stage": "compare", "error": "WrongValue", "reason": "because", "fault": "runtime"}
FAILED = {**XFAILED, "status": "failed"}
FOR = {"declared_for": {"has": ["avx2"], "lacks": ["avx512_vnni", "avx_vnni"]}}
CAUSE = {"cause": {"name": "saturation", "shown_by": dict(saturation.SWITCH), "lacks": [*saturation.VNNI]}}
VNNI, NONE = header("avx2", "avx512_vnni"), header("avx2")


@pytest.mark.parametrize("before, after, new, regression, said", [
    pytest.param(VNNI, NONE, {**XFAILED, **FOR}, False, "declared for processors with avx2, without avx512_vnni and",
                 id="declared for this kind"),
    pytest.param(VNNI, NONE, XFAILED, True, "", id="declared for all"),
    pytest.param(header("avx2", "f16c"), NONE, {**XFAILED, **FOR}, True, "", id="passed on this kind before"),
    pytest.param(NONE, NONE, {**XFAILED, **FOR}, True, "", id="passed on this processor before"),
    pytest.param({"schema": 1, "seconds": 1.0}, NONE, {**XFAILED, **FOR}, False, "declared for", id="unknown before"),
    pytest.param(header("avx9000"), NONE, {**XFAILED, **FOR}, False, "declared for", id="words that nobody knows"),
    pytest.param(VNNI, NONE, {**FAILED, **CAUSE}, False, "shown by session.x64quantprecision=1", id="shown"),
    pytest.param(VNNI, NONE, FAILED, True, "", id="not shown"),
    pytest.param(NONE, VNNI, {**FAILED, **CAUSE}, True, "", id="the earlier processor saturates as well"),
    pytest.param(VNNI, NONE, {"worst": {"ratio": 0.6}, **CAUSE}, False, "shown by", id="closer, shown"),
    pytest.param(VNNI, NONE, {"worst": {"ratio": 0.6, "rounding": 0.3}}, False, "than rounding",
                 id="closer, rounding"),
    pytest.param(VNNI, NONE, {"worst": {"ratio": 0.6, "rounding": 2.5}}, True, "", id="closer, more than rounding"),
    pytest.param(VNNI, NONE, {"worst": {"ratio": 0.6}}, True, "", id="closer, nobody knows why"),
    pytest.param(NONE, NONE, {"worst": {"ratio": 0.6, "rounding": 0.3}}, True, "", id="closer, the same processor"),
])  # fmt: skip
def test_a_difference_is_put_down_to_the_processor_where_the_record_shows_it(before, after, new, regression, said):
    found = change(before, after, {}, new)
    assert found.regression == regression
    assert said in found.text


@pytest.mark.parametrize("cpu", [None, "AMD EPYC", {"name": "A"}, {"instructions": None}, {"instructions": [7]}, []])
def test_a_baseline_whose_words_do_not_name_its_processor_is_compared_all_the_same(cpu):
    from conformance.baseline import environment_changes
    from tests.baseline.support import record

    before = {"schema": 1, "seconds": 1.0, "environment": {"cpu": cpu}}
    (found,) = compare_runs((before, [record()]), (NONE, [record(**FAILED)]))
    assert (found.kind, found.regression) == ("newly failing", True)
    assert isinstance(environment_changes((before, []), (NONE, [])), list)


# ---- the other kind of processor ------------------------------------------------------------------------------


def test_the_recorded_run_of_a_processor_without_vnni_has_no_regression_and_shows_why():
    """Of the shipped cases at int8, recorded with ``python -m tests.hosts``."""
    recorded, baseline = read_run(RECORDED), load(Path(__file__).parents[1] / "reports/baseline.jsonl")
    there = {one["id"] for one in recorded[1]}
    assert recorded[0]["environment"]["cpu"]["instructions"] == ["avx2", "f16c"]
    assert gate(compare_runs(baseline, recorded, selected=there)) == 0
    declared = [one for one in recorded[1] if one["declared_for"]]
    assert len(declared) == 3
    assert {one["cause"]["name"] for one in declared} == {"saturation"}
    bare = [{**one, "declared_for": None, "cause": None} for one in recorded[1]]
    assert gate(compare_runs(baseline, (recorded[0], bare), selected=there)) >= 3


def test_instruction_sets_can_be_hidden_from_a_process():
    """Where this host can: then ONNX Runtime is seen to saturate, and to stop with the switch."""
    try:
        hidden = hosts.avx2_only()
    except hosts.CannotHide as reason:
        pytest.skip(str(reason))
    found = subprocess.run(
        [sys.executable, "-c", _SATURATES], env={**dict(os.environ), **hidden}, capture_output=True, text=True,
        check=True, cwd=Path(__file__).parents[1],
    )  # fmt: skip
    assert found.stdout.splitlines() == ["[]", "False", "True"]


_SATURATES = """
import numpy as np, onnx, onnxruntime
from conformance.records.processor import instructions
from tests.hosts import HIDDEN
print(sorted({*HIDDEN} & instructions()))
x, w = np.full((1, 64), 255, np.uint8), np.full((64, 8), 127, np.int8)
node = onnx.helper.make_node("MatMulInteger", ["x", "w"], ["y"])
value = onnx.helper.make_tensor_value_info
graph = onnx.helper.make_graph(
    [node], "g", [value("x", 2, [1, 64])], [value("y", 6, [1, 8])], [onnx.numpy_helper.from_array(w, "w")]
)
model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
for switch in (False, True):
    options = onnxruntime.SessionOptions()
    if switch:
        options.add_session_config_entry("session.x64quantprecision", "1")
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    print(bool((session.run(None, {"x": x})[0] == 64 * 255 * 127).all()))
"""


# ---- time on a busy host --------------------------------------------------------------------------------------


class _Told(Clock):
    """A clock that is told what the kernel counts."""

    def __init__(self, monkeypatch, waits: dict[str, float]) -> None:
        self.waits, self.now = waits, 100.0
        monkeypatch.setattr("conformance.worker.clock.time.monotonic", lambda: self.now)
        super().__init__(1)

    def _waits(self) -> dict[str, float]:
        return dict(self.waits)


def test_waiting_for_a_processor_does_not_count_against_the_limit(monkeypatch):
    clock = _Told(monkeypatch, {"1": 5.0})
    clock.now += 1
    assert clock.seconds() == 1
    clock.now += 9
    clock.waits = {"1": 11.0, "2": 2.0}
    assert clock.seconds() == 4


def test_a_process_that_sleeps_or_computes_runs_into_its_limit(monkeypatch):
    clock = _Told(monkeypatch, {"1": 5.0})
    clock.now += 1
    assert clock.seconds() == 1
    clock.now += 9
    assert clock.seconds() == 10


def test_however_busy_the_host_is_there_is_an_end(monkeypatch):
    clock = _Told(monkeypatch, {"1": 0.0})
    clock.now += 1
    clock.seconds()
    clock.now += 99
    clock.waits = {"1": 99.0}
    assert clock.seconds() == 10


def test_the_kernel_s_counts_are_read_by_thread_in_seconds(tmp_path):
    for thread, counts in {"17": "900 2500000000 4", "18": "900 0 4", "19": "damaged"}.items():
        (tmp_path / thread).mkdir()
        (tmp_path / thread / "schedstat").write_text(counts)
    clock = Clock(os.getpid())
    clock._tasks = tmp_path
    assert clock._waits() == {"17": 2.5, "18": 0.0}
    clock._tasks = tmp_path / "gone"
    assert clock._waits() == {}
