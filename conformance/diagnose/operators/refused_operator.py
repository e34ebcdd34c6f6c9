"""The operator of a model that onnx.checker refuses, or at which an export stops.

No values are compared here, as there are none. Of a refused model the first node is looked for up to which it is
refused, and the operator that the node was made of; of an export that stops, the call that was being translated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from conformance.compare.judges import Right, defaults_for
from conformance.diagnose.operators import dynamo
from conformance.diagnose.operators.captured_program import (
    Begun,
    Exhibit,
    Operator,
    Program,
    Unable,
    array,
    completed,
    with_outputs,
)
from conformance.diagnose.operators.first_operator import exhibited, of_operator, watcher_of
from conformance.diagnose.operators.forced import Parting, steps, tied
from conformance.diagnose.operators.instruments import below_forward, frames_of, told
from conformance.diagnose.operators.operator_walk import At, Walk
from conformance.diagnose.operators.rewrites import guilty
from conformance.diagnose.operators.tensor_values import Tensors
from conformance.diagnose.search import least
from conformance.models.exporters import graph
from conformance.process.arrays import Array, Inputs
from conformance.process.errors import attempt, causes, or_else, text_of
from conformance.process.worker import aside
from conformance.runtimes import outputs_of
from conformance.runtimes.onnxgraph.cut import cut, model_of
from conformance.runtimes.onnxgraph.reads import Graph, copy_of, first_output, operator_of, refill, rewritten
from conformance.runtimes.registry import LITERAL

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

SECONDS = 20.0
"""How long a second place may be looked for by values."""
SMALL = 4096
"""Bytes up to which a constant may decide on what the checker says; larger ones are taken for inputs."""


@dataclass(frozen=True)
class Refused:
    """A model that the checker refuses, and the operator behind it."""

    exhibit: Exhibit
    operator: Operator | None
    """None where that is not known."""
    told: dict[str, object]
    """The fields of ``Record.operator``."""
    form: str | None = None
    """``dtype`` or ``shape``: the graph has another one of the operator, and a later node is refused for that."""


@dataclass(frozen=True)
class StoppedExport:
    """An export that raises, and how far it came."""

    error: Exception
    program: Program | None
    """The program that was captured before that; None where none was."""
    operator: Operator | None
    """The call that was being translated; None where it was none."""
    translated: bool
    """True where all calls had been translated, so that a pass over the graph has raised."""

    def told(self, exports: Callable[[], bool]) -> dict[str, object]:
        """Return the fields of ``Record.operator``; ``exports`` is whether an export does not raise. Raises Unable
        where neither operator nor pass is known."""
        if self.operator is not None:
            return of_operator(self.operator, self.program) | {"stage": "translation", "how": "raises"}
        if self.program is None:
            return {"stage": "capture", "how": "raises", **_line_of(self.error)}
        passes = guilty(exports) if self.translated else []
        if not passes:
            raise Unable("nothing")
        return {"stage": "optimizer", "how": "raises", "passes": passes}


def _line_of(error: BaseException) -> dict[str, object]:
    """Return the line of the user's Python that the text of an exception, or of what it came of, names last."""
    for cause in causes(error):
        line, source = told(below_forward(frames_of(text_of(cause))))
        if line is not None:
            return {"line": line, **({"source": source} if source else {})}
    raise Unable("nothing")


def refused_model(
    exporter: str,
    export: Callable[[], ModelProto],
    inputs: Sequence[object],
    fed: Inputs,
    libraries: Sequence[str] = (),
    moves: Callable[[Sequence[Array]], Sequence[Array] | None] = lambda right: None,
) -> Refused:
    """Export again and find the operator whose node the checker refuses, or the first before it of which the graph
    has another dtype or shape than PyTorch; ``inputs`` as the program takes them, and ``fed`` as the graph;
    ``moves`` says how far PyTorch leaves its own outputs open. Raises Unable where none can be named."""
    exhibit = exhibited(exporter, export)
    only_sizes = graph.refusal(exhibit.model) is None

    def refuses(model: ModelProto) -> bool:
        return graph.refusal(model, sizes=only_sizes) is not None

    node = refused_node(exhibit.model, refuses)
    if node is None:
        raise Unable("whole" if refuses(exhibit.model) else "vanished")
    operator = operator_behind(exhibit.program, exhibit.model, node)
    shown = or_else(False, lambda: aside.ask(partial(_is_in_raw, exhibit, node, fed, libraries), SECONDS))
    stage = {"stage": "translation"} if shown else _stage(exhibit, node, refuses, export)
    if operator is None:
        return Refused(exhibit, None, {"place": "node", **_of_node(node), **stage})
    wrong = or_else(None, lambda: _of_another_form(exhibit, operator, inputs, fed, libraries))
    named = wrong.operator if wrong is not None else operator
    fields = of_operator(named, exhibit.program) | _of_node(node) | stage
    if wrong is not None:
        fields |= {"detail": wrong.how, "got": wrong.got, "wanted": wrong.wanted}
    names = {named.operator, operator.operator}
    by_values = partial(_second_by_values, exhibit, names, inputs, fed, libraries, moves)
    second = or_else(None, lambda: _second(exhibit, names, inputs, refuses) or aside.ask(by_values, SECONDS))
    fields |= {"second": second} if second is not None else {}
    return Refused(exhibit, named, fields, None if wrong is None else wrong.how)


def _of_node(node: NodeProto) -> dict[str, object]:
    """Return what is told of a node that is refused."""
    tensor, rules = next(filter(None, node.output), ""), rewritten(node)
    told = {"how": "refused", "node": node.name, "type": operator_of(node), "tensor": tensor}
    return told | ({"rules": rules} if rules else {})


def _stage(
    exhibit: Exhibit, node: NodeProto, refuses: Callable[[ModelProto], bool], export: Callable[[], ModelProto]
) -> dict[str, object]:
    """Return at which stage a graph with a node became one that is refused, and by which passes."""
    if exhibit.raw is None:
        return {"stage": "export"}
    if refuses(completed(exhibit.raw, exhibit.model)):
        return {"stage": "translation"}
    return {"stage": "optimizer", "passes": guilty(lambda: not refuses(export()))}


def _is_in_raw(exhibit: Exhibit, node: NodeProto, fed: Inputs, libraries: Sequence[str]) -> bool:
    """Return whether a node gives the dtype and shape of before the exporter's passes, by what ONNX Runtime computes:
    a pass that folds constants may be the first to show the checker what is wrong, and changes nothing."""
    if exhibit.raw is None:
        return False
    name = first_output(node)
    models = (completed(exhibit.raw, exhibit.model), exhibit.model)
    ((before,), (after,)) = (
        outputs_of(cut(model, Graph(model), [name]), LITERAL, libraries, fed) for model in models
    )  # fmt: skip
    return before.dtype == after.dtype and before.shape == after.shape


def _second(
    exhibit: Exhibit, names: Set[str], inputs: Sequence[object], refuses: Callable[[ModelProto], bool]
) -> dict[str, object] | None:
    """Return the operator of which a node is refused where some operators give what they should, wherever they are
    called; None where none is."""
    program, model = with_outputs(exhibit.program, exhibit.model), exhibit.model
    chosen = {name for one in program.operators if one.operator in names for name in one.outputs}
    members = [pair for name, value in program.values(inputs, chosen).items() for pair in tied(program, name, value)]
    right = {tensor: value for member, tensor in members if tensor and (value := array(member)) is not None}
    known = Graph(model)
    part = cut(model, known, known.outputs, right)
    declared = {value.name: value for value in (*model.graph.output, *model.graph.value_info)}
    inner = {name for node in part.graph.node for name in node.output} - {*known.outputs}
    part.graph.value_info.extend(value for name, value in declared.items() if name in inner)
    for value in part.graph.output:
        value.CopyFrom(declared[value.name])
    node = refused_node(part, refuses)
    if node is None:
        return None
    operator = operator_behind(exhibit.program, part, node)
    return (
        {"place": "node", **_of_node(node)} if operator is None else of_operator(operator, program) | _of_node(node)
    )


def _second_by_values(
    exhibit: Exhibit,
    names: Set[str],
    inputs: Sequence[object],
    fed: Inputs,
    libraries: Sequence[str],
    moves: Callable[[Sequence[Array]], Sequence[Array] | None],
) -> dict[str, object] | None:
    """Return the operator that gets values clearly wrong where some operators give what they should; None where none
    does."""
    program, model = with_outputs(exhibit.program, exhibit.model), exhibit.model
    right = [known for value in program.run(inputs) if (known := array(value)) is not None]

    def fails(got: Sequence[Array]) -> bool:
        judge = defaults_for(right)
        if judge.compare(got, Right(right, inputs=fed)).verdict != "failed":
            return False
        return judge.compare(got, Right(right, conditioning=moves(right), inputs=fed)).verdict == "failed"

    walk = Walk(program, model, libraries, At(inputs, fed, fails, right), fed, {}, names)
    found = walk.wrong(clear=True)
    if found is None or found.how != "value":
        return None
    return of_operator(found.operator, program) | {
        "stage": "translation", "how": found.how, "tensor": found.tensor, "index": list(found.index),
        "got": found.got, "wanted": found.wanted, "differ": [found.count, found.size],
    }  # fmt: skip


def _of_another_form(
    exhibit: Exhibit, refused: Operator, inputs: Sequence[object], fed: Inputs, libraries: Sequence[str]
) -> Parting | None:
    """Return the first operator that another one is computed of and that the graph has in another dtype or shape than
    PyTorch, by what ONNX Runtime computes of the nodes before."""
    program, model = with_outputs(exhibit.program, exhibit.model), exhibit.model
    needed = {*refused.inputs}
    for operator in reversed(program.operators):
        if needed & {*operator.outputs}:
            needed |= {*operator.inputs}
    names = [tensor for _, name, tensor in program.tied() if name in needed]
    for step in steps(program, inputs, Tensors(model, libraries, fed, names, {})):
        found = step.form or step.parting
        if found is None or found.how not in ("dtype", "shape"):
            continue
        of_floats = found.value is None or found.value.is_floating_point()  # a number may have one axis, or none
        if found.how == "dtype" or of_floats:
            return found
    return None


def stopped_export(exporter: str, export: Callable[[], object], begun: Begun | None = None) -> StoppedExport:
    """Return how an export stops; ``begun`` gets each call before it is translated. Raises Unable where the export
    does not stop."""
    watcher = watcher_of(exporter)
    with watcher.watching(begun) as seen:
        raised = attempt(export)
    if not isinstance(raised, Exception):
        raise Unable("vanished")
    try:
        program = watcher.program_of(seen)
    except Unable:
        program = None
    return StoppedExport(raised, program, watcher.stopped_at(seen), seen.raw is not None)


def next_stop(exporter: str, export: Callable[[], object], stopped: StoppedExport) -> dict[str, object]:
    """Return the other operator at which an export stops too, once the first is passed over wherever it is called, as
    ``second`` of what is told of that; nothing where there is none."""
    if stopped.operator is None:
        return {}
    watcher = watcher_of(exporter)
    with watcher.watching(passing=stopped.operator.operator) as seen:
        attempt(export)
    other = watcher.stopped_at(seen)
    if other is None or other.operator == stopped.operator.operator:
        return {}
    return {"second": of_operator(other, stopped.program) | {"stage": "translation", "how": "raises"}}


def refused_node(model: ModelProto, refuses: Callable[[ModelProto], bool]) -> NodeProto | None:
    """Return the node with which a model begins to be refused, found by halving; None where it is refused without
    any node, or only as a whole."""
    light = _light(model)
    every = len(light.graph.node)
    if not refuses(_first(light, every)) or refuses(_first(light, 0)):
        return None
    node: NodeProto = light.graph.node[least(1, every, lambda count: refuses(_first(light, count))) - 1]
    return node


def _first(model: ModelProto, count: int) -> ModelProto:
    """Return the first nodes of a model as a model of their own, with what it declares of their tensors."""
    part = copy_of(model)
    del part.graph.node[count:]
    made = {name for node in part.graph.node for name in node.output}
    known = made | {value.name for value in (*part.graph.input, *part.graph.initializer)}
    for values, names in ((part.graph.output, known), (part.graph.value_info, made)):
        refill(values, [value for value in values if value.name in names])
    return part


def _light(model: ModelProto) -> ModelProto:
    """Return a copy with inputs in place of large constants, whose values decide on no type and no shape."""
    from onnx import helper

    given = {value.name for value in model.graph.input}
    large = [one for one in model.graph.initializer if one.ByteSize() > SMALL and one.name not in given]
    fed = [helper.make_tensor_value_info(one.name, one.data_type, list(one.dims)) for one in large]
    whole = model.graph
    light = model_of(model, whole.name, whole.node, inputs=[*whole.input, *fed], outputs=whole.output)
    light.graph.value_info.extend(whole.value_info)
    light.graph.sparse_initializer.extend(whole.sparse_initializer)
    light.graph.initializer.extend(one for one in whole.initializer if one.ByteSize() <= SMALL)
    return light


def operator_behind(program: Program, model: ModelProto, node: NodeProto) -> Operator | None:
    """Return the operator that a node was made of: as the exporter noted it, or else the first whose tensor the node
    leads to. None where it leads to none."""
    by_name = {operator.name: operator for operator in program.operators}
    noted = by_name.get(dynamo.noted(node)) if not rewritten(node) else None
    return noted or next(_led_to(with_outputs(program, model), Graph(model), node), None)


def _led_to(program: Program, known: Graph, node: NodeProto) -> Iterator[Operator]:
    """Give the operators whose tensors are computed by a node, alone or with nodes after it that are no other's."""
    # of several that have one tensor the first made it, and the others hand it on
    tied = {tensor: operator for operator, _, tensor in reversed([*program.tied()])}
    todo, found = [node], []
    seen: set[str] = set()
    while todo:
        for name in todo.pop(0).output:
            if name in tied:
                found.append(tied[name])
            elif name and name not in seen:
                seen.add(name)
                todo += [known.nodes[index] for index in known.readers.get(name, ())]
    yield from (operator for operator in program.operators if operator in found)
