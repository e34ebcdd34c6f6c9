"""``conformance findings --fix``: what is proposed was run and passes, and what does not help is not proposed."""

import contextlib
import itertools
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from conformance.extras.repairs import trials
from conformance.extras.repairs.trials import RepairTrials
from conformance.front.cli import main
from conformance.front.commands.findings.fix import fix, tell_trial
from conformance.results.records.findings import findings
from conformance.results.records.record import Record
from conformance.results.records.run_file import RunWriter
from tests.diagnose.test_smallest import BODY, NET
from tests.extras.test_sensitivity import PLANTED, PYTHON, with_precision
from tests.kit.cases import Bench, say, with_symbolic

pytestmark = pytest.mark.own_store

WRONG_AT_17 = """
from torch.onnx._internal.torchscript_exporter._globals import GLOBALS
def symbolic(g, x):
    if GLOBALS.export_onnx_opset_version == 17:
        return g.op("HardSigmoid", x)
    return g.op("Mul", x, g.op("HardSigmoid", x, alpha_f=1 / 6, beta_f=0.5))
"""
SWISH = say(
    "forward: F.hardswish(x)", 'inputs: {x: "float32[batch, 4]"}', "dims: {batch: 1..4}", "runtimes: onnxruntime",
    with_symbolic("aten::hardswish"),
)  # fmt: skip
FUSED = say(BODY, "runtimes: onnxruntime", "specials: false", "export: {torchscript: [17]}")

Proposed = Callable[[Record], list[str]]


@pytest.fixture
def proposed(bench: Bench) -> Proposed:
    """The lines about the finding of a record, whose case file is still there."""

    def lines(record: Record) -> list[str]:
        heading, first, *others = fix(findings([record]), {record.id: record}, bench.store)
        assert heading.startswith("Changes with which") and first.endswith(f": {record.id}")
        return [line.removeprefix("  ") for line in others]

    return lines


def test_the_pass_is_switched_off_with_what_that_costs(bench, proposed):
    record = bench.run(FUSED, NET)
    assert (record.fault, record.conclusion) == ("runtime", "optimizer")
    what, paste = proposed(record)
    assert what.startswith("switch off LayerNormFusion")
    assert "examples verified; a run takes " in what and what.endswith(" times as long")
    assert paste.startswith("  onnxruntime: {config: {optimization.disable_specified_optimizers: 'LayerNormFusion")
    again = bench.run(say(FUSED, paste.strip()), NET)
    assert again.status == "passed"


@pytest.mark.parametrize("precision", PLANTED)
def test_the_fewest_nodes_are_kept_in_fp32(bench, proposed, precision):
    body, node = PLANTED[precision]
    cell = bench.cell(with_precision(body, precision), PYTHON, check="fidelity")
    what, paste = proposed(bench.run_cell(cell, examples=2))
    assert what.startswith("keep 1 node in fp32: ")
    assert paste.strip() == f'precisions: {{{precision}: {{exclude: {{torchscript: ["{node}"]}}}}}}'


@pytest.mark.thorough
def test_what_does_not_help_is_not_proposed(bench, proposed):
    """A kernel that stops at every opset."""
    body = say(
        "forward: torch.linalg.slogdet(x)[1]", 'inputs: {x: "float32[batch, 3, 3]"}', "dims: {batch: 1..3}",
        "runtimes: onnxruntime", "export: {torchscript: [17]}",
    )  # fmt: skip
    cell = bench.cell(body, check="export")
    (line,) = proposed(bench.run_cell(cell))
    assert line.startswith("none of what was tried lets it pass: the case's own symbolics taken out, ")


def test_of_a_case_that_is_gone_nothing_is_tried(bench, proposed):
    record = bench.run(SWISH, WRONG_AT_17)
    Path(str(record.source["file"])).write_text("another: {about: none}\n", encoding="utf-8")
    (line,) = proposed(record)
    assert "there is no case planted any more" in line


def test_another_opset_and_the_other_exporter_are_proposed_where_they_are_right(bench, tmp_path, capsys):
    """As the command says it."""
    record = bench.run(SWISH, WRONG_AT_17)
    writer = RunWriter(tmp_path / "run", {"started": "now"})
    writer.add(record.as_dict())
    writer.close(1.0)
    (finding,) = findings([record])
    code = main(["findings", str(tmp_path / "run"), "--fix", finding.id, "--store", str(bench.store.parent)])
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    assert code == 0
    assert f"1 of 1, {finding.id}: {record.id}" in lines
    opset, exporter = (line for line in lines if line.startswith("export with"))
    assert opset.startswith("export with torchscript at opset 18: ") and "examples verified" in opset
    assert lines[lines.index(opset) + 1] == "export: {torchscript: {opsets: [18], ...}}, the rest of it as it is"
    assert exporter.startswith("export with dynamo at opset 20: ") and "cells pass" in exporter
    assert lines[lines.index(exporter) + 1] == "export: {dynamo: [20]}"
    assert main(["findings", str(tmp_path / "run"), "--fix", "12345678"]) == 2


def test_a_symbolic_of_the_cases_own_is_taken_out_where_torchs_is_right(bench):
    python = "def wrong(g, x, y, alpha=None):\n    return g.op('Sub', y, x)\n"
    entry = '{function: beside.wrong, without: "another graph"}'
    lines = (
        'forward: "torch.sub(x, x * x)"', 'inputs: {x: "float32[batch, 6]"}', "dims: {batch: 1..4}",
        "runtimes: onnxruntime",
    )  # fmt: skip
    export = f'export: {{torchscript: {{opsets: [16, 17], symbolics: {{"aten::sub": {entry}}}}}}}'
    record = bench.run(say(*lines, export), python, opset=17)
    with contextlib.closing(fix(findings([record]), {record.id: record}, bench.store)) as proposed:
        *_, what, paste = (line.strip() for line in itertools.islice(proposed, 4))  # what is tried first
    assert what.startswith("take out the case's own aten::sub, as torch's is right: ")
    assert paste == "export: {torchscript: {opsets: [16, 17]}}"
    assert bench.run(say(*lines, paste), python, opset=17).status == "passed"


def test_what_is_tried_is_shown_while_it_runs(bench, monkeypatch):
    cell, shown = bench.cell(FUSED, NET), []

    def run(cell, on_wait):
        on_wait({"stage": "export"})
        return cell.record()

    monkeypatch.setattr(trials, "Runner", lambda *_: run)
    doing = partial(tell_trial, lambda what, note, since: shown.append((what, note)), "2 of 3")
    RepairTrials(None, bench.store, doing).record(cell)
    assert shown == [(f"2 of 3, with a change: {cell.id}", {"stage": "export"})]
