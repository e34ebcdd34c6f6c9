"""Symbolics and translations that ``--fix`` writes: right by themselves, told where they help, and only there."""

from collections.abc import Callable
from pathlib import Path

import pytest

from conformance.case.file import load
from conformance.plan.catalogue import plan
from conformance.records.findings import findings
from conformance.records.record import Record
from conformance.repairs import translations
from conformance.repairs.trials import Fix, Trials
from conformance.worker.isolation import Worker
from tests.kit.cases import PASSED, Bench, say, verdict, write_case

pytestmark = pytest.mark.own_store

Found = Callable[[Record], list[Fix]]


def all_of(record: Record, trials: Trials) -> list[Fix]:
    """The changes of the export that are found for a failing record, but for other exports."""
    assert record.status == "failed"
    told = record.as_dict()
    (finding,) = findings([told])
    (case,) = load(Path(str(record.source["file"])))
    assert "exporter" in finding.key.component or finding.key.component == "open"
    return [*translations.fixes(case, told, trials)]


@pytest.fixture
def found(bench: Bench, worker: Worker) -> Found:
    return lambda record: all_of(record, Trials(worker, bench.store))


def pasted(bench: Bench, body: str, python: str, fix: Fix) -> list[Record]:
    """The records of the case with a change in place of its export, as somebody would paste it."""
    kept = [line for line in say(body).splitlines() if not line.startswith(("export:", " "))]
    folder = bench.folder / "pasted"
    file = write_case(folder, say(*kept, fix.paste), python)
    for name, text in fix.files.items():
        (folder / name).write_text(text, encoding="utf-8")
    (case,) = load(file)
    return [bench.run_cell(cell) for cell in plan(case) if cell.check != "specials"]


X = """
inputs: {x: "float32[batch, 6]"}
dims: {batch: 1..4}
runtimes: onnxruntime
"""
SIZES = """
forward: x + y.sum() * ((x.shape[1] - y.shape[1]) // 2)
inputs: {x: "float32[batch, 4]", y: "float32[batch, n]"}
dims: {batch: 1..4, n: 3..9}
runtimes: onnxruntime
"""


@pytest.mark.parametrize("exporter, operator", [
    ("torchscript: [17]", "floor_divide"), pytest.param("dynamo: [18]", "floordiv", marks=pytest.mark.thorough),
])  # fmt: skip
def test_what_torch_has_wrong_is_written_anew(bench, found, exporter, operator):
    (fix,) = found(bench.run(say(SIZES, f"export: {{{exporter}}}")))
    assert fix.what.endswith(f"::{operator} that is right") and "examples verified" in fix.shown
    assert [*fix.files] == [f"right_{operator}.py"]
    assert {verdict(record) for record in pasted(bench, SIZES, "", fix)} == {PASSED}


def test_a_symbolic_of_the_cases_own_is_taken_out_where_torchs_is_right(bench, found):
    python = "def wrong(g, x, y, alpha=None):\n    return g.op('Sub', y, x)\n"
    entry = '{function: beside.wrong, without: "another graph"}'
    export = f'export: {{torchscript: {{opsets: [16, 17], symbolics: {{"aten::sub": {entry}}}}}}}'
    body = say('forward: "torch.sub(x, x * x)"', X)
    (fix,) = found(bench.run(say(body, export), python, opset=17))
    assert (fix.what, fix.files) == ("take out the case's own aten::sub, as torch's is right", {})
    assert fix.paste == "export: {torchscript: {opsets: [16, 17]}}"
    assert {verdict(one) for one in pasted(bench, body, python, fix)} == {PASSED}


def test_an_operator_without_a_symbolic_gets_one(bench, found):
    body = say("forward: F.rms_norm(x, (6,), eps=1e-5)", X)
    cell = bench.cell(say(body, "export: {torchscript: [17]}"), check="export")
    record = bench.run_cell(cell)
    assert record.error == "UnsupportedOperatorError"
    (fix,) = found(record)
    assert "without: UnsupportedOperatorError" in fix.paste
    assert {verdict(one) for one in pasted(bench, body, "", fix)} == {PASSED}


def test_nothing_is_told_that_another_opset_of_the_exporter_fails_with(bench, found):
    """A registration is for all opsets of an exporter: LessOrEqual is of opset 12."""
    for opsets, count in (("[17]", 1), ("[9, 17]", 0)):
        body = say("forward: F.hardshrink(x)", X, f"export: {{torchscript: {opsets}}}")
        record = bench.run(body, check="specials", opset=17)
        assert record.error == "WrongNaN" and len(found(record)) == count


def test_a_file_of_the_same_name_is_not_written_over(bench, found):
    cells = bench.cells(say(SIZES, "export: {torchscript: [17]}"))
    (cell,) = (one for one in cells if one.check == "accuracy" and one.runtime == "onnxruntime")
    (cell.case.folder / "right_floor_divide.py").write_text("mine = 1\n", encoding="utf-8")
    (fix,) = found(bench.run_cell(cell))
    assert [*fix.files] == ["right_floor_divide_2.py"]
    assert (cell.case.folder / "right_floor_divide.py").read_text(encoding="utf-8") == "mine = 1\n"
