"""The lines that tell changes in the terminal."""

import dataclasses
from typing import Any

import pytest

from conformance.results.baseline.acceptance import accept
from conformance.results.baseline.baseline_file import load
from conformance.results.baseline.run_comparison import compare_runs
from conformance.results.baseline.summary import lines
from tests.results.baseline.support import FAILED, XFAILED, XPASSED, cells, record, run, written


def many() -> list[Any]:
    before = [record(f"accuracy[case{n:02}-dynamo-op20-onnxruntime-fp32]") for n in range(30)]
    long = {**FAILED, "reason": "output 0: 5 of 5 values are NaN or infinite on one side only " * 4}
    after = [dataclasses.replace(one, **long) for one in before[:25]] + [
        dataclasses.replace(before[25], examples=1), dataclasses.replace(before[26], **XFAILED),
    ]  # fmt: skip
    return compare_runs(
        run(*before[:25], before[25], dataclasses.replace(before[26], **FAILED), before[27]), run(*after)
    )


@pytest.mark.parametrize("width", [80, 160])
def test_lines_fit_the_terminal_and_begin_with_regressions(width):
    found = list(lines(many(), width))
    assert all(len(line) <= width for line in found)
    heads = [line for line in found if not line.startswith(" ")]
    assert heads == [
        "newly failing: 25", "vanished: in the earlier run only: 1", "fewer examples verified: 1",
        "another expected failure than before: 1", "27 regressions, 1 other change",
    ]  # fmt: skip
    assert "  and 5 more" in found and sum("dynamo-op20" in line for line in found) == 23


def test_what_is_accepted_comes_last(tmp_path):
    file = written(tmp_path, *cells(2))
    after = run(*(dataclasses.replace(one, **FAILED) for one in cells(2)))
    accept(file, after, ["export*"], because="known")
    found = list(lines(compare_runs(load(file), after), 100))
    assert [line for line in found if not line.startswith(" ")] == [
        "newly failing: 2", "accepted: 2", "2 regressions, 2 accepted",
    ]  # fmt: skip
    assert "accepted: known" in " ".join(found)


def test_changes_with_one_cause_are_one_entry():
    """Of five cells that work now four failed for one fact."""
    facts = {"topk": "TopK leaves NaN anywhere", "sort": "TopK leaves NaN anywhere", "sum": "sums saturate"}
    cells = [f"accuracy[{name}-dynamo-op{opset}-onnxruntime-fp32]" for name in facts for opset in (18, 20)][:5]
    before = run(*(record(cell, **XFAILED) for cell in cells))
    fact = {cell: facts[cell.partition("[")[2].partition("-")[0]] for cell in cells}
    works = {cell: [{"outcome": "works", "place": "cases/x.yaml:3", "because": fact[cell]}] for cell in cells}
    after = run(*(record(cell, **XPASSED, declared=works[cell]) for cell in cells))
    found = list(lines(compare_runs(before, after), 120))
    assert found[0] == "passing though declared to fail: 5"
    assert (found[1] + found[2]).startswith("  4 cells: TopK leaves NaN anywhere: fails as declared at export")
    assert [line.strip() for line in found if line.strip() in cells] == [*sorted(cells[:4])[:3], cells[4]]
    assert sum("TopK" in line for line in found) == 1 and "    and 1 more" in found
