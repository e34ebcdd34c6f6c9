"""The command ``align`` as it is typed: exit codes, what it prints, and what the user has to correct."""

import shlex
from pathlib import Path

import numpy as np
import pytest

from conformance.case.files.case_file import load
from conformance.case.plan.catalogue import plan
from conformance.case.plan.settings import Settings
from conformance.cells.run_cell import run_cell
from conformance.front.cli import main
from conformance.front.commands import align as command
from conformance.process.worker.progress_note import Progress
from conformance.results.records.text import align_of
from conformance.runtimes import registry
from tests.kit.cases import say, write_case
from tests.kit.networks import IMAGES, INT8, PYTHON, ROWS, network, wrong
from tests.kit.runs import Said, run_command
from tests.kit.runtimes import wrong_runtime
from tests.results.report.support import record


@pytest.fixture
def typed(trial, monkeypatch, capsys):
    """``typed(body, *arguments)``: the command in this process, in a folder with one case ``planted``."""

    def run(body: str, *arguments: str) -> Said:
        folder = trial.place(f"typed {body}")
        write_case(folder / "cases", body, PYTHON)
        monkeypatch.chdir(folder)
        code = main(["align", *arguments])
        return Said(code, *capsys.readouterr())

    return run


def test_a_sound_case_has_the_exit_code_0_and_its_store_is_used(tmp_path):
    """In a process of its own: of what changed since an earlier test of the same process used it, nothing is kept."""
    write_case(tmp_path / "cases", network("Network", IMAGES), PYTHON)
    done = run_command(tmp_path, "align", "planted", "--at", "batch=2", "--seed", "7", own_process=True)
    assert done.code == 0 and "planted, torchscript opset 17, fp32" in done.text
    assert "batch=2, " in done.text and "seed 7" in done.text
    assert "its optimizer off" in done.text and "nothing parts" in done.text
    assert list((tmp_path / ".conformance/models").glob("*/model.onnx"))


FAILED = {
    "stage": "compare", "fault": "exporter", "operator": None, "case": "planted",
    "exporter": "torchscript", "opset": 17, "precision": "fp32",
    "draw": {"dims": {"batch": 2}, "regime": "negative", "seed": 7, "index": 3},
    "command": "pytest --cases ./cases --examples 3 -k 'accuracy[planted-torchscript-op17-onnxruntime-fp32]'",
}  # fmt: skip


def test_the_command_of_a_record_looks_at_the_failing_example(typed):
    words = shlex.split(align_of(record(**FAILED)))
    assert words[:2] == ["conformance", "align"] and words[-6:-4] == ["--at", "batch=2"]
    done = typed(network("Network", IMAGES), *words[2:])
    assert done.code == 0 and "batch=2, " in done.out and "negative values, seed 7" in done.out


@pytest.mark.parametrize("other", [
    {"operator": {"operator": "aten.sin"}}, {"exporter": "onnx"}, {"fault": "runtime"}, {"stage": "export"},
    {"draw": None},
])  # fmt: skip
def test_no_command_is_told_that_would_not_help(other):
    assert align_of(record(**FAILED | other)) is None


def test_a_parting_has_the_exit_code_1_and_a_mark(typed):
    done = typed(wrong("Network", "symbolic", IMAGES), "planted")
    assert done.code == 1
    (marked,) = (line for line in done.out.splitlines() if line.startswith(">>"))
    assert "act" in marked.split() and "aten.hardswish" in marked.split()
    assert "first wrong operator at beside.py:" in done.out


def test_all_operators_are_listed_on_demand(typed):
    body = network("Fewer")
    few, every = typed(body, "planted"), typed(body, "planted", "--all")
    assert "more; --all shows them" not in every.out and len(every.out.splitlines()) >= len(few.out.splitlines())
    assert "places" in every.out and "not known in the graph" in every.out


@pytest.mark.parametrize(
    "runtime",
    [name for name in command.RUNTIMES if not (registry.named(name).provider or registry.named(name).builds)],
)
def test_every_runtime_finds_the_wrong_layer(typed, runtime):
    done = typed(wrong("Twice", "symbolic"), "planted", "--runtime", runtime)
    (marked,) = (line for line in done.out.splitlines() if line.startswith(">>"))
    assert done.code == 1 and "sub.1" in marked and registry.named(runtime).title in done.out


@pytest.mark.parametrize("body, arguments, parts", [
    pytest.param(network("Twice"), ["planted", "--at", "batch=9"], ["--at batch=9: batch is 2..4"], id="range"),
    pytest.param(network("Twice"), ["planted", "--at", "bach=2"], ["has no dim 'bach'; did you mean 'batch'?"],
                 id="dim"),
    pytest.param(network("Twice", ROWS, "export: {torchscript: {opsets: 17, static: batch}}"),
                 ["planted", "--at", "batch=4"], ["--at batch=4: batch is 3 (static in this export)"], id="static"),
    pytest.param(network("Twice"), ["planted", "--precision", "int8"],
                 ["planted has no such model; it has torchscript 17 fp32, dynamo 20 fp32"], id="precision"),
    pytest.param(INT8, ["planted", "--precision", "int8", "--runtime", "onnx-reference"],
                 ["--runtime: onnx-reference runs no converted models"], id="runtime"),
])  # fmt: skip
def test_what_the_user_has_to_correct_is_said_in_one_line(typed, body, arguments, parts):
    done = typed(body, *arguments)
    assert done.code == 2 and done.out == "" and len(done.err.splitlines()) == 1
    for part in parts:
        assert part in done.err


def fail():
    """Run a cell of the typed case as a run does, which keeps failing draws; return its id, and whether it fails."""
    settings = Settings(store=Path(".conformance/models"), failures=Path(".conformance/failures"), examples=0)
    (case,) = load(Path("cases/planted.yaml"))
    (cell,) = (cell for cell in plan(case) if (cell.check, cell.opset) == ("accuracy", 17))
    return cell.id, run_cell(Progress(), cell, settings).status == "failed"


KEPT = 'forward: "{how}"\ninputs: {{x: "float32[batch, 4]"}}\ndims: {{batch: 1..64}}\nspecials: false'
BAKED = KEPT.format(how="torch.sin(x) * (2.0 if x.shape[0] > 8 else 1.0)")


def test_it_looks_at_the_example_and_the_model_that_failed_last(typed):
    """A branch on a size is right at the sizes of the export, and in all examples once it is gone."""
    body = say(BAKED, "export: {torchscript: [16, 17]}", "runtimes: onnxruntime")
    before = typed(body, "planted")
    assert before.code == 0 and "as no failing one of this model is kept" in before.out
    cell, red = fail()
    done = typed(body, "planted")
    assert red and done.code == 1 and "opset 17, fp32, by" in done.out
    assert f"with which {cell} failed when it ran last" in done.out
    assert [*Path(".conformance/failures").glob("*/*")], "it stays kept"
    named = typed(body, "planted", "--opset", "17", "--at", "batch=3")
    assert named.code == 0 and "nothing parts in this example" in named.out and "failed" not in named.out


def test_what_fails_by_no_operator_is_said_to_fail_all_the_same(typed):
    body = say(KEPT.format(how="torch.sin(x)"), "export: {torchscript: [17]}", "runtimes: onnxruntime")
    typed(body, "planted")
    with wrong_runtime(lambda inputs, outputs: [outputs[0] * np.float32(1.5)]):
        cell, red = fail()
    done = typed(body, "planted")
    assert red and done.code == 0 and f"so {cell} did not fail by an operator of the graph alone" in done.out
    assert "that is one example" not in done.out


HALVED = "torch.tanh(x) * ((x.shape[1] - y.shape[1]) // 2) + y.sum()"


@pytest.mark.parametrize("export, operator", [
    pytest.param("dynamo: [18]", "operator.floordiv", marks=pytest.mark.thorough),
    ("torchscript: [17]", "aten.floor_divide"),
])  # fmt: skip
def test_what_has_no_submodules_is_aligned_too(typed, export, operator):
    inputs = 'inputs: {x: "float32[batch, 4]", y: "float32[batch, n]"}'
    body = say(f'forward: "{HALVED}"', inputs, "dims: {batch: 2..4, n: 3..9}", f"export: {{{export}}}")
    done = typed(body, "planted", "--at", "n=5", "--all")
    assert done.code == 1
    (marked,) = (line for line in done.out.splitlines() if line.startswith(">>"))
    assert operator in marked
    (tanh,) = (line for line in done.out.splitlines() if "aten.tanh" in line)
    assert not tanh.startswith("x")
    assert "its inputs agree; -1 // 2: got 0, wanted -1" in done.out
    sound = typed(body, "planted", "--at", "n=4")
    assert sound.code == 0 and "nothing parts" in sound.out


@pytest.mark.parametrize("other, told", [
    ({}, "conformance align a/net.onnx --runtime openvino"), ({"fault": None}, "conformance align a/net.onnx"),
    ({"shipped": "second.onnx"}, None), ({"stage": "load"}, None), ({"precision": "fp16"}, None),
])  # fmt: skip
def test_a_wrong_runtime_of_a_file_by_itself_is_looked_at_node_by_node(other, told):
    source = {"file": "a/net.onnx", "line": None}
    told_of = {"exporter": "onnx", "source": source, "runtime": "openvino", "fault": "runtime", "check": "accuracy"}
    command = align_of(record(**FAILED | told_of | other))
    assert command is None if told is None else str(command).startswith(told)
