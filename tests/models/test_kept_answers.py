"""PyTorch's answers that an earlier run kept: read again, and never believed where anything speaks against them."""

import dataclasses
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from conformance.case.draw.example import Draw
from conformance.case.plan.cell import Cell
from conformance.judge.conditioning import Roundings
from conformance.models.kept.answers import LARGEST, KeptAnswers
from conformance.models.prepared import _kept
from conformance.models.reference.module_reference import ModuleReference
from conformance.results.records.record import Record
from conformance.runtimes import onnxruntime
from conformance.runtimes.onnxruntime import kernels, open_literal
from tests.kit.calls import count_calls
from tests.kit.cases import PASSED, Bench, say, verdict
from tests.kit.modules import SCRATCH, SCRATCH_CASE, net_of

BODY = say(
    "module: beside.Net",
    'inputs: {x: "float32[n, 6]"}',
    "dims: {n: 1..3}",
    "export: {torchscript: [17]}",
    "precisions: {fp16: {}}",
)
FACTOR = 'getattr(torch, "planted_factor", 1.0)'
SINE = net_of(f"torch.sin(x) * 2 * {FACTOR}")
TANHSHRINK = net_of(f"torch.nn.functional.tanhshrink(x) * {FACTOR}")
"""Takes the tanh from a number that is almost equal, so that rounding moves it far."""
DECLARED = say(BODY, "fails: [{when: {runtime: onnxruntime, check: accuracy}, stage: compare, because: a trial}]")


def off(inputs: dict[str, Any], outputs: list[Any]) -> list[Any]:
    return [outputs[0] + np.float32(0.01)]


def runs(
    bench: Bench, body: str = BODY, python: str = SINE, check: str = "accuracy", precision: str = "fp32", **more: Any
) -> Record:
    """The record of the cell in a run that keeps answers in the folder of the bench."""
    return run_again(bench, cell_of(bench, body, python, check, precision), **more)


def cell_of(bench: Bench, body: str, python: str, check: str = "accuracy", precision: str = "fp32") -> Cell:
    (cell,) = (
        cell
        for cell in bench.cells(body, python)
        if (cell.check, cell.precision) == (check, precision) and cell.runtime in (None, "onnxruntime")
    )
    return cell


def run_again(bench: Bench, cell: Cell, **more: Any) -> Record:
    return bench.run_cell(cell, **{"examples": 4, "answers": bench.folder / "answers", **more})


def counted(bench: Bench, *arguments: Any, **more: Any) -> tuple[Record, Counter[str]]:
    """The record, and how often PyTorch was called in float32 (``__call__``) and in float64 (``oracle``), and how
    often it was measured how far rounding moves an answer."""
    with count_calls(ModuleReference.__call__, ModuleReference.oracle, Roundings.moves) as counts:
        record = runs(bench, *arguments, **more)
    return record, counts


def kept(bench: Bench) -> list[Path]:
    return sorted((bench.folder / "answers").glob("[!.]*"))


def spoil(bench: Bench, change: Callable[[KeptAnswers, Draw], None]) -> None:
    """Change what is kept, but the answer to the first draw, which PyTorch is asked for in every run."""
    (file,) = kept(bench)
    answers = KeptAnswers(file.parent, file.name)
    assert answers.first is not None
    head = json.loads(file.read_bytes().split(b"\n")[1])
    for dims, regime, seed, flags in (entry[0] for entry in head["draws"]):
        change(answers, Draw(dict(dims), regime, seed, flags=flags))
    answers.write(answers.first)


def wrong_by_one(answers: KeptAnswers, draw: Draw) -> None:
    inputs, wanted = answers.of(draw) or pytest.fail("not known")
    answers.add(draw, inputs, [array + 1 for array in wanted])


@pytest.mark.parametrize(("check", "precision"), [("accuracy", "fp32"), ("specials", "fp32"), ("fidelity", "fp16")])
def test_a_second_run_asks_pytorch_once_and_says_the_same(bench, check, precision):
    first, counts = counted(bench, check=check, precision=precision)
    assert first.status == "passed" and counts["__call__"] > 10
    second, counts = counted(bench, check=check, precision=precision)
    assert counts["__call__"] == 1 and counts["oracle"] <= first.ill_conditioned * 8 + 8
    for name in ("status", "examples", "worst", "draw", "histogram", "nothing", "ill_conditioned", "fidelity"):
        assert getattr(second, name) == getattr(first, name), name


def test_a_process_asks_the_first_draw_of_a_case_once_until_its_module_changes(bench):
    cell = cell_of(bench, BODY, net_of("torch.sin(x) * self.weight", weight="Parameter(torch.tensor(2.0))"))
    assert verdict(run_again(bench, cell)) == PASSED
    for change, calls in ((False, 0), (True, 1)):
        with count_calls(ModuleReference.__call__) as counts:
            if change:
                _kept[cell.case.file, cell.case.name].reference.module.weight.data += 1
            assert verdict(run_again(bench, cell)) == PASSED
        assert counts["__call__"] == calls


def test_a_second_run_opens_nothing_but_the_runtime_and_tells_its_kernels(bench):
    """With other session options other kernels may compute the model, though what it means stays."""
    other = say(BODY, 'onnxruntime: {config: {session.disable_prepacking: "1"}}')
    told = []
    for body, opened in ((BODY, {"open_literal", "kernels"}), (BODY, set()), (other, {"kernels"})):
        with count_calls(open_literal, kernels) as counts:
            record = runs(bench, body, precision="fp16")
        assert verdict(record) == PASSED and set(counts) == opened
        told.append(record.arithmetic)
    assert told[0]["kernels"] and told[0] == told[1]


def test_more_examples_are_asked_for_and_kept(bench):
    runs(bench, examples=2)
    record, counts = counted(bench, examples=6)
    assert verdict(record) == PASSED and 1 < counts["__call__"] < 40
    assert counted(bench, examples=6)[1]["__call__"] == 1


def test_an_output_that_the_next_call_changes_is_kept_as_it_was(bench):
    for _ in range(2):
        record, counts = counted(bench, SCRATCH_CASE, SCRATCH)
        assert verdict(record) == PASSED
    assert counts["__call__"] == 1, "what was kept was wrong, and had to be asked anew"


@pytest.mark.parametrize(
    "edit", [("torch.sin(x) * 2", "torch.sin(x) * 3"), ("1..3", "1..4"), ("float32[n, 6]", "float32[n, 5]")]
)
def test_another_case_has_other_answers(bench, edit):
    runs(bench)
    record, counts = counted(bench, BODY.replace(*edit), SINE.replace(*edit))
    assert verdict(record) == PASSED and counts["__call__"] > 10
    assert len(kept(bench)) == 2


def test_on_another_processor_pytorch_is_asked(bench):
    runs(bench, instructions=frozenset({"avx2"}))
    assert counted(bench, instructions=frozenset({"avx2", "avx512f"}))[1]["__call__"] > 10


def test_a_damaged_file_is_no_answer(bench):
    runs(bench)
    (file,) = kept(bench)
    data = bytearray(file.read_bytes())
    data[-3] ^= 1
    file.write_bytes(data)
    record, counts = counted(bench)
    assert verdict(record) == PASSED and counts["__call__"] > 10
    assert file.read_bytes() != bytes(data), "the file was mended"
    for cut in (b"", data[:40], b"{}\n"):
        file.write_bytes(cut)
        assert verdict(runs(bench)) == PASSED


def test_a_kept_answer_that_is_wrong_accuses_nobody(bench):
    runs(bench)
    spoil(bench, wrong_by_one)
    record, counts = counted(bench)
    assert verdict(record) == PASSED
    assert counts["__call__"] > 1, "PyTorch was asked again where a kept answer accused"


@pytest.mark.smoke
def test_answers_that_pytorch_does_not_give_any_more_are_forgotten(bench, monkeypatch):
    assert verdict(runs(bench)) == PASSED
    monkeypatch.setattr(torch, "planted_factor", 1.01, raising=False)
    assert runs(bench).status == "failed", "by the kept answers it would have passed"


@pytest.mark.smoke
def test_a_runtime_that_became_wrong_is_found_by_kept_answers_and_shown_with_new_ones(bench, break_opener):
    assert verdict(runs(bench)) == PASSED
    break_opener(onnxruntime, "open_optimized", off)
    record, counts = counted(bench)
    assert verdict(record) == ("failed", "compare", "WrongValue", "runtime")
    assert counts["__call__"] > 1, "the example that is shown was asked again"


def test_a_cell_that_fails_as_declared_is_compared_again_with_what_is_kept(bench, break_opener):
    break_opener(onnxruntime, "open_optimized", off)
    first, counts = counted(bench, DECLARED, TANHSHRINK)
    assert first.status == "xfailed" and counts["moves"] and len(kept(bench)) == 1
    second, counts = counted(bench, DECLARED, TANHSHRINK)
    assert (second.status, second.stage, second.error) == ("xfailed", "compare", "WrongValue")
    assert not counts["moves"], "the answers are PyTorch's still"


def test_a_declared_failure_that_is_gone_is_noticed_whatever_is_kept(bench, break_opener):
    """Also where a kept answer, which PyTorch does not give any more, would still fail as declared."""
    sound = []

    def wrong_at_first(inputs, outputs):
        return outputs if sound else off(inputs, outputs)

    break_opener(onnxruntime, "open_optimized", wrong_at_first)
    assert runs(bench, DECLARED).status == "xfailed"
    sound.append(True)
    assert runs(bench, DECLARED).status == "xpassed"
    spoil(bench, wrong_by_one)
    assert runs(bench, DECLARED).status == "xpassed"


def test_a_run_that_draws_anew_or_fails_keeps_nothing_and_one_that_cannot_write_passes(bench, break_opener):
    runs(bench, random=5)
    assert kept(bench) == []
    (bench.folder / "file").write_text("no folder", encoding="utf-8")
    assert verdict(runs(bench, answers=bench.folder / "file")) == PASSED
    break_opener(onnxruntime, "open_optimized", off)
    assert runs(bench).status == "failed" and kept(bench) == []


def test_too_much_is_not_kept(tmp_path):
    answers = KeptAnswers(tmp_path, "key")
    array = np.zeros(LARGEST // 8 + 1, np.float32)
    for seed in range(3):
        answers.add(Draw({"n": 1}, "plain", seed), {"x": array}, [array])
        answers.add_exact(Draw({"n": 1}, "plain", seed), [array])
    answers.write([array])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.smoke
def test_arrays_come_back_as_they_were(tmp_path):
    arrays: list[Any] = [
        np.array(1.5, np.float32), np.zeros((0, 3), np.int64), np.array([True, False]), np.array([[np.nan, -0.0]]),
        np.arange(6, dtype=np.float16).reshape(2, 3).T,
    ]  # fmt: skip
    draw, flagged = Draw({"n": 2, "k": 3}, "ends", 7), Draw({"n": 2, "k": 3}, "ends", 7, flags="zero")
    answers = KeptAnswers(tmp_path, "key")
    answers.add(draw, {"x": arrays[0]}, arrays)
    answers.add_exact(draw, None)
    answers.add(flagged, {"x": arrays[3]}, arrays[:1])
    answers.write(arrays[:2])
    again = KeptAnswers(tmp_path, "key")
    assert again.first is not None
    inputs, wanted = again.of(dataclasses.replace(draw, index=4)) or pytest.fail("not known")
    assert again.exact(draw) == (True, None)
    for got, right in zip([*again.first, inputs["x"], *wanted], [*arrays[:2], arrays[0], *arrays], strict=True):
        assert (got.dtype, got.shape) == (right.dtype, right.shape)
        assert got.tobytes() == np.ascontiguousarray(right).tobytes() and got.flags.writeable
    assert again.of(Draw({"n": 2, "k": 3}, "ends", 8)) is None
    assert again.of(flagged) and again.exact(flagged) == (False, None), "float64 was not asked for this draw"
