"""Examples are run in blocks: each still has its own answer, and the first that fails is the one that is told."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import pytest

from conformance.arrays import Array, Inputs
from conformance.checks.runner import Runner
from conformance.compare.judges import Right, defaults_for
from conformance.compare.tolerance import Comparison
from conformance.errors import Stopped
from conformance.plan.settings import Settings
from conformance.records.record import Record
from conformance.runtimes import onnxruntime
from conformance.verdict import comparer
from conformance.verdict.comparer import BLOCK, Comparer, Outcome
from conformance.verdict.example import Answers, Draw, Example
from conformance.worker.isolation import Worker
from conformance.worker.warm import prepare_process
from tests.planted_modules import SCRATCH, SCRATCH_CASE
from tests.support import PASSED, altered, say, verdict


def test_an_output_that_the_next_call_changes_is_compared_as_it_was(bench):
    assert verdict(bench.run(SCRATCH_CASE, SCRATCH)) == PASSED


def test_values_that_the_case_fills_into_one_array_are_those_of_each_example(bench, monkeypatch):
    body = """
    forward: torch.sin(x)
    inputs: {x: {type: "float32[3, 6]", values: beside.filled}}
    """
    python = """
    import numpy as np
    memory = np.empty((3, 6), np.float32)

    def filled(shape, dims, rng):
        memory[...] = rng.standard_normal(shape)
        return memory
    """
    seen: list[bytes] = []

    def noted(inputs, outputs):
        seen.append(inputs["x"].tobytes())
        return outputs

    monkeypatch.setattr(onnxruntime, "open_optimized", altered(onnxruntime.open_optimized, noted))
    assert verdict(bench.run(body, python, examples=2)) == PASSED
    assert len(set(seen)) == len(seen) > 4


def test_the_first_wrong_example_is_told_though_later_ones_of_its_block_are_wrong_too(bench, monkeypatch):
    """From the fourth run on ONNX Runtime is wrong: of the four examples of the first size, the last."""
    runs: list[int] = []

    def late(inputs, outputs):
        runs.append(1)
        return [outputs[0] + np.float32(len(runs) > 3)]

    monkeypatch.setattr(onnxruntime, "open_optimized", altered(onnxruntime.open_optimized, late))
    record = bench.run("forward: torch.sin(x)\ninputs: {x: 'float32[3]'}", examples=4)
    assert (record.status, record.error, record.examples) == ("failed", "WrongValue", 3)


# ---- the comparer by itself -----------------------------------------------------------------------------------


class Runtime:
    """Answers with a function of the only value."""

    def __init__(self, answer: Callable[[float], float]) -> None:
        self._answer = answer
        self.arithmetic: dict[str, str] = {}

    def run(self, inputs):
        return [np.array([self._answer(float(inputs["x"][0]))])]


class Doubling(Comparer):
    """Compares a planted runtime with a module that doubles, and notes what happens in which order."""

    def __init__(self, answer: Callable[[float], float], doubt: Callable[[int], bool] = lambda number: False) -> None:
        self.happened: list[str] = []
        self._doubt = doubt
        super().__init__(Runtime(answer), self._noted, {})

    def _noted(self, draw: Draw, stage: str) -> None:
        self.happened.append(f"{stage} {draw.index}")

    def compare(self, got: list[Array], right: Right) -> Comparison:
        self.happened.append(f"compare {float(right.inputs['x'][0]):g}")
        return defaults_for(right.wanted).compare(got, right)

    def said(self, error: Exception) -> str:
        return str(error)

    def doubted(self, example: Example, failure: Stopped) -> Outcome:
        return self.outcome(self.again(example)) if self._doubt(example.draw.index) else failure

    def again(self, example: Example) -> Example:
        self.happened.append(f"again {example.draw.index}")
        self._doubt = lambda number: False
        return of(example.draw.index)


def of(number: int, module: Callable[[float], float] = lambda x: 2 * x) -> Example:
    """The example with this number as its only value."""

    def answers(inputs: Inputs) -> Answers:
        right = [np.array([module(float(inputs["x"][0]))])]
        return right, lambda: right

    inputs = {"x": np.array([float(number)])}
    return Example(Draw({}, "plain", 0, number), lambda: inputs, answers, lambda *_: None)


def without_inputs(number: int) -> Example:
    """An example whose inputs cannot be made."""

    def refused() -> Inputs:
        raise Stopped("declare", "BadInput", "no such input", "case")

    return Example(Draw({}, "plain", 0, number), refused, lambda inputs: ([], lambda: None), lambda *_: None)


def told(outcomes: Iterable[tuple[Example, Outcome]]) -> list[tuple[int, str]]:
    """The examples by their numbers, with what they came to."""
    return [
        (
            example.draw.index,
            f"{outcome.stage}: {outcome.reason}" if isinstance(outcome, Stopped) else outcome.verdict,
        )
        for example, outcome in outcomes
    ]


def raises(text: str, after: int) -> Callable[[float], float]:
    """A function that doubles, and raises for what is larger than ``after``."""

    def function(x: float) -> float:
        if x > after:
            raise Stopped("declare", "Planted", text, "case")
        return 2 * x

    return function


def test_all_examples_come_back_in_order_with_their_own_answers():
    count = 2 * BLOCK + 3
    assert told(Doubling(lambda x: 2 * x).each(map(of, range(count)))) == [(n, "verified") for n in range(count)]


def test_a_block_is_answered_by_pytorch_then_by_the_runtime_and_then_compared():
    doubling = Doubling(lambda x: 2 * x)
    told(doubling.each(map(of, range(2))))
    stages = ["declare 0", "declare 1"] * 2 + ["run 0", "run 1", "run 0", "compare 0", "run 1", "compare 1"]
    assert doubling.happened == stages


def test_one_by_one_an_example_is_compared_before_the_next_is_made():
    doubling = Doubling(lambda x: 2 * x)
    told(doubling.each(map(of, range(2)), one_by_one=True))
    assert doubling.happened.index("compare 0") < doubling.happened.index("declare 1")


@pytest.mark.parametrize("one_by_one", [False, True])
@pytest.mark.parametrize(
    ("runtime", "module", "end"),
    [
        (lambda x: 2 * x + (x > 2), lambda x: 2 * x, "compare: output 0: 1 of 1 values differ by more than allowed"),
        (raises("planted", 2), lambda x: 2 * x, "run: planted"),
        (lambda x: 2 * x, raises("PyTorch raises", 2), "declare: PyTorch raises"),
        (
            lambda x: 2 * x + (x > 2),
            raises("later", 3),
            "compare: output 0: 1 of 1 values differ by more than allowed",
        ),
        (raises("later", 3), raises("PyTorch raises", 2), "declare: PyTorch raises"),
    ],
)
def test_the_first_failure_ends_it_whatever_fails_later(runtime, module, end, one_by_one):
    examples = (of(number, module) for number in range(10))
    outcomes = told(Doubling(runtime).each(examples, one_by_one=one_by_one))
    assert outcomes == [(0, "verified"), (1, "verified"), (2, "verified"), (3, end)]


def test_inputs_that_cannot_be_made_are_the_failure_of_their_example_alone():
    outcomes = told(Doubling(lambda x: 2 * x).each([of(0), of(1), without_inputs(2), of(3)]))
    assert outcomes == [(0, "verified"), (1, "verified"), (2, "declare: no such input")]


@pytest.mark.parametrize("seconds", [0.0, 60.0])
def test_examples_after_one_that_passes_when_it_is_asked_anew_are_asked_anew(monkeypatch, seconds):
    """The module answered wrongly in an earlier run, from the second example on."""
    monkeypatch.setattr(comparer, "BLOCK_SECONDS", seconds)
    stale = (of(number, lambda x: 2 * x + (x > 0)) for number in range(5))
    doubling = Doubling(lambda x: 2 * x, doubt=lambda number: number == 1)
    assert told(doubling.each(stale)) == [(n, "verified") for n in range(5)]


def test_an_example_whose_inputs_cannot_be_made_waits_for_those_before_it(monkeypatch):
    monkeypatch.setattr(comparer, "BLOCK_SECONDS", 0.0)
    outcomes = told(Doubling(lambda x: 2 * x).each([of(0), of(1), without_inputs(2), of(3)]))
    assert outcomes == [(0, "verified"), (1, "verified"), (2, "declare: no such input")]


def test_a_module_that_takes_long_is_asked_for_one_example_at_a_time(monkeypatch):
    monkeypatch.setattr(comparer, "BLOCK_SECONDS", 0.0)
    doubling = Doubling(lambda x: 2 * x + (x > 0))
    assert told(doubling.each(map(of, range(9))))[-1][0] == 1
    assert "run 1" in doubling.happened
    assert "run 2" not in doubling.happened


def test_large_examples_are_taken_one_at_a_time(monkeypatch):
    monkeypatch.setattr(comparer, "BLOCK_BYTES", 4)
    doubling = Doubling(lambda x: 2 * x)
    told(doubling.each(map(of, range(3))))
    assert doubling.happened.index("compare 0") < doubling.happened.index("declare 1")


def test_small_inputs_with_large_outputs_are_answered_one_at_a_time():
    """All outputs of a block at once would be more than a cell may take."""

    def example(number: int) -> Example:
        large = [np.zeros(comparer.BLOCK_BYTES // 8 + 1)]
        inputs = {"x": np.array([float(number)])}
        return Example(
            Draw({}, "plain", 0, number), lambda: inputs, lambda _: (large, lambda: large), lambda *_: None
        )

    doubling = Doubling(lambda x: 0.0)
    told(doubling.each(map(example, range(3))))
    assert "run 0" in doubling.happened and "run 1" not in doubling.happened


# ---- where the process ends ----------------------------------------------------------------------------------


ENDS = """
import os
import torch

class Ends(torch.nn.Module):
    def forward(self, x):
        if x.shape[0] == 4 and not torch.jit.is_tracing():
            os._exit(3)
        return torch.asinh(x)

def right(g, x):
    return g.op("Asinh", x)

def wrong(g, x):
    return g.op("Acosh", x)
"""
ENDS_CASE = """
module: beside.Ends
inputs: {x: "float32[batch, 3]"}
dims: {batch: 1..4}
runtimes: onnxruntime
specials: false
export: {torchscript: {opsets: [17], symbolics: {"aten::asinh": %s}}}
"""


def ended(bench, body: str) -> Record:
    """The record of a cell that runs in a process of its own, which PyTorch ends at batch 4."""
    (cell,) = (cell for cell in bench.cells(body, ENDS) if cell.check == "accuracy")
    with Worker(initializer=prepare_process) as worker:
        return Runner(Settings(store=bench.store), 60, worker)(cell)


def test_the_draw_at_which_the_process_ends_is_told(bench):
    record = ended(bench, ENDS_CASE % "beside.right")
    assert (record.status, record.stage, record.signal) == ("failed", "declare", "exit 3")
    assert record.draw is not None and record.draw["dims"] == {"batch": 4}


def test_a_wrong_answer_that_is_declared_is_shown_though_a_later_example_ends_the_process(bench):
    declared = "fails: [{stage: compare, error: WrongNaN, fault: exporter, because: a wrong symbolic}]"
    record = ended(bench, say(ENDS_CASE % "beside.wrong", declared))
    assert (record.status, record.stage, record.signal) == ("xfailed", "compare", None)
