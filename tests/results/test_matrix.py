"""The matrix at the end of a run, in narrow and in wide terminals."""

import itertools

import pytest

from conformance.results.records import coverage_totals, matrix
from conformance.results.records.record import Record

pytestmark = pytest.mark.smoke


def record(case, exporter="torchscript", runtime="onnxruntime", opset=17, status="passed", **more):
    fields = {
        "id": case, "case": case, "exporter": exporter, "runtime": runtime, "precision": "fp32", "opset": opset,
        "check": "accuracy" if runtime else "export", "status": status, "examples": 28, "ill_conditioned": 0,
    }  # fmt: skip
    return Record.from_dict(fields | more)


MANY = list(itertools.starmap(record, itertools.product(
    ["asinh", "a_case_with_a_name_that_is_much_too_long_for_any_terminal-stride2"], ["torchscript", "dynamo"],
    [None, "onnxruntime", "onnx-reference"], [9, 12, 13, 17, 18, 20, 21, 22],
)))  # fmt: skip


@pytest.mark.parametrize("width", [40, 80, 200])
def test_no_line_is_wider_than_the_terminal_and_no_cell_is_left_out(width):
    lines = list(matrix.lines(MANY, width))
    assert max(map(len, lines)) <= width and sum(line.count("✓") for line in lines) == len(MANY)
    assert len(lines) >= len(list(matrix.lines(MANY, 200))) and list(matrix.lines([], width)) == []


def test_further_lines_have_as_many_groups_as_the_first():
    names = itertools.product(["torchscript", "dynamo"], ["onnxruntime", "onnx-reference"], [17, 18, 20, 21, 22])
    lines = matrix.lines(list(itertools.starmap(record, (("asinh", *one) for one in names))), 40)
    assert sum(line.startswith("asinh") for line in lines) == 2


def test_the_matrix_reads_as_documented():
    records = [
        record("asinh", runtime=None), record("asinh", opset=9), record("asinh", opset=17, status="xfailed"),
        record("sin", opset=17, status="failed"),
    ]  # fmt: skip
    assert "\n".join(matrix.lines(records, 80)) == (
        "       ts export  ts ort fp32\n       17          9 17\nasinh   ✓          ✓  x\nsin     ·          ·  F"
    )


@pytest.mark.parametrize("accuracy, specials, sign", [
    ("passed", "passed", "✓"), ("failed", "passed", "F"), ("failed", "failed", "F"), ("xpassed", "passed", "X"),
    ("xfailed", "failed", "N"), ("skipped", "skipped", "s"), ("passed", "failed", "N"), ("passed", "xfailed", "n"),
    ("passed", "skipped", "✓"), ("skipped", "failed", "N"), ("skipped", "passed", "s"), ("failed", "xpassed", "F"),
    (None, "skipped", "s"), (None, "failed", "N"), (None, "xfailed", "n"), (None, "passed", "✓"),
])  # fmt: skip
def test_a_cell_shows_its_accuracy_and_what_its_specials_add(accuracy, specials, sign):
    """What is red shows, and no pass is hidden because nothing could be said of NaN."""
    own = [record("one", status=accuracy)] if accuracy else []
    records = [record("other"), *own, record("one", status=specials, check="specials")]
    for order in (records, records[::-1]):
        (row,) = (line for line in matrix.lines(order, 80) if line.startswith("one"))
        assert row.split() == ["one", sign]


def test_the_legend_has_the_signs_that_occur():
    records = [record("one"), record("one", check="specials", status="skipped", reason="NaN spreads")]
    shown = [*matrix.lines(records, 80)]
    assert next(matrix.legend(shown)) == "✓ passed"
    shown = [*matrix.lines([*records, record("two", opset=18, status="failed")], 80)]
    assert next(matrix.legend(shown)) == "✓ passed   F failed   · not a cell"


def test_a_runtime_that_was_not_run_at_all_has_a_line_with_the_reasons_and_no_columns():
    records = [
        record("one"), *(record("one", runtime="tensorrt", status="skipped", reason=reason, precision=precision)
                         for reason, precision in (("no GPU", "fp32"), ("no GPU", "fp16"), ("too old", "int8"))),
    ]  # fmt: skip
    text = "\n".join(matrix.lines(records, 80))
    assert text.splitlines()[-1] == "NOT RUN: tensorrt, 3 cells skipped: no GPU; too old"
    assert "trt" not in text
    records.append(record("two", runtime="tensorrt"))
    assert "trt" in "\n".join(matrix.lines(records, 80)) and "NOT RUN" not in "\n".join(matrix.lines(records, 80))


def test_counts_say_what_was_verified():
    records = [
        record("a"), record("b", status="failed", ill_conditioned=3), record("c", runtime=None),
        record("d", status="xfailed", excused=1200),
    ]  # fmt: skip
    text = matrix.counts(records)
    assert text == (
        "4 cells: 1 failed, 1 failed as declared, 2 passed; 84 examples verified, 3 ill-conditioned; "
        "1,200 values excused"
    )


def cost(runtime, precision, status, **more):
    return record("conv", "dynamo", runtime, 20, status, precision=precision, **more)


def test_what_a_precision_costs_stands_beside_its_runtimes_or_in_a_column_where_none_was_selected():
    fails, declared = (cost(None, "int8", status, check="fidelity") for status in ("failed", "xfailed"))
    found = "\n".join(
        matrix.lines([fails, cost("onnxruntime", "int8", "passed"), cost("onnxruntime", "fp16", "passed")], 80)
    )
    assert found.splitlines()[-1].split() == ["conv", "✓", "N"] and "cost" not in found
    alone = list(matrix.lines([declared], 80))
    assert (alone[0].split(), alone[-1].split()) == (["dyn", "cost", "int8"], ["conv", "x"])


def test_costs_are_listed_from_the_one_nearest_to_its_limit():
    def one(case, ratio, measured):
        worst = {"ratio": ratio}
        return cost(None, "int8", "passed", id=f"fidelity[{case}]", fidelity=measured, worst=worst)

    records = [one("a", 0.1, {"sqnr": 40.0}), one("b", 0.9, {"sqnr": 21.0}), one("c", 0.5, {"changed": 0.025})]
    found = list(matrix.fidelity(records, most=2))
    assert [line.split()[-1] for line in found[1:3]] == ["b", "c"]
    assert "21.0 dB SQNR (0.90)" in found[1] and "2.5% changed" in found[2] and found[3].split()[1] == "1"
    assert list(matrix.fidelity([])) == []


def test_what_shows_of_the_modules_is_told_once_for_a_case():
    records = [
        record("part", coverage={"seen": 9, "of": 10}), record("part", opset=18, coverage={"seen": 9, "of": 10}),
        record("whole", coverage={"seen": 5, "of": 5}), record("none", coverage={"seen": 0, "of": 0}),
        record("whole", precision="fp16", coverage={"seen": 1, "of": 5}), record("old"),
    ]  # fmt: skip
    assert matrix.counts(records).endswith("14 of 15 operator calls of 2 cases show in their outputs")
    assert [line.split() for line in coverage_totals.least(records)][1:] == [["90.0%", "9", "of", "10", "part"]]
    assert coverage_totals.total(records[-1:]) is None and list(coverage_totals.least(records[2:3])) == []
