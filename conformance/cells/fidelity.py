"""The check ``fidelity``: what a precision costs, and whether the converted model stays finite where PyTorch does, on
every kind of values that the case allows, or else where it first leaves the range of its format."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from conformance.case.draw.draw import about
from conformance.case.draw.example import Answers, Example
from conformance.case.plan.expected import apart, on_host
from conformance.cells.examples import Examples
from conformance.compare.judges import Right
from conformance.compare.tolerance import Comparison, failed, odd_shape, subjects
from conformance.diagnose.explain_failure import CaseExplainer
from conformance.diagnose.locate import find_operator
from conformance.judge.comparer import WrongAnswer
from conformance.judge.draws import Draws
from conformance.judge.verify import Verifier
from conformance.judge.verify_converted import FidelityVerifier, not_finite, opening_literal
from conformance.models.cell_run import CellRun
from conformance.models.conversion import converted_model
from conformance.models.kept.model_store import Stored
from conformance.process.arrays import Array, Inputs
from conformance.process.errors import Stopped, or_else
from conformance.results.records.explanation import add
from conformance.results.records.spent import Spending
from conformance.results.records.words import base_of
from conformance.runtimes import Session
from conformance.runtimes.inner_tensors import values
from conformance.runtimes.registry import LITERAL

if TYPE_CHECKING:
    from onnx import GraphProto, NodeProto


def check_fidelity(run: CellRun) -> None:
    """The converted model, by its own semantics, is as close to PyTorch in float32 as its precision is due to be, and
    gives numbers wherever PyTorch does."""
    cell = run.cell
    stored = run.model()
    converted = converted_model(run, stored)
    with contextlib.ExitStack() as stack:
        session = opening_literal(run, converted, stack)()
        storage = {"fp16": "float16", "int8": "int8"}[base_of(cell.precision)]
        run.record.arithmetic = {**session.arithmetic, "storage": storage}
        verify = FidelityVerifier(run.of_cell(stored), session)
        verify.kept = run.kept_answers(converted)
        explainer = CaseExplainer(run, verify, stored, converted)
        draws = Draws(cell, run.settings, run.prepared, run.dims(), run.prepared.trace())
        try:
            Examples(run, draws, verify, explainer).run()
            check_finite(run, session, draws, stored, converted, trusting=verify.kept.first is not None)
        except Stopped as stop:
            if stop.fault == "exporter" and not explainer.is_declared(stop) and not stop.details.get("unexplained"):
                add(stop, find_operator(run, verify, stored, explainer.example, stop)[0])
            raise


TOO_LARGE = ("large", "offset")
"""Regimes whose values do not fit fp16 in much that is sound, as in x * x at 1000. Where the case does not declare
the values of an input, such an overflow is told and is no failure."""
_NOT_FINITE = ("WrongNaN", "WrongInf")


class FinitenessVerifier(Verifier):
    """Check that outputs are numbers wherever PyTorch's are; ``fidelity`` measures how close they are."""

    def answers(self, inputs: Inputs) -> Answers:
        return self.in_pytorch(inputs), lambda: None

    def gives_numbers(self, example: Example) -> bool:
        """Return whether the model gives numbers alone, without asking PyTorch; False where it does not run."""
        assert self.session is not None
        self._note(example.draw, "declare")
        outputs = or_else(None, lambda: self._computed(example))
        if outputs is None:  # what is raised comes again where it is explained
            return False
        return all(bool(np.isfinite(array).all()) for array in outputs if array.dtype.kind == "f")

    def _computed(self, example: Example) -> list[Array]:
        assert self.session is not None
        inputs = example.inputs
        self._note(example.draw, "run")
        with Spending(self._seconds, "run"):
            return self.session.run(inputs)

    def compare(self, got: list[Array], right: Right) -> Comparison:
        self.judge_of(right.wanted)  # which Stopped ends, where the case declares other outputs
        called = subjects(len(right.wanted), tuple(output.name for output in self.outputs()))
        if len(got) != len(called):
            return failed("WrongCount", f"{len(got)} outputs instead of {len(called)}")
        for output, array, wanted in zip(called, got, right.wanted, strict=True):
            failure = odd_shape(output, array, wanted) or not_finite(output, array, wanted, lost_alone=True)
            if failure is not None:
                return failure
        return Comparison("verified")


def check_finite(
    run: CellRun, session: Session, draws: Draws, stored: Stored, converted: Stored, *, trusting: bool
) -> None:
    """Stopped for the first example of which the converted model, opened as ``session``, makes NaN or infinities
    where PyTorch's outputs are finite. Answers of PyTorch that an earlier run kept are taken if ``trusting``, which
    is for a cell that has seen that PyTorch still answers alike.

    What a precision costs is measured on the values that a model is made for; whether it holds shows at their ends:
    the norm of a row of zeros, a row that is masked out, a sum of large values.
    """
    cell, record = run.cell, run.record
    verify = FinitenessVerifier(run.of_cell(stored), session)
    verify.kept = run.kept_answers(converted, "finite")
    if not trusting:
        verify.kept.forget()
    explain = CaseExplainer(run, verify, stored, converted)
    verify.expects = lambda stop: stop.error in _NOT_FINITE
    declared = on_host(apart(cell), run.settings.instructions)
    inputs = cell.case.says.inputs.values()
    # a normal distribution is no range either
    chosen = any(
        entry.type.is_float and (entry.values is None or entry.values.normal is not None) for entry in inputs
    )

    def told(example: Example, stop: Stopped) -> Any:
        output = stop.worst.output if isinstance(stop, WrongAnswer) and stop.worst is not None else None
        known = origin(stored.file, converted.file, run.libraries(), example.inputs)
        return {"regime": example.draw.regime, "output": output, **(known or {})}

    compared: list[Mapping[str, int]] = []
    for draw in draws.of_every_regime():
        if any(about(entry.when, draw) for entry in declared):
            continue
        example = verify.example(draw)
        # PyTorch has no say in numbers; the first example of each size shows that the outputs have PyTorch's shapes
        if draw.dims in compared and verify.gives_numbers(example):
            continue
        compared.append(draw.dims)
        stop = explain.failure(example)
        if stop is None:
            continue
        if chosen and draw.regime in TOO_LARGE and stop.error in _NOT_FINITE:
            record.beyond.append(told(example, stop))
            continue
        stop = explain(example, stop)
        if stop.details.get("unexplained"):
            raise stop
        shown = explain.example or example
        raise add(stop, {"beyond": [*record.beyond, told(shown, stop)], "hints": ["exclude"]})
    verify.kept.write([])


def origin(exported: Path, converted: Path, libraries: Sequence[str], inputs: Inputs) -> dict[str, Any] | None:
    """Return what made an output of the converted model NaN or infinite for these inputs; None where nothing tells.

    ``node`` and ``operator`` are of the first node whose output is not finite where that of the exported model is,
    ``gives`` is NaN or infinity, ``of`` are the values that the node had there, where it works on single elements.
    ``vanished`` is the first tensor on the way to that node that is 0 where the exported model's is not: the
    ``constant``, or the ``node`` and ``operator`` that made it, and ``was``, the largest value that became 0.
    """
    import onnx

    before, after = onnx.load(exported), onnx.load(converted)
    tensors = _floats(after.graph)
    known = [name for name in _floats(before.graph) if name in tensors]
    wanted = ((before, known), (after, tensors))
    both = or_else(None, lambda: [values(model, names, LITERAL, libraries, inputs) for model, names in wanted])
    if both is None:
        return None
    right, got = both
    right = _through_casts(after.graph, right | _constants(before.graph))
    got |= {**inputs, **_constants(after.graph)}
    for node in after.graph.node:
        for name in node.output:
            beyond = _lost(got.get(name), right.get(name))
            if beyond is not None:
                return {
                    "node": node.name,
                    "operator": node.op_type,
                    "gives": "NaN" if np.isnan(got[name][beyond]) else "infinity",
                    "of": _operands(node, got, beyond, got[name].shape),
                    "vanished": _vanished(after.graph, node, got, right),
                }
    return None


def _floats(graph: GraphProto) -> list[str]:
    """The outputs of the nodes of a graph, in its order."""
    return [name for node in graph.node for name in node.output if name]


def _constants(graph: GraphProto) -> dict[str, Array]:
    from onnx import numpy_helper

    return {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}


def _through_casts(graph: GraphProto, right: Mapping[str, Array]) -> dict[str, Array]:
    """The values of the exported model, also under the names that the conversion casts them from and to."""
    known = dict(right)
    casts = [(node.input[0], node.output[0]) for node in graph.node if node.op_type == "Cast"]
    for source, target in (*casts, *reversed(casts)):
        if source in known:
            known.setdefault(target, known[source])
        elif target in known:
            known[source] = known[target]
    return known


def _lost(got: Array | None, right: Array | None) -> tuple[int, ...] | None:
    """The first place where ``got`` is not finite, though ``right`` is; None where there is none, or only one of the
    models has the tensor."""
    if got is None or right is None or got.dtype.kind != "f" or got.shape != right.shape:
        return None
    odd = ~np.isfinite(got) & np.isfinite(right)
    return tuple(int(i) for i in np.argwhere(odd)[0]) if odd.any() else None


def _operands(
    node: NodeProto, got: Mapping[str, Array], place: tuple[int, ...], shape: tuple[int, ...]
) -> list[float]:
    """The values that an operator on single elements had at a place of its output; empty for others."""
    arrays = [got[name] for name in node.input if name in got]
    if len(arrays) != len(node.input):
        return []
    try:
        if np.broadcast_shapes(*(array.shape for array in arrays)) != shape:
            return []
    except ValueError:
        return []
    return [float(np.broadcast_to(array, shape)[place]) for array in arrays]


def _vanished(
    graph: GraphProto, last: NodeProto, got: Mapping[str, Array], right: Mapping[str, Array]
) -> dict[str, Any] | None:
    """The first tensor on the way to a node that has zeros in place of the exported model's values."""
    makers = {name: node for node in graph.node for name in node.output}
    before, todo = set[str](), list(last.input)
    while todo:
        name = todo.pop()
        if name not in before:
            before.add(name)
            todo += makers[name].input if name in makers else []
    ordered = [*(name for name in got if name not in makers), *makers]
    for name in ordered:
        if name not in before or name not in right or right[name].shape != got[name].shape:
            continue
        zeros = (got[name] == 0) & (right[name] != 0) if right[name].dtype.kind == "f" else np.zeros(0, bool)
        if zeros.any():
            maker = makers.get(name)
            by = {"constant": name} if maker is None else {"node": maker.name, "operator": maker.op_type}
            return {**by, "was": float(np.abs(right[name][zeros]).max())}
    return None
