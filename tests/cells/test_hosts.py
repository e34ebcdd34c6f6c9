"""Verdicts that hang on the processor: what is shown, what is declared, and what a baseline makes of it. The
instruction sets of a host are given, so that each test sees both kinds on any host."""

import contextlib
import dataclasses
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from onnx.reference import ReferenceEvaluator

from conformance.case.plan.catalogue import plan
from conformance.cells.replay.replay_bundle import run_entry
from conformance.diagnose.nodes import saturation
from conformance.diagnose.nodes.other_runtime import Asked
from conformance.models.bundle.bundle_layout import Bundle
from conformance.process.arrays import same
from conformance.process.worker.isolation import Clock
from conformance.process.worker.progress_note import Progress
from conformance.results.baseline.baseline_file import load
from conformance.results.baseline.change import blocking
from conformance.results.baseline.run_comparison import compare_runs
from conformance.results.records import text
from conformance.results.records.processor import is_of_kind
from conformance.results.records.record import Record
from conformance.results.records.run_file import read_run
from conformance.results.records.settle import Expectation, settle
from conformance.results.records.testimony import advice
from conformance.runtimes import onnxruntime, openvino
from tests.cells.test_bundle import pack
from tests.kit.cases import PASSED, QUICK, Bench, load_case, module_of, problems_of, say, verdict
from tests.kit.models import model_of
from tests.kit.modules import net_of
from tests.kit.runtimes import altered, replaced_runtime
from tests.results.baseline.support import record as a_record

OLDER, NEWER, ARM = frozenset({"avx2", "f16c"}), frozenset({"avx2", "avx512_vnni"}), frozenset({"asimddp"})
NO_VNNI = "{has: avx2, lacks: [avx512_vnni, avx_vnni]}"
RECORDED = Path(__file__).parent.parent / "hosts" / "lacks_vnni"

NET = net_of("self.layer(x)", layer="Linear(32, 4)")
BODY = say(module_of("Net", shape="batch, 32"), QUICK, "precisions: {int8: {}}")


def declares(cpu: str) -> str:
    when = f"{{runtime: onnxruntime, precision: int8, cpu: {cpu}}}"
    return say(BODY, f"fails: [{{when: {when}, stage: compare, because: eight-bit sums saturate}}]")


def run(bench: Bench, instructions: frozenset[str], body: str = BODY) -> Record:
    """The int8 cell, as on a host with these instruction sets."""
    cell = bench.cell(body, NET, precision="int8")
    return bench.run_cell(cell, examples=2, instructions=instructions)


ByConfig = Callable[[Path, Mapping[str, str], list[Any]], list[Any]]


@pytest.fixture
def plant() -> Iterator[Callable[[ByConfig], None]]:
    """``plant(alter)``: an ONNX Runtime whose answers are what ``alter(model, config, outputs)`` makes of them.

    The kernels below saturate on no processor, whatever ``config`` says, so that all hosts compute alike.
    """
    with contextlib.ExitStack() as stack:

        def plant_(alter: ByConfig) -> None:
            def by_config(original: Any) -> Any:
                @contextlib.contextmanager
                def open_altered(model, libraries, config=None):
                    with original(model, libraries, {**(config or {}), **saturation.SWITCH}) as session:
                        run = session.run
                        session.run = lambda inputs: alter(Path(model), config or {}, run(inputs))
                        yield session

                return open_altered

            stack.enter_context(replaced_runtime(by_config))

        yield plant_


def halved(outputs: list[Any]) -> list[Any]:
    return [one / 2 for one in outputs]


def saturating(model: Path, config: Mapping[str, str], outputs: list[Any]) -> list[Any]:
    """Half of what is right, but with the switch."""
    return outputs if saturation.SWITCH.items() <= config.items() else halved(outputs)


# ---- what is shown ------------------------------------------------------------------------------------------
def test_saturation_is_named_where_the_switch_heals_it_and_the_text_says_what_to_do(bench, plant):
    plant(saturating)
    record = run(bench, OLDER)
    assert verdict(record) == ("failed", "compare", "WrongValue", "runtime")
    assert record.cause == {
        "name": "saturation", "shown_by": {"session.x64quantprecision": "1"}, "lacks": ["avx512_vnni", "avx_vnni"],
    }  # fmt: skip
    shown = text.failure(record)
    assert "ONNX Runtime with session.x64quantprecision=1: is right" in shown
    assert 'config: {session.x64quantprecision: "1"}' in shown and "reduce_range: true" in shown


def test_where_the_switch_stops_at_a_shared_zero_point_each_weight_has_its_own(tmp_path, monkeypatch):
    """As ONNX Runtime 1.32 does on such processors (``findings/runtime-precise-products-of-a-shared-zero.sh``)."""
    weights = "<float scale={1}, int8 zero = {3}, int8[2, 2] first = {-4, 3, 2, 1}, int8[2, 2] second = {5, 6, 7, 0}>"
    model = model_of(
        f"""g (float[3, 2] x) => (float[3, 2] y) {weights} {{
        u = DequantizeLinear (first, scale, zero)  v = DequantizeLinear (second, scale, zero)
        a = MatMul (x, u)  y = MatMul (a, v)
    }}""",
        21,
    )
    inputs = {"x": np.linspace(-2, 2, 6, dtype=np.float32).reshape(3, 2)}
    right = ReferenceEvaluator(model).run(None, inputs)

    def refusing(runtime, file, libraries, inputs, config):
        assert saturation.SWITCH.items() <= config.items() and not saturation.OWN_POINTS.keys() & config.keys()
        changed = onnx.load(file)
        points = [node.input[2] for node in changed.graph.node if node.op_type == "DequantizeLinear"]
        if len({*points}) < len(points):
            return Asked(None, "stops", "Fail")
        return Asked(ReferenceEvaluator(changed).run(None, inputs))

    onnx.save(model, tmp_path / "net.onnx")
    monkeypatch.setattr(saturation.other_runtime, "ask", refusing)
    monkeypatch.setattr(onnxruntime, "knows", lambda key: True)
    found = saturation.ask(
        "onnxruntime", tmp_path / "net.onnx", [], {}, inputs, halved(right), lambda got: same(got, right)
    )
    assert found.answer == "agrees" and found.config == {**saturation.SWITCH, **saturation.OWN_POINTS}
    told = "\n".join(advice(saturation.cause_shown_by(found)))
    assert 'config: {session.x64quantprecision: "1"}' in told and "a zero point of its own" in told
    assert saturation.with_own_points(saturation.with_own_points(model)) is None


def test_a_processor_without_vnni_alone_is_no_proof(bench, plant):
    plant(lambda model, config, outputs: halved(outputs))
    record = run(bench, OLDER)
    assert verdict(record) == ("failed", "compare", "WrongValue", "runtime") and record.cause is None
    shown = text.failure(record)
    assert "session.x64quantprecision=1: the same outputs" in shown and "reduce_range" not in shown


@pytest.mark.parametrize("saturates", [True, False])
def test_openvino_is_asked_in_float32_which_shows_saturation_or_none(bench, saturates):
    names = ["openvino"] if saturates else ["openvino", "openvino-float32"]

    def in_float32(original: Any) -> Any:
        return altered(openvino.open_in_float32, lambda inputs, outputs: halved(outputs))

    body = BODY.replace("runtimes: onnxruntime", "runtimes: openvino")
    with replaced_runtime(in_float32, *names):
        record, newer = run(bench, OLDER, body), run(bench, NEWER, body)
    assert verdict(record) == ("failed", "compare", "WrongValue", "runtime")
    shown = text.failure(record)
    assert newer.cause is None and "LP_TRANSFORMS_MODE" not in text.failure(newer)
    if saturates:
        assert record.cause["name"] == "saturation" and record.cause["shown_by"] == {"LP_TRANSFORMS_MODE": "NO"}
        assert "OpenVINO with LP_TRANSFORMS_MODE=NO: is right" in shown
        assert 'compile_model(..., {LP_TRANSFORMS_MODE: "NO"})' in shown and "session." not in shown
    else:
        assert record.cause is None and "OpenVINO with LP_TRANSFORMS_MODE=NO: the same outputs" in shown


def test_a_runtime_without_the_switch_leaves_it_open(bench, plant, monkeypatch):
    """ONNX Runtime takes keys that it does not know without a word, so that they are looked for in its library."""
    plant(saturating)
    monkeypatch.setattr(onnxruntime, "knows", lambda key: False)
    record = run(bench, OLDER)
    assert record.cause is None
    assert "this ONNX Runtime has no session.x64quantprecision" in text.failure(record)


def test_where_the_switch_is_set_uint8_shows_saturation_and_the_text_says_what_to_do(bench, plant):
    def halved_without_uint8(model, config, outputs):
        types = {one.data_type for one in onnx.load(model).graph.initializer}
        return outputs if onnx.TensorProto.UINT8 in types else halved(outputs)

    plant(halved_without_uint8)
    body = say(BODY, "onnxruntime: {config: {session.x64quantprecision: 1}}")
    record = run(bench, OLDER, body)
    assert verdict(record) == ("failed", "compare", "WrongValue", "runtime")
    assert record.cause["shown_by"] == {"activations": "uint8"}
    assert record.arithmetic["config"] == {"session.x64quantprecision": "1"}
    shown = text.failure(record)
    assert "ONNX Runtime with activations=uint8: is right" in shown
    assert "does not reach all products of two activations" in shown
    assert run(bench, NEWER, body).cause is None


def test_activations_in_uint8_mean_the_same_and_other_int8_stays():
    weights = "<float scale = {0.1}, int8 point = {3}, int8[4, 2] weights = {-4, -3, -2, -1, 0, 1, 2, 3}>"
    model = model_of(
        f"""g (float[3, 4] x) => (float[3, 2] y, int8[3, 2] z) {weights} {{
        q = QuantizeLinear (x, scale, point)  d = DequantizeLinear (q, scale, point)
        w = DequantizeLinear (weights, scale, point)  y = MatMul (d, w)  z = QuantizeLinear (y, scale, point)
    }}""",
        21,
    )
    changed = saturation.unsigned(model)
    points = [node.input[2] for node in changed.graph.node if len(node.input) == 3]
    assert points == ["point/uint8", "point/uint8", "point", "point"], "weights and what the model returns stay"
    inputs = {"x": np.linspace(-20, 20, 12, dtype=np.float32).reshape(3, 4)}
    right, same = (ReferenceEvaluator(one).run(None, inputs) for one in (model, changed))
    assert all((one == other).all() for one, other in zip(right, same, strict=True))
    assert saturation.unsigned(changed) is None


def test_a_cell_that_came_close_to_its_limit_says_why(bench, plant):
    """It passes here, and would be further away on a processor that does not saturate."""
    plant(lambda model, config, outputs: outputs if config else [one * np.float32(1.008) for one in outputs])
    record = run(bench, OLDER)
    assert verdict(record) == PASSED and record.worst["ratio"] > 0.1 and record.cause["name"] == "saturation"
    assert run(bench, NEWER).cause is None


# ---- what is declared ---------------------------------------------------------------------------------------
def test_a_failure_declared_of_a_kind_of_processor_is_expected_there_alone(bench, plant):
    plant(saturating)
    older, newer = run(bench, OLDER, declares(NO_VNNI)), run(bench, NEWER, declares(NO_VNNI))
    assert (older.status, older.reason) == ("xfailed", "eight-bit sums saturate")
    assert older.declared_for == {"has": ["avx2"], "lacks": ["avx512_vnni", "avx_vnni"]}
    assert newer.status == "failed" and newer.declared_for is None


@pytest.mark.parametrize("kind", ["{has: avx2}", "{lacks: avx2}"])
def test_conditions_on_the_processor_change_no_cell(tmp_path, kind):
    """A failure that is declared of fp32 on all processors leaves nothing to convert; one of a kind of them does not,
    on whichever of the two kinds this runs."""
    body = say(BODY, f"fails: [{{when: {{cpu: {kind}}}, stage: compare, because: wrong in fp32 too}}]")
    cells = [cell.id for cell in plan(load_case(tmp_path, body, NET))]
    assert "accuracy[planted-torchscript-op17-onnxruntime-int8]" in cells


@pytest.mark.smoke
@pytest.mark.parametrize("kind, there, about", [
    ({"lacks": ["avx512_vnni", "avx_vnni"]}, OLDER, True), ({"lacks": ["avx512_vnni", "avx_vnni"]}, NEWER, False),
    ({"has": ["avx512_vnni", "avx_vnni"]}, NEWER, True), ({"has": ["avx2"], "lacks": ["avx512_vnni"]}, ARM, False),
    ({}, frozenset(), True),
])  # fmt: skip
def test_has_means_any_of_them_and_lacks_none(kind, there, about):
    assert is_of_kind(kind, there) == about


@pytest.mark.smoke
def test_settling_leaves_entries_about_other_hosts_aside():
    passed = {"id": "x", "case": "x", "exporter": "dynamo", "opset": 20, "check": "accuracy", "source": {}}
    passed |= {"runtime": "onnxruntime", "precision": "int8"}
    everywhere = Expectation("compare", None, "because", None, "cases/x.yaml:3", True)
    entry = dataclasses.replace(everywhere, host={"has": ["avx2"], "lacks": ["avx512_vnni"]})
    assert settle(Record(**passed), [entry], NEWER).status == "passed"
    assert settle(Record(**passed), [entry], OLDER).status == "xpassed"
    assert settle(Record(**passed), [entry, everywhere], NEWER).status == "xpassed"
    assert Expectation.from_dict(entry.as_dict()) == entry
    before = {**everywhere.as_dict(), "cpu": entry.host}
    del before["host"]
    assert Expectation.from_dict(before) == entry


@pytest.mark.parametrize("versions, status", [
    ("numpy >= 1", "xfailed"), ("[numpy >= 1, onnx >= 1]", "xfailed"), ("numpy < 1", "failed"),
    ("[numpy >= 1, onnx < 1]", "failed"), ("no-such-package", "failed"),
])  # fmt: skip
def test_a_failure_declared_of_versions_is_expected_with_these_alone(bench, plant, versions, status):
    plant(saturating)
    entry = f"fails: [{{when: {{precision: int8, versions: {versions}}}, stage: compare, because: of a release}}]"
    record = run(bench, OLDER, say(BODY, entry))
    assert record.status == status
    assert (record.declared_for == {"versions": [one.strip("[] ") for one in versions.split(",")]}) == (
        status == "xfailed"
    )


@pytest.mark.parametrize("versions, words", [
    ("onnxruntim < 1.32", "is it onnxruntime?"), ("'< 1.32'", "no package with its versions"),
    ("'onnxruntime[gpu] < 2'", "has more than a package"),
])  # fmt: skip
def test_versions_that_make_no_sense_are_told_with_their_place(tmp_path, versions, words):
    body = say(BODY, f"fails: [{{when: {{versions: {versions}}}, stage: compare, because: x}}]")
    indented = body.strip().replace("\n", "\n  ")
    (problem,) = problems_of(tmp_path, f"planted:\n  about: x\n  {indented}\n")
    assert words in problem.message


@pytest.mark.parametrize("body, words, line", [
    (declares("{lacks: [avx512_vni]}"), "avx512_vnni", 10),
    (declares("{has: avx2, lacks: [avx2, f16c]}"), "no processor has avx2 and lacks the same", 10),
    (say(BODY, "graph: [{when: {cpu: {has: avx2}}, nodes: {Gemm: 1}}]"), "does not depend on the processor", 10),
    (BODY.replace("int8: {}", "fp16: {reduce_range: true}"), "reduce_range is for int8", 9),
])  # fmt: skip
def test_what_makes_no_sense_about_processors_is_told_with_its_place(tmp_path, body, words, line):
    indented = body.strip().replace("\n", "\n  ")
    problem = problems_of(tmp_path, f"planted:\n  about: x\n  {indented}\n")[0]
    assert words in problem.message and problem.line == line


# ---- what is advised can be typed -----------------------------------------------------------------------------
def test_a_session_option_that_this_onnx_runtime_does_not_know_stops_the_cell(bench):
    record = run(bench, OLDER, say(BODY, "onnxruntime: {config: {session.x64quantprecison: 1}}"))
    assert verdict(record) == ("failed", "load", "UnknownOption", "case")
    assert "did you mean 'session.x64quantprecision'?" in record.reason


def test_a_reduced_range_leaves_weights_of_seven_bits(tmp_path):
    bench = Bench(tmp_path, tmp_path / "store")
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


# ---- bundles ------------------------------------------------------------------------------------------------
def test_a_bundle_carries_the_condition_and_settles_it_where_it_is_replayed(tmp_path, plant):
    code, place = pack(tmp_path, declares(NO_VNNI), NET, "--runtime", "onnxruntime", "--precision", "int8")
    assert code == 0
    (entry,) = Bundle(place).entries

    def replayed(host: frozenset[str]) -> Record:
        return run_entry(Progress(), place, entry, "onnxruntime", tmp_path / "engines", host=host)

    plant(saturating)
    assert replayed(NEWER).status == "failed"
    record = replayed(OLDER)
    assert (record.status, record.cause["name"]) == ("xfailed", "saturation")


# ---- baselines ----------------------------------------------------------------------------------------------
def header(*instructions: str) -> dict[str, Any]:
    return {"schema": 1, "seconds": 1.0, "environment": {"cpu": {"name": "A", "instructions": [*instructions]}}}


XFAILED = {"status": "xfailed", "stage": "compare", "error": "WrongValue", "reason": "because", "fault": "runtime"}
FAILED = {**XFAILED, "status": "failed"}
FOR = {"declared_for": {"has": ["avx2"], "lacks": ["avx512_vnni", "avx_vnni"]}}
CAUSE = {"cause": {"name": "saturation", "shown_by": dict(saturation.SWITCH), "lacks": [*saturation.VNNI]}}
VNNI, NONE = header("avx2", "avx512_vnni"), header("avx2")


@pytest.mark.smoke
@pytest.mark.parametrize("before, after, new, regression, said", [
    pytest.param(VNNI, NONE, {**XFAILED, **FOR}, False, "declared for processors with avx2, without avx512_vnni and",
                 id="declared for this kind"),
    pytest.param(VNNI, NONE, XFAILED, True, "", id="declared for all"),
    pytest.param(NONE, NONE, {**XFAILED, **FOR}, True, "", id="passed on this processor before"),
    pytest.param({"schema": 1, "seconds": 1.0}, NONE, {**XFAILED, **FOR}, False, "declared for", id="unknown before"),
    pytest.param(VNNI, NONE, {**FAILED, **CAUSE}, False, "shown by session.x64quantprecision=1", id="shown"),
    pytest.param(VNNI, NONE, FAILED, True, "", id="not shown"),
    pytest.param(NONE, VNNI, {**FAILED, **CAUSE}, True, "", id="the earlier processor saturates as well"),
    pytest.param(VNNI, NONE, {"worst": {"ratio": 0.6}, **CAUSE}, False, "shown by", id="closer, shown"),
    pytest.param(VNNI, NONE, {"worst": {"ratio": 0.6, "rounding": 0.3}}, False, "than rounding",
                 id="closer, rounding"),
    pytest.param(VNNI, NONE, {"worst": {"ratio": 0.6, "rounding": 2.5}}, True, "", id="closer, more than rounding"),
])  # fmt: skip
def test_a_difference_is_put_down_to_the_processor_where_the_record_shows_it(before, after, new, regression, said):
    (found,) = compare_runs((before, [a_record()]), (after, [a_record(**new)]))
    assert found.regression == regression and said in found.text


# ---- the other kind of processor ------------------------------------------------------------------------------
def test_the_recorded_run_of_a_processor_without_vnni_has_no_regression_and_shows_why():
    """Of the shipped cases at int8, recorded with ``python -m tests.kit.hosts``."""
    recorded, baseline = read_run(RECORDED), load(Path(__file__).parents[2] / "reports/baseline.jsonl")
    there = {one.id for one in recorded[1]}
    assert recorded[0]["environment"]["cpu"]["instructions"] == ["avx2", "f16c"]
    assert not blocking(compare_runs(baseline, recorded, selected=there))
    declared = [one for one in recorded[1] if one.declared_for]
    assert len(declared) == 3 and {one.cause["name"] for one in declared} == {"saturation"}
    bare = [dataclasses.replace(one, declared_for=None, cause=None) for one in recorded[1]]
    assert len(blocking(compare_runs(baseline, (recorded[0], bare), selected=there))) >= 3


# ---- time on a busy host --------------------------------------------------------------------------------------
@pytest.mark.smoke
@pytest.mark.parametrize("then, seconds", [
    pytest.param({"1": 5.0}, 10, id="the process slept or computed"),
    pytest.param({"1": 11.0, "2": 2.0}, 4, id="a thread waited for 6 seconds, another for 2"),
    pytest.param({"1": 15.0}, 1, id="it did nothing but wait: a tenth counts, so that there is an end"),
    pytest.param({}, 10, id="the kernel tells nothing"),
])  # fmt: skip
def test_waiting_for_a_processor_does_not_count_against_the_limit(tmp_path, then, seconds):
    def kernel_tells(waits: Mapping[str, float]) -> None:
        shutil.rmtree(tmp_path / "task", ignore_errors=True)
        for thread, waited in waits.items():
            (tmp_path / "task" / thread).mkdir(parents=True)
            (tmp_path / "task" / thread / "schedstat").write_text(f"900 {waited * 1e9:.0f} 4")
        if waits:
            (tmp_path / "task" / "damaged").mkdir()
            (tmp_path / "task" / "damaged" / "schedstat").write_text("damaged")

    passed = [0.0]
    clock = Clock(1, tasks=tmp_path / "task", now=lambda: passed[0])
    kernel_tells({"1": 5.0})
    passed[0] = 1.0
    assert clock.seconds() == 1
    kernel_tells(then)
    passed[0] = 10.0
    assert clock.seconds() == seconds
