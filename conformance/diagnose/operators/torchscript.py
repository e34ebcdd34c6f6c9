"""Watch what the TorchScript exporter traces or compiles, and which nodes it makes of that, while it exports
again."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
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
from conformance.diagnose.operators.instruments import Original, below_forward, of_users, part_of, told, wrapped
from conformance.models.exporters import exporters
from conformance.process.errors import noting

if TYPE_CHECKING:
    from onnx import ModelProto
    from torch import Tensor
    from torch._C import Block, Graph, Node

    from conformance.diagnose.operators.instruments import Frame

_UTILS = "torch.onnx._internal.torchscript_exporter.utils"
_TIE = "conformance_tie"
"""The attribute of a node of the exporter's graph that says which values it has; taken off before a file is made."""
_TRACED = re.compile(r"^(?P<file>.+)\((?P<line>\d+)\): (?P<name>\S+)$", re.M)
_COMPILED = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+)')
_PLUMBING = frozenset({"prim::Constant", "prim::ListConstruct", "prim::TupleConstruct"})
"""Nodes that are no call of an operator."""


class SeenByTorchScript:
    """The exporter's graph before it is lowered, as data, and the tensors that its values became."""

    def __init__(self) -> None:
        self.weights: list[Tensor] = []
        self.program: Program | None = None
        self.ties: dict[str, list[str | None]] = {}
        self.python: list[tuple[str, list[str]]] = []
        """The calls of an ``autograd.Function`` that makes nodes by itself: its name, and those of its outputs."""
        self.raw: ModelProto | None = None
        """The model before onnxsim or onnxslim, where the case has it simplified."""
        self.stopped: Operator | None = None
        """The call at which the exporter has stopped."""


@contextlib.contextmanager
def watching(begun: Begun | None = None, passing: str | None = None) -> Iterator[SeenByTorchScript]:
    """See the TorchScript exports inside the block; of several the last. ``begun`` gets each call before it is
    translated. Calls of an operator that is ``passing`` go into the graph as they are. Raises Unable where torch is
    built otherwise."""
    seen = SeenByTorchScript()
    utils, binding = part_of(_UTILS), part_of("torch._C")

    def created(original: Original, *args: object, **kwargs: object) -> object:
        result = original(*args, **kwargs)
        seen.weights = list(result[1])
        return result

    def typed(original: Original, graph: Graph, *args: object, **kwargs: object) -> object:
        # the last moment at which numbers are numbers, and not tensors
        seen.ties, seen.python = {}, list(_of_functions(graph))
        seen.program = _program(graph, seen.weights, seen.ties)
        return original(graph, *args, **kwargs)

    def stop(operator: Operator | None) -> None:
        seen.stopped = seen.stopped or operator

    def lowered(original: Original, graph: Graph, block: object, node: Node, *more: object, **kwargs: Any) -> object:
        outputs = [output.debugName() for output in node.outputs()]
        if begun is not None:
            begun(_operator(node, {}, {}))
        if passing is not None and _name_of(node) == passing:
            return None
        with noting(lambda _: stop(_operator(node, {}, {}))):
            result = original(graph, block, node, *more, **kwargs)
        _mark(outputs, result)
        return result

    def by_function(original: Original, graph: Graph, name: str, *args: object) -> object:
        # the exporter comes to them in the order in which they are called
        call = next((call for call in seen.python if call[0] == name), None)
        made = call[1] if call is not None else []
        calls = seen.program.operators if seen.program is not None else []
        with noting(lambda _: stop(next((one for one in calls if {*one.outputs} & {*made}), None))):
            result = original(graph, name, *args)
        if call is not None:
            seen.python.remove(call)
            _mark(call[1], result)
        return result

    def named(original: Original, graph: Graph, *args: object, **kwargs: object) -> object:
        result = original(graph, *args, **kwargs)
        seen.ties.update(_collected(graph))
        return result

    def simplified(original: Original, model: ModelProto, by: str) -> object:
        seen.raw = model
        return original(model, by)

    with (
        wrapped(exporters, "_simplify", simplified),
        wrapped(utils, "_create_jit_graph", created),
        wrapped(binding, "_jit_pass_erase_number_types", typed),
        wrapped(utils, "_run_symbolic_function", lowered),
        wrapped(utils, "_run_symbolic_method", by_function),
        wrapped(binding, "_jit_pass_onnx_assign_scoped_names_for_node_and_value", named),
    ):
        yield seen


def _mark(names: Sequence[str], result: object) -> None:
    """Note at the nodes that were made for some values which value each of their outputs is."""
    for name, value in zip(names, result if isinstance(result, list | tuple) else [result], strict=False):
        maker = value.node() if hasattr(value, "node") else None
        if maker is not None and maker.kind().partition("::")[0] not in ("prim", "aten"):
            place = [output.debugName() for output in maker.outputs()].index(value.debugName())
            before = maker.s(_TIE) if maker.hasAttribute(_TIE) else ""
            maker.s_(_TIE, f"{before}{name}:{place} ")


def _of_functions(block: Graph | Block) -> Iterator[tuple[str, list[str]]]:
    """The calls of each ``autograd.Function`` in order, those in blocks inside too."""
    for node in block.nodes():
        if node.kind() == "prim::PythonOp":
            yield _name_of(node), [output.debugName() for output in node.outputs()]
        for inner in node.blocks():
            yield from _of_functions(inner)


def _collected(block: Graph | Block) -> Iterator[tuple[str, list[str | None]]]:
    """The tensor of each value by the marks on nodes, which are taken off; blocks inside come with their own."""
    for node in block.nodes():
        if node.hasAttribute(_TIE):
            outputs = [output.debugName() for output in node.outputs()]
            for mark in node.s(_TIE).split():
                name, _, place = mark.rpartition(":")
                yield name, [outputs[int(place)]]
            node.removeAttribute(_TIE)
        for inner in node.blocks():
            yield from _collected(inner)


def exhibit(seen: SeenByTorchScript, model: ModelProto) -> Exhibit:
    """Return what was seen, as data. Raises Unable where something was not seen."""
    program = program_of(seen)
    program.ties = seen.ties
    _fold(program)
    return Exhibit(model, program, program, seen.raw)


def stopped_at(seen: SeenByTorchScript) -> Operator | None:
    """The call at which the exporter has stopped; None where that was at none."""
    return seen.stopped


def program_of(seen: SeenByTorchScript) -> Program:
    """Return what was captured, tied to no graph. Raises Unable where nothing was."""
    if seen.program is None:
        raise Unable("instruments")
    return seen.program


def _fold(program: Program) -> None:
    """Give a batch norm that the exporter put into the weights of a convolution the tensor of that convolution."""
    readers: dict[str, list[Operator]] = {}
    for operator in program.operators:
        for name in operator.inputs:
            readers.setdefault(name, []).append(operator)
    for operator in program.operators:
        after = readers.get(operator.name, [])
        folds = "conv" in operator.operator and [one.operator for one in after] == ["aten.batch_norm"]
        if folds and after[0].name not in program.ties and operator.name in program.ties:
            program.ties[after[0].name] = program.ties.pop(operator.name)


def _program(graph: Graph, weights: Sequence[Tensor], ties: dict[str, list[str | None]]) -> Program:
    names = [value.debugName() for value in graph.inputs()]
    count = len(names) - len(weights)
    start: Values = {
        name: weight.detach() if hasattr(weight, "detach") else weight
        for name, weight in zip(names[count:], weights, strict=True)
    }
    program = _block(graph, start, ties)
    program.start, program.inputs = start, names[:count]
    return program


def _block(block: Graph | Block, start: Values, ties: dict[str, list[str | None]]) -> Program:
    """The nodes of a block as operators. Constants go to ``start``, which serves the blocks inside too, as ``ties``
    does, which is filled later."""
    program = Program([], [value.debugName() for value in block.outputs()], {}, [])
    program.inputs = [value.debugName() for value in block.inputs()]
    for node in block.nodes():
        if node.kind() == "prim::Constant":
            start[node.output().debugName()] = node.output().toIValue()
        else:
            program.operators.append(_operator(node, start, ties))
    return program


def _operator(node: Node, start: Values, ties: dict[str, list[str | None]]) -> Operator:
    import torch

    kind = node.kind()
    inputs = tuple(value.debugName() for value in node.inputs())
    outputs = tuple(value.debugName() for value in node.outputs())
    blocks = [_block(block, start, ties) for block in node.blocks()]
    line, source = told(_frames(str(node.sourceRange())))
    function, tags = _function(kind, node.schema(), inputs, blocks)
    if kind == "prim::PythonOp":
        function = _of_python(node, inputs)
    if kind == "prim::ConstantChunk":
        function = _chunks(inputs[0], node.i("chunks"), node.i("dim"))
    read = dict.fromkeys((*inputs, *(name for block in blocks for name in _from_outside(block))))
    pointwise = kind.partition("::")[0] == "aten" and torch.Tag.pointwise in tags
    unpacks = len(outputs) > 1 or [value.type().kind() for value in node.outputs()] == ["TensorType"]

    def compute(values: Values) -> tuple[object, ...]:
        with torch.no_grad():
            results = function(values)
        # the exporter may have put the unpacking of a list into its operator
        listed = len(results) == 1 and isinstance(results[0], list | tuple)
        return tuple(results[0]) if listed and unpacks else results

    def inner(values: Values) -> tuple[int, Program, list[object]] | None:
        if kind != "prim::If":
            return None
        number = 0 if values[inputs[0]] else 1
        around = {name: values[name] for name in _from_outside(blocks[number])}
        return number, Program(blocks[number].operators, blocks[number].outputs, around, [], ties), []

    return Operator(
        outputs[0] if outputs else "", _name_of(node), tuple(read), outputs, compute, line,
        source, module_of(node.scopeName()), pointwise=pointwise,
        constants=tuple(_plain(start[name]) for name in inputs if name in start),
        arguments=lambda values: [values[name] for name in inputs], inner=inner,
        plumbing=kind in _PLUMBING, call=None if blocks else _call(node, inputs),
    )  # fmt: skip


def _name_of(node: Any) -> str:
    """``aten.add``; of an ``autograd.Function`` its own name."""
    kind = str(node.kind())
    return str(node.pyname()) if kind == "prim::PythonOp" else kind.replace("::", ".").removesuffix("_")


_HANDED_ON = frozenset({
    "prim::NumToTensor", "prim::ListUnpack", "prim::TupleUnpack", "prim::unchecked_cast", "aten::Int",
    "aten::ScalarImplicit",
})  # fmt: skip
"""Nodes whose input stands for what they give, or is taken apart by Python itself."""


def _call(node: Node, inputs: Sequence[str]) -> Call | None:
    """Return how a node is written so that tracing makes it again; sizes are traced as methods ask for them alone."""
    kind, names = node.kind(), tuple(map(Name, inputs))
    if kind in ("prim::ListConstruct", "prim::TupleConstruct"):
        return Call("", (list(names) if kind == "prim::ListConstruct" else names,))
    if kind in _HANDED_ON:
        return Call("", names[:1])
    if kind == "prim::ConstantChunk":
        return Call("torch.chunk", (names[0], node.i("chunks"), node.i("dim")))
    if kind == "aten::size":
        return Call("torch.Tensor.size", names)
    function, keywords, _ = _resolved(kind, node.schema())
    if not hasattr(function, "overloadpacket"):
        return None
    positional = len(names) - len(keywords)
    return Call(f"torch.ops.{function}", names[:positional], dict(zip(keywords, names[positional:], strict=True)))


def _plain(value: object) -> bool | int | float | str | None:
    return value if isinstance(value, bool | int | float | str) or value is None else repr(value)[:80]


def _from_outside(program: Program) -> Iterator[str]:
    own = {*program.inputs}
    for operator in program.operators:
        yield from (name for name in operator.inputs if name not in own)
        own.update(operator.outputs)
    yield from (name for name in program.outputs if name is not None and name not in own)


def module_of(scope: str) -> str | None:
    """``layer1.0.conv`` of ``Net::/Sequential::layer1/Block::layer1.0/Conv2d::conv``: a submodule that is only a
    number has the names before it in front."""
    path: list[str] = []
    for part in scope.split("/")[1:]:
        label = part.rpartition("::")[2].split(".")
        known = max(k for k in range(len(label)) if path[len(path) - k :] == label[:k])
        path += label[known:]
    return ".".join(path) or None


def _frames(trace: str) -> list[Frame]:
    """The frames of users from the outermost; those of a compiled module have no functions."""
    traced = [(found["file"].strip(), int(found["line"]), found["name"]) for found in _TRACED.finditer(trace)]
    if traced:
        return below_forward(traced[::-1])
    compiled = [(found["file"], int(found["line"]), "") for found in _COMPILED.finditer(trace)]
    return [frame for frame in compiled[::-1] if of_users(frame[0])] or compiled  # at least where in torch


_Function = Callable[[Values], tuple[Any, ...]]


def _function(
    kind: str, schema: str, inputs: Sequence[str], blocks: Sequence[Program]
) -> tuple[_Function, Sequence[object]]:
    """Return what a node computes of the values around it, and the tags of its operator."""
    special: Mapping[str, _Function] = {
        "prim::ListConstruct": lambda values: ([values[name] for name in inputs],),
        "prim::TupleConstruct": lambda values: (tuple(values[name] for name in inputs),),
        "prim::ListUnpack": lambda values: tuple(values[inputs[0]]),
        "prim::TupleUnpack": lambda values: tuple(values[inputs[0]]),
        "prim::Uninitialized": lambda values: (None,),
        "prim::unchecked_cast": lambda values: (values[inputs[0]],),
        "prim::If": lambda values: tuple(blocks[0 if values[inputs[0]] else 1].within(values, ())),
        "prim::Loop": lambda values: _loop(blocks[0], [values[name] for name in inputs], values),
    }
    if kind in special:
        return special[kind], ()
    call, keywords, tags = _resolved(kind, schema)

    def function(values: Values) -> tuple[object, ...]:
        given = [values[name] for name in inputs]
        if kind.endswith("_"):  # in the graph nothing is changed in place
            given = [value.clone() if hasattr(value, "clone") else value for value in given]
        positional = len(given) - len(keywords) if keywords else len(given)
        result = call(*given[:positional], **dict(zip(keywords, given[positional:], strict=True)))
        return tuple(result) if isinstance(result, tuple) else (result,)

    return function, tags


def _of_python(node: Any, inputs: Sequence[str]) -> _Function:
    """A call of an ``autograd.Function``: the letters of its convention say what is a tensor and what a constant."""
    call, convention, constants = node.pyobj(), node.cconv(), list(node.scalar_args())

    def function(values: Values) -> tuple[object, ...]:
        tensors, others = iter([values[name] for name in inputs]), iter(constants)
        result = call(*(next(tensors if letter == "d" else others) for letter in convention))
        return tuple(result) if isinstance(result, tuple) else (result,)

    return function


def _chunks(tensor: str, chunks: int, dim: int) -> _Function:
    """``torch.chunk`` by constants, which TorchScript keeps as attributes of the node."""
    return lambda values: tuple(values[tensor].chunk(chunks, dim))


def _resolved(kind: str, schema: str) -> tuple[Callable[..., object], list[str], Sequence[object]]:
    """The function of an operator, the names of those of its arguments that go by keyword, and its tags."""
    import torch

    keywords: list[str] = []
    overload = ""
    if "(" in schema and not schema.startswith("("):
        parsed = torch._C.parse_schema(schema)
        keywords = [argument.name for argument in parsed.arguments if argument.kwarg_only]
        overload = parsed.overload_name
    namespace, _, name = kind.partition("::")
    with contextlib.suppress(AttributeError, RuntimeError):
        packet = getattr(getattr(torch.ops, namespace), name)
        found = getattr(packet, overload or "default", packet)
        return found, keywords, getattr(found, "tags", ())
    get = part_of("torch._C", "_jit_get_operation")

    def unknown(*_: object, **__: object) -> object:
        raise Unable("interpreted", kind)

    try:
        return get(kind)[0] or unknown, keywords, ()
    except RuntimeError:
        return unknown, keywords, ()


def _loop(body: Program, given: Sequence[Any], values: Values) -> tuple[object, ...]:
    most, going, *carried = given
    turn = 0
    while turn < int(most) and going:
        going, *carried = body.within(values, (turn, *carried))
        turn += 1
    return tuple(carried)
