"""Examples are run in blocks: each has its own answer, and the first one that fails is reported."""

from collections.abc import Callable, Iterable

import numpy as np
import pytest

from conformance.case.draw.example import Answers, Draw, Example
from conformance.case.plan.settings import Settings
from conformance.cells.runner import Runner
from conformance.compare.judges import Right, defaults_for
from conformance.compare.tolerance import Comparison
from conformance.judge.comparer import BLOCK, BLOCK_BYTES, Comparer, Outcome
from conformance.process.arrays import Array, Inputs
from conformance.process.errors import Stopped
from tests.kit.cases import PASSED, say, verdict
from tests.kit.modules import SCRATCH, SCRATCH_CASE
from tests.kit.runtimes import wrong_runtime


def test_an_output_that_the_next_call_changes_is_compared_as_it_was(bench):
    assert verdict(bench.run(SCRATCH_CASE, SCRATCH)) == PASSED


def test_values_that_the_case_fills_into_one_array_are_those_of_each_example(bench):
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

    with wrong_runtime(noted):
        assert verdict(bench.run(body, python, examples=2)) == PASSED
    asked = [seen.count(one) for one in set(seen)]
    assert sorted(asked) == [1] * (len(asked) - 1) + [3] and len(asked) > 4  # one thrice, to see what varies


class Runtime:
    """Answers with a function of the only value."""

    arithmetic: dict[str, str] = {}  # noqa: RUF012

    def __init__(self, answer: Callable[[float], float]) -> None:
        self.answer = answer

    def run(self, inputs):
        return [np.array([self.answer(float(inputs["x"][0]))])]


class Doubling(Comparer):
    """Compares a planted runtime with a module that doubles, and notes what happens in which order.

    ``doubtful`` is the number of the example whose right answer is out of date when it fails.
    """

    block_seconds = due_seconds = 600.0  # however busy the host is

    def __init__(self, answer: Callable[[float], float], doubtful: int | None = None, **limits: float) -> None:
        self.happened: list[str] = []
        self.doubtful = doubtful
        vars(self).update(limits)
        super().__init__(Runtime(answer), lambda draw, stage: self.happened.append(f"{stage} {draw.index}"), {})

    def compare(self, got: list[Array], right: Right) -> Comparison:
        self.happened.append(f"compare {float(right.inputs['x'][0]):g}")
        return defaults_for(right.wanted).compare(got, right)

    def said(self, error: Exception) -> str:
        return str(error)

    def doubted(self, example: Example, failure: Stopped) -> Outcome:
        return self.outcome(self.again(example)) if self.doubtful == example.draw.index else failure

    def again(self, example: Example) -> Example:
        self.happened.append(f"again {example.draw.index}")
        self.doubtful = None
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

    def of_one(outcome: Outcome) -> str:
        return f"{outcome.stage}: {outcome.reason}" if isinstance(outcome, Stopped) else outcome.verdict

    return [(example.draw.index, of_one(outcome)) for example, outcome in outcomes]


def verified(count: int) -> list[tuple[int, str]]:
    return [(number, "verified") for number in range(count)]


def twice(x: float) -> float:
    return 2 * x


def wrong_above(limit: float) -> Callable[[float], float]:
    return lambda x: 2 * x + (x > limit)


def raises(text: str, after: int) -> Callable[[float], float]:
    """A function that doubles, and raises for what is larger than ``after``."""

    def function(x: float) -> float:
        if x > after:
            raise Stopped("declare", "Planted", text, "case")
        return 2 * x

    return function


def test_all_examples_come_back_in_order_with_their_own_answers():
    count = 2 * BLOCK + 3
    assert told(Doubling(twice).each(map(of, range(count)))) == verified(count)


def test_a_block_is_answered_by_pytorch_then_by_the_runtime_and_then_compared():
    doubling = Doubling(twice)
    told(doubling.each(map(of, range(3))))
    first = ["declare 0", "declare 0", "run 0", "run 0", "compare 0"]  # alone, as it is not known how long one takes
    stages = ["declare 1", "declare 2"] * 2 + ["run 1", "run 2", "run 1", "compare 1", "run 2", "compare 2"]
    assert doubling.happened == [*first, *stages]


def test_examples_that_take_long_are_asked_for_when_the_one_before_is_judged():
    """Whoever gives them out would not know else what they take, and exceed the budget of the cell."""
    doubling, before = Doubling(twice, due_seconds=0.0), list[int]()

    def examples() -> Iterable[Example]:
        for number in range(5):
            before.append(sum(each.startswith("compare") for each in doubling.happened))
            yield of(number)

    assert told(doubling.each(examples())) == verified(5)
    assert before == [0, 1, 2, 3, 4]


WRONG = "compare: output 0: 1 of 1 values differ by more than allowed"


@pytest.mark.parametrize("one_by_one", [False, True])
@pytest.mark.parametrize(("runtime", "module", "end"), [
    (wrong_above(2), twice, WRONG), (raises("planted", 2), twice, "run: planted"),
    (twice, raises("PyTorch raises", 2), "declare: PyTorch raises"), (wrong_above(2), raises("later", 3), WRONG),
    (raises("later", 3), raises("PyTorch raises", 2), "declare: PyTorch raises"),
])  # fmt: skip
def test_the_first_failure_ends_it_whatever_fails_later(runtime, module, end, one_by_one):
    examples = (of(number, module) for number in range(10))
    assert told(Doubling(runtime).each(examples, one_by_one=one_by_one)) == [*verified(3), (3, end)]


@pytest.mark.parametrize("seconds", [0.0, 600.0])
def test_inputs_that_cannot_be_made_are_the_failure_of_their_example_alone(seconds):
    examples = [of(0), of(1), without_inputs(2), of(3)]
    outcomes = told(Doubling(twice, block_seconds=seconds).each(examples))
    assert outcomes == [*verified(2), (2, "declare: no such input")]


@pytest.mark.parametrize("seconds", [0.0, 600.0])
def test_when_an_answer_was_out_of_date_the_examples_after_it_are_asked_again(seconds):
    """The module answered wrongly in an earlier run, from the second example on."""
    stale = (of(number, wrong_above(0)) for number in range(5))
    assert told(Doubling(twice, doubtful=1, block_seconds=seconds).each(stale)) == verified(5)


def test_a_module_that_takes_long_is_asked_for_one_example_at_a_time():
    doubling = Doubling(wrong_above(0), block_seconds=0.0)
    assert told(doubling.each(map(of, range(9))))[-1][0] == 1 and "run 1" in doubling.happened
    assert "run 2" not in doubling.happened


@pytest.mark.parametrize(("limits", "one_by_one"), [({}, True), ({"block_bytes": 4}, False)])
def test_large_examples_and_those_of_cells_that_may_die_are_compared_before_the_next_is_made(limits, one_by_one):
    doubling = Doubling(twice, **limits)
    told(doubling.each(map(of, range(3)), one_by_one=one_by_one))
    assert doubling.happened.index("compare 0") < doubling.happened.index("declare 1")


def test_small_inputs_with_large_outputs_are_answered_one_at_a_time():
    """All outputs of a block at once would be more than a cell may take."""
    large = np.zeros(BLOCK_BYTES // 8 + 1)
    doubling = Doubling(twice)
    told(doubling.each(of(number, lambda x: large) for number in range(3)))
    assert "run 0" in doubling.happened and "run 1" not in doubling.happened


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
ENDS_CASE = say(
    "module: beside.Ends", 'inputs: {x: "float32[batch, 3]"}', "dims: {batch: 1..4}", "runtimes: onnxruntime",
    "specials: false",
    'export: {torchscript: {opsets: [17], symbolics: {"aten::asinh": %s}}}',
)  # fmt: skip


@pytest.fixture
def ended(bench, worker):
    """``ended(body)``: the record of a cell that runs in a process of its own, which PyTorch ends at batch 4."""

    def run(body: str):
        cell = bench.cell(body, ENDS)
        return Runner(Settings(store=bench.store), 60, worker)(cell)

    return run


def test_the_draw_at_which_the_process_ends_is_reported(ended):
    record = ended(ENDS_CASE % "beside.right")
    assert (record.status, record.stage, record.signal) == ("failed", "declare", "exit 3")
    assert record.draw is not None and record.draw["dims"] == {"batch": 4}


def test_a_wrong_answer_that_is_declared_is_shown_though_a_later_example_ends_the_process(ended):
    declared = "fails: [{stage: compare, error: WrongNaN, fault: exporter, because: a wrong symbolic}]"
    record = ended(say(ENDS_CASE % "beside.wrong", declared))
    assert (record.status, record.stage, record.signal) == ("xfailed", "compare", None)
