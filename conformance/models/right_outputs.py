"""Hold PyTorch's own outputs to what its case says of them, before anything is compared with them."""

from __future__ import annotations

from collections.abc import Sequence

from conformance.case.files.declaration import Case
from conformance.case.files.must_hold import Output
from conformance.compare.compared_values import Reading
from conformance.compare.detections import Detections
from conformance.compare.indices import Indices
from conformance.compare.judges import Right, defaults_for
from conformance.models.reference.output_layout import fits, tensors_in
from conformance.models.reference.reference import Reference
from conformance.process.arrays import Array, Inputs
from conformance.process.errors import Stopped


def reading_of(case: Case, outputs: Sequence[Output]) -> Reading:
    """Return how a case says that its outputs are read; there is one of ``outputs`` for each tensor."""
    names = [output.name for output in outputs]

    def indices(output: Output) -> Indices | None:
        if output.indices_of is None:
            return None
        name = output.indices_of
        return Indices(name if name in case.says.inputs else names.index(name), tuple(output.axis))

    detections = (
        Detections(number, tuple(map(names.index, output.rows.with_)), output.rows.at_least)
        for number, output in enumerate(outputs)
        if output.rows.match == "iou"
    )
    return Reading(tuple(names), tuple(map(indices, outputs)), tuple(detections))


def check_again(reference: Reference, inputs: Inputs, before: Sequence[Array]) -> None:
    """Stopped at ``declare`` where PyTorch's outputs are not those of an earlier call with the same inputs."""
    if reference.may_vary:
        hold_alike(reference, inputs, reference.afresh(inputs), before)


def check_steady(reference: Reference, inputs: Inputs, first: Sequence[Array]) -> None:
    """Stopped at ``declare`` where a second call in a row gives other outputs than the ``first``. What counts calls
    in Python would agree with itself, and with its export, from the second on."""
    if not reference.repeats:
        check_again(reference, inputs, first)
        reference.repeats = True


def hold_alike(reference: Reference, inputs: Inputs, again: Sequence[Array], before: Sequence[Array]) -> None:
    """Stopped at ``declare`` where PyTorch's outputs ``again`` are not those that it gave ``before``."""
    random = {number for number, output in enumerate(reference.outputs()) if output.random}
    kept, same = ([array for number, array in enumerate(one) if number not in random] for one in (before, again))
    comparison = defaults_for(kept).compare(same, Right(kept))
    if comparison.verdict == "failed":
        text = (
            f"{reference.who} gives different outputs for the same input: it is random, keeps state "
            f"between calls, or reads something that changes ({comparison.text}); of an output that is random on "
            "purpose say so, as in outputs: [{name: noise, random: why}]"
        )
        if any("batch_norm" not in name for name in reference.training(inputs)):
            text += "; it drops values as in training: torch.nn.functional.dropout needs training=self.training"
        if reference.changed_by_calls:
            text += f"; calling it also changes {', '.join(reference.changed_by_calls[:6])}, which was put back"
        raise Stopped("declare", "NotDeterministic", text, "case")


def check_outputs(case: Case, layout: Sequence[int]) -> None:
    """Stopped at ``declare`` where forward returns more or fewer outputs than the case names."""
    declared = case.says.outputs
    if not fits(declared, layout):
        names = "1 name" if len(declared) == 1 else f"{len(declared)} names"
        text = f"outputs declares {names}, forward returns {tensors_in(layout)}"
        raise Stopped("declare", "WrongOutputs", text, "case")
