"""Watch what the dynamo exporter captures, decomposes and translates, while it exports again."""

from __future__ import annotations

import contextlib
import operator as python
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from conformance.diagnose.operators.captured_program import (
    Begun,
    Call,
    Exhibit,
    Name,
    Operator,
    Program,
    Unable,
    Values,
)
from conformance.diagnose.operators.instruments import Original, below_forward, frames_of, part_of, told, wrapped
from conformance.process.errors import noting
from conformance.runtimes.onnxgraph.reads import metadata

if TYPE_CHECKING:
    from traceback import StackSummary

    from onnx import ModelProto, NodeProto
    from torch.export import ExportedProgram
    from torch.fx import Graph, GraphModule, Node

_CORE = "torch.onnx._internal.exporter._core"
_OF_CALLS = "_handle_call_function_node_with_lowering"
_STOPPED_AT = re.compile(r"(?:Error when translating node|While executing) %?(\w+) :")
"""The words by which the exporter names the node that it translates, and torch.fx the one that is decomposed."""
_NOTED = re.compile(r"%?(\w+) :")


class SeenByDynamo:
    """The exporter's own objects, as they passed by."""

    def __init__(self) -> None:
        self.captured: ExportedProgram | None = None
        self.decomposed: ExportedProgram | None = None
        self.raw: ModelProto | None = None
        self.values: dict[int, Mapping[str, Any]] = {}
        """By id of a graph of FX, what the exporter made of each of its nodes."""
        self.functions: dict[int, tuple[str, str]] = {}
        """By id of a graph of FX, the domain and name of the local function that the exporter made of it."""
        self.stopped: Node | None = None
        """The node of FX at which the exporter has stopped."""


@contextlib.contextmanager
def watching(begun: Begun | None = None, passing: str | None = None) -> Iterator[SeenByDynamo]:
    """See the dynamo exports inside the block; of several the last. ``begun`` gets each call before it is
    translated. A node stands for each call of an operator that is ``passing``. Raises Unable where torch is built
    otherwise."""
    seen = SeenByDynamo()
    core = part_of(_CORE)

    def prepared(original: Original, program: ExportedProgram, *args: object, **kwargs: object) -> object:
        seen.captured = program
        with noting(partial(stop, program.graph_module.graph)):
            seen.decomposed = original(program, *args, **kwargs)
        return seen.decomposed

    def stop(graph: Graph, error: Exception) -> None:
        seen.stopped = seen.stopped or _named_in(str(error), graph)

    def translated(original: Original, graph: Graph, *args: object, **kwargs: Any) -> object:
        with noting(partial(stop, graph)):
            values = original(graph, *args, **kwargs)
        seen.values[id(graph)] = values
        made = kwargs.get("graph_like")
        if made is not None and hasattr(made, "domain"):
            seen.functions[id(graph)] = (made.domain, made.name)
        return values

    def called(original: Original, model: object, node: Node, *args: object, **kwargs: object) -> object:
        assert begun is not None
        begun(_operator(node, SeenByDynamo(), _origins(seen)))
        return original(model, node, *args, **kwargs)

    def lowered(original: Original, *args: object, **kwargs: object) -> object:
        program = original(*args, **kwargs)
        seen.raw = program.model_proto
        seen.values = {graph: dict(map(_named, values.items())) for graph, values in seen.values.items()}
        return program

    def dispatched(original: Original, node: Node, *args: object, **kwargs: object) -> object:
        if passing is not None and name_of(node.target) == passing:
            return _stand_in(node), ""
        return original(node, *args, **kwargs)

    def frames(original: Original, tracer: object, summary: StackSummary) -> object:
        own = below_forward([(frame.filename, frame.lineno or 0, frame.name) for frame in summary])
        kept = [frame for frame in summary if (frame.filename, frame.lineno or 0, frame.name) in own]
        return type(summary).from_list(kept) if kept else original(tracer, summary)

    tracer = part_of("torch.fx.proxy", "TracerBase")
    with (
        wrapped(core, "_prepare_exported_program_for_export", prepared),
        wrapped(core, "_exported_program_to_onnx_program", lowered),
        wrapped(core, "_translate_fx_graph", translated),
        wrapped(core, _OF_CALLS, called) if begun is not None else contextlib.nullcontext(),
        wrapped(part_of(_CORE, "_dispatching"), "dispatch", dispatched),
        wrapped(tracer, "_filter_traceback_frames", frames),
    ):
        yield seen


def _stand_in(node: Node) -> Callable[..., object]:
    """A lowering that makes one node without meaning of a call."""

    def made(*args: object, **_: object) -> object:
        import onnx_ir
        from onnxscript import evaluator

        recorder: Any = evaluator.default()
        given = node.meta.get("val")
        count = len(given) if isinstance(given, list | tuple) else 1
        inputs = [value for value in _leaves(list(args)) if isinstance(value, onnx_ir.Value)]
        one = onnx_ir.Node("conformance", "StandIn", inputs, num_outputs=count)
        recorder.nodes.append(one)
        return one.outputs[0] if count == 1 else one.outputs

    return made


def _named_in(said: str, graph: Graph) -> Node | None:
    """The node of a graph of FX that the exporter says it stopped at."""
    name = _STOPPED_AT.search(said)
    return None if name is None else next((node for node in graph.nodes if node.name == name[1]), None)


def _named(pair: tuple[str, object]) -> tuple[str, list[str | None]]:
    """The names that the values of a node have in the raw graph, which the passes after that do not change here."""
    name, value = pair
    members = list(value) if isinstance(value, list | tuple) else [value]
    return name, [getattr(member, "name", None) for member in members]


def exhibit(seen: SeenByDynamo, model: ModelProto) -> Exhibit:
    """Return what was seen, as data. Raises Unable where something was not seen."""
    if seen.captured is None or seen.decomposed is None or seen.raw is None:
        raise Unable("instruments")
    captured = program_of(seen)
    return Exhibit(model, captured, _of_exported(seen.decomposed, seen, _origins(seen)), seen.raw)


def stopped_at(seen: SeenByDynamo) -> Operator | None:
    """The call at which the exporter has stopped; None where that was at none."""
    if seen.stopped is None or seen.stopped.op != "call_function" or seen.captured is None:
        return None
    return _operator(seen.stopped, SeenByDynamo(), _origins(seen))


def _origins(seen: SeenByDynamo) -> dict[str, Node]:
    """The calls that were captured, by name."""
    nodes = seen.captured.graph_module.graph.nodes if seen.captured is not None else ()
    return {node.name: node for node in nodes if node.op == "call_function"}


def noted(node: NodeProto) -> str:
    """The name of the node of FX that a node of ONNX was made of, as the exporter has noted it there; or nothing."""
    found = _NOTED.match(metadata(node).get("pkg.torch.onnx.fx_node", ""))
    return "" if found is None else found[1]


def program_of(seen: SeenByDynamo) -> Program:
    """Return what was captured, tied to no graph. Raises Unable where nothing was."""
    if seen.captured is None:
        raise Unable("instruments")
    return _of_exported(seen.captured, SeenByDynamo(), {})


def _of_exported(exported: ExportedProgram, seen: SeenByDynamo, origins: Mapping[str, Node]) -> Program:
    """An exported program, whose weights and constants are inputs of its graph."""
    signature = exported.graph_signature
    graph = exported.graph_module.graph
    holders = [node.name for node in graph.nodes if node.op == "placeholder"]
    start: Values = {}
    inputs = []
    buffers = dict(exported.named_buffers())
    for name, spec in zip(holders, signature.input_specs, strict=True):
        target = spec.target
        if target is None:
            if hasattr(spec.arg, "value"):  # a constant argument
                start[name] = spec.arg.value
            else:
                inputs.append(name)
            continue
        for source in (exported.state_dict, exported.constants, buffers):
            if target in source:
                start[name] = source[target].detach() if hasattr(source[target], "detach") else source[target]
                break
        else:
            raise Unable("program", target)
    program = of_graph(exported.graph_module, seen, origins)
    program.start |= start
    program.inputs = inputs
    users = [spec.kind.name == "USER_OUTPUT" for spec in signature.output_specs]
    program.outputs = [name for name, own in zip(program.outputs, users, strict=True) if own]
    return program


def of_graph(module: GraphModule, seen: SeenByDynamo, origins: Mapping[str, Node]) -> Program:
    """A graph of FX as a program; all its placeholders are inputs."""
    start: Values = {}
    program = Program([], [], start, [], dict(seen.values.get(id(module.graph), {})))
    for node in module.graph.nodes:
        _untie_unused(node, program)
        if node.op == "placeholder":
            program.inputs.append(node.name)
        elif node.op == "get_attr":
            start[node.name] = python.attrgetter(node.target)(module)
        elif node.op == "call_function" and not _only_asserts(node):
            program.operators.append(_operator(node, seen, origins))
        elif node.op == "output":
            returned = node.args[0] if isinstance(node.args[0], list | tuple) else [node.args[0]]
            program.outputs = [getattr(value, "name", None) for value in returned]
    return program


def _only_asserts(node: Node) -> bool:
    """Return whether an operator gives nothing, as one that asserts what a capture took for granted of sizes. A
    graph has no such node, and is run at the sizes that it refuses."""
    schema = getattr(node.target, "_schema", None)
    return schema is not None and not schema.returns and not schema.is_mutable


def _untie_unused(node: Node, program: Program) -> None:
    """Take the ties from those outputs of an operator that nobody takes: what is in them does not matter."""
    ties, users = program.ties.get(node.name), list(node.users)
    if node.op == "call_function" and ties and all(user.target is python.getitem for user in users):
        taken = {user.args[1] for user in users if user.users}
        program.ties[node.name] = [tensor if place in taken else None for place, tensor in enumerate(ties)]


def _operator(node: Node, seen: SeenByDynamo, origins: Mapping[str, Node]) -> Operator:
    import torch

    def bound(values: Values) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return (
            torch.fx.node.map_arg(node.args, lambda argument: values[argument.name]),
            torch.fx.node.map_arg(node.kwargs, lambda argument: values[argument.name]),
        )

    def compute(values: Values) -> tuple[object, ...]:
        args, kwargs = bound(values)
        with torch.no_grad():
            return (target(*args, **kwargs),)

    def inner(values: Values) -> tuple[int, Program, list[object]] | None:
        return _branch(bound(values)[0], seen, origins) if named == "higher_order.cond" else None

    target: Any = node.target
    origin = _origin(node, origins)
    named, called = name_of(target), name_of(origin.target) if origin is not None else None
    line, source = told(below_forward(frames_of(node.meta.get("stack_trace") or "")) or _plain(node))
    tags = getattr(target, "tags", ())
    return Operator(
        node.name, named, tuple(argument.name for argument in node.all_input_nodes), (node.name,), compute, line,
        source, _module(node), called if called != named else None,
        pointwise=target.__module__ == "_operator" or torch.Tag.pointwise in tags,
        constants=tuple(value for value in _leaves((node.args, node.kwargs)) if not isinstance(value, torch.fx.Node)),
        arguments=lambda values: bound(values)[0], inner=inner, call=_call(node),
        origin=None if origin is None else origin.name,
    )  # fmt: skip


def _module(node: Node) -> str | None:
    """The path of the submodule that calls an operator; None for the module itself, and for what nobody calls."""
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    return None if not stack or stack[-1][0].startswith("_empty_nn_module_stack") else stack[-1][0]


def _call(node: Node) -> Call | None:
    """Return how a node is written; None for an operator that takes programs, and for what is in no module known
    here."""
    import torch

    target = node.target
    if isinstance(target, torch._ops.OpOverload):
        function = f"torch.ops.{target}"
    else:
        module = {"_operator": "operator"}.get(getattr(target, "__module__", ""), getattr(target, "__module__", ""))
        function = f"{module}.{getattr(target, '__name__', '')}"
        if module not in ("operator", "math", "torch"):
            return None

    def named(argument: Node) -> Any:
        return Name(argument.name)

    both: Sequence[Any] = node.args, node.kwargs
    args, kwargs = (torch.fx.node.map_arg(given, named) for given in both)
    return Call(function, tuple(args), dict(kwargs))


def _leaves(value: object) -> list[object]:
    from torch.utils import _pytree

    leaves: list[object] = _pytree.tree_leaves(value)
    return leaves


def _plain(node: Node) -> list[tuple[str, int, str]]:
    """The frames of users where none is of a forward, as in a program captured under another name."""
    from conformance.diagnose.operators.instruments import of_users

    return [frame for frame in frames_of(node.meta.get("stack_trace") or "") if of_users(frame[0])]


def _origin(node: Node, origins: Mapping[str, Node]) -> Node | None:
    """The node of the captured program that a decomposed one comes from."""
    sources = node.meta.get("from_node") or []
    found = origins.get(node.name)
    while sources:
        source = sources[-1]
        found = origins.get(source.name) or found
        sources = source.from_node or []
    return found


def name_of(target: Any) -> str:
    """``aten.floor_divide``, ``operator.floordiv``; overloads are left out."""
    if isinstance(target, str):
        return target
    schema = getattr(target, "_schema", None)
    if schema is not None:
        return str(schema.name).replace("::", ".")
    if getattr(target, "__module__", "") == "_operator" or target in vars(python).values():
        return f"operator.{target.__name__}"
    namespace = getattr(target, "namespace", None)
    name = getattr(target, "__name__", None) or str(target)
    return f"{namespace}.{name}" if namespace else str(name)


def _branch(args: Sequence[Any], seen: SeenByDynamo, origins: Mapping[str, Node]) -> tuple[int, Program, list[Any]]:
    """The branch that ``torch.cond`` takes, as a program, and what that is given."""
    number = 0 if bool(args[0]) else 1
    return number, of_graph(args[1 + number], seen, origins), list(args[3])
