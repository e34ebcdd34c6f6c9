"""The matrix of a report: the signs of the terminal, each of which leads to its records."""

from __future__ import annotations

from conformance.records import matrix
from conformance.report import rows
from conformance.report.grid import grid
from tests.report.support import mixed, record


def test_the_matrix_has_the_signs_of_the_terminal() -> None:
    found = grid(rows.complete(mixed()))
    lines = list(matrix.lines(mixed(), width=400))
    for case, cells in zip(found["cases"], found["cells"], strict=True):
        (line,) = (line for line in lines if line.startswith(f"{case} "))
        assert [cell[0] if cell else "·" for cell in cells] == line.split()[1:]
    signs = {cell[0] for cells in found["cells"] for cell in cells if cell}
    assert signs == set("✓xFXsnN")
    assert found["missing"] == ["tensorrt was not run: 1 cells skipped: tensorrt is not installed"]


def test_a_sign_leads_to_the_record_that_decides_it() -> None:
    given = rows.complete(mixed())
    statuses = {
        "✓": "passed",
        "x": "xfailed",
        "F": "failed",
        "X": "xpassed",
        "s": "skipped",
        "n": "xfailed",
        "N": "failed",
    }
    found = grid(given)
    for case, cells in zip(found["cases"], found["cells"], strict=True):
        for sign, first, *others in filter(None, cells):
            assert given[first]["status"] == statuses[sign]
            assert {given[number]["case"] for number in (first, *others)} == {case}
    reached = {number for cells in found["cells"] for cell in cells if cell for number in cell[1:]}
    assert reached == {number for number, row in enumerate(given) if row["runtime"] != "tensorrt"}


def test_a_failure_beside_a_cell_is_not_hidden_by_a_pass_beside_it() -> None:
    given = [record(), record(check="specials", status="failed"), record(check="engine")]
    assert grid(rows.complete(given))["cells"] == [[["N", 1, 0, 2]]]
