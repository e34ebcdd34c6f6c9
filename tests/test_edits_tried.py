"""``conformance findings --fix`` for cases that prove too little: the edit that a record proposes, on all draws."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from conformance.case.file import load
from conformance.plan.catalogue import plan
from conformance.records.findings import findings
from conformance.records.record import Record
from conformance.repairs.fixes import fixes, tried
from conformance.repairs.trials import Fix, Trials
from conformance.worker.isolation import Worker
from tests.support import PASSED, Bench, say, verdict
from tests.test_coverage import BLOCK
from tests.test_remedies import FIRST, NOTHING, VACUOUS, ZERO_BY_INIT


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path, tmp_path / "store")


Found = Callable[[Record], list[Fix]]


@pytest.fixture
def found(bench: Bench, worker: Worker) -> Found:
    def all_of(record: Record) -> list[Fix]:
        told = record.as_dict()
        (finding,) = findings([told])
        (case,) = load(Path(str(record.source["file"])))
        assert finding.key.component == "case"
        return [*fixes(finding, case, told, Trials(worker, bench.store))]

    return all_of


def body_of(body: str) -> str:
    return say(
        body, "specials: false", "runtimes: onnxruntime", "" if "export:" in body else "export: {torchscript: 17}"
    )


def pasted(bench: Bench, record: Record, paste: str) -> Record:
    """The record of the case's accuracy cell with the lines of a change in its file, as somebody would paste them."""
    file = Path(str(record.source["file"]))
    yaml, _, python = paste.partition("\nin beside.py:\n")
    case = YAML(typ="safe").load(file.read_text(encoding="utf-8"))["planted"] | YAML(typ="safe").load(yaml)
    folder = bench.folder / "pasted"
    folder.mkdir()
    lines = [line[2:] for line in python.splitlines()]
    text = (file.parent / "beside.py").read_text(encoding="utf-8") + "\n".join(["", "", *lines, ""])
    (folder / "beside.py").write_text(text, encoding="utf-8")
    with (folder / "planted.yaml").open("w", encoding="utf-8") as stream:
        YAML(typ="safe").dump({"planted": case}, stream)
    (again,) = load(folder / "planted.yaml")
    return bench.run_cell(next(cell for cell in plan(again) if cell.check == "accuracy"))


@pytest.mark.parametrize("name, what", [
    ("saturated", "draw other values"), ("zero by init", "give parameters that are all zero values"),
    ("constant", "say why the output is right though any would pass"),
    ("a tolerance above the values", "compare by the default tolerance"),
])  # fmt: skip
def test_the_edit_for_a_vacuous_output_is_tried(bench: Bench, found: Found, name: str, what: str) -> None:
    record = bench.run(body_of(VACUOUS[name][0]), ZERO_BY_INIT, examples=6)
    assert record.error == "Vacuous"
    (fix,) = found(record)
    assert fix.what == what and "examples verified" in fix.shown
    assert verdict(pasted(bench, record, fix.paste)) == PASSED


@pytest.mark.parametrize("name, what", [
    ("negative logarithms", "draw other values"),
    ("digits cancel", "declare the tolerance that float32 itself needs here"),
])  # fmt: skip
def test_the_edit_where_nothing_was_verified_is_tried(bench: Bench, found: Found, name: str, what: str) -> None:
    record = bench.run(body_of(NOTHING[name][0]), ZERO_BY_INIT + FIRST, examples=6)
    assert record.error in ("NothingVerified", "IllConditioned")
    (fix,) = found(record)
    assert fix.what == what
    assert ("float32 itself is off by up to" in fix.paste) == ("tolerance" in what)
    assert verdict(pasted(bench, record, fix.paste)) == PASSED


def test_no_tolerance_is_told_where_another_runtime_does_better(bench: Bench, found: Found) -> None:
    record = bench.run(body_of(NOTHING["digits cancel"][0]), ZERO_BY_INIT + FIRST, examples=6)
    assert record.remedy is not None and record.remedy["kind"] == "tolerance to declare"
    record.witnesses = [{"runtime": "onnx-reference", "answer": "nearer"}]
    assert found(record) == []


def test_no_tolerance_is_told_that_would_hide_a_wrong_cell(
    bench: Bench, found: Found, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same case has another cell whose runtime is shown to be wrong."""
    from conformance.repairs.trials import Trials as tried_in

    record = bench.run(body_of(NOTHING["digits cancel"][0]), ZERO_BY_INIT + FIRST, examples=6)
    monkeypatch.setattr(tried_in, "record", lambda *_: {"status": "failed", "fault": "runtime"})
    assert found(record) == []


def test_a_module_that_hardly_shows_is_woken(bench: Bench, found: Found) -> None:
    record = bench.run(body_of('module: beside.Net\ninputs: {x: "float32[q, 4]"}\ndims: {q: 1..4}'), BLOCK)
    assert record.error == "Hollow"
    (fix,) = found(record)
    assert (fix.what, fix.paste) == ("wake the weights", "weights: awake")
    assert verdict(pasted(bench, record, fix.paste)) == PASSED


def test_a_finding_without_an_edit_has_nothing_to_be_tried(bench: Bench) -> None:
    record = bench.run(body_of(NOTHING["all digits cancel"][0]), ZERO_BY_INIT + FIRST, examples=6)
    told = record.as_dict()
    (finding,) = findings([told])
    assert (finding.key.component, record.remedy) == ("case", None)
    assert tried(finding) is None
