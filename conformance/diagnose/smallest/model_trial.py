"""Try whether a model fails as another one did: a runtime against the right outputs of the model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from conformance.compare.close import Limit, differs
from conformance.diagnose.nodes.blame import in_dtypes_of
from conformance.diagnose.nodes.other_runtime import Asked
from conformance.diagnose.search import Asking, Shrinker, ask_here, require_time
from conformance.process.arrays import Array
from conformance.process.disk.onnx_models import on_disk
from conformance.process.errors import attempt, or_else
from conformance.results.records.findings import VALUES
from conformance.runtimes import opener, registry
from conformance.runtimes.onnxgraph.cut import Cut
from conformance.runtimes.onnxruntime import Optimizing
from conformance.runtimes.optimizer_passes import open_at

ONE = 20.0
"""Seconds that one model may take."""
TIGHTEST, LOOSEST = 4e-5, 1e-3
"""How far outputs of a small model may be off at least and at most, relative to their largest value: above rounding,
and below an eighth of what the whole model was off by."""


_FORMS = {"dtype": "WrongDtype", "shape": "WrongShape"}


@dataclass(frozen=True)
class ModelFailure:
    """The failure of the whole model, and the runtime that says what is right for it."""

    kind: str
    """``values``, the name of another error of a comparison, or ``stops`` with the name of an exception."""
    right: str
    """The runtime whose outputs are right."""
    limit: float
    """How far outputs may be off, relative to the largest value."""
    libraries: Sequence[str] = ()
    config: Mapping[str, str] | None = None
    passes: Sequence[str] = ()
    """Passes of the optimizer without which a model has to be right; empty where none was named."""
    runtime: str = "onnxruntime"
    """The runtime that fails: ONNX Runtime, or OpenVINO."""

    @property
    def of_optimizer(self) -> bool:
        """Return whether the runtime is right without its optimizer."""
        return self.right != self.runtime and registry.named(self.right).computes_with == self.runtime


def kind_of(stage: str, error: str) -> str:
    """The kind of a failure at that stage with that error."""
    if stage != "compare":
        return f"stops {error}"
    return "values" if error in VALUES else "WrongCount" if error == "WrongLength" else error


def difference(got: Sequence[Array], right: Sequence[Array], limit: float, floor: float = 0.0) -> str | None:
    """The kind in which outputs differ; None where they do not. ``limit`` is relative to the largest value of an
    output, or to ``floor`` where that is larger."""
    if len(got) != len(right):
        return "WrongCount"
    allowed = Limit(share=limit, floor=floor)
    found = [differs(array, wanted, allowed) for array, wanted in zip(got, right, strict=True)]
    form = next((_FORMS[how] for how in found if how in _FORMS), None)
    return form or ("values" if any(found) else None)


def limit_of(off: float) -> float:
    """Return how far outputs of a small model may be off where those of the whole one are off by ``off``."""
    return min(max(off / 8, TIGHTEST), LOOSEST)


class ModelTrials(Shrinker[Cut]):
    """Models that are tried until a deadline, each asked about by ``ask``."""

    def __init__(self, failure: ModelFailure, deadline: float, ask: Asking = ask_here) -> None:
        super().__init__(self._fails_alike, deadline)
        self.failure, self._ask = failure, ask

    def _fails_alike(self, cut: Cut) -> bool:
        """Return whether the model fails as the whole did. One that takes its process along does not."""
        if divides_by_zero(cut):
            return False
        seconds = min(require_time(self.deadline), ONE)
        outcome = or_else(None, lambda: self._ask(partial(self._outcome, cut), seconds))  # it may be no model at all
        return outcome == self.failure.kind

    def _outcome(self, cut: Cut) -> str | None:
        failure = self.failure
        with on_disk(cut.model) as file:

            def run(runtime: str) -> list[Array]:
                with opener(runtime, config=failure.config)(file, failure.libraries) as session:
                    return session.run(cut.feeds)

            right = attempt(lambda: run(failure.right))
            if isinstance(right, Exception):
                return "no reference"
            of_values = registry.named(failure.runtime).values_only

            def got() -> list[Array]:
                outputs = run(failure.runtime)
                return in_dtypes_of(right, outputs) if of_values else outputs

            kind = attempt(lambda: difference(got(), right, failure.limit))
            if isinstance(kind, Exception):
                kind = f"stops {type(kind).__name__}"
            if kind is None or not failure.passes:
                return kind
            without = Optimizing(off=tuple(failure.passes))
            with open_at(file, failure.libraries, failure.config or {}, without) as session:
                return kind if difference(session.run(cut.feeds), right, failure.limit) is None else "another pass"


def divides_by_zero(cut: Cut) -> bool:
    """Return whether whole numbers are divided by a constant or an input that is zero somewhere: nothing is right
    there."""
    arrays = cut.arrays
    divisors = (node.input[1] for node in cut.model.graph.node if node.op_type in ("Div", "Mod"))
    return any(arrays[name].dtype.kind in "iu" and not arrays[name].all() for name in divisors if name in arrays)


def outcome_of(failure: ModelFailure, right: Sequence[Array]) -> Callable[[Asked], str]:
    """Return what an answer to a small model, for which ``right`` is right, shows to ``guilty_pass.guilty``."""

    def outcome(asked: Asked) -> str:
        if asked.outputs is None:
            return "alike" if f"{asked.answer} {asked.error}" == failure.kind else "other"
        kind = difference(asked.outputs, right, failure.limit)
        return "right" if kind is None else "alike" if kind == failure.kind else "other"

    return outcome
