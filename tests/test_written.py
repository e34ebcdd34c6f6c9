"""Symbolics and translations that ``--fix`` writes: right by themselves, told where they help, and only there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from conformance.case.file import load
from conformance.plan.catalogue import plan
from conformance.records.findings import findings
from conformance.records.record import Record
from conformance.repairs import translations
from conformance.repairs.trials import Fix, Trials
from conformance.repairs.written import written
from conformance.worker.isolation import Worker
from tests.support import PASSED, Bench, say, verdict, write_case


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path, tmp_path / "store")


Found = Callable[[Record], list[Fix]]


@pytest.fixture
def found(bench: Bench, worker: Worker) -> Found:
    """The changes of the export that are found for a failing record, but for other exports."""

    def all_of(record: Record) -> list[Fix]:
        assert record.status == "failed"
        told = record.as_dict()
        (finding,) = findings([told])
        (case,) = load(Path(str(record.source["file"])))
        assert "exporter" in finding.key.component or finding.key.component == "open"
        return [*translations.fixes(case, told, Trials(worker, bench.store))]

    return all_of


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
OF_TORCH = {
    "floor against truncation": (SIZES, ("floor_divide", "floordiv")),
    "a dropped argument": (
        """
forward: F.avg_pool2d(x, 2, divisor_override=3)
inputs: {x: "float32[batch, 3, 8, 8]"}
dims: {batch: 1..4}
runtimes: onnxruntime
""",
        ("avg_pool2d", "avg_pool2d"),
    ),
    "a wrong formula": (
        say("forward: F.logsigmoid(x)",
            'inputs: {x: {type: "float32[batch, 6]", values: {uniform: {low: 9, high: 60}}}}',
            "dims: {batch: 1..4}", "runtimes: onnxruntime", "specials: false"),
        ("log_sigmoid", "log_sigmoid"),
    ),
}  # fmt: skip
"""Defects of torch's own exporters: by kind the case, and the operator by each of them."""


@pytest.mark.parametrize("exporter", ["torchscript: [17]", "dynamo: [18]"])
@pytest.mark.parametrize("kind", OF_TORCH)
def test_what_torch_has_wrong_is_written_anew(bench: Bench, found: Found, kind: str, exporter: str) -> None:
    body, operators = OF_TORCH[kind]
    operator = operators[exporter.startswith("dynamo")]
    (fix,) = found(bench.run(say(body, f"export: {{{exporter}}}")))
    assert fix.what.endswith(f"::{operator} that is right")
    assert "examples verified" in fix.shown
    assert [*fix.files] == [f"right_{operator}.py"]
    assert {verdict(record) for record in pasted(bench, body, "", fix)} == {PASSED}


def own(operator: str, exporter: str) -> str:
    if exporter == "dynamo":
        return f'export: {{dynamo: {{opsets: [18], translations: {{"{operator}": beside.wrong}}}}}}'
    entry = '{function: beside.wrong, without: "another graph"}'
    return f'export: {{torchscript: {{opsets: [16, 17], symbolics: {{"{operator}": {entry}}}}}}}'


OWN = {
    "swapped operands": ("torch.sub(x, x * x)", "aten::sub", "g, x, y, alpha=None", "g.op('Sub', y, x)"),
    "a dropped argument": ("F.leaky_relu(x, 0.3)", "aten::leaky_relu", "g, x, slope", "g.op('LeakyRelu', x)"),
    "a wrong constant": ("F.gelu(x)", "aten::gelu", "g, x, form", "g.op('Mul', x, g.op('Sigmoid', x))"),
    "a missing cast": ("torch.sum(x > 0)", "aten::sum", "g, x, *rest",
                       "g.op('ReduceMax', g.op('Cast', x, to_i=7), keepdims_i=0)"),
    "a missing guard": ("torch.softmax(x, -1)", "aten::softmax", "g, x, *rest", "g.op('Softmax', x, axis_i=0)"),
    "a remainder that is cut off": ("torch.remainder(x, 0.7)", "aten::remainder", "g, x, y",
                                    "g.op('Mod', x, g.op('Cast', y, to_i=1), fmod_i=1)"),
}  # fmt: skip
"""Wrong symbolics of a case: what is called, its operator, parameters, what it returns."""


@pytest.mark.parametrize("kind", OWN)
def test_a_symbolic_of_the_cases_own_is_taken_out_where_torchs_is_right(
    bench: Bench, found: Found, kind: str
) -> None:
    forward, operator, parameters, wrong = OWN[kind]
    python = f"def wrong({parameters}):\n    return {wrong}\n"
    body = say(f'forward: "{forward}"', X)
    record = bench.run(say(body, own(operator, "torchscript")), python, opset=17)
    (fix,) = found(record)
    assert (fix.what, fix.files) == (f"take out the case's own {operator}, as torch's is right", {})
    assert fix.paste == "export: {torchscript: {opsets: [16, 17]}}"
    assert {verdict(one) for one in pasted(bench, body, python, fix)} == {PASSED}


def test_where_torch_has_none_a_wrong_translation_is_replaced(bench: Bench, found: Found) -> None:
    """The case's own, of an operator that torch's own translation has wrong too."""
    python = "from onnxscript import opset18\n\ndef wrong(x, y):\n    return opset18.Add(opset18.Div(x, y), 1)\n"
    record = bench.run(say(SIZES, own("_operator::floordiv", "dynamo")), python)
    (fix,) = found(record)
    assert fix.what == "export with a translation of _operator::floordiv that is right"
    assert "beside.wrong" not in fix.paste


def test_an_operator_without_a_symbolic_gets_one(bench: Bench, found: Found) -> None:
    body = say("forward: F.rms_norm(x, (6,), eps=1e-5)", X)
    (cell,) = (one for one in bench.cells(say(body, "export: {torchscript: [17]}")) if one.check == "export")
    record = bench.run_cell(cell)
    assert record.error == "UnsupportedOperatorError"
    (fix,) = found(record)
    assert "without: UnsupportedOperatorError" in fix.paste
    assert {verdict(one) for one in pasted(bench, body, "", fix)} == {PASSED}


def test_nothing_is_told_that_another_opset_of_the_exporter_fails_with(bench: Bench, found: Found) -> None:
    """A registration is for all opsets of an exporter: LessOrEqual is of opset 12."""
    for opsets, count in (("[17]", 1), ("[9, 17]", 0)):
        body = say("forward: F.hardshrink(x)", X, f"export: {{torchscript: {opsets}}}")
        record = bench.run(body, check="specials", opset=17)
        assert record.error == "WrongNaN"
        assert len(found(record)) == count


def test_nothing_is_told_where_nothing_passes(bench: Bench, found: Found, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that is as wrong as what it replaces."""
    from conformance.repairs import written as module

    library = dict(module._library())
    library["floor_divide"] = (
        "def floor_divide(op, self, other):\n    return op.Div(self, other)",
        frozenset({"op"}),
    )
    with monkeypatch.context() as patched:
        patched.setattr(module, "_library", lambda: library)
        wrong = written(None, "torchscript", ["aten::floor_divide"])
    monkeypatch.setattr(Trials, "call", lambda *_: wrong)
    assert found(bench.run(say(SIZES, "export: {torchscript: [17]}"))) == []


def test_a_file_of_the_same_name_is_not_written_over(bench: Bench, found: Found) -> None:
    cells = bench.cells(say(SIZES, "export: {torchscript: [17]}"))
    (cell,) = (one for one in cells if one.check == "accuracy" and one.runtime == "onnxruntime")
    (cell.case.folder / "right_floor_divide.py").write_text("mine = 1\n", encoding="utf-8")
    (fix,) = found(bench.run_cell(cell))
    assert [*fix.files] == ["right_floor_divide_2.py"]
    assert (cell.case.folder / "right_floor_divide.py").read_text(encoding="utf-8") == "mine = 1\n"


def test_of_an_operator_that_is_not_known_nothing_is_written() -> None:
    assert written(None, "dynamo", ["aten::fft_fft", "aten::scaled", "custom::add"]) is None
