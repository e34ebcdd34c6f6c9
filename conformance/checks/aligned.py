"""Runs a case in PyTorch and as a graph, at one example, and compares what its submodules return."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any

from conformance.align.matching import candidates, match
from conformance.align.modules import Call, calls_of, paired
from conformance.align.parting import Alignment, Moves, at_fp32, at_reduced
from conformance.arrays import Array, Inputs
from conformance.case.declaration import Case
from conformance.case.python import describe
from conformance.checks.conditioning import Roundings
from conformance.checks.models import CellRun
from conformance.checks.verify import Verifier
from conformance.checks.verify_converted import RuntimeVerifier
from conformance.errors import UserError, stopping
from conformance.export.reference import Reference
from conformance.export.rounding import Rounding
from conformance.runtimes.inner_tensors import values
from conformance.verdict.example import Effort
from conformance.verdict.loss import LITERAL


def aligned(run: CellRun, inputs: Inputs, runtime: str, only: Collection[str] | None = None) -> Alignment:
    """Compare what each submodule returns at these inputs, in PyTorch and in the cell's model as ``runtime`` runs it;
    in fp32 ``only`` are the paths of those that are compared.

    Raises UserError where there is nothing to compare, and what running the model raises.
    """
    import onnx

    cell = run.cell
    everything = _Everything(run.reference)
    calls = everything.calls(inputs)
    if not any(call.path for call in calls):
        raise UserError(_no_submodules(cell.case))
    stored = run.model()
    libraries = run.libraries()
    model = onnx.load(stored.file)
    given = candidates(model, calls, cell.exporter)
    arrays = _values(model, given.tensors, LITERAL, libraries, inputs)
    places = match(given, arrays)
    tensors = {place.tensor for place in places if place.tensor is not None}
    if not any(place.tensor for place in places if place.call.path):
        raise UserError(
            f"{cell.case.name}: none of its {len(calls) - 1} calls of submodules could be found in the graph; "
            "nothing was compared"
        )
    wanted = list(next(call for call in calls if not call.path).outputs)
    judge_of = (RuntimeVerifier if cell.converted else Verifier)(run.of_cell(stored)).judge_of
    if cell.converted:
        model = onnx.load(run.converted(stored, refuse=False).file)
    if cell.converted or runtime != LITERAL:
        made = {name for node in model.graph.node for name in node.output}
        kept = [name for name in given.tensors if name in tensors and name in made]
        arrays = _values(model, kept, runtime, libraries, inputs)
    else:
        arrays = {name: arrays[name] for name in tensors}
    if cell.converted:
        return at_reduced(given.graph, places, arrays, judge_of(wanted), cell.precision)
    oracle = everything.exact(inputs)
    if oracle is not None and len(oracle) != len(_positions(calls)):
        oracle = None  # in float64 a submodule returns more or fewer tensors, of which nobody knows which is which
    exact = {} if oracle is None else dict(zip(_positions(calls), oracle, strict=True))

    roundings = None if oracle is None else Roundings(everything, inputs, oracle)

    def moved(effort: Effort) -> Moves:
        return {} if roundings is None else dict(zip(_positions(calls), roundings.moves(effort), strict=False))

    return at_fp32(given.graph, places, arrays, exact, judge_of(wanted), moved, only)


class _Everything:
    """Stands in for a ``Reference``: its outputs are those of all calls of submodules."""

    def __init__(self, reference: Reference) -> None:
        self._reference = reference
        self._calls: list[Call] = []

    def calls(self, inputs: Inputs) -> list[Call]:
        self._reference.restore()
        self._calls = calls_of(lambda: self._reference(inputs))
        return self._calls

    def exact(self, inputs: Inputs, rounding: Rounding | None = None) -> list[Array] | None:
        """The outputs in float64; None where the module has no float64 form, or calls other submodules in it."""
        in_float64 = calls_of(lambda: self._reference.oracle(inputs, rounding))
        pairs = paired(self._calls, in_float64)
        return None if pairs is None else [array for outputs in pairs for array in outputs]

    oracle = exact


def _positions(calls: Iterable[Call]) -> list[tuple[int, int]]:
    return [(call.id, index) for call in calls for index in range(len(call.outputs))]


def _values(
    model: Any, tensors: Sequence[str], runtime: str, libraries: Sequence[str], inputs: Inputs
) -> dict[str, Array]:
    """Runs the model with these tensors as outputs."""
    with stopping("run", "runtime", lambda error: f"{runtime}: {describe(error, Path('/'))}"):
        return values(model, tensors, runtime, libraries, inputs)


def _no_submodules(case: Case) -> str:
    why = "its forward is an expression" if case.says.forward is not None else "its forward calls none"
    if case.says.script:
        why = "torch.jit.script compiles them away"
    return (
        f"{case.name} has no submodules to align by: {why}. --operators aligns by operators, pytest says of a "
        "failing cell what differs, and conformance sensitivity ranks the nodes of a model that was converted"
    )
