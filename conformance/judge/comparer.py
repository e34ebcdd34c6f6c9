"""Running examples in a runtime that has loaded the model, one after another, comparing and counting them, up to the
first that fails; in the suite and in a replay alike."""

from __future__ import annotations

import dataclasses
import math
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from time import perf_counter
from typing import Any, TypeAlias

from conformance.case.draw.example import Draw, Effort, Example
from conformance.compare.judges import Right
from conformance.compare.tolerance import Comparison, Worst, subjects
from conformance.compare.vacuity import Vacuity
from conformance.process.arrays import Array, same
from conformance.process.errors import Details, Stopped, Unavailable, Undecided, attempt
from conformance.results.records.record import Record
from conformance.results.records.spent import Spending
from conformance.runtimes import Session

BLOCK = 32
"""Examples that go through PyTorch, then through the runtime, and then through the comparison together. PyTorch, a
runtime and NumPy drive each other's code out of the processor's caches: taking turns with every small example makes
all three take up to twice as long (``docs/decisions.md``)."""
BLOCK_BYTES = 2**18
"""Bytes of inputs, or of right outputs, from which a block takes no further example: what is computed then takes
longer than finding its code, and would not all be kept in memory."""
BLOCK_SECONDS = 0.01
"""Seconds in PyTorch from which a block takes no further example, so that little is run in vain where one fails."""
DUE_SECONDS = 0.1
"""Seconds that all of a block may take, as far as the one before shows: examples that take long are asked for one by
one, so that whoever chooses them knows what the last one took."""


MAY_BE_OPEN = ("WrongNaN", "WrongInf", "WrongShape")
"""Errors that no size of rounding excuses, but that nobody is to blame for where PyTorch leaves them open."""


class WrongAnswer(Stopped):
    """An example whose outputs are not the right ones. Its fault is open until ``diagnose.nodes.blame`` finds it."""

    def __init__(self, comparison: Comparison) -> None:
        super().__init__("compare", comparison.error or "WrongValue", comparison.text or "")
        self.worst = comparison.worst


Outcome: TypeAlias = Comparison | Stopped
"""What running and comparing an example came to."""


@dataclass
class _Step:
    """An example on its way through a block."""

    example: Example
    failure: Stopped | None = None
    """Why it gets no further."""
    size: int = 0
    """Bytes of its inputs, once they are made."""
    got: list[Array] = field(default_factory=list)
    unanswered: Unavailable | None = None
    """The reason for which the runtime has no answer; None where it has one."""


class Comparer(ABC):
    """Runs examples in a runtime that has loaded the model, and compares."""

    block_bytes = BLOCK_BYTES
    block_seconds = BLOCK_SECONDS
    due_seconds = DUE_SECONDS
    vacuity: Vacuity | None = None
    """Whether the comparisons could have failed; None until it is known what decides on the outputs."""

    def __init__(
        self, session: Session | None, note: Callable[[Draw, str], object], seconds: dict[str, float]
    ) -> None:
        """``note`` tells the parent process which draw is at which stage, in case it ends this process; the time that
        running and comparing take is added to ``seconds``. No example can be run without a session."""
        self.session = session
        self._note = note
        self._seconds = seconds

    def __call__(self, example: Example) -> Comparison:
        """Run and compare one example; the verdict is verified, ill-conditioned or nothing.

        Raises Stopped where the example fails: WrongAnswer if it ran and its outputs are wrong.
        """
        self._note(example.draw, "declare")
        return self.run(example)

    def run(self, example: Example) -> Comparison:
        """Run and compare one example, without telling the parent process that its arrays are being made."""
        outcome = self.outcome(example)
        if isinstance(outcome, Stopped):
            raise outcome
        return outcome

    def outcome(self, example: Example) -> Outcome:
        """Return what running and comparing one example comes to."""
        block = self._answered(deque([_Step(example)]))
        self._run(block)
        return self._compared(block[0])

    def each(self, examples: Iterable[Example], *, one_by_one: bool = False) -> Iterator[tuple[Example, Outcome]]:
        """Run and compare the examples, in blocks; each with what it came to, the last being the first failure.

        Where an example ends the process, those before it in its block were not compared: ``one_by_one`` is for cells
        in which that would decide on the verdict. Raises Unavailable where the runtime has no answer to an example.
        """
        most = 1
        steps, pending = deque[_Step](), iter(examples)
        while True:
            start = perf_counter() + self.spared()
            self._make(steps, pending, most)
            if not steps:
                return
            block = self._answered(steps)
            count = len(block)
            self._run(block)
            while block:
                step = block.popleft()
                yield step.example, (outcome := self._compared(step))
                if isinstance(outcome, Stopped):
                    return
                asked_anew = step.failure is not None
                del step  # with its arrays, before the next ones are made
                if asked_anew:  # and it passed then, so the others are asked anew too
                    steps = deque(_Step(self.again(later.example)) for later in (*block, *steps))
                    break
            each = (perf_counter() + self.spared() - start) / count
            most = 1 if one_by_one else min(BLOCK, max(1, int(self.due_seconds / max(each, 1e-9))))

    def spared(self) -> float:
        """Return the seconds that what an earlier run computed would have taken in this one."""
        return 0.0

    def _make(self, steps: deque[_Step], pending: Iterator[Example], most: int) -> None:
        """Fill the block with the next examples, and make their inputs; none after one for which that fails."""
        size = sum(step.size for step in steps)
        while len(steps) < most and size <= self.block_bytes and not (steps and steps[-1].failure):
            example = next(pending, None)
            if example is None:
                return
            steps.append(step := _Step(example))
            self._note(example.draw, "declare")
            try:
                step.size = sum(array.nbytes for array in example.inputs.values())
                size += step.size
            except Stopped as stop:
                step.failure = stop

    def _answered(self, steps: deque[_Step]) -> deque[_Step]:
        """Ask PyTorch what is right for the examples, and take those out of the block for which that is known then;
        the others stay for the next block where it takes long, or much memory."""
        start, size = perf_counter(), 0
        asked = deque[_Step]()
        while steps:
            asked.append(step := steps.popleft())
            if step.failure is None:
                self._note(step.example.draw, "declare")
                try:
                    size += sum(array.nbytes for array in step.example.wanted)
                except Stopped as stop:
                    step.failure = stop
            spent = perf_counter() - start
            if step.failure is not None or spent > self.block_seconds or size > self.block_bytes:
                break
        return asked

    def _run(self, block: Iterable[_Step]) -> None:
        """Have the runtime answer, up to the first example that fails."""
        session = self.session
        assert session is not None
        with Spending(self._seconds, "run"):
            for step in block:
                if step.failure is None:
                    self._note(step.example.draw, "run")
                    got = attempt(partial(session.run, step.example.inputs))
                    if isinstance(got, Unavailable):
                        step.unanswered = got
                        break
                    if isinstance(got, Exception):
                        step.failure = Stopped("run", type(got).__name__, self.said(got))
                        step.failure.__cause__ = got
                    else:
                        step.got = got
                if step.failure is not None:
                    break

    def _compared(self, step: _Step) -> Outcome:
        if step.unanswered is not None:  # which is no wrong answer, as one of those before may be
            raise step.unanswered
        with Spending(self._seconds, "compare"):
            return self._judged(step)

    def _judged(self, step: _Step) -> Outcome:
        if isinstance(step.failure, Undecided):
            undecided, step.failure = step.failure, None
            return Comparison("nothing", error=undecided.error, text=undecided.reason)
        if step.failure is None:
            try:
                comparison = self.judged(step.example, step.got)
                if self.vacuity is not None and comparison.verdict in ("verified", "ill-conditioned"):
                    self.vacuity.see(step.example.wanted, step.example.inputs)
                if comparison.verdict != "failed":
                    return comparison
                step.failure = WrongAnswer(comparison)
            except Stopped as stop:
                step.failure = stop
        try:
            return self.doubted(step.example, step.failure)
        except Stopped as stop:
            return stop

    def judged(self, example: Example, got: list[Array]) -> Comparison:
        """Compare the outputs of an example, and again with how its inputs are conditioned where values or rows are
        wrong, or right only by the largest error of float32."""
        self._note(example.draw, "run")  # what is right may be asked more closely now, which may end the process
        comparison = self.compare(got, example.right())
        if comparison.doubtful:  # which two other roundings mostly settle, of this example or of those before it
            usually = self._by_usual(example, got)
            if usually is None:
                roughly = self.compare(got, example.right("few"))
                if roughly.verdict == "verified" and not (roughly.excused or roughly.doubtful):
                    return roughly
                usually = self._by_usual(example, got)
            if usually is not None:
                return usually
        open_yet = comparison.doubtful or comparison.error in ("WrongValue", "WrongRows")
        efforts: tuple[Effort, ...] = ("some", "all") if open_yet else ()
        for effort in ("all",) if comparison.error in MAY_BE_OPEN else efforts:
            right = example.right(effort)
            if right.conditioning is not None:
                comparison = self.compare(got, right)
                if comparison.verdict != "failed":
                    break
        return comparison

    def _by_usual(self, example: Example, got: list[Array]) -> Comparison | None:
        """Return that an example is right by what rounding usually moves; None where that does not show."""
        usual = self.usual(example)
        comparison = None if usual is None else self.compare(got, usual)
        return comparison if comparison is not None and comparison.verdict == "verified" else None

    def usual(self, example: Example) -> Right | None:
        """Return what an example is compared with where other examples show how far rounding moves its values."""
        return None

    def doubted(self, example: Example, failure: Stopped) -> Outcome:
        """Return what a failure comes to: itself, unless an answer that it rests on may be out of date."""
        return failure

    @abstractmethod
    def compare(self, got: list[Array], right: Right) -> Comparison:
        """Compare as this cell's outputs are compared, whichever runtime ``got`` is from."""

    @abstractmethod
    def said(self, error: Exception) -> str:
        """Return what a runtime raised, on one line."""

    @abstractmethod
    def again(self, example: Example) -> Example:
        """The same example, with inputs and answers made anew where they can be."""

    def failure(self, example: Example) -> Stopped | None:
        """Return how the example fails; None where it does not, or where the runtime has no answer."""
        try:
            self.run(example)
        except Stopped as stop:
            return stop
        except Unavailable:
            return None
        return None

    def add_seconds(self, what: str, seconds: float) -> None:
        self._seconds[what] = self._seconds.get(what, 0.0) + seconds


def repeated(comparer: Comparer, example: Example, stop: Stopped) -> tuple[Example, Stopped]:
    """Return a failing example, made anew, with its failure. Raises Stopped, NotRepeatable, where it does not fail
    again."""
    again = comparer.again(example)
    failure = comparer.failure(again)
    if failure is not None:
        return again, failure
    text = f"failed once and not again with the same input: {stop.reason}"
    if same(example.wanted, again.wanted):
        raise Stopped(stop.stage, "NotRepeatable", text, "runtime") from stop
    text = f"{text}; what is right changed in between, as where a module reads memory that nobody has written"
    raise Stopped(stop.stage, "NotRepeatable", text, "case") from stop


RUNS, RUNS_SECONDS = 32, 1.0
"""The number of runs that show whether a runtime with a wrong answer gives the same again; and the seconds from which
it is not."""


def check_runs_agree(
    comparer: Comparer, example: Example, stop: Stopped, random: Sequence[str], own_code: list[str]
) -> None:
    """Stopped, NotRepeatable, where a runtime gives other outputs for the same input in one run than in another. Then
    no answer of it tells who is wrong; ``random`` are the operators of the model of which that is to be expected,
    and ``own_code`` is what the case has registered for its export."""
    assert comparer.session is not None
    run, start = partial(comparer.session.run, example.inputs), perf_counter()
    first = attempt(run)
    for _ in range(RUNS):
        after = attempt(run)
        if isinstance(first, Exception) or isinstance(after, Exception) or not _are_near(comparer, after, first):
            break
        if perf_counter() - start > RUNS_SECONDS:
            return
    else:
        return
    text = f"runs with the same input give different outputs: {stop.reason}"
    if random:
        text = f"{text}; the model has {' and '.join(random)}, which the module does not have"
        raise Stopped(stop.stage, "NotRepeatable", text, "exporter", {"own_code": own_code}) from stop
    raise Stopped(stop.stage, "NotRepeatable", text, "runtime") from stop


def _are_near(comparer: Comparer, after: list[Array], first: list[Array]) -> bool:
    if same(after, first):
        return True
    comparison = attempt(lambda: comparer.compare(after, Right(first)))
    return not isinstance(comparison, Exception) and comparison.verdict != "failed"


def note_failing(record: Record, example: Example, stop: Stopped) -> None:
    """Note in the record which example shows a failure, and its worst element."""
    if isinstance(stop, WrongAnswer) and stop.worst is not None:
        record.worst = worst_dict(stop.worst, example.draw)
    record.draw = example.draw.as_dict()


# ---- counting ------------------------------------------------------------------------------------------------


def count(record: Record, draw: Draw, comparison: Comparison) -> None:
    """Count an example that did not fail in the record, which keeps the largest error of all."""
    record.examples += comparison.verdict == "verified"
    record.ill_conditioned += comparison.verdict == "ill-conditioned"
    record.nothing += comparison.verdict == "nothing"
    record.excused += comparison.excused
    for name, rows in (comparison.rows or {}).items():
        record.rows = {**(record.rows or {}), name: (record.rows or {}).get(name, 0) + rows}
    worst = comparison.worst
    if comparison.verdict != "verified" or worst is None:
        return
    record.histogram = counted(record.histogram, worst.ratio)
    if record.worst is None or worst.ratio > float(record.worst["ratio"]):
        record.worst, record.draw = worst_dict(worst, draw), draw.as_dict()


def worst_dict(worst: Worst, draw: Draw) -> Any:
    """The worst element as it goes into a record."""
    told = dataclasses.asdict(worst)
    del told["together"]
    if (called := told.pop("called")) is not None:
        told["output"] = called
    return {**told, "index": list(worst.index), "dims": dict(draw.dims)}


EDGES = list(range(-6, 4))
"""Powers of ten between which the largest errors of examples are counted, relative to what is allowed."""


def counted(histogram: dict[str, list[float]] | None, ratio: float) -> dict[str, list[float]]:
    """The histogram with one more example; what is beyond its ends counts in the outermost bins."""
    histogram = histogram or {"edges": [*EDGES], "counts": [0] * (len(EDGES) - 1)}
    power = math.floor(math.log10(ratio)) if 0 < ratio < math.inf else (EDGES[0] if ratio <= 0 else EDGES[-1])
    histogram["counts"][min(max(power - EDGES[0], 0), len(EDGES) - 2)] += 1
    return histogram


def find_vacuous(vacuity: Vacuity, excused: Collection[int]) -> int | None:
    """Return the first output for which wrong outputs would have passed all examples, unless it is ``excused``."""
    return next((output for output in vacuity.findings() if output not in excused), None)


def vacuous_failure(record: Record, vacuity: Vacuity, output: int, details: Details | None = None) -> Stopped:
    """Return the failure of an output for which wrong outputs would have passed all examples."""
    wrong = vacuity.findings()[output]
    passes = f"{' and '.join(wrong)} would have passed every one of {record.examples} examples"
    text = f"{subjects(len(vacuity), tuple(record.outputs))[output]}: {passes}"
    told: Details = {"hints": [], "vacuous": {"output": output, "passes": wrong}}
    return Stopped("compare", "Vacuous", text, "case", told | (details or {}))
