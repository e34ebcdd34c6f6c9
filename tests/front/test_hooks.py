"""Hooks of this suite in a user's ``conftest.py``, and in a plugin: what each hears, and mistakes in them."""

import json
from pathlib import Path

import pytest

from conformance.results.records.findings import findings
from conformance.results.records.record import Record
from tests.kit.cases import write_case
from tests.kit.runs import Outcome, run_suite
from tests.kit.unrun import UNRUN

CASE = "forward: torch.sin(x)\ninputs: {x: 'float32[3]'}\nexport: {torchscript: [17]}\nruntimes: onnxruntime\n"
LISTENS = """
import json
def note(*what):
    with open("heard.jsonl", "a") as file:
        print(json.dumps(what), file=file)
def pytest_conformance_cells(config, cells):
    note("cells", [cell.id for cell in cells])
def pytest_conformance_verdict(record):
    note("verdict", record.as_dict())
    record.status = "passed"
def pytest_conformance_findings(config, findings):
    note("findings", {one.id: [cell.id for cell in one.cells] for one in findings}, config.rootpath.name)
    for one in findings:
        one.cells.clear()
"""
RAISES = """
import pytest
def pytest_conformance_{hook}():
    {how}
"""


def run(folder: Path, *words: str, conftest: str = LISTENS, plugin: str = "", wrong: bool = True) -> Outcome:
    write_case(folder / "cases", CASE, name="sound")
    if wrong:
        write_case(folder / "cases", f"{CASE}tags: fails\n", name="wrong")
    (folder / "conftest.py").write_text(conftest, encoding="utf-8")
    return run_suite(folder, *UNRUN, *words, plugin=plugin)


def heard(folder: Path) -> list[list[object]]:
    file = folder / "heard.jsonl"
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()] if file.exists() else []


@pytest.mark.parametrize("way", [(), pytest.param(("-n", "1"), marks=pytest.mark.thorough)])
def test_a_conftest_hears_of_cells_verdicts_and_findings_and_changes_none(tmp_path, way):
    done = run(tmp_path, *way)
    assert done.code == 1 and "6 cells: 3 failed, 3 passed" in done.text, done.text
    first, *verdicts, last = heard(tmp_path)
    assert first == ["cells", [told[1]["id"] for told in verdicts]]
    assert {told[1]["id"]: told[1] for told in verdicts} == done.records and len(verdicts) == 6
    red = findings(map(Record.from_dict, done.records.values()))
    assert last == ["findings", {one.id: [cell.id for cell in one.cells] for one in red}, tmp_path.name]
    assert red and all(f"FAILED {one.id}" in done.text for one in red)


def test_a_green_run_ends_without_findings(tmp_path):
    done = run(tmp_path, wrong=False)
    assert done.code == 0 and heard(tmp_path)[-1][:2] == ["findings", {}]


def test_nothing_is_heard_of_cells_that_are_only_collected(tmp_path):
    assert run(tmp_path, "--collect-only").code == 0 and heard(tmp_path) == []


@pytest.mark.parametrize("hook", ["cells", "verdict", "findings"])
@pytest.mark.parametrize("how, said", [
    ("raise KeyError('planted')", "KeyError: 'planted' (conftest.py:4)"),
    ("pytest.fail('planted')", "Failed: planted (outcomes.py:"),
])  # fmt: skip
def test_what_a_hook_raises_is_told_and_loses_neither_a_record_nor_another_plugin(tmp_path, hook, how, said):
    done = run(tmp_path, conftest=RAISES.format(hook=hook, how=how), plugin=LISTENS, wrong=False)
    assert done.code == 1 and "INTERNALERROR" not in done.text
    assert done.text.count(f"pytest_conformance_{hook} of conftest.py raises {said}") == 1, done.text
    assert "3 cells: 3 passed" in done.text and len(done.run["records"]) == 3
    assert [kind for kind, *_ in heard(tmp_path)] == ["cells", *["verdict"] * 3, "findings"]


def test_a_hook_may_end_the_run_as_pytest_does(tmp_path):
    done = run(tmp_path, conftest=RAISES.format(hook="verdict", how="pytest.exit('enough', 7)"))
    assert done.code == 7 and "enough" in done.text and len(done.records) == 1 and "raises" not in done.text
