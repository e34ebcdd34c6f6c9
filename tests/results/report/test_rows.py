"""Rows of a report: of records of any version, with the words and the signs of the terminal."""

import json
import re

import pytest

from conformance.results.records import matrix
from conformance.results.records.details import details
from conformance.results.records.run_file import read_run, validated
from conformance.results.report.html import grid, page
from conformance.results.report.markdown import summary
from conformance.results.report.verdict_words import verdict
from tests.results.report.support import HEADER, failed, mixed, record


def test_a_record_with_the_least_there_is_gets_the_rest():
    least = {"id": "a[b]", "case": "b", "exporter": "dynamo", "opset": 20, "check": "export", "status": "passed"}
    row = validated(least | {"details": None, "source": None, "of a later version": 1})
    assert details(row) == [] and row.source == {"file": None, "line": None} and row.runtime is None
    assert row.precision == "fp32" and row.as_dict()["of a later version"] == 1
    assert "a[b]" in page([("run", {}, [row])]) and "1 passed" in summary({}, [row])


@pytest.mark.parametrize("broken, said", [
    ({"id": None}, "record 2 lacks id"), ({"status": "perhaps"}, 'record 2 status is "perhaps", not passed or'),
])  # fmt: skip
def test_what_is_no_record_is_said_with_its_number(broken, said, tmp_path):
    file = tmp_path / "run.json"
    file.write_text(json.dumps({**HEADER, "records": [record().as_dict(), record("b").as_dict() | broken]}))
    with pytest.raises(ValueError, match=re.escape(said)):
        read_run(file)


def test_each_status_has_words_of_its_own():
    given = [
        record(worst={"output": 0, "ratio": 0.18}, ill_conditioned=2, excused=7),
        record(status="xfailed", reason="opset 9 lacks it", stage="run", fault="exporter", details=["found: x"]),
        record(status="skipped", reason="tensorrt is not installed", stage="load"),
        record(worst={"output": 0, "ratio": "inf"}), record(precision="int8", excused=7),
    ]  # fmt: skip
    passed, declared, skipped, infinite, converted = map(verdict, given)
    assert passed == (
        "passed: 24 examples verified; 2 too ill-conditioned to judge; 7 values excused, as float32 itself is off "
        "there; the largest error is 0.18 of what is allowed"
    )
    assert declared.startswith("failed as declared: opset 9 lacks it\nstage run; at fault: the exporter\n  found: x")
    assert skipped == "not run: tensorrt is not installed"
    assert "7 values excused, as the conversion is off there" in converted
    assert "the largest error is inf" in infinite


def test_a_failure_of_another_version_still_has_words():
    row = failed(worst={"element": 3})
    assert verdict(row).startswith("3 of 24 elements of output 0 differ\nstage compare")


def test_the_matrix_has_the_signs_of_the_terminal():
    found = grid(mixed())
    lines = list(matrix.lines(mixed(), width=400))
    for case, cells in zip(found["cases"], found["cells"], strict=True):
        (line,) = (line for line in lines if line.startswith(f"{case} "))
        assert [cell[0] if cell else "·" for cell in cells] == line.split()[1:]
    signs = {cell[0] for cells in found["cells"] for cell in cells if cell}
    assert signs == set("✓xFXsnN")
    assert found["missing"] == ["tensorrt was not run: 1 cells skipped: tensorrt is not installed"]


def test_a_sign_leads_to_the_record_that_decides_it():
    given = mixed()
    statuses = {"✓": "passed", "x": "xfailed", "F": "failed", "X": "xpassed", "s": "skipped"}
    statuses |= {"n": "xfailed", "N": "failed"}
    found = grid(given)
    for case, cells in zip(found["cases"], found["cells"], strict=True):
        for sign, first, *others in filter(None, cells):
            assert given[first].status == statuses[sign]
            assert {given[number].case for number in (first, *others)} == {case}
    reached = {number for cells in found["cells"] for cell in cells if cell for number in cell[1:]}
    assert reached == {number for number, row in enumerate(given) if row.runtime != "tensorrt"}


def test_a_failure_beside_a_cell_is_not_hidden_by_a_pass_beside_it():
    given = [record(), record(check="specials", status="failed"), record(check="engine")]
    assert grid(given)["cells"] == [[["N", 1, 0, 2]]]


@pytest.mark.parametrize(("accuracy", "specials", "cell"), [
    ("passed", "skipped", ["✓", 0, 1]), ("skipped", "failed", ["N", 1, 0]), ("xfailed", "failed", ["N", 1, 0]),
    ("skipped", "passed", ["s", 0, 1]),
])  # fmt: skip
def test_what_could_not_be_said_of_nan_hides_no_pass_and_nothing_hides_a_failure(accuracy, specials, cell):
    given = [record(status=accuracy), record(check="specials", status=specials)]
    assert grid(given)["cells"] == [[cell]]


def test_the_page_has_a_legend_of_the_signs_that_occur():
    def legend(*records):
        return re.findall(r"<span><b>(.)</b>", page([("run", {}, records)]))

    skipped = record(check="specials", status="skipped", reason="NaN spreads")
    assert legend(record(), skipped) == ["✓"]
    assert legend(*mixed()) == [*matrix.MEANINGS]
