"""PyTorch's answers that an earlier run kept: read again, and never believed where anything speaks against them."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conformance.checks import accuracy, verify
from conformance.checks.finiteness import FinitenessVerifier
from conformance.export.answers import LARGEST, KeptAnswers
from conformance.export.reference import Reference
from conformance.runtimes import onnxruntime
from conformance.verdict.example import Draw
from tests.planted_modules import SCRATCH, SCRATCH_CASE
from tests.support import PASSED, Bench, altered, verdict

BODY = """
forward: torch.sin(x) * 2
inputs: {x: "float32[n, 6]"}
dims: {n: 1..3}
export: {torchscript: [17]}
precisions: {fp16: {}}
"""


@pytest.fixture
def called(monkeypatch):
    """How PyTorch was called, as ``float32`` or ``float64``."""
    calls: list[str] = []
    for name, what in (("__call__", "float32"), ("oracle", "float64")):
        original = getattr(Reference, name)

        def spy(self, *arguments, original=original, what=what):
            calls.append(what)
            return original(self, *arguments)

        monkeypatch.setattr(Reference, name, spy)
    return calls


@pytest.fixture
def measured(monkeypatch):
    """An entry for each time that it was measured how far rounding moves an answer."""
    measure, calls = verify.moved_by_rounding, []
    monkeypatch.setattr(verify, "moved_by_rounding", lambda *given: calls.append(1) or measure(*given))
    return calls


def break_runtime(monkeypatch):
    """ONNX Runtime is wrong by 0.01."""
    wrong = altered(onnxruntime.open_optimized, lambda inputs, outputs: [outputs[0] + np.float32(0.01)])
    monkeypatch.setattr(onnxruntime, "open_optimized", wrong)


def spoil_kept_answers(monkeypatch):
    """All kept answers are wrong by 1, but that of the first draw, which PyTorch is asked for in every run."""
    read = KeptAnswers._read

    def spoilt(self, file):
        read(self, file)
        self._known = {
            place: (inputs, [array + 1 for array in wanted]) for place, (inputs, wanted) in self._known.items()
        }

    monkeypatch.setattr(KeptAnswers, "_read", spoilt)


def runs(bench: Bench, body: str = BODY, check: str = "accuracy", precision: str = "fp32", **settings: Any):
    """The record of the cell in a run that keeps answers in the folder of the bench."""
    (cell,) = (
        cell
        for cell in bench.cells(body)
        if (cell.check, cell.precision) == (check, precision) and cell.runtime in (None, "onnxruntime")
    )
    return bench.run_cell(cell, **{"examples": 4, "answers": bench.folder / "answers", **settings})


def kept(bench: Bench) -> list[Path]:
    return sorted((bench.folder / "answers").glob("[!.]*"))


@pytest.mark.parametrize(
    ("check", "precision"),
    [("accuracy", "fp32"), ("specials", "fp32"), ("accuracy", "fp16"), ("fidelity", "fp16")],
)
def test_a_second_run_asks_pytorch_once_and_says_the_same(bench, called, check, precision):
    first = runs(bench, check=check, precision=precision)
    assert first.status == "passed"
    assert called.count("float32") > 10
    called.clear()
    second = runs(bench, check=check, precision=precision)
    assert called.count("float32") == 1
    assert called.count("float64") <= first.ill_conditioned * 8 + 8
    for name in ("status", "examples", "worst", "draw", "histogram", "nothing", "ill_conditioned", "fidelity"):
        assert getattr(second, name) == getattr(first, name), name


def test_a_second_run_opens_nothing_but_the_runtime_and_tells_its_kernels(bench, monkeypatch):
    """With other session options other kernels may compute the model, though what it means stays."""
    opened: list[str] = []
    for module, name in ((onnxruntime, "open_literal"), (accuracy, "kernels")):
        original = getattr(module, name)

        def spy(*arguments, original=original, name=name):
            opened.append(name)
            return original(*arguments)

        monkeypatch.setattr(module, name, spy)
    first = runs(bench, precision="fp16")
    assert verdict(first) == PASSED and opened == ["open_literal", "kernels"] and first.arithmetic["kernels"]
    opened.clear()
    second = runs(bench, precision="fp16")
    assert verdict(second) == PASSED and opened == [] and second.arithmetic == first.arithmetic
    other = BODY + 'onnxruntime: {config: {session.disable_prepacking: "1"}}\n'
    assert verdict(runs(bench, other, precision="fp16")) == PASSED and opened == ["kernels"]


def test_what_does_not_fit_the_precision_is_told_again_by_kept_answers(bench, called):
    """PyTorch is asked once more for each of them, as for every failure by an answer that was kept."""
    body = BODY.replace("torch.sin(x) * 2", "x * x * x")
    first = runs(bench, body, check="fidelity", precision="fp16")
    assert first.status == "passed" and first.beyond
    called.clear()
    second = runs(bench, body, check="fidelity", precision="fp16")
    assert second.beyond == first.beyond
    assert called.count("float32") == 1 + len(second.beyond)


def test_kept_answers_to_values_at_the_ends_are_forgotten_with_the_others(bench, monkeypatch):
    answers, ends = FinitenessVerifier.answers, []
    monkeypatch.setattr(FinitenessVerifier, "answers", lambda self, inputs: ends.append(1) or answers(self, inputs))
    assert runs(bench, check="fidelity", precision="fp16").status == "passed"
    asked_at_first = len(ends)
    assert asked_at_first > 5
    runs(bench, check="fidelity", precision="fp16")
    assert len(ends) == asked_at_first
    asked = Reference.__call__

    def otherwise(self, inputs):
        return [array * np.float32(1.0005) for array in asked(self, inputs)]

    monkeypatch.setattr(Reference, "__call__", otherwise)
    assert runs(bench, check="fidelity", precision="fp16").status == "passed", "fp16 is coarser than that"
    assert len(ends) == 2 * asked_at_first


def test_float64_is_asked_only_where_float32_does_not_decide(bench, called, monkeypatch):
    assert verdict(runs(bench)) == PASSED
    coverage = called.count("float64")
    called.clear()
    off = altered(onnxruntime.open_optimized, lambda inputs, outputs: [outputs[0] * np.float32(1 + 2e-5)])
    monkeypatch.setattr(onnxruntime, "open_optimized", off)
    assert verdict(runs(bench)) == ("failed", "compare", "WrongValue", "runtime")
    assert called.count("float64") > 0
    assert coverage <= 8, "what coverage asks for its draws"


def test_a_runtime_that_became_wrong_is_found_by_kept_answers_and_shown_with_new_ones(bench, called, monkeypatch):
    assert verdict(runs(bench)) == PASSED
    break_runtime(monkeypatch)
    called.clear()
    record = runs(bench)
    assert verdict(record) == ("failed", "compare", "WrongValue", "runtime")
    assert called.count("float32") > 1, "the example that is shown was asked again"


def test_answers_that_pytorch_does_not_give_any_more_are_forgotten(bench, monkeypatch):
    assert verdict(runs(bench)) == PASSED
    asked = Reference.__call__

    def otherwise(self, inputs):
        return [array * np.float32(1.01) for array in asked(self, inputs)]

    monkeypatch.setattr(Reference, "__call__", otherwise)
    assert runs(bench).status == "failed", "by the kept answers it would have passed"


def test_a_second_run_measures_no_second_time_how_far_rounding_moves(bench, monkeypatch, measured):
    """Tanhshrink takes the tanh from a number that is almost equal; this runtime's tanh is three units off."""

    def off(inputs, outputs):
        tanh = np.tanh(inputs["x"])
        return [inputs["x"] - (tanh + 3 * np.spacing(tanh))]

    monkeypatch.setattr(onnxruntime, "open_optimized", altered(onnxruntime.open_optimized, off))
    body = BODY.replace("torch.sin(x) * 2", "F.tanhshrink(x)")
    first = runs(bench, body)
    assert verdict(first) == PASSED and measured
    measured.clear()
    second = runs(bench, body)
    assert not measured
    assert {**first.as_dict(), "seconds": 0, "source": 0} == {**second.as_dict(), "seconds": 0, "source": 0}
    read = KeptAnswers._read

    def spoilt(self, file):
        read(self, file)
        self._moved = {place: [0.0] for place in self._moved}

    monkeypatch.setattr(KeptAnswers, "_read", spoilt)
    assert verdict(runs(bench, body)) == PASSED, "one that accuses is measured anew"
    assert measured


def test_a_damaged_file_is_no_answer(bench, called):
    runs(bench)
    (file,) = kept(bench)
    data = bytearray(file.read_bytes())
    data[-3] ^= 1
    file.write_bytes(data)
    called.clear()
    assert verdict(runs(bench)) == PASSED
    assert called.count("float32") > 10
    assert file.read_bytes() != bytes(data), "the file was mended"
    for cut in (b"", data[:40], b"{}\n"):
        file.write_bytes(cut)
        assert verdict(runs(bench)) == PASSED


@pytest.mark.parametrize(
    "edit", [("torch.sin(x) * 2", "torch.sin(x) * 3"), ("1..3", "1..4"), ("float32[n, 6]", "float32[n, 5]")]
)
def test_another_case_has_other_answers(bench, called, edit):
    runs(bench)
    called.clear()
    assert verdict(runs(bench, BODY.replace(*edit))) == PASSED
    assert called.count("float32") > 10
    assert len(kept(bench)) == 2


def test_on_another_processor_pytorch_is_asked(bench, called):
    runs(bench, instructions=frozenset({"avx2"}))
    called.clear()
    runs(bench, instructions=frozenset({"avx2", "avx512f"}))
    assert called.count("float32") > 10


def test_more_examples_are_asked_for_and_kept(bench, called):
    runs(bench, examples=2)
    called.clear()
    assert verdict(runs(bench, examples=6)) == PASSED
    assert 1 < called.count("float32") < 40
    called.clear()
    runs(bench, examples=6)
    assert called.count("float32") == 1


def test_a_run_that_draws_anew_keeps_nothing(bench, called):
    runs(bench, random=5)
    assert kept(bench) == []


def test_a_cell_that_fails_keeps_nothing(bench, monkeypatch):
    break_runtime(monkeypatch)
    assert runs(bench).status == "failed"
    assert kept(bench) == []


DECLARED = (
    BODY.replace("torch.sin(x) * 2", "F.tanhshrink(x)")
    + "fails: [{when: {runtime: onnxruntime, check: accuracy}, stage: compare, because: a trial}]\n"
)


def test_a_cell_that_fails_as_declared_is_compared_again_with_what_is_kept(bench, monkeypatch, measured):
    break_runtime(monkeypatch)
    first = runs(bench, DECLARED)
    assert first.status == "xfailed" and measured and len(kept(bench)) == 1
    measured.clear()
    second = runs(bench, DECLARED)
    assert (second.status, second.stage, second.error) == ("xfailed", "compare", "WrongValue")
    assert not measured, "the answers are PyTorch's still"


def test_a_declared_failure_that_is_gone_is_noticed_though_answers_are_kept(bench, monkeypatch):
    with monkeypatch.context() as broken:
        break_runtime(broken)
        assert runs(bench, DECLARED).status == "xfailed"
    assert runs(bench, DECLARED).status == "xpassed"


def test_a_declared_failure_by_an_answer_that_pytorch_does_not_give_any_more_does_not_count(bench, monkeypatch):
    """What PyTorch answers now is what the runtime gives, so that nothing fails any more."""
    with monkeypatch.context() as broken:
        break_runtime(broken)
        assert runs(bench, DECLARED).status == "xfailed"
    spoil_kept_answers(monkeypatch)
    assert runs(bench, DECLARED).status == "xpassed"


def test_a_folder_that_cannot_be_written_harms_nothing(bench, called):
    (bench.folder / "answers").write_text("no folder", encoding="utf-8")
    assert verdict(runs(bench)) == PASSED


def test_too_much_is_not_kept(tmp_path):
    answers = KeptAnswers(tmp_path, "key")
    array = np.zeros(LARGEST // 8 + 1, np.float32)
    for seed in range(3):
        answers.add(Draw({"n": 1}, "plain", seed), {"x": array}, [array])
        answers.add_exact(Draw({"n": 1}, "plain", seed), [array])
    answers.write([array])
    assert list(tmp_path.iterdir()) == []


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
        assert got.tobytes() == np.ascontiguousarray(right).tobytes()
        assert got.flags.writeable
    assert again.of(Draw({"n": 2, "k": 3}, "ends", 8)) is None
    assert again.of(flagged) and again.exact(flagged) == (False, None), "float64 was not asked for this draw"
    again.add_exact(flagged, arrays[1:3])
    again.write(arrays[:2])
    known, exact = KeptAnswers(tmp_path, "key").exact(flagged)
    assert known and exact is not None
    assert [array.tolist() for array in exact] == [[], [True, False]]


def test_draws_of_earlier_failures_are_asked(tmp_path):
    answers = KeptAnswers(tmp_path, "key")
    answers.add(Draw({}, "plain", 1, index=-1), {}, [np.zeros(1)])
    answers.add_exact(Draw({}, "plain", 1, index=-1), [np.zeros(1)])
    assert answers.asked
    answers.write([np.zeros(1)])
    assert list(tmp_path.iterdir()) == []


def test_a_kept_answer_that_is_wrong_accuses_nobody(bench, monkeypatch):
    runs(bench)
    spoil_kept_answers(monkeypatch)
    assert verdict(runs(bench)) == PASSED


def test_an_output_that_the_next_call_changes_is_kept_as_it_was(bench, called):
    (cell,) = (
        cell
        for cell in bench.cells(SCRATCH_CASE, SCRATCH)
        if cell.check == "accuracy" and cell.runtime == "onnxruntime"
    )
    for _ in range(2):
        called.clear()
        assert verdict(bench.run_cell(cell, examples=4, answers=bench.folder / "answers")) == PASSED
    assert called.count("float32") == 1, "what was kept was wrong, and had to be asked anew"
