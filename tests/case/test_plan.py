"""From cases to cells, which expected failures are about which of them, and what the shipped cases have to have."""

from pathlib import Path

import pytest

from conformance.case.files.case_file import case_files, load
from conformance.case.plan.catalogue import Selection, plan, read_suite, unmatched
from conformance.case.plan.expected import declared, owed
from conformance.results.records.words import base_of
from tests.kit.cases import case_of, load_case, say, write_case
from tests.kit.models import model_of

pytestmark = pytest.mark.smoke

BODY = case_of("torch.sin(x)", "export: {torchscript: [13, 17], dynamo: [20]}", dims="n: 1..4", x="[n]")


def ids(case, selection=None):
    return [cell.id for cell in plan(case) if selection is None or selection.keeps(cell)]


def test_a_case_has_a_cell_for_each_exporter_opset_runtime_and_check(tmp_path):
    found = ids(load_case(tmp_path, BODY))
    assert len(found) == len(set(found)) == 3 * 5
    assert found[:5] == [
        "export[planted-torchscript-op13]", "accuracy[planted-torchscript-op13-onnx-reference-fp32]",
        "specials[planted-torchscript-op13-onnx-reference-fp32]",
        "accuracy[planted-torchscript-op13-onnxruntime-fp32]",
        "specials[planted-torchscript-op13-onnxruntime-fp32]",
    ]  # fmt: skip


def test_specials_need_float_inputs_and_can_be_switched_off(tmp_path):
    assert not any("specials" in one for one in ids(load_case(tmp_path, say(BODY, "specials: false"))))
    integers = BODY.replace('"float32[n]"', '{type: "int64[n]", values: {integers: {low: 0, high: 3}}}')
    assert not any("specials" in one for one in ids(load_case(tmp_path, integers)))


@pytest.mark.parametrize("selection, count", [
    (Selection(), 15), (Selection(exporters=["dynamo"]), 5), (Selection(opsets=[13, 20]), 10),
    (Selection(runtimes=["onnxruntime"]), 9), (Selection(exporters=["dynamo"], opsets=[13]), 0),
])  # fmt: skip
def test_a_selection_keeps_what_it_names(tmp_path, selection, count):
    assert len(ids(load_case(tmp_path, BODY), selection)) == count


@pytest.mark.parametrize(("asked", "more", "added"), [
    (["openvino"], "", [("first", "openvino"), ("second", "openvino")]),
    (["openvino", "onnxruntime"], "", [("first", "openvino"), ("second", "openvino")]),
    (["openvino"], "runtimes: openvino", [("second", "openvino")]),  # the case that names it is who is meant
    (["tensorrt"], "", []), (["tensorrt-rtx"], "", []), (["onnx-reference"], "runtimes: onnx-reference", []),
])  # fmt: skip
def test_a_runtime_that_no_case_names_runs_all_cases(tmp_path, asked, more, added):
    """Unless cases say how it is to build."""
    body = case_of("torch.sin(x)", "export: {torchscript: [17]}", "specials: false")
    for name, runtimes in (("first", "runtimes: onnxruntime"), ("second", more or "runtimes: onnxruntime")):
        write_case(tmp_path, say(body, runtimes), name=name)
    cells, files = read_suite([tmp_path], Selection(runtimes=asked))
    found = [(cell.case.name, cell.runtime) for cell in cells if cell.check == "accuracy"]
    assert not any(files.values()), files
    assert [one for one in found if one[1] not in ("onnxruntime", "onnx-reference")] == added
    assert [cell.case.name for cell in cells] == sorted(cell.case.name for cell in cells)


def test_the_evaluator_that_says_what_a_file_means_is_not_held_against_itself(tmp_path):
    (tmp_path / "net.onnx").write_bytes(model_of("g (float[N] x) => (float[N] y) { y = Sin(x) }").SerializeToString())
    cells, _ = read_suite(
        [write_case(tmp_path, "onnx: net.onnx")], Selection(runtimes=["onnx-reference", "openvino"])
    )
    assert {cell.runtime for cell in cells if cell.runtime} == {"openvino"}


@pytest.mark.parametrize("when, count", [
    ("{}", 15), ("{exporter: dynamo}", 5), ('{opset: "< 17"}', 5), ("{opset: [13, 20]}", 10),
    ('{opset: "14..20"}', 10),
    ("{runtime: onnxruntime}", 6), ("{check: [export, specials]}", 9), ("{exporter: dynamo, opset: 13}", 0),
])  # fmt: skip
def test_a_condition_matches_the_cells_that_it_describes(tmp_path, when, count):
    case = load_case(tmp_path, say(BODY, f"fails: [{{when: {when}, stage: run, because: x}}]"))
    assert sum(bool(declared(cell)) for cell in plan(case)) == count


@pytest.mark.parametrize("stage, checks", [
    ("export", {"export", "accuracy", "specials"}), ("check", {"export"}), ("run", {"accuracy"}),
    ("compare", {"accuracy"}),
])  # fmt: skip
def test_a_failure_is_owed_by_the_checks_that_are_about_its_stage(tmp_path, stage, checks):
    case = load_case(tmp_path, say(BODY, f"fails: [{{stage: {stage}, because: x}}]"))
    (entry,) = case.says.fails
    assert {cell.check for cell in plan(case) if owed(entry, cell)} == checks


def test_an_entry_about_no_cell_is_a_problem_at_its_line(tmp_path):
    body = say(BODY, "fails:", "  - {when: {opset: 9}, stage: run, because: x}", "  - {stage: run, because: x}")
    (problem,) = unmatched([load_case(tmp_path, body)])
    assert problem.line == 8 and "matches no cell" in problem.message


def test_an_entry_that_one_combination_of_vary_matches_is_no_problem(tmp_path):
    body = say(BODY.replace("torch.sin(x)", "torch.sin(x) * a"), "vary: {a: [1, 2]}")
    cases = load(write_case(tmp_path, say(body, "graph: {when: {with: {a: 2}}, nodes: {Sin: 1}}")))
    assert unmatched(cases) == []
    cases = load(write_case(tmp_path, say(body, "graph: {when: {with: {a: 3}}, nodes: {Sin: 1}}")))
    assert [problem.line for problem in unmatched(cases)] == [8]


# ---- the shipped cases: every row of the collection they come from, every precision or the reason why not --------
SHIPPED = [case for file in case_files([Path(__file__).parent.parent.parent / "cases"]) for case in load(file)]
ROWS = [*(f"R{n}" for n in range(1, 17) if n != 4), *(f"G{n}" for n in range(1, 10)), *(f"P{n}" for n in range(1, 6))]


def test_every_row_has_a_case():
    assert [row for row in ROWS if not any(row in case.says.tags for case in SHIPPED)] == []


def test_every_case_has_fp16_or_says_why_not():
    assert [case.name for case in SHIPPED if "fp16" not in {base_of(name) for name in case.says.precisions}] == []


def test_int8_is_not_only_for_the_cases_about_precision():
    topics = {case.folder.name for case in SHIPPED if "int8" in case.says.precisions}
    assert topics >= {"vision", "swin", "deform_conv", "numerics", "graph"}
