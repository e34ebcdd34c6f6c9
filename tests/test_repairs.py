"""``conformance findings --fix``: what is proposed was run and passes, and what does not help is not proposed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from conformance.cli import main
from conformance.commands.findings import fix as command
from conformance.records.findings import findings
from conformance.records.record import Record
from conformance.records.run_file import RunWriter
from conformance.repairs.precision import smallest
from conformance.repairs.trials import Trials
from conformance.worker.isolation import Worker
from tests.support import Bench, say
from tests.test_sensitivity import PLANTED, PYTHON, with_precision

WRONG = """
def symbolic(g, x):
    return g.op("HardSigmoid", x)


def as_always(g, x):
    return g.op("Mul", x, g.op("HardSigmoid", x, alpha_f=1 / 6, beta_f=0.5))
"""
SWISH = """
forward: F.hardswish(x)
inputs: {x: "float32[batch, 4]"}
dims: {batch: 1..4}
runtimes: onnxruntime
"""
BY_TORCHSCRIPT = say(
    SWISH,
    """export:
  torchscript: {opsets: [17], symbolics: {"aten::hardswish": {function: beside.symbolic, without: "none"}}}""",
)
CENTRED = """
import torch


class Centred(torch.nn.Module):
    '''Values to a power that ONNX Runtime's fusion to a layer norm does not look at.'''

    def forward(self, x):
        centred = x - x.mean(-1, keepdim=True)
        return centred / torch.sqrt(centred.pow(4).mean(-1, keepdim=True) + 1e-5) * self.weight + self.bias

    def __init__(self):
        super().__init__()
        self.weight, self.bias = torch.nn.Parameter(torch.rand(8)), torch.nn.Parameter(torch.rand(8))
"""
FUSED = """
module: beside.Centred
inputs: {x: "float32[batch, 8]"}
dims: {batch: 1..4}
runtimes: onnxruntime
specials: false
export: {torchscript: [17]}
"""


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path, tmp_path / "store")


Proposed = Callable[[Record], list[str]]


@pytest.fixture
def proposed(bench: Bench, worker: Worker) -> Proposed:
    """The lines about the finding of a record, whose case file is still there."""

    def lines(record: Record) -> list[str]:
        told = record.as_dict()
        (finding,) = findings([told])
        return [*command._about(finding, told, Trials(worker, bench.store), bench.folder / "fixes")]

    return lines


def test_the_other_exporter_is_proposed_where_it_is_right(bench: Bench, proposed: Proposed) -> None:
    """A wrong symbolic is as wrong at every opset, so that none of TorchScript is proposed."""
    record = bench.run(BY_TORCHSCRIPT, WRONG)
    assert record.status == "failed"
    lines = proposed(record)
    assert [line for line in lines if line.startswith("export with")] == [
        line for line in lines if line.startswith("export with dynamo at opset 20: ")
    ]
    first = lines.index("  export: {dynamo: [20]}") - 1
    assert "cells pass" in lines[first] and "examples verified" in lines[first]


def test_another_opset_is_proposed_with_the_rest_of_the_export_as_it_is(bench: Bench, proposed: Proposed) -> None:
    body = say(
        SWISH,
        """export:
  torchscript: {opsets: [17], symbolics: {"aten::hardswish": {function: beside.at_17, without: "another graph"}}}""",
    )
    python = (
        WRONG
        + """
from torch.onnx._internal.torchscript_exporter._globals import GLOBALS

def at_17(g, x):
    return (symbolic if GLOBALS.export_onnx_opset_version == 17 else as_always)(g, x)
"""
    )
    lines = proposed(bench.run(body, python))
    first = [line.split(": ")[0] for line in lines].index("export with torchscript at opset 18")
    assert lines[first + 1] == "  export: {torchscript: {opsets: [18], ...}}, the rest of it as it is"
    assert any(line.startswith("export with dynamo at opset 20: ") for line in lines)


def test_the_pass_is_switched_off_with_what_that_costs(bench: Bench, proposed: Proposed) -> None:
    record = bench.run(FUSED, CENTRED)
    assert (record.fault, record.conclusion) == ("runtime", "optimizer")
    what, paste = proposed(record)
    assert what.startswith("switch off LayerNormFusion")
    assert "examples verified; a run takes " in what and what.endswith(" times as long")
    assert paste.startswith("  onnxruntime: {config: {optimization.disable_specified_optimizers: 'LayerNormFusion")
    again = bench.run(say(FUSED, paste.strip()), CENTRED)
    assert again.status == "passed"


@pytest.mark.parametrize("precision", PLANTED)
def test_the_fewest_nodes_are_kept_in_fp32(bench: Bench, proposed: Proposed, precision: str) -> None:
    body, node = PLANTED[precision]
    (cell,) = (one for one in bench.cells(with_precision(body, precision), PYTHON) if one.check == "fidelity")
    what, paste = proposed(bench.run_cell(cell, examples=2))
    assert what.startswith("keep 1 node in fp32: ")
    assert paste.strip() == f'precisions: {{{precision}: {{exclude: {{torchscript: ["{node}"]}}}}}}'


def test_what_does_not_help_is_not_proposed(bench: Bench, proposed: Proposed) -> None:
    """A kernel that stops at every opset."""
    body = say(
        "forward: torch.linalg.slogdet(x)[1]",
        'inputs: {x: "float32[batch, 3, 3]"}',
        "dims: {batch: 1..3}",
        "runtimes: onnxruntime",
        "export: {torchscript: [17]}",
    )
    (cell,) = (one for one in bench.cells(body) if one.check == "export")
    (line,) = proposed(bench.run_cell(cell))
    assert line.startswith("none of what was tried lets it pass: the operator in other operators of ONNX, ")


def test_of_a_case_that_is_gone_nothing_is_tried(bench: Bench, proposed: Proposed) -> None:
    record = bench.run(BY_TORCHSCRIPT, WRONG)
    Path(str(record.source["file"])).write_text("another: {about: none}\n", encoding="utf-8")
    (line,) = proposed(record)
    assert "there is no case planted any more" in line


@pytest.mark.parametrize("needed, found", [
    (["c"], ["c"]), (["a", "d"], ["a", "d"]), (["a", "b", "c", "d", "e"], ["a", "b", "c", "d", "e"]), (["z"], []),
])  # fmt: skip
def test_the_smallest_set_has_what_is_needed_and_no_more(needed: Sequence[str], found: Sequence[str]) -> None:
    assert smallest(["a", "b", "c", "d", "e"], lambda names: {*needed} <= {*names}) == found


def test_the_command_tries_the_findings_that_are_asked_for(
    bench: Bench, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record = bench.run(BY_TORCHSCRIPT, WRONG).as_dict()
    writer = RunWriter(tmp_path / "run", {"started": "now"})
    writer.add(record)
    writer.close(1.0)
    (finding,) = findings([record])
    code = main(["findings", str(tmp_path / "run"), "--fix", finding.id, "--store", str(bench.store.parent)])
    out = capsys.readouterr().out
    assert code == 0
    assert f"{finding.id}: {record['id']}" in out
    assert "    export: {dynamo: [20]}" in out
    assert main(["findings", str(tmp_path / "run"), "--fix", "12345678"]) == 2
