"""Try whether a function fails: exported and run in ONNX Runtime, without its optimizer, against PyTorch."""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

from conformance.compare.close import Limit, ratios
from conformance.compare.excuses import largest_of
from conformance.compare.judges import Judge, Right, defaults_for
from conformance.diagnose.search import Shrinker
from conformance.diagnose.smallest.extracted_function import Function
from conformance.diagnose.smallest.lines import Exporting, exporting, feeding, module, modules_of
from conformance.diagnose.smallest.model_trial import TIGHTEST, difference, limit_of
from conformance.diagnose.smallest.reproduction import imports, running
from conformance.models.exporters.graph import refusal
from conformance.models.exporters.symbolics import registered
from conformance.process.arrays import Array
from conformance.process.errors import attempt, or_else

STOPS = "stops"
RAISES = "raises"
REFUSED = "refused"
GIST = 60
"""Characters of what an exporter says that count."""
VANISHING = 1e-3
"""The share of the largest value of the first function that failed, below which what others give is as good as 0."""


class FunctionTrials(Shrinker[Function]):
    """Functions that are tried until a deadline. The first that fails says in which way the others have to."""

    limit = TIGHTEST
    """How far outputs may be off, relative to their largest value or to ``floor``."""
    floor = 0.0
    right = 0
    """The number of functions that were exported and gave what PyTorch gives."""
    alone = False
    """True where the call alone is one of these."""
    as_exported = False
    """True where the call alone is one of these when it is exported at the sizes of the module's export."""
    expected: Sequence[Array] = ()
    """What is right for the function that failed last."""
    actual: Sequence[Array] = ()
    """What ONNX Runtime gave for it; empty where it stops."""
    model = b""
    """What it was exported to."""

    def __init__(
        self,
        how: Exporting,
        kind: str,
        deadline: float,
        error: str = "",
        judge: Callable[[Sequence[Array]], Judge] = defaults_for,
    ) -> None:
        """``kind`` is ``values`` or another error of a comparison, ``stops``, ``raises`` where a function cannot be
        exported, or ``refused`` where onnx.checker refuses it; ``error`` the ``gist`` of what the exporter raises, or
        the name of the checker's error. Until a function has failed, outputs are compared as the cell's are, by what
        ``judge`` makes of those that are right."""
        super().__init__(self._fails_alike, deadline)
        self.how, self.kind, self.error, self._judge = how, kind, error, judge

    def _fails_alike(self, function: Function) -> bool:
        """Return whether the function fails alike; what is no function of PyTorch's does not."""
        outcome = or_else(None, lambda: self._outcome(function))
        if outcome is None:
            return False
        kind, expected, actual, model = outcome
        self.right += kind is None
        if kind != self.kind:
            return False
        self.expected, self.actual, self.model = expected, actual, model
        return True

    def settle(self) -> None:
        """From now on a function fails that is off by an eighth as much as the last one, as far as that is no
        rounding; half as much where the last one was off by less than that."""
        off = _off(self.actual, self.expected)
        self.limit = limit_of(off) if off > TIGHTEST else off / 2
        self.floor = VANISHING * max(map(largest_of, (*self.expected, *self.actual)), default=0.0)

    def allowed(self) -> list[float]:
        """Return how far each output of the function that failed last may be off."""
        return [self.limit * max(largest_of(one), self.floor) for one in self.expected]

    def _outcome(self, function: Function) -> tuple[str | None, list[Array], list[Array], bytes]:
        """Return how it fails, if it does. Raises what PyTorch or the exporter raises."""
        import onnx

        space = _fed(function, self.how)
        with self._undone():
            raised = attempt(lambda: _execute([*exporting(function, self.how), *running({})], space))
        if self.kind == RAISES:
            alike = isinstance(raised, Exception) and gist(raised) == self.error
            return RAISES if alike else None, [], [], b""
        if isinstance(raised, Exception):
            raise raised
        if self.kind == REFUSED:
            refused = refusal(onnx.load_from_string(space["model"]), sizes=True)
            kind = None if refused is None else REFUSED if refused[0] == self.error else refused[0]
            return kind, space["expected"], [], space["model"]
        actual = attempt(lambda: [np.asarray(one) for one in space["run"]("ORT_DISABLE_ALL")])
        if isinstance(actual, Exception):
            return STOPS, space["expected"], [], space["model"]
        kind = difference(actual, space["expected"], self.limit, self.floor)
        if kind is None and not self.actual:  # so far any function counts that a cell would call wrong
            wanted = [one.copy() for one in space["expected"]]
            kind = "values" if self._judge(wanted).compare(actual, Right(wanted)).verdict == "failed" else None
        return kind, space["expected"], actual, space["model"]

    def _undone(self) -> AbstractContextManager[object]:
        """Inside the block the case's symbolics are registered, and nowhere else."""
        none = self.how.exporter != "torchscript" or not self.how.own
        return nullcontext() if none else registered({}, opset=self.how.opset)


def gist(error: BaseException) -> str:
    """Return what errors of exports have in common where they are about the same operator: their class, and the first
    line without what differs from graph to graph."""
    line = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {re.sub(r'%?[a-z_]*[0-9]+|%[a-z_]+', '', line)[:GIST]}"


def _fed(function: Function, how: Exporting) -> dict[str, Any]:
    """Return what the script has defined before it exports."""
    kinds = {"given": function.arrays, "traced": function.traced}
    space: dict[str, object] = {
        kind: {name: value.copy() for name, value in arrays.items()} for kind, arrays in kinds.items()
    }
    texts = ({name: f"{kind}[{name!r}]" for name in arrays} for kind, arrays in kinds.items())
    lines = [*module(function), *feeding(function, *texts)]
    used = imports([*lines, *exporting(function, how), *running({})], modules_of(function, how))
    _execute([*used, *lines], space)
    return space


def _execute(lines: Iterable[str], space: dict[str, object]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exec(compile("\n".join(lines), "<small>", "exec"), space)


def _off(actual: Sequence[Array], expected: Sequence[Array]) -> float:
    """By how much of their largest value outputs differ at most; infinite where they are no such numbers."""
    worst = 0.0
    for got, right in zip(actual, expected, strict=False):
        if right.dtype.kind != "f" or got.shape != right.shape:
            return math.inf
        of = Limit(share=1.0, floor=0.0 if largest_of(right) else 1.0)
        worst = max(worst, float(ratios(got, right, of).max(initial=0.0)))
    return worst
