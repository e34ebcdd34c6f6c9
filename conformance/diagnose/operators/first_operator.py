"""From a failing example to the first operator that parts, as a record has it."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from conformance.compare.close import differs
from conformance.diagnose.operators import dynamo, torchscript
from conformance.diagnose.operators.captured_program import (
    Exhibit,
    Operator,
    Program,
    Unable,
    array,
    completed,
    frozen,
    leaves,
    with_outputs,
)
from conformance.diagnose.operators.forced import Parting, Step, explains, limit_of, steps
from conformance.diagnose.operators.inside import opened
from conformance.diagnose.operators.instruments import in_a_file_of_users
from conformance.diagnose.operators.named import NAMED, of_node
from conformance.diagnose.operators.operator_walk import At, Cause, Walk
from conformance.diagnose.operators.rewrites import guilty
from conformance.diagnose.operators.tensor_values import CHUNK, Tensors, run
from conformance.models.exporters import graph
from conformance.process.arrays import Array, Inputs
from conformance.process.errors import attempt, or_else
from conformance.process.worker import aside
from conformance.runtimes.onnxgraph.reads import Graph, operator_of
from conformance.runtimes.registry import LITERAL

if TYPE_CHECKING:
    from onnx import ModelProto

SECONDS = 40.0
"""How long a second place may be looked for."""
OTHERS = 2
"""With how many other inputs it is, if there is none at those that fail."""
MOST_CALLS = 500
"""Calls of a program that is large."""
LONGEST = 300
"""Characters of what torch or a runtime says."""


@dataclass(frozen=True)
class Failing:
    """A failure to be located."""

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
    wrong: Callable[..., bool] = lambda got, right, inputs: False
    """Whether outputs are wrong beside right ones for other inputs."""
    runtime: str = LITERAL
    """What computes the graph."""


def locate(failing: Failing) -> tuple[dict[str, object], Search | None]:
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
        """Export again; raise Unable."""
        self._failing, self._whole = failing, whole
        self.steps: list[Step] = []
        self.model: ModelProto
        """The graph that was looked at last."""
        self.parting: Parting | None = None
        """That of the operator that was named; None where the program was captured otherwise."""
        self._sizes: dict[str, int] = {}
        """The bytes of the graph's tensors, as the program has their values."""
        self.exhibit = exhibited(failing.exporter, lambda: failing.export(None))
        if graph.structure(self.exhibit.model) != failing.structure:
            raise Unable("changed")
        self.inputs = failing.arguments(failing.inputs)
        self.model = self.exhibit.model

    def found(self) -> dict[str, object]:
        """The first operator that parts; raises Unable where none can be named."""
        exhibit, sizes = self.exhibit, self._sizes

        def measured(name: str, value: object) -> None:
            for member, tensor in zip(leaves(value), exhibit.program.ties.get(name, ()), strict=False):
                if tensor is not None:
                    sizes[tensor] = int(getattr(member, "nbytes", 8))

        outputs = attempt(lambda: _arrays(exhibit.program.run(self.inputs, measured)))
        if isinstance(outputs, Exception):
            return self._captured(outputs)
        if self._failing.fails(outputs):
            return self._captured(None)
        stage, model, fails = self._stage()
        if not fails and not self._whole:
            raise Unable("vanished")
        found = self._translated(stage, model, outputs)
        if found is None or not fails:
            raise Unable("nothing" if fails else "vanished")
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

    def _outcome(self, model: ModelProto, given: Mapping[str, Array] | None = None) -> str:
        """Return what a graph gives when it is computed node by node, with ``given`` values of some tensors in place
        of its own: ``right``, ``wrong`` or ``stops``."""
        names = [value.name for value in model.graph.output]
        fed = self._fed(model)
        asked = model, Graph(model), names, self._failing.libraries, fed, given, self._failing.runtime
        outputs = attempt(lambda: run(*asked))
        if isinstance(outputs, Exception):
            return "stops"
        return "wrong" if self._failing.fails(outputs) else "right"

    def _walk(self, model: ModelProto, at: At, without: Cause | None = None) -> Walk:
        program, fed = with_outputs(self.exhibit.program, model), self._fed(model, at.given)
        names = set() if without is None else {without.operator}
        of_form = without is not None and without.how in ("dtype", "shape")
        return Walk(
            program, model, self._failing.libraries, at, fed, self._sizes, names, of_form=of_form,
            runtime=self._failing.runtime,
        )  # fmt: skip

    def _translated(self, stage: str, model: ModelProto, right: Sequence[Array]) -> dict[str, object] | None:
        self.model = model
        walk = self._walk(model, At(self.inputs, self._failing.inputs, self._failing.fails, right))
        self.steps = walk.steps
        self.parting = walk.wrong(whole=self._whole)
        if self.parting is None:
            return None
        first = self._cause(self.parting, stage, walk)
        if self._whole:
            return first.told
        start = time.monotonic()
        second = or_else(
            None, lambda: aside.ask(lambda: self._second(first, walk.at) or self._of_others(first), SECONDS)
        )
        return self._in_order(first, second) | {"second_seconds": time.monotonic() - start}

    def _cause(self, parting: Parting, stage: str, walk: Walk, **more: object) -> Cause:
        return Cause.of(parting, self._told(parting, stage, walk.model, walk.program, walk.at, walk) | more)

    def _second(self, first: Cause, at: At) -> Cause | None:
        """Return what is still wrong once the operator that was named first gives what it should, wherever it is
        called: another operator, or nothing that has a name. None where nothing is, or where that cannot be told."""
        model, stage, given = self.model, str(first.told.get("stage")), first.given
        outcome = self._outcome(model, given) if given else "right"
        if outcome == "right" and model is not self.exhibit.model:  # the exporter's passes may do more wrong
            model, stage = self.exhibit.model, "optimizer"
            given = {name: array for name, array in given.items() if name in Graph(model).makers}
            outcome = self._outcome(model, given) if given else "right"
        # nodes behind another dtype or shape may have been made for that
        if outcome == "right" or (outcome == "stops" and first.how not in ("value", "stops")):
            return None
        walk = self._walk(model, at, first)
        for name, value in given.items():
            walk.tensors.put(name, value)
        parting = walk.wrong()
        if parting is not None:
            return self._cause(parting, stage, walk)
        still = outcome == "wrong" and self._outcome(model, walk.tensors.given) == "wrong"
        return Cause({"unable": "nothing"}) if still else None

    def _of_others(self, first: Cause) -> Cause | None:
        """Another operator that is wrong with other inputs, as simple ones may hide it: one that parts clearly. Not
        asked of large programs."""
        program, model = self.exhibit.program, self.model
        large = len(program.operators) > MOST_CALLS or sum(self._sizes.values()) > CHUNK

        def cause(inputs: Inputs) -> Cause | None:
            arguments = self._failing.arguments(inputs)
            right = _arrays(program.run(arguments))
            fails = partial(self._failing.wrong, right=right, inputs=inputs)
            walk = self._walk(model, At(arguments, inputs, fails, right), first)
            parting = walk.wrong(clear=True)
            # nodes behind another dtype or shape may have been made for that
            if parting is None or "value" not in (parting.how, first.how):
                return None
            return self._cause(parting, str(first.told.get("stage")), walk, other_inputs=True)

        others = itertools.islice(self._failing.others(), 0 if large else OTHERS)
        found = (or_else(None, partial(cause, inputs)) for inputs in others)  # PyTorch or the graph may refuse them
        return next(filter(None, found), None)

    def _in_order(self, first: Cause, second: Cause | None) -> dict[str, object]:
        """Return what is told of one place or two, first of that which is computed first; one that shows with other
        inputs alone is the second."""
        if second is None or not second.name:
            return first.told | self._passes(first) | ({"second": second.told} if second is not None else {})
        told = {one.name: one.told | self._passes(one, other)
                for one, other in ((first, second), (second, first))}  # fmt: skip
        at = {operator.name: operator for operator in self.exhibit.program.operators}
        both = [first, second]
        if not second.told.get("other_inputs"):
            both.sort(key=lambda one: [*at].index(one.name))
        if both[0] is second:
            self.parting = Parting(at[second.name], next(iter(second.given), ""), second.how)
        return told[both[0].name] | {"second": told[both[1].name]}

    def _passes(self, cause: Cause, other: Cause | None = None) -> dict[str, object]:
        """The exporter's passes without which the graph is right, if the other cause is put right."""
        if cause.told.get("stage") != "optimizer" or cause.told.get("other_inputs"):
            return {}
        given = other.given if other is not None and not other.told.get("other_inputs") else {}
        return {"passes": guilty(lambda: self._outcome(self._failing.export(None), given) == "right")}

    def _within(self, parting: Parting, model: ModelProto, at: At) -> tuple[Parting, str, ModelProto, Program] | None:
        """The operator inside of one that chooses between programs, which explains what comes out of it."""
        node = Graph(model).node_of(parting.tensor)
        if parting.inside is None or node is None:
            return None
        found = opened(model, node, parting.inside)
        if found is None:
            return None
        whole, program = found
        inputs = parting.inside.inputs
        names = [tensor for tied in program.ties.values() for tensor in tied if tensor is not None]
        tensors = Tensors(whole, self._failing.libraries, self._fed(model, at.given), names, {})

        def fails(outputs: Sequence[Array]) -> bool:
            limit = limit_of(parting.operator)
            return any(
                wanted is not None and differs(got, wanted, limit, dtypes=False)
                for got, wanted in zip(outputs, parting.right, strict=False)
            )

        for step in steps(program, inputs, tensors):
            if step.parting is not None and explains(program, inputs, step.parting, fails):
                return step.parting, parting.operator.operator, whole, program
        return None

    def _told(
        self, parting: Parting, stage: str, model: ModelProto, program: Program, at: At, walk: Walk | None = None
    ) -> dict[str, object]:
        """Return what a record has of an operator. Without a ``walk`` through its graph it is not known what
        agrees."""
        deeper = or_else(None, lambda: self._within(parting, model, at))  # else the operator around it has to do
        if deeper is not None:
            inner, around, whole, branch = deeper
            told = self._told(inner, stage, whole, branch, at) | {"inside": around}
            told.pop("removed", None)  # branches are functions before the exporter's passes, with other names
            return told
        taken = self._taken_out(parting, model, program) if stage == "optimizer" else None
        if taken is not None:
            return of_operator(taken[0], program) | taken[1] | {"stage": stage, "how": parting.how, "removed": True}
        told = of_operator(parting.operator, program) | {"stage": stage, "how": parting.how}
        agreeing = None if walk is None else walk.agreeing()
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

    def _taken_out(
        self, parting: Parting, model: ModelProto, program: Program
    ) -> tuple[Operator, dict[str, object]] | None:
        """Return the operator before one that parts whose node the exporter's passes have taken out, with that node:
        the node of the one that parts is what it was, but for that input, and so it is wrong for what it is given."""
        raw = Graph(self.exhibit.raw) if self.exhibit.raw is not None else None
        node = Graph(model).node_of(parting.tensor)
        own = [one for one in parting.untied if one.inputs and not one.plumbing]  # others are constants, and folded
        if raw is None or node is None or not own:
            return None
        before = next((one for one in raw.nodes if one.name == node.name and one.op_type == node.op_type
                       and [*one.attribute] == [*node.attribute]), None)  # fmt: skip
        made = next((found for tensor in program.ties.get(own[-1].name, ()) if tensor is not None
                     and (found := raw.node_of(tensor)) is not None), None)  # fmt: skip
        if before is None or made is None:
            return None
        changed = [was for was, now in itertools.zip_longest(before.input, node.input) if was != now]
        if not changed or any(was not in made.output for was in changed):
            return None
        return own[-1], {"node": made.name, "type": operator_of(made), "tensor": next(filter(None, made.output))}

    def _given(self, model: ModelProto) -> Iterator[tuple[Sequence[object], Inputs]]:
        """The failing inputs, then others, as the program takes them and as a graph does."""
        for inputs in itertools.chain([self._failing.inputs], self._failing.others()):
            yield self._failing.arguments(inputs), self._fed(model, inputs)

    def _captured(self, error: Exception | None) -> dict[str, object]:
        """Return where the captured program itself is not what the module computes."""
        captured, failing = self.exhibit.captured, self._failing
        if captured is not self.exhibit.program and self._computes(captured):
            raise Unable("decomposition")
        again = attempt(lambda: exhibited(failing.exporter, lambda: failing.export(failing.inputs)).captured)
        if isinstance(again, Unable):
            raise again
        if isinstance(again, Exception):
            raise Unable("again", _line(f"{type(again).__name__}: {again}"))
        found = frozen(captured, again)
        if found is None and error is None:
            raise Unable("capture")
        if found is None:
            raise Unable("interpreted", _line(f"{type(error).__name__}: {error}"))
        return found | {"stage": "capture"}

    def _computes(self, program: Program) -> bool:
        """Return whether a program gives what is wanted."""
        return or_else(False, lambda: not self._failing.fails(_arrays(program.run(self.inputs))))


def exhibited(exporter: str, export: Callable[[], ModelProto]) -> Exhibit:
    """Return what an export shows while it is watched. Raises Unable where it cannot be watched."""
    watcher = watcher_of(exporter)
    with watcher.watching() as seen:
        model = export()
    found: Exhibit = watcher.exhibit(seen, model)
    return found


def watcher_of(exporter: str) -> Any:
    """Return the module that watches an exporter. Raises Unable where there is none."""
    watchers = {"dynamo": dynamo, "torchscript": torchscript}
    if exporter not in watchers:
        raise Unable("exporter")
    return watchers[exporter]


def _line(text: str | None) -> str:
    """The first line of a text, if it is not too long."""
    return (text or "").strip().partition("\n")[0][:LONGEST]


def _arrays(outputs: Sequence[object]) -> list[Array]:
    arrays = [array(output) for output in outputs]
    if any(found is None for found in arrays):
        raise Unable("outputs")
    return [np.asarray(found) for found in arrays]


def of_operator(operator: Operator, program: Program | None = None) -> dict[str, object]:
    """Return where an operator is from, as a record has it: a line of a file, or else which call of a ``program`` it
    is."""
    within = {"operator": operator.called, "within": operator.operator} if operator.called else {}
    told = operator.place() | within | {"place": "file"}
    if not in_a_file_of_users(operator.line, operator.source):
        alike = [one.name for one in program.operators if one.operator == operator.operator] if program else []
        count = [alike.index(operator.name) + 1, len(alike)] if operator.name in alike else None
        told |= {"place": "call", "call": count}
    return {name: value for name, value in told.items() if value}
