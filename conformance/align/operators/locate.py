"""From a failing example to the first operator that parts, as a record has it."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from conformance.align.nodes import Graph
from conformance.align.operators import dynamo, torchscript
from conformance.align.operators.forced import Parting, Step, explains, steps
from conformance.align.operators.frozen import frozen
from conformance.align.operators.inside import opened
from conformance.align.operators.named import NAMED, of_node
from conformance.align.operators.program import Exhibit, Operator, Program, Unable, array, leaves
from conformance.align.operators.rewrites import guilty
from conformance.align.operators.tensors import Tensors, run
from conformance.arrays import Array, Inputs
from conformance.export import graph

if TYPE_CHECKING:
    from onnx import ModelProto

CLEAR = 10.0
"""Times what two kernels may differ by, from which on an operator is tried as the cause at once."""
CANDIDATES = 24
"""How many operators that part by less are tried, if no other is the cause."""
LONGEST = 300
"""Characters of what torch or a runtime says."""


@dataclass(frozen=True)
class Failing:
    """What is to be explained."""

    exporter: str
    structure: str
    """That of the model that fails, which exporting with instruments must not change."""
    export: Callable[[Inputs | None], ModelProto]
    """Exports again, as for the cell, or with these inputs."""
    arguments: Callable[[Inputs], Sequence[Any]]
    """The inputs as PyTorch takes them, in the order that they have in the graph."""
    names: Sequence[str]
    """The names of the inputs in that order."""
    libraries: Sequence[str]
    inputs: Inputs
    fails: Callable[[Sequence[Array]], bool]
    """Whether these outputs are wrong for the failing example."""
    others: Callable[[], Iterable[Inputs]] = tuple
    """Other inputs that the module takes, of other sizes and values."""


def locate(failing: Failing) -> tuple[dict[str, Any], Search | None]:
    """The first operator that parts, or why none can be named, in the fields of ``Record.operator``; and the search,
    where an operator is named."""
    try:
        search = Search(failing)
        return search.found(), search
    except Unable as reason:
        return {"unable": reason.why, **({"detail": str(reason)} if str(reason) else {})}, None


class Search:
    """One search; ``steps`` has what was compared on the way, up to the first operator that parts, or with ``whole``
    to the end."""

    def __init__(self, failing: Failing, *, whole: bool = False) -> None:
        """Exports again; raises Unable."""
        self._failing, self._whole = failing, whole
        self.steps: list[Step] = []
        self.model: ModelProto
        """The graph that was looked at last."""
        self.parting: Parting | None = None
        """That of the operator that was named; None where the program was captured otherwise."""
        self._right: list[Array] = []
        """The outputs of the program."""
        self.exhibit = exhibited(failing.exporter, lambda: failing.export(None))
        if graph.structure(self.exhibit.model) != failing.structure:
            raise Unable("changed")
        self.inputs = failing.arguments(failing.inputs)
        self.model = self.exhibit.model

    def found(self) -> dict[str, Any]:
        """The first operator that parts; raises Unable where none can be named."""
        exhibit = self.exhibit
        sizes: dict[str, int] = {}

        def measured(name: str, value: Any) -> None:
            for member, tensor in zip(leaves(value), exhibit.program.ties.get(name, ()), strict=False):
                if tensor is not None:
                    sizes[tensor] = int(getattr(member, "nbytes", 8))

        try:
            outputs = _arrays(exhibit.program.run(self.inputs, measured))
        except Exception as error:
            return self._captured(error)
        if self._failing.fails(outputs):
            return self._captured(None)
        self._right = outputs
        stage, model, fails = self._stage()
        if not fails and not self._whole:
            raise Unable("vanished")
        found = self._translated(exhibit.program, stage, model, sizes)
        if found is None or not fails:
            raise Unable("nothing" if fails else "vanished")
        if stage == "optimizer" and not self._whole:
            found["passes"] = guilty(lambda: self._outcome(self._failing.export(None)) == "right")
        return found

    def _stage(self) -> tuple[str, ModelProto, bool]:
        """The graph in which the operator is looked for, which is that before the exporter's own passes if it is
        wrong; and whether the exported one is."""
        exhibit, final = self.exhibit, self._outcome(self.exhibit.model)
        if exhibit.raw is None or final == "right":
            return "optimizer" if exhibit.raw is not None else "export", exhibit.model, final != "right"
        raw = completed(exhibit.raw, exhibit.model)
        before = self._outcome(raw)
        if before == "wrong":
            return "translation", raw, True
        # a graph that does not run before the exporter's passes may be one that they complete
        return "optimizer" if before == "right" else "export", exhibit.model, True

    def _fed(self, model: ModelProto, inputs: Inputs | None = None) -> Inputs:
        """The failing inputs, or others, in the order in which they are passed, under the names that they have in a
        graph, which lacks those that nobody needs."""
        own, given = Graph(model).inputs, self._failing.inputs if inputs is None else inputs
        if {*own} <= {*self._failing.names}:
            return {name: given[name] for name in self._failing.names if name in given} | dict(given)
        if len(own) != len(self._failing.names):
            raise Unable("inputs")
        return {name: given[known] for name, known in zip(own, self._failing.names, strict=True)}

    def _outcome(self, model: ModelProto) -> str:
        """What a graph gives when it is computed node by node: ``right``, ``wrong`` or ``stops``."""
        try:
            outputs = run(
                model, Graph(model), [value.name for value in model.graph.output], self._failing.libraries,
                self._fed(model),
            )  # fmt: skip
        except Unable:
            raise
        except Exception:
            return "stops"
        return "wrong" if self._failing.fails(outputs) else "right"

    def _translated(
        self, program: Program, stage: str, model: ModelProto, sizes: Mapping[str, int]
    ) -> dict[str, Any] | None:
        found = None
        self.model = model
        program = with_outputs(program, model)
        names = [tensor for operator in program.operators for name in operator.outputs
                 for tensor in program.ties.get(name, ()) if tensor is not None]  # fmt: skip
        tensors = Tensors(model, self._failing.libraries, self._fed(model), names, sizes)
        weak: list[Parting] = []
        forms: list[Parting] = []
        for step in steps(program, self.inputs, tensors):
            self.steps.append(step)
            forms += [step.form] if step.form is not None else []
            if step.parting is None or found is not None:
                continue
            if step.ratio is not None and step.ratio < CLEAR:
                weak += [step.parting] if len(weak) < CANDIDATES else []
            elif explains(program, self.inputs, step.parting, self._failing.fails):
                found, self.parting = self._told(step.parting, stage, model, program), step.parting
                if not self._whole:
                    return found
        for parting in weak if found is None else ():
            if explains(program, self.inputs, parting, self._failing.fails):
                self.parting = parting
                return self._told(parting, stage, model, program)
        if found is None and forms:
            self.parting = self._in_another_form(program, model, forms)
            return self._told(self.parting, stage, model, program) if self.parting is not None else None
        return found

    def _in_another_form(self, program: Program, model: ModelProto, forms: Sequence[Parting]) -> Parting | None:
        """The first operator with whose dtype or shape PyTorch gives an output the dtype and shape of the graph's,
        where that is not PyTorch's own. One with which PyTorch cannot go on may be meant for the nodes after it, and
        is named only if there is no other."""
        names = [value.name for value in model.graph.output]
        outputs = run(model, Graph(model), names, self._failing.libraries, self._fed(model))
        ours, theirs = ([(one.dtype, one.shape) for one in arrays] for arrays in (outputs, self._right))

        def alike(arrays: Sequence[Array]) -> bool:
            forms = [(one.dtype, one.shape) for one in arrays]
            return any(form == got != right for form, got, right in zip(forms, ours, theirs, strict=False))

        for raising in (False, True) if ours != theirs else ():
            for parting in forms:
                if explains(program, self.inputs, parting, alike, raising=raising):
                    return parting
        return None

    def _within(self, parting: Parting, model: ModelProto) -> tuple[Parting, str, ModelProto, Program] | None:
        """The operator inside of one that chooses between programs, which explains what comes out of it."""
        node = Graph(model).node_of(parting.tensor)
        if parting.inside is None or node is None:
            return None
        with contextlib.suppress(Exception):  # then the operator around it has to do
            found = opened(model, node, parting.inside)
            if found is None:
                return None
            whole, program = found
            inputs = parting.inside.inputs
            names = [tensor for tied in program.ties.values() for tensor in tied if tensor is not None]
            tensors = Tensors(whole, self._failing.libraries, self._fed(model), names, {})

            def fails(outputs: Sequence[Array]) -> bool:
                return any(
                    wanted is not None and (got.shape != wanted.shape or not np.allclose(got, wanted, equal_nan=True))
                    for got, wanted in zip(outputs, parting.right, strict=False)
                )

            for step in steps(program, inputs, tensors):
                if step.parting is not None and explains(program, inputs, step.parting, fails):
                    return step.parting, parting.operator.operator, whole, program
        return None

    def _told(self, parting: Parting, stage: str, model: ModelProto, program: Program) -> dict[str, Any]:
        deeper = self._within(parting, model)
        if deeper is not None:
            inner, around, whole, branch = deeper
            told = self._told(inner, stage, whole, branch) | {"inside": around}
            told.pop("removed", None)  # branches are functions before the exporter's passes, with other names
            return told
        told = of_operator(parting.operator) | {"stage": stage, "how": parting.how}
        # In another graph than that which was looked at it is not known what agrees.
        agreeing = {f"{step.tensor}" for step in self.steps if step.parting is None} if model is self.model else None
        libraries = self._failing.libraries
        told |= of_node(model, self.exhibit.model, parting, program, agreeing, self._given(model), libraries)
        if parting.how == "value":
            told |= {
                "index": list(parting.index), "got": parting.got, "wanted": parting.wanted,
                "arguments": parting.arguments, "differ": [parting.count, parting.size],
            }  # fmt: skip
        elif parting.how == "stops":
            told["detail"] = _line(parting.why)
        else:
            told |= {"got": parting.got, "wanted": parting.wanted}
        if parting.untied:
            others = [one.operator for one in parting.untied if not one.plumbing]
            told["untied"] = list(dict.fromkeys(others[-NAMED:]))
        return told

    def _given(self, model: ModelProto) -> Iterator[tuple[Sequence[Any], Inputs]]:
        """The failing inputs, then others, as the program takes them and as a graph does."""
        for inputs in itertools.chain([self._failing.inputs], self._failing.others()):
            yield self._failing.arguments(inputs), self._fed(model, inputs)

    def _captured(self, error: Exception | None) -> dict[str, Any]:
        """Where the captured program itself is not what the module computes."""
        captured, failing = self.exhibit.captured, self._failing
        if captured is not self.exhibit.program and self._computes(captured):
            raise Unable("decomposition")
        try:
            again = exhibited(failing.exporter, lambda: failing.export(failing.inputs)).captured
        except Unable:
            raise
        except Exception as refused:
            raise Unable("again", _line(f"{type(refused).__name__}: {refused}")) from None
        found = frozen(captured, again)
        if found is None and error is None:
            raise Unable("capture")
        if found is None:
            raise Unable("interpreted", _line(f"{type(error).__name__}: {error}"))
        return found | {"stage": "capture"}

    def _computes(self, program: Program) -> bool:
        """Whether a program gives what is wanted."""
        try:
            return not self._failing.fails(_arrays(program.run(self.inputs)))
        except Exception:
            return False


def with_outputs(program: Program, model: ModelProto) -> Program:
    """The program with its outputs tied to those of a graph by their place, where they are tied to nothing in it: the
    exporter's own passes give the outputs other names."""
    outputs = [value.name for value in model.graph.output]
    if len(outputs) != len(program.outputs):
        return program
    ties, made = dict(program.ties), Graph(model).makers
    for name, tensor in zip(program.outputs, outputs, strict=True):
        if name is not None and not any(tied in made for tied in ties.get(name, ())):
            ties[name] = [tensor]
    return dataclasses.replace(program, ties=ties)


def completed(raw: ModelProto, final: ModelProto) -> ModelProto:
    """A graph as it was translated, with the opset that its operators are of, and the case's own functions."""
    known = {(function.domain, function.name) for function in raw.functions}
    raw.functions.extend(one for one in final.functions if (one.domain, one.name) not in known)
    versions = {entry.domain: entry.version for entry in final.opset_import}
    for entry in raw.opset_import:
        entry.version = max(entry.version, versions.pop(entry.domain, 0))
    for domain, version in versions.items():
        raw.opset_import.add(domain=domain, version=version)
    return raw


def exhibited(exporter: str, export: Callable[[], ModelProto]) -> Exhibit:
    """Return what an export shows while it is watched. Raises Unable where it cannot be watched."""
    if exporter == "dynamo":
        with dynamo.watching() as seen:
            model = export()
        return dynamo.exhibit(seen, model)
    if exporter == "torchscript":
        with torchscript.watching() as traced:
            model = export()
        return torchscript.exhibit(traced, model)
    raise Unable("exporter")


def _line(text: str | None) -> str:
    """The first line of a text, if it is not too long."""
    return (text or "").strip().partition("\n")[0][:LONGEST]


def _arrays(outputs: Sequence[Any]) -> list[Array]:
    arrays = [array(output) for output in outputs]
    if any(found is None for found in arrays):
        raise Unable("outputs")
    return [np.asarray(found) for found in arrays]


def of_operator(operator: Operator) -> dict[str, Any]:
    """Where an operator is from, as a record has it."""
    told = {
        "operator": operator.called or operator.operator, "line": operator.line, "source": operator.source,
        "module": operator.module, "within": operator.operator if operator.called else None,
    }  # fmt: skip
    return {name: value for name, value in told.items() if value}
