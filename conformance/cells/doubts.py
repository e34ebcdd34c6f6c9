"""Doubts about a verdict: the table of what says that a failure accuses nobody, this time or ever.

A doubt is a function of a red cell that returns what to skip the cell with, or None. They stand in the order of what
asking costs; the first that has something to say ends the cell. Of a failure that the case declares nobody is asked.
"""

from __future__ import annotations

from collections.abc import Callable

from conformance.diagnose.explain_failure import fault_by_others
from conformance.diagnose.nodes.blame import is_special
from conformance.diagnose.second_voice import unseconded, unsupported
from conformance.judge.red_cell import RedCell
from conformance.models.reference.dispatch import draws_random
from conformance.process.errors import NoVerdict, Stopped, Unavailable, or_else
from conformance.runtimes.evaluator_rules import has_half
from conformance.runtimes.onnxgraph.mapped import read_graph
from conformance.runtimes.onnxgraph.random_nodes import drawn_for
from conformance.runtimes.tensorrt.network.network_session import NetworkSession

INSISTING = "runtimes: [onnx-reference, onnxruntime] would insist on it"


def unbelieved(red: RedCell) -> Unavailable | None:
    """Of ONNX's evaluator, which only the default has run the cell: it alone gives other values, of NaN, infinities
    and halves, of which the tests of the specification that it is written for have few; or it cannot run a model that
    nobody finds fault with."""
    cell, stop, example = red.of.run.cell, red.stop, red.example
    if cell.runtime != "onnx-reference" or "runtimes" in cell.case.says.model_fields_set or example is None:
        return None
    kind = _weakness(red) if stop.stage == "compare" else None
    if stop.stage not in ("load", "run") and kind is None:
        return None
    red.of.verify.tell(stop, example)
    fault = fault_by_others(red)
    if stop.stage != "compare" and fault in (None, "runtime"):
        what = f"the ONNX specification's evaluator stops with {stop.error}"
        return NoVerdict(f"{what}, and nothing shows that the model is wrong; {INSISTING}")
    if stop.stage == "compare" and fault == "runtime":
        what = f"only ONNX's evaluator gives other values ({stop.error}), {kind}, where its answer proves nothing"
        return NoVerdict(f"{what}; {INSISTING}")
    return None


def _weakness(red: RedCell) -> str | None:
    """Return of which values the evaluator is not believed."""
    if red.example is not None and is_special(red.example, red.stop):
        return "of NaN and infinities"
    return "in 16 bits" if has_half(read_graph(red.of.model.file)) else None


def undetermined(red: RedCell) -> None:
    """Raise Stopped where a wrong output depends on random numbers that the graph draws, as PyTorch does by a seed of
    its own: no two runs have to agree, and nobody is to blame for values."""
    of, stop, example = red.of, red.stop, red.example
    worst = getattr(stop, "worst", None)
    if example is None or worst is None or stop.stage != "compare" or of.run.cell.case.says.onnx is not None:
        return
    model, reference = read_graph(of.exported.file), of.run.reference
    outputs = reference.outputs()
    if worst.output >= len(model.graph.output) or (worst.output < len(outputs) and outputs[worst.output].random):
        return
    drawing = drawn_for(model, worst.output)
    if drawing and draws_random(reference.operators(example.inputs)[0]):
        text = (
            f"forward draws random numbers, and so does the graph ({', '.join(drawing)}), which has no seed of "
            f"forward's: no two runs have to agree ({stop.reason}); of an output that is random on purpose say "
            "so, as in outputs: [{name: noise, random: why}]"
        )
        raise Stopped("declare", "NotDeterministic", text, "case")


def unmeant(red: RedCell) -> Unavailable | None:
    """Of what TensorRT's parser made of a model: it means the same, and loses digits where each tensor is rounded to
    float32, which a kernel need not do; or no other runtime shows that the model means something else."""
    cell, stop, example = red.of.run.cell, red.stop, red.example
    if cell.check != "meaning" or example is None:
        return None
    session = getattr(red.of.verify.session, "direct", None)
    if isinstance(session, NetworkSession) and stop.error == "WrongValue":
        outputs = or_else(None, lambda: session.in_float64(example.inputs))
        if outputs is not None and red.of.verify.judged(example, outputs).verdict == "verified":
            return NoVerdict(
                "what TensorRT's parser made of the model is right where its layers are computed in float64, and "
                f"loses digits where each rounds to float32 ({stop.reason})"
            )
    red.of.verify.tell(stop, example)
    if fault_by_others(red) == "runtime":
        return None
    return NoVerdict(
        f"what TensorRT's parser made of the model gives other values than {red.of.run.reference.who} "
        f"({stop.error}), and no other runtime shows that the model is right"
    )


DOUBTS: tuple[Callable[[RedCell], Unavailable | None], ...] = (
    undetermined, unsupported, unseconded, unbelieved, unmeant
)  # fmt: skip


def check_doubts(red: RedCell) -> None:
    """Raise Unavailable, or NoVerdict, for the first doubt about a failure that the case does not declare; Stopped
    where there is no right answer."""
    if red.of.is_declared(red.stop):
        return
    for doubt in DOUBTS:
        reason = doubt(red)
        if isinstance(reason, NoVerdict):
            reason.doubted = red.stop.error
        if reason is not None:
            raise reason from red.stop
