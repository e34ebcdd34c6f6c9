"""Running examples in a runtime that has loaded the model, and comparing; in the suite and in a replay alike."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import TypeAlias

from conformance.arrays import Array
from conformance.compare.judges import Right
from conformance.compare.tolerance import Comparison
from conformance.compare.vacuity import Vacuity
from conformance.errors import Stopped, attempt
from conformance.records.spent import spending
from conformance.runtimes import Session
from conformance.verdict.example import Draw, Effort, Example

BLOCK = 32
"""Examples that go through PyTorch, then through the runtime, and then through the comparison together. PyTorch, a
runtime and NumPy drive each other's code out of the processor's caches: taking turns with every small example makes
all three take up to twice as long (``docs/decisions.md``)."""
BLOCK_BYTES = 2**18
"""Bytes of inputs, or of right outputs, from which a block takes no further example: what is computed then takes
longer than finding its code, and would not all be kept in memory."""
BLOCK_SECONDS = 0.01
"""Seconds in PyTorch from which a block takes no further example, so that little is run in vain where one fails."""


MAY_BE_OPEN = ("WrongNaN", "WrongInf", "WrongShape")
"""Errors that no size of rounding excuses, but that nobody is to blame for where PyTorch leaves them open."""


class WrongAnswer(Stopped):
    """An example whose outputs are not the right ones. Its fault is open until ``verdict.blame`` finds it."""

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


class Comparer(ABC):
    """Runs examples in a runtime that has loaded the model, and compares."""

    block_bytes = BLOCK_BYTES
    block_seconds = BLOCK_SECONDS
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
        """Runs and compares one example; the verdict is verified, ill-conditioned or nothing.

        Raises Stopped where the example fails: WrongAnswer if it ran and its outputs are wrong.
        """
        self._note(example.draw, "declare")
        return self.run(example)

    def run(self, example: Example) -> Comparison:
        """Runs and compares one example, without telling the parent process that its arrays are being made."""
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
        """Runs and compares the examples, in blocks; each with what it came to, the last being the first failure.

        Where an example ends the process, those before it in its block were not compared: ``one_by_one`` is for cells
        in which that would decide on the verdict.
        """
        most = 1 if one_by_one else BLOCK
        steps, pending = deque[_Step](), iter(examples)
        while True:
            self._make(steps, pending, most)
            if not steps:
                return
            block = self._answered(steps)
            self._run(block)
            while block:
                step = block.popleft()
                yield step.example, (outcome := self._compared(step))
                if isinstance(outcome, Stopped):
                    return
                if step.failure is not None:  # it passed when it was asked anew, so the others are asked anew too
                    steps = deque(_Step(self.again(later.example)) for later in (*block, *steps))
                    break

    def _make(self, steps: deque[_Step], pending: Iterator[Example], most: int) -> None:
        """Fills the block with the next examples, and makes their inputs; none after one for which that fails."""
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
        """Asks PyTorch what is right for the examples, and takes those out of the block for which that is known then;
        the others stay for the next block where it takes long, or much memory."""
        start, size = time.perf_counter(), 0
        asked = deque[_Step]()
        while steps:
            asked.append(step := steps.popleft())
            if step.failure is None:
                self._note(step.example.draw, "declare")
                try:
                    size += sum(array.nbytes for array in step.example.wanted)
                except Stopped as stop:
                    step.failure = stop
            spent = time.perf_counter() - start
            if step.failure is not None or spent > self.block_seconds or size > self.block_bytes:
                break
        return asked

    def _run(self, block: Iterable[_Step]) -> None:
        """Has the runtime answer, up to the first example that fails."""
        session = self.session
        assert session is not None

        def run(step: _Step) -> list[Array]:
            return session.run(step.example.inputs)

        with spending(self._seconds, "run"):
            for step in block:
                if step.failure is None:
                    self._note(step.example.draw, "run")
                    got = attempt(partial(run, step))
                    if isinstance(got, Exception):
                        step.failure = Stopped("run", type(got).__name__, self.said(got))
                        step.failure.__cause__ = got
                    else:
                        step.got = got
                if step.failure is not None:
                    break

    def _compared(self, step: _Step) -> Outcome:
        with spending(self._seconds, "compare"):
            return self._judged(step)

    def _judged(self, step: _Step) -> Outcome:
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
        """Compares the outputs of an example, and again with how its inputs are conditioned where values or rows are
        wrong, or right only by the largest error of float32."""
        self._note(example.draw, "run")  # what is right may be asked more closely now, which may end the process
        comparison = self.compare(got, example.right())
        if comparison.doubtful:  # which two other roundings mostly settle
            roughly = self.compare(got, example.right("few"))
            if roughly.verdict == "verified" and not (roughly.excused or roughly.doubtful):
                return roughly
        open_yet = comparison.doubtful or comparison.error in ("WrongValue", "WrongRows")
        efforts: tuple[Effort, ...] = ("some", "all") if open_yet else ()
        for effort in ("all",) if comparison.error in MAY_BE_OPEN else efforts:
            right = example.right(effort)
            if right.conditioning is not None:
                comparison = self.compare(got, right)
                if comparison.verdict != "failed":
                    break
        return comparison

    def doubted(self, example: Example, failure: Stopped) -> Outcome:
        """Return what a failure comes to: itself, unless an answer that it rests on may be out of date."""
        return failure

    @abstractmethod
    def compare(self, got: list[Array], right: Right) -> Comparison:
        """Compares as this cell's outputs are compared, whichever runtime ``got`` is from."""

    @abstractmethod
    def said(self, error: Exception) -> str:
        """Return what a runtime raised, on one line."""

    @abstractmethod
    def again(self, example: Example) -> Example:
        """The same example, with inputs and answers made anew where they can be."""

    def add_seconds(self, what: str, seconds: float) -> None:
        self._seconds[what] = self._seconds.get(what, 0.0) + seconds
