"""One example: its draw, its inputs, what is right for them, and what judging it takes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from conformance.compare.judges import Right
from conformance.process.arrays import Array, Inputs
from conformance.process.worker.progress_note import encode
from conformance.results.records.host_conditions import is_about
from conformance.results.records.record_types import Drawn

Answers = tuple[list[Array], Callable[[], list[Array] | None]]
"""The right outputs, and what gives the same in float64, or None where the module has no float64 form: it is asked
only where float32 does not decide, which is seldom. Of a converted model: what it means, and PyTorch's outputs in
float32."""

Effort = Literal["few", "some", "all"]
"""How many other roundings are tried to see how far rounding moves an output: few may show too little of some values,
some are cautious, all take ten times as long as few."""


@dataclass(frozen=True)
class Draw:
    """Enough to make the arrays of an example again."""

    dims: Mapping[str, int]
    regime: str
    seed: int
    index: int = 0
    """The example's number among those that the cell made; -1 for one kept from an earlier run."""
    flags: str | None = None
    """The regime of the inputs that choose between few values, such as masks; None where it is that of all inputs."""

    def as_dict(self) -> Drawn:
        # dataclasses.asdict copies deeply, which costs more here than all the rest of an example's upkeep
        told: Drawn = {"dims": dict(self.dims), "regime": self.regime, "seed": self.seed, "index": self.index}
        return told if self.flags is None else {**told, "flags": self.flags}

    @cached_property
    def encoded(self) -> str:
        """``as_dict`` in JSON, for the notes to the parent process, which name the draw at each of its stages."""
        return encode(self.as_dict())


class Example:
    """A draw with its inputs and what is right for them. All but the draw is made once, when it is first asked for:
    PyTorch runs once for an example, however many questions are asked about it."""

    def __init__(
        self,
        draw: Draw,
        inputs: Callable[[], Inputs],
        answers: Callable[[Inputs], Answers],
        conditioning: Callable[[Inputs, list[Array], list[Array] | None, Effort], list[Array] | None],
        apart: Sequence[str | Mapping[str, Any]] = (),
    ) -> None:
        """``apart`` are the runtimes that are declared to fail at this draw: each by its name, or with the kind of
        processor on which it is declared to."""
        self.draw, self.apart = draw, apart
        self._inputs, self._make_answers, self._condition = inputs, answers, conditioning
        self._moved: dict[Effort, list[Array] | None] = {}

    @cached_property
    def inputs(self) -> Inputs:
        return self._inputs()

    @cached_property
    def _answers(self) -> Answers:
        return self._make_answers(self.inputs)

    @property
    def wanted(self) -> list[Array]:
        return self._answers[0]

    @cached_property
    def exact(self) -> list[Array] | None:
        return self._answers[1]()

    def conditioning(self, effort: Effort = "all") -> list[Array] | None:
        """Return how much of an error in each value of the outputs the inputs excuse; None where nothing tells."""
        if effort not in self._moved:
            self._moved[effort] = self._condition(self.inputs, self.wanted, self.exact, effort)
        return self._moved[effort]

    def right(self, effort: Effort | None = None) -> Right:
        """Return what a judge compares with; with an ``effort`` it is measured how the inputs are conditioned."""
        moved = None if effort is None else self.conditioning(effort)
        return Right(self.wanted, self.exact, moved, self.inputs)

    def right_in_float32(self) -> Right:
        """The same without float64, which an output that is right by float32 alone does not need."""
        return Right(self.wanted, None, None, self.inputs)

    def fails_in(self, runtime: str, instructions: Collection[str]) -> bool:
        """Return whether a runtime is declared to fail here, on a processor with these instruction sets."""
        for entry in self.apart:
            entry = {"runtime": entry} if isinstance(entry, str) else entry
            host = entry.get("host", entry.get("cpu"))  # bundles before 0.3 name the processor alone
            if entry["runtime"] == runtime and is_about(host, instructions):
                return True
        return False


def given(
    draw: Draw,
    inputs: Inputs,
    wanted: list[Array],
    exact: list[Array] | None,
    conditioning: list[Array] | None,
    apart: Sequence[str | Mapping[str, Any]],
) -> Example:
    """An example with parts that exist already, as in a bundle."""
    return Example(draw, lambda: inputs, lambda _: (wanted, lambda: exact), lambda *_: conditioning, apart)
