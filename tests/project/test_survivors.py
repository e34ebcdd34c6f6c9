"""Rules that no other test held when mistakes were planted in the package (``evidence/defects``)."""

import asyncio
import importlib.metadata
import json
import subprocess
import sys
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest

from conformance.case.draw.draw import Draw, Maker
from conformance.case.draw.example import given
from conformance.case.draw.shapes import boundary_sizes
from conformance.case.draw.simplest import simplest
from conformance.case.files.case_file import load
from conformance.case.files.must_hold import OutputTolerance, PrecisionTolerance
from conformance.case.files.precision import Calibration
from conformance.case.files.python import Folder
from conformance.case.files.recipe import recipe
from conformance.case.plan.catalogue import Selection, plan, read_suite, unmatched
from conformance.case.plan.cell import command
from conformance.case.plan.expected import declared
from conformance.compare.compared_values import Reading
from conformance.compare.detections import Detections
from conformance.compare.judges import Right, Tolerances
from conformance.compare.tolerance import Comparison, Tolerance, Worst
from conformance.diagnose.nodes.blame import outcome_of
from conformance.diagnose.nodes.node_walk import NodePlace, Walked, decided
from conformance.diagnose.nodes.other_runtime import Asked, ask
from conformance.extras.cluster.admission import Admission, asked
from conformance.extras.mutants.probe import differs, run_of
from conformance.extras.repairs.trials import RepairTrials
from conformance.front.plugin.gating import Gating
from conformance.judge.comparer import WrongAnswer, count
from conformance.models.bundle.bundle_layout import write_set
from conformance.models.exporters.graph import read
from conformance.models.kept.model_store import key
from conformance.models.kept.observed_dependencies import Observed
from conformance.models.otherwise.rounding import bits_of
from conformance.models.precision import fp16, int8
from conformance.models.precision.ranges import extremes, ranges
from conformance.models.reference.module_reference import ModuleReference
from conformance.models.reference.output_layout import names_of_tensor
from conformance.process.disk.onnx_models import Serialized
from conformance.results.records import matrix
from conformance.results.records.environment import environment
from conformance.results.records.explanation import NodeByNode
from conformance.results.records.record import Record, Witness
from conformance.results.records.settle import Expectation, settle
from conformance.runtimes.onnxruntime import open_literal
from tests.diagnose.test_blame import decide
from tests.kit.cases import case_of, load_case, problems_of, say, write_case
from tests.kit.models import model_of
from tests.kit.runtimes import wrong_runtime
from tests.results.report.support import record as report_record

F32 = np.float32


# ---- drawing ---------------------------------------------------------------------------------------------------
def test_special_values_stand_at_other_places_in_other_draws(tmp_path):
    case = load_case(tmp_path, 'forward: x * 2\ninputs: {x: "float32[64]"}')
    make = Maker(case, lambda name: None)
    places = [tuple(np.flatnonzero(np.isnan(make(Draw({}, "nan", seed))["x"]))) for seed in range(8)]
    assert all(places) and len(set(places)) > 4


def test_inputs_that_are_drawn_together_have_special_values_too(tmp_path):
    case = load_case(tmp_path, 'forward: x * 2\ninputs: {x: "float32[64]"}\ndraw: beside.draw')
    make = Maker(case, lambda name: lambda dims, rng: {"x": np.ones(64, F32)})
    drawn = {regime: make(Draw({}, regime, 0))["x"] for regime in ("plain", "nan")}
    assert {regime: bool(np.isnan(x).any()) for regime, x in drawn.items()} == {"plain": False, "nan": True}


def test_the_simplest_failing_values_lie_in_the_range_that_the_case_declares(tmp_path):
    inputs = 'inputs: {x: {type: "float32[4]", values: {uniform: {low: 0.25, high: 0.75}}}}'
    case = load_case(tmp_path, f"forward: x * 2\n{inputs}")
    found = simplest(case, {}, {"x": np.array([0.3, 0.6, 0.5, 0.71], F32)}, lambda arrays: True)
    assert found["x"].min() >= 0.25 and found["x"].max() <= 0.75


def test_the_simplest_failing_values_ascend_where_the_case_says_so(tmp_path):
    case = load_case(tmp_path, 'forward: x * 2\ninputs: {x: {type: "float32[2, 3]", sorted: true}}')
    given = np.array([[-2.7, 0.3, 5.2], [-9.4, 1.1, 1.2]], F32)
    tried = []
    simplest(case, {}, {"x": given}, lambda arrays: tried.append(arrays["x"]) or False)
    assert len(tried) > 4 and all((np.diff(array, axis=-1) >= 0).all() for array in tried)


# ---- what a case says ------------------------------------------------------------------------------------------
@pytest.mark.parametrize("limit", ["rtol: 1.0e-3", "atol: 1.0e-3"])
def test_each_limit_that_is_looser_than_the_default_needs_a_reason(tmp_path, limit):
    text = 'a:\n  about: A.\n  forward: x * 2\n  inputs: {x: "float32[3]"}\n  tolerance: {fp32: {%s}}\n'
    assert [problem.line for problem in problems_of(tmp_path, text % limit)] == [5]
    assert not problems_of(tmp_path, text % f"{limit}, because: It is shown elsewhere.")


def test_the_highest_opset_is_converted_wherever_it_stands(tmp_path):
    body = 'forward: x * 2\ninputs: {x: "float32[3]"}\nexport: {torchscript: [20, 17]}\nprecisions: {fp16: {}}'
    assert load_case(tmp_path, body).says.converted_opsets("fp16", "torchscript") == [20]


def test_a_varied_argument_goes_before_one_that_all_combinations_have(tmp_path):
    text = 'a:\n  about: A.\n  forward: x * k\n  inputs: {x: "float32[3]"}\n  with: {k: 1}\n  vary: {k: [2, 3]}\n'
    (tmp_path / "cases.yaml").write_text(text, encoding="utf-8")
    assert [case.arguments for case in load(tmp_path / "cases.yaml")] == [{"k": 2}, {"k": 3}]


# ---- declared failures -----------------------------------------------------------------------------------------
def test_an_entry_that_only_the_first_combination_matches_is_no_problem(tmp_path):
    body = 'forward: x * k\ninputs: {x: "float32[3]"}\nvary: {k: [2, 3]}\ngraph: {when: {with: {k: %d}}, only: false}'
    file = write_case(tmp_path, body % 2)
    assert unmatched(load(file)) == []
    assert [problem.line for problem in unmatched(load(write_case(tmp_path, body % 4)))] == [6]


def test_what_is_declared_of_int8_is_expected_of_its_variants(tmp_path):
    fails = "fails: [{when: {precision: int8}, stage: compare, because: It is known.}]"
    body = (
        f'forward: x @ x.T\ninputs: {{x: "float32[3, 3]"}}\nprecisions: {{int8-entropy: {{}}, fp16: {{}}}}\n{fails}'
    )
    cells = [cell for cell in plan(load_case(tmp_path, body)) if cell.check == "fidelity"]
    assert {cell.precision: len(declared(cell)) for cell in cells} == {"int8-entropy": 1, "fp16": 0}


def test_the_command_that_runs_a_cell_again_has_options_that_are_0(tmp_path):
    assert "--examples 0" in command("accuracy[a]", tmp_path, [], {"examples": 0, "tensorrt": None})


# ---- exporting -------------------------------------------------------------------------------------------------
NET = """
import torch
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(3)
        self.linear = torch.nn.Linear(3, 3)
        with torch.no_grad():
            self.norm.running_mean.fill_(2.0)
    def forward(self, x):
        return self.linear(self.norm(x))
"""
BODY = 'module: beside.Net\ninputs: {x: "float32[batch, 3]"}\ndims: {batch: 2..6}\n'


def test_options_reach_the_torchscript_exporter(bench):
    export = "export: {torchscript: {opsets: [17], options: {keep_initializers_as_inputs: true}}}"
    record = bench.run(f"{BODY}{export}\ngraph: {{initializers: 6, overridable: 6}}", NET, check="export")
    assert (record.status, record.reason) == ("passed", None)


def test_options_reach_the_dynamo_exporter(bench):
    """Without its parameters the model is not valid, which nothing else makes it."""
    export = "export: {dynamo: {opsets: [20], options: {export_params: false}}}"
    record = bench.run(f"{BODY}{export}", NET, check="export")
    assert (record.stage, record.error) == ("check", "ValidationError") and "norm.weight" in f"{record.reason}"


def test_a_model_at_a_higher_opset_than_was_asked_for_is_wrong(bench):
    """LayerNormalization is of opset 17, so that the exporter leaves the model at its own opset."""
    case = case_of("F.layer_norm(x, (3,))", "export: {dynamo: [16, 18]}")
    assert bench.run(case, check="export", opset=18).status == "passed"
    assert bench.run(case, check="export", opset=16).error == "WrongOpset"


def test_a_module_in_training_mode_is_exported_and_called_in_it(bench):
    record = bench.run(f"{BODY}mode: train\nexport: {{torchscript: 17}}\nruntimes: onnxruntime", NET)
    assert (record.status, record.reason) == ("passed", None)


@pytest.mark.parametrize(("static", "error"), [("batch", None), ("[]", "GraphMismatch")])
def test_a_dim_that_is_static_has_its_traced_size_in_the_graph(bench, static, error):
    export = f"export: {{torchscript: {{opsets: [17], static: {static}}}}}"
    case = say(case_of("x * 2"), export, "trace: {batch: 4}", "graph: {dims: {x: [4, 3]}}")
    assert bench.run(case, check="export").error == error


def test_a_module_computes_in_half_precision_only_where_all_its_floats_are_half():
    half, single, integers = "float16", "float32", "int64"
    assert (bits_of([half, integers]), bits_of([half, single]), bits_of([single])) == (11, 24, 24)


# ---- converting, and other runtimes ----------------------------------------------------------------------------
def test_roundings_to_fp16_that_the_module_makes_itself_stay(tmp_path):
    text = "agraph (float[2] x) => (float[2] y) { h = Cast <to = 10> (x) f = Cast <to = 1> (h) y = Exp (f) }"
    model = model_of(text)
    for node, name in zip(model.graph.node, "abc", strict=True):
        node.name = name
    onnx.save(fp16.convert(model, ["a", "b", "c"]), tmp_path / "kept.onnx")
    with open_literal(tmp_path / "kept.onnx", []) as session:
        (got,) = session.run({"x": np.array([0.1, 0.3], F32)})
    np.testing.assert_array_equal(got, np.exp(np.array([0.1, 0.3], np.float16).astype(F32)))


@pytest.mark.parametrize(("last", "scales"), [("Gemm (h, w)", [4]), ("Gemm <transB = 1> (h, w)", [])])
def test_a_weight_has_a_scale_for_each_channel_unless_two_nodes_read_it_along_different_axes(tmp_path, last, scales):
    w = np.random.default_rng(0).standard_normal((4, 4)).astype(F32)
    model = model_of(f"agraph (float[n, 4] x) => (float[n, 4] y) {{ h = MatMul (x, w) y = {last} }}", w=w)
    batches, kinds = [{"x": w}], ["MatMul", "Gemm"]
    measured = ranges(model, extremes(model, batches), batches, kinds, Calibration(), tmp_path)
    made = int8.quantize(model, measured, kinds, [], tmp_path)
    assert [list(one.dims) for one in made.graph.initializer if one.name == "w_scale"] == [scales]


@pytest.mark.parametrize("runtime", ["onnxruntime", "onnxruntime-unoptimized"])
def test_a_witness_has_the_session_options_of_the_case(tmp_path, runtime):
    wrong_shape = model_of("agraph (float[1] x) => (float[3] y) { y = Mul (x, x) }")
    onnx.save(wrong_shape, tmp_path / "model.onnx")
    strict = {"session.strict_shape_type_inference": "1"}
    inputs = {"x": np.array([2.0], F32)}
    assert ask(runtime, tmp_path / "model.onnx", [], inputs, {}).outputs == [[4.0]]
    assert ask(runtime, tmp_path / "model.onnx", [], inputs, strict).answer == "stops"


# ---- who is at fault, and what is declared of it ---------------------------------------------------------------
def test_a_witness_that_is_far_nearer_to_pytorch_clears_the_model():
    answers = [Witness("onnxruntime-unoptimized", "wrong"), Witness("onnx-reference", "nearer")]
    assert decide(answers, "onnxruntime", "compare", False) == ("runtime", None)


def test_a_witness_that_lacks_something_abstains(tmp_path):
    onnx.save(model_of("agraph (float[1] x) => (float[1] y) { y = Mul (x, x) }"), tmp_path / "model.onnx")
    asked = ask("onnx-reference", tmp_path / "model.onnx", ["operators.so"], {"x": np.array([2.0], F32)})
    assert (asked.answer, asked.error) == ("abstains", None) and "libraries" in f"{asked.reason}"


def test_where_nobody_computes_some_nodes_a_node_that_parts_leaves_the_fault_open():
    parts, unknown = (NodePlace(name, "Mul", None, how) for name, how in (("a", "parts"), ("b", "open")))
    walked = Walked(first=[1], second=[2], parted=[parts], open=[unknown])
    assert decided(walked, lambda outputs: True, "compare") == NodeByNode("open", parts.as_dict())
    walked.open = []
    assert decided(walked, lambda outputs: True, "compare") == NodeByNode("kernels", parts.as_dict())


def test_of_rows_of_boxes_a_witness_is_asked_about_all_outputs():
    """One that has the right rows in another order is right, though its scores alone would not be."""
    boxes, scores = np.array([[0, 0, 10, 10], [50, 50, 60, 60]], F32), np.array([0.9, 0.5], F32)
    judge = Tolerances((Tolerance(1e-5, 1e-6),) * 2, (False,) * 2, Reading((), (), (Detections(0, (1,), 0.9),)))
    example = given(Draw({}, "plain", 0), {}, [boxes, scores], None, None, [])
    wrong = WrongAnswer(judge.compare([boxes, scores + F32(0.1)], example.right()))
    outcome = outcome_of(wrong, example, lambda example, got: judge.compare(got, example.right()))
    assert outcome(Asked([boxes[::-1], scores[::-1]])) == "right"
    assert outcome(Asked([boxes[::-1], scores])) == "alike"


WRONG = {"status": "failed", "stage": "compare", "error": "WrongValue", "reason": "off", "fault": "runtime"}


def settled(record: Mapping[str, Any], **declared: Any) -> Record:
    """Hold a failed cell against one declared failure."""
    named = {"stage": "compare", "error": None, "because": "It is known.", "fault": None, "place": "a.yaml:3"}
    cell = Record("accuracy[a]", "a", "torchscript", 17, "onnxruntime", "fp32", "accuracy", {}, **record)
    return settle(cell, [Expectation(**{**named, "owed": True, **declared})], frozenset())


def test_a_failure_at_another_stage_than_the_declared_one_stays_a_failure():
    assert settled(WRONG).status == "xfailed" and settled(WRONG, stage="run").status == "failed"


def test_only_where_all_examples_run_a_declared_failure_has_to_show_by_its_margin():
    hardly = {**WRONG, "worst": {"ratio": 1.5}}
    assert settled(hardly).status == "failed" and settled(hardly, margin=False).status == "xfailed"


def test_the_declared_fault_goes_before_the_one_that_was_found():
    assert settled(WRONG, fault="exporter").fault == "exporter" and settled(WRONG).fault == "runtime"


def test_what_a_declared_failure_failed_with_stays_readable():
    assert (settled(WRONG).reason, settled(WRONG).observed) == ("It is known.", "off")


def test_the_inputs_of_a_packed_example_are_in_the_order_of_the_graph(tmp_path):
    inputs = {name: np.array([number], F32) for number, name in enumerate("ba")}
    write_set(tmp_path, 0, given(Draw({}, "plain", 0), inputs, [], None, None, []), ["a", "b"], [])
    written = [onnx.load_tensor(tmp_path / f"test_data_set_0/input_{number}.pb") for number in range(2)]
    assert [onnx.numpy_helper.to_array(one).item() for one in written] == [1.0, 0.0]


def test_in_a_bundle_a_failure_is_expected_of_the_declared_processors_alone():
    apart = [{"runtime": "onnxruntime", "cpu": {"lacks": ["avx512_vnni"]}}]
    example = given(Draw({}, "plain", 0), {}, [], None, None, apart)
    assert example.fails_in("onnxruntime", {"avx2"})
    assert not example.fails_in("onnxruntime", {"avx2", "avx512_vnni"})


# ---- what a record and the matrix tell -------------------------------------------------------------------------
def test_the_record_keeps_the_largest_error_whichever_example_has_it():
    record = Record("accuracy[a]", "a", "torchscript", 17, "onnxruntime", "fp32", "accuracy", {})
    for seed, ratio in enumerate((0.2, 0.7, 0.05)):
        worst = Worst(0, (0,), 1.0, 1.0, ratio, ratio)
        count(record, Draw({"n": 2}, "plain", seed), Comparison("verified", worst))
    assert record.worst is not None and record.draw is not None and record.histogram is not None
    assert (record.worst["ratio"], record.draw["seed"]) == (0.7, 1)
    edges, counts = record.histogram["edges"], record.histogram["counts"]
    assert {edge: number for edge, number in zip(edges, counts, strict=False) if number} == {-2: 1, -1: 2}


def test_beside_a_cell_a_skipped_check_hides_no_failed_one():
    checks = {"accuracy": "passed", "engine": "skipped", "specials": "failed"}
    records = [report_record("a", check=check, status=status, examples=1) for check, status in checks.items()]
    for order in (records, records[::-1]):
        assert [line.split()[-1] for line in matrix.lines(order, 80)][-1] == "N"


def test_the_header_of_a_run_has_the_version_of_every_package_that_exports_or_runs():
    versions = environment([])["versions"]
    packages = {"torch", "onnx", "onnxscript", "onnx_ir", "onnxruntime", "onnxsim", "numpy", "openvino", "tensorrt"}
    assert packages <= versions.keys() and versions["onnxscript"] == importlib.metadata.version("onnxscript")


# ---- more comparing and drawing --------------------------------------------------------------------------------
@pytest.mark.parametrize(("moved", "error"), [(0.3, None), (2.0, "WrongRows")])
def test_boxes_match_where_they_overlap_by_nine_tenths(moved, error):
    """Boxes of 10 by 10 that are moved by 2 overlap by two thirds; by 0.3, by 0.94."""
    wanted = np.array([[0, 0, 10, 10], [50, 50, 60, 60]], F32)
    got = wanted + np.array([moved, 0, moved, 0], F32)
    judge = Tolerances((Tolerance(1, 1),), (False,), Reading((), (), (Detections(0, (), 0.9),)))
    assert judge.compare([got], Right([wanted])).error == error


def test_what_conditioning_excuses_of_rows_it_excuses_of_none_of_their_outputs():
    """It was measured row by row, and rows that match stand at other places."""
    boxes = np.array([[0, 0, 10, 10], [50, 50, 60, 60]], F32)
    scores = np.array([0.9, 0.5], F32)
    reading = Reading((), (), (Detections(0, (1,), 0.9),))
    judge = Tolerances((Tolerance(1e-5, 1e-6),) * 2, (False, False), reading)
    right = Right([boxes, scores], [boxes.astype(np.float64), scores.astype(np.float64)], [5.0, 5.0])
    assert judge.compare([boxes[::-1], scores[::-1]], right).verdict == "verified"
    assert judge.compare([boxes[::-1], scores[::-1] + F32(0.1)], right).verdict == "failed"


def test_each_dim_is_tried_at_1_where_its_range_begins_below(tmp_path):
    case = load_case(tmp_path, 'forward: x * 2\ninputs: {x: "float32[a, b]"}\ndims: {a: 0..9, b: 0..9}')
    shapes = boundary_sizes(case.dims, {"a": 3, "b": 4})
    assert {"a": 1, "b": 4} in shapes and {"a": 3, "b": 1} in shapes


def test_a_key_of_the_store_has_the_weights(tmp_path):
    case = load_case(tmp_path, 'forward: x * 2\ninputs: {x: "float32[2]"}')
    keys = {key(case, "dynamo", 20, weights, [[]], "suite") for weights in ("a", "b")}
    assert len(keys) == 2


def test_the_statistics_of_a_module_in_training_mode_are_put_back(tmp_path):
    case = load_case(
        tmp_path,
        "module: torch.nn.BatchNorm1d\nwith: {num_features: 3}\nmode: train\n"
        'inputs: {x: "float32[batch, 3]"}\ndims: {batch: 2..4}',
    )
    with Folder.of(case.folder).active() as folder:
        reference = ModuleReference(case, folder)
        before = reference.module.running_mean.clone()
        reference({"x": np.arange(6, dtype=F32).reshape(2, 3)})
        assert not before.equal(reference.module.running_mean)
        assert reference.restore() and before.equal(reference.module.running_mean)


# ---- what cases and options say --------------------------------------------------------------------------------
def test_the_tolerance_of_an_output_may_be_given_by_its_name():
    said = PrecisionTolerance(rtol=1e-3, outputs={"y": OutputTolerance(rtol=0.0), 1: OutputTolerance(rtol=0.5)})
    assert said.for_output(0, "y").rtol == 0.0
    assert (said.for_output(1, "z").rtol, said.for_output(2, "w").rtol) == (0.5, 1e-3)
    assert names_of_tensor(2, ["x", "y"], (), [1, 2]) == ["y.1", "y"], "what is said of one tensor goes first"


def test_a_declared_tolerance_of_0_is_one(bench):
    with wrong_runtime(lambda inputs, outputs: [output * F32(1 + 3e-6) for output in outputs]):
        assert bench.run(case_of("x * 2"), examples=1).status == "passed"
        case = say(case_of("x * 2"), "tolerance: {fp32: {rtol: 0, atol: 0}}")
        assert bench.run(case, examples=1).error == "WrongValue"


def test_a_second_case_of_a_name_in_another_file_is_a_mistake(tmp_path):
    for name in ("a", "b"):
        write_case(tmp_path / name, case_of("x * 2"))
    _, files = read_suite([tmp_path], Selection())
    assert [bool(error) for error in files.values()] == [False, True]


def test_the_option_for_examples_goes_before_what_a_case_says(bench):
    many = bench.run(say(case_of("x * 2"), "examples: {shapes: 9, boundary: 1}"), examples=1)
    few = bench.run(say(case_of("x * 2"), "examples: {shapes: 1, boundary: 1}"), examples=1)
    assert many.examples == few.examples


@pytest.mark.parametrize(("off", "error"), [(0, None), (1e-4, "NothingVerified")])
def test_examples_that_are_all_ill_conditioned_verify_nothing(bench, off, error):
    """PyTorch's float32 is off by more than that runtime."""
    with wrong_runtime(lambda inputs, outputs: [output + F32(off) for output in outputs]):
        record = bench.run(say(case_of("(x + 4096.0) - 4096.0"), "examples: {values: 1}"))
    assert (record.error, bool(record.ill_conditioned)) == (error, bool(off))


def test_cases_that_return_different_parts_share_no_module(tmp_path):
    body = 'module: beside.Net\ninputs: {x: "float32[2]"}\nreturns: [%s]'
    one, alike, other = (recipe(load_case(tmp_path, body % part)) for part in ("a", "a", "b"))
    assert one == alike != other


def test_what_is_said_of_the_graph_holds_for_its_own_cells_alone(bench):
    graph = "graph: [{when: {opset: 13}, nodes: {Nowhere: 1}}, {when: {opset: 17}, nodes: {Mul: 1}}]"
    case = say(case_of("x * 2"), graph, "export: {torchscript: [13, 17]}")
    assert bench.run(case, check="export", opset=17).status == "passed"
    assert bench.run(case, check="export", opset=13).error == "GraphMismatch"


# ---- layers, mutants, fixes, baselines and clusters --------------------------------------------------------------
ONE = "export: {torchscript: 17}", "runtimes: onnxruntime"


def test_a_mutant_whose_outputs_have_another_dtype_differs(bench, tmp_path):
    (cell,) = [cell for cell in bench.cells(case_of("x * 2", *ONE)) if cell.check == "accuracy"]
    bench.run_cell(cell)
    with run_of(cell, bench.store) as run:
        model = onnx.load(str(run.model().file))
    (output,) = model.graph.output
    model.graph.node.append(onnx.helper.make_node("Cast", [output.name], ["double"], to=onnx.TensorProto.DOUBLE))
    output.name, output.type.tensor_type.elem_type = "double", onnx.TensorProto.DOUBLE
    written = Serialized(model.SerializeToString())
    mutant = tmp_path / "mutant" / "models"
    with run_of(cell, mutant) as run:
        run.keep_model(written, read(model, written), {}, Observed())
    assert differs(None, cell, bench.store, mutant, False)
    assert not differs(None, cell, bench.store, bench.store, False)


def test_a_change_with_which_one_cell_still_fails_is_no_fix(bench, worker):
    cells = bench.cells(case_of("x * 2", *ONE, "graph: {nodes: {Nowhere: 1}}"))
    passing = [cell for cell in cells if cell.check == "accuracy"]
    trials = RepairTrials(worker, bench.store)
    assert trials.shown(passing) is not None
    assert trials.shown([*passing, *(cell for cell in cells if cell.check == "export")]) is None


def test_a_baseline_that_cannot_be_read_at_the_end_of_a_run_fails_it(tmp_path):
    (tmp_path / "baseline.jsonl").write_text("{", encoding="utf-8")
    gating = Gating(SimpleNamespace(baseline=tmp_path / "baseline.jsonl", report=tmp_path))  # type: ignore[arg-type]
    gating.compare()
    assert gating.regressions == 1 and "baseline.jsonl" in "".join(gating.lines(80))


class DaskWorker:
    """What a worker of Dask is to its plugin."""

    address, name, given = "tcp://nowhere", "one", dict[str, float]()

    def log_event(self, topic: str, told: Any) -> None: ...

    async def set_resources(self, **resources: float) -> None:
        self.given = resources


def test_a_worker_stands_for_a_package_in_the_version_that_a_case_needs_alone():
    packages = {"numpy": importlib.metadata.version("numpy"), "pytest": "0.0"}
    wanted = {"run": "r", "python": "", "versions": {}, "needs": [], "packages": packages, "commands": []}
    here, worker = asyncio.run(asked([]))[0], DaskWorker()
    plugin = Admission(json.dumps({**wanted, "python": here["python"], "code": here["code"]}))
    asyncio.run(plugin.setup(worker))
    assert [name for name in worker.given if "package" in name] == ["r package numpy"]


def test_what_was_measured_under_another_version_has_another_key(tmp_path):
    (tmp_path / "numpy-0.1.dist-info").mkdir()
    (tmp_path / "numpy-0.1.dist-info" / "METADATA").write_text("Name: numpy\nVersion: 0.1\n", encoding="utf-8")
    code = "import sys; sys.path[:0] = sys.argv[1:]\n"
    code += "from conformance.models.kept.fingerprint import suite; print(suite())"
    found = [subprocess.check_output([sys.executable, "-c", code, *more]) for more in ([], [], [str(tmp_path)])]
    assert found[0] == found[1] != found[2]
