"""Decide whether a failure with a file counts: somebody besides the two that part has to show who is right.

What a file means is computed by ONNX's evaluator, or by ONNX Runtime where that abstains. That another one gives
other values shows that one of the two is wrong, and not which.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from conformance.case.draw.example import Example
from conformance.compare.close import Limit, differs
from conformance.compare.judges import Right, defaults_for
from conformance.diagnose.nodes import blame
from conformance.diagnose.nodes.other_runtime import ask
from conformance.judge.verify import Verifier
from conformance.models.cell_run import CellRun
from conformance.models.kept.model_store import Stored
from conformance.process.arrays import Array
from conformance.process.errors import NoVerdict, Stopped, Unavailable
from conformance.results.records.explanation import kernels
from conformance.runtimes import registry
from conformance.runtimes.unsupported import refusal


class SecondVoices:
    """Asks others than those that part about a file; of a case of a module it asks nobody."""

    def __init__(self, run: CellRun, verify: Verifier, model: Stored) -> None:
        """``model`` is that of the cell before it is converted."""
        self._run, self._verify, self._model = run, verify, model
        target = run.cell.case.says.export.onnx
        self._is_another = target is not None and target.file is not None
        """True where another file is run than the one that says what is right: a difference may be its own."""

    def check_counts(self, stop: Stopped, example: Example | None = None) -> None:
        """Raise for a failure with a file that accuses nobody: Unavailable where the runtime says that it does not
        support the file, NoVerdict where it gives other values than the only one who computes it."""
        run = self._run
        if run.cell.case.says.onnx is None:
            return
        if stop.stage in ("load", "run"):
            said = refusal(run.cell.runtime, stop.__cause__)
            if said is not None:
                raise Unavailable(said)
        elif stop.stage == "compare" and example is not None and not (run.cell.converted or self._is_another):
            self._check_seconded(example, stop)
        elif stop.stage == "compare" and example is not None and run.cell.check == "fidelity":
            self._check_unconverted(example, example.wanted)

    def _check_unconverted(self, example: Example, meaning: list[Array]) -> None:
        """Raise NoVerdict where ONNX Runtime, which computes what a converted model means, gives other values than
        ONNX's evaluator for the file itself: what the precision costs cannot be told of that then."""
        asked = ask(registry.LITERAL, self._model.file, self._run.libraries(), example.inputs)
        if asked.outputs is not None and _contradict(asked.outputs, meaning):
            text = "ONNX Runtime and ONNX's evaluator give other values for the file itself"
            raise NoVerdict(f"{text}, so that nobody knows the cost of {self._run.cell.precision}")

    def _check_seconded(self, example: Example, stop: Stopped) -> None:
        """Raise NoVerdict where the only one who gives other values than a runtime is who says what is right, or
        where the runtime is known to compute such models otherwise.

        One of the two is wrong, and nobody else shows which: a runtime is not accused by that alone.
        """
        run, runtime = self._run, self._run.cell.runtime or ""
        entry = registry.named(runtime)
        own_way = entry.no_witness and registry.function(entry.no_witness)(self._model.file, example.inputs)
        if own_way:
            raise NoVerdict(f"{entry.title} gives no verdict here: {own_way}")
        reference = run.reference
        if reference.abstains is not None:
            itself = kernels(runtime) == "onnxruntime"  # which gives other values than without its optimizer
            if itself or self._agrees(reference.seconded(example.inputs), example):
                return
        alike = []
        for other in registry.second_opinions(runtime):
            if other.name == "onnx-reference" or (reference.abstains and kernels(other.name) == "onnxruntime"):
                continue
            asked = ask(other.name, self._model.file, run.libraries(), example.inputs, run.config())
            if self._agrees(asked.outputs, example, values_only=other.values_only):
                return
            if asked.outputs is not None and kernels(other.name) != kernels(runtime):
                alike.append(other.title)
        if reference.abstains is None and self._is_far_off(example):
            return
        who = "ONNX's evaluator" if reference.abstains is None else "ONNX Runtime"
        others = f"and {' and '.join(alike)} not those of {who}" if alike else "and nobody else computes the file"
        why = f": {reference.abstains}" if reference.abstains else ""
        if reference.oracle_missing and not reference.abstains:
            why = f"; nobody computes it in float64 ({reference.oracle_missing})"
        raise NoVerdict(f"{entry.title} and {who} give other values ({stop.error}), {others}{why}")

    def _is_far_off(self, example: Example) -> bool:
        """Return whether the cell's runtime is far off by what another one computes in float32 of a file in float64:
        so coarse an answer is enough to tell which of two is wrong that differ by more than that."""
        run, runtime = self._run, self._run.cell.runtime or ""
        if not any(array.dtype == np.float64 for array in (*example.inputs.values(), *example.wanted)):
            return False
        for other in registry.second_opinions(runtime):
            if not other.values_only or kernels(other.name) == kernels(runtime):
                continue
            model, libraries = self._model.file, run.libraries()
            coarse = ask(other.name, model, libraries, example.inputs, run.config(), anyway=True).outputs
            own = ask(runtime, model, libraries, example.inputs, run.config()).outputs
            if coarse is not None and own is not None:
                return _contradict(own, example.wanted) and not _contradict(coarse, example.wanted)
        return False

    def check_confirmed(self, example: Example) -> None:
        """Raise NoVerdict where ONNX Runtime both runs a file and says what it means, and nobody else gives the
        same values: compared with itself, it shows that its optimizer is right, and nothing of its kernels.

        Raise Stopped where two others agree with each other on other values.
        """
        run, runtime = self._run, self._run.cell.runtime or ""
        reference = run.reference
        by_itself = reference.abstains is not None and kernels(runtime) == "onnxruntime"
        if run.cell.case.says.onnx is not None and run.cell.converted and not self._is_another:
            self._check_unconverted(example, reference(example.inputs))
        if run.cell.case.says.onnx is None or run.cell.converted or self._is_another or not by_itself:
            return
        voices = {"ONNX's evaluator": reference.seconded(example.inputs)}
        for other in registry.second_opinions(runtime):
            if kernels(other.name) != kernels(runtime) and other.name != "onnx-reference":
                asked = ask(other.name, self._model.file, run.libraries(), example.inputs, run.config()).outputs
                voices[other.title] = asked and blame.in_dtypes_of(example.wanted, asked)
        given = {title: outputs for title, outputs in voices.items() if outputs is not None}
        if any(self._agrees(outputs, example) for outputs in given.values()):
            return
        others = " and ".join(given)
        if len(given) > 1 and _agree(*given.values()):
            text = f"{others} give other values than ONNX Runtime, and the same as each other"
            raise Stopped("compare", "WrongValue", text, "runtime")
        said = f"{others} gives other values" if len(given) == 1 else "others give other values, each its own"
        raise NoVerdict(
            f"ONNX Runtime is compared with itself here ({reference.abstains}), "
            f"and {said if given else 'nobody else computes the file'}"
        )

    def _agrees(self, outputs: list[Array] | None, example: Example, *, values_only: bool = False) -> bool:
        """Return whether outputs are right for an example, as far as the cell's runtime has to be."""
        if outputs is None:
            return False
        got = blame.in_dtypes_of(example.wanted, outputs) if values_only else outputs
        return self._verify.judged(example, got).verdict != "failed"


def _agree(first: list[Array], *others: list[Array]) -> bool:
    """Return whether several agree as closely as an exporter's model has to agree with PyTorch."""
    judge = defaults_for(first)
    return all(judge.compare(other, Right(first)).verdict != "failed" for other in others)


_LENIENT = 1e-3
"""The largest difference of two answers that do not contradict each other, relative to the largest value."""


def _contradict(one: Sequence[Array], other: Sequence[Array]) -> bool:
    """Return whether outputs are further apart than any rounding takes them; whole numbers may be those of a tie."""
    return len(one) != len(other) or any(
        b.dtype.kind in "fU" and differs(a, b, Limit(share=_LENIENT), dtypes=False) is not None
        for a, b in zip(one, other, strict=True)
    )
