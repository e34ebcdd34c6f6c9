"""The words for each status, which are those of the terminal."""

from __future__ import annotations

from conformance.records import text
from conformance.report import rows
from conformance.report.words import verdict
from tests.report.support import failed, record


def test_failures_read_as_in_the_terminal() -> None:
    (row,) = rows.complete([failed()])
    assert verdict(row) == text.failure(failed())
    assert "125000" in verdict(row) or "1.25e+05 times what is allowed" in verdict(row)


def test_each_status_has_words_of_its_own() -> None:
    given = [
        record(worst={"output": 0, "ratio": 0.18}, ill_conditioned=2),
        record(status="xfailed", reason="opset 9 lacks it", stage="run", fault="exporter", details=["found: x"]),
        record(status="skipped", reason="tensorrt is not installed", stage="load"),
        record(worst={"output": 0, "ratio": "inf"}),
    ]  # fmt: skip
    passed, declared, skipped, infinite = map(verdict, rows.complete(given))
    assert passed == (
        "passed: 24 examples verified; 2 too ill-conditioned to judge; the largest error is 0.18 of what is allowed"
    )
    assert declared.startswith("failed as declared: opset 9 lacks it\nstage run; at fault: exporter\n  found: x")
    assert skipped == "not run: tensorrt is not installed"
    assert "the largest error is inf" in infinite


def test_a_failure_of_another_version_still_has_words() -> None:
    (row,) = rows.complete([failed(worst={"element": 3})])
    assert verdict(row).startswith("3 of 24 elements of output 0 differ\nstage compare")
