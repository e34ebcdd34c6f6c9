"""Read what TensorRT says of a model that it does not take: which node, in the words that a reader can use."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from conformance.process.errors import or_else
from conformance.runtimes.onnxgraph.mapped import read_graph
from conformance.runtimes.onnxgraph.reads import all_nodes, line_of

if TYPE_CHECKING:
    from onnx import NodeProto

_NO_DRIVER = re.compile(r"catchCudaError.*cudaError (35|100)\b")
"""What each message of a host without a GPU or driver carries besides, and that says nothing of the model."""
_ASSERTION = "Assertion failed: "
_CONDITION = re.compile(r'^(?:.+? && "(?P<quoted>[^"]+)"|(?:[^:]|::)+: (?P<said>.+))$')
"""A condition in the source of TensorRT, and what is said where it does not hold."""
_CALL = re.compile(r"^\S+:? Error Code \d+: [A-Z][\w ]*\((?P<said>.+?)\)?$")
"""A call of TensorRT's interface, and what it says of its arguments."""
_PLACE_IN_TENSORRT = re.compile(r"\s*In \S+ at /\S+:\d+(?=\)?)")
_MESSAGES = re.compile(r"\n|; (?=(?:\[[^]]*\]|\w+::\w+:) Error Code)")
_CODE = re.compile(r"\bErrorCode\.(?P<name>\w+)")
_HEADING = re.compile(r"^Invalid Node - \S+$")
_NAMED = re.compile(r"^(?:check|import)([A-Z]\w+)$")
"""The function of the parser that knows an operator."""
_NEEDS_DRIVER = re.compile(r"Cuda Error in (?P<plugin>\w+): (?:35|100)\b")
"""The words of a plugin that asks for a GPU as it is made, after which the parser says that it was not found."""
_NO_PLUGIN = re.compile(r"\b(?P<plugin>\w+) plugin was not found")
_BY_PLUGINS_OF_TENSORRT = {"importScatterElements": "Unsupported reduction type"}
"""By a function of the parser what it says where TensorRT 10.1 to 11 use a plugin that TensorRT for RTX lacks."""
_LACKS = re.compile(r"[Pp]lugin|has no runners|not supported by a dedicated kernel|Could not find any implementation")
_TYPES = re.compile(r"types?\b.*\b(?:Float|Half|BFloat16|Int8|Int32|Int64|Bool|FP8)\b|data ?types? .*mismatch")
_ZERO_POINT = re.compile(r"[Zz]ero[ _-]?point|shiftIsAllZeros|symmetric quantization")


def only_noise(message: str) -> bool:
    """Return whether a message says only that there is no driver."""
    lines = [line for line in message.splitlines() if line.strip()]
    return bool(lines) and all(_NO_DRIVER.search(line) for line in lines)


@dataclass(frozen=True)
class Refusal:
    """One error of TensorRT's parser or builder."""

    code: str
    """The name of the parser's error code, such as ``UNSUPPORTED_NODE``; ``BUILD`` of the builder's errors."""
    text: str
    """What it says, without conditions of its source and without the missing driver."""
    function: str = ""
    """The function of the parser that refused."""
    operator: str = ""
    """The operator of the node, or ``input`` for an input of the graph."""
    node: str = ""
    """The name of the node, or of its first output where it has none; empty where the error is about no node."""
    inside: tuple[str, ...] = ()
    """The functions, bodies and branches that the node stands in, the outermost first."""
    line: str | None = None
    """The line of Python that made the node, where the exporter kept it."""
    untried: bool = False
    """True if its plugin is there, and cannot be made without a GPU."""

    def __str__(self) -> str:
        inside = f" in {' in '.join(reversed(self.inside))}" if self.inside else ""
        node = f"{self.operator} {self.node}".rstrip()
        kind = "" if self.operator == "input" else "node "
        node = f"{kind}{node}{inside}{f' ({self.line})' if self.line else ''}: " if node else ""
        return f"{node}{self.code}: {self.text}"

    @property
    def lacks(self) -> bool:
        """Return whether this TensorRT lacks the operator as a whole: its importer, its plugin, or any kernel."""
        if self.untried:
            return False
        by_plugin = _BY_PLUGINS_OF_TENSORRT.get(self.function) == self.text
        return by_plugin or self.text == _no_importer(self.operator) or bool(_LACKS.search(self.text))

    @property
    def ill_typed(self) -> bool:
        """Return whether tensors of different types meet, or a zero point is not 0, as who made the model wrote."""
        return bool(_TYPES.search(self.text) or _ZERO_POINT.search(self.text))


def _no_importer(operator: str) -> str:
    return f"the parser knows no operator {operator}"


def read_refusals(parser: Any, model: Path, said: Sequence[str] = ()) -> list[Refusal]:
    """Return the errors of a parser after it refused the model in that file; ``said`` was logged meanwhile."""
    # what is no model cannot be read here either
    proto = or_else(None, lambda: read_graph(model))
    known = [] if proto is None else list(all_nodes(proto))
    top = [] if proto is None else list(proto.graph.node)
    found = [_refusal(parser.get_error(index), known, top) for index in range(parser.num_errors)]
    needing = {match["plugin"].lower() for line in said for match in _NEEDS_DRIVER.finditer(line)}
    return [replace(one, untried=_needs_driver(one, needing)) for one in found]


def _needs_driver(refusal: Refusal, needing: Collection[str]) -> bool:
    """Return whether the plugin that was not found is one that asked for a GPU; its name may have a version more."""
    missing = _NO_PLUGIN.search(refusal.text)
    return missing is not None and any(name.startswith(missing["plugin"].lower()) for name in needing)


def _refusal(error: Any, known: list[NodeProto], top: list[NodeProto]) -> Refusal:
    number, inside = error.node(), ()
    if hasattr(error, "node_name"):  # from TensorRT 10; the number may count from the start of a body
        operator, name = error.node_operator(), error.node_name()
        inside = tuple(error.local_function_stack()) if hasattr(error, "local_function_stack") else ()
    elif 0 <= number < len(top):
        operator, name = top[number].op_type, top[number].name
    else:
        operator, name = "", ""
    if not operator and (function := _NAMED.match(error.func())) is not None:
        same = [node for node in known if node.op_type == function[1]]  # of one such node it is sure
        operator, name = function[1] if same else "", same[0].name if len(same) == 1 else ""
    if error.func() == "importInput":  # which names the input where others name their file
        operator, name = "input", error.file()
    node = _find(operator, name, known, top[number] if not inside and 0 <= number < len(top) else None)
    name = name or (next(filter(None, node.output), "") if node is not None else "")
    return Refusal(
        code=_name_of(error.code()), text=_plain(error.desc(), error.func(), operator),
        function=error.func(), operator=operator, node=name, inside=inside,
        line=None if node is None else line_of(node),
    )  # fmt: skip


def _name_of(code: object) -> str:
    """Return the name of an error code. It is read from its text: 8.6 gives a method without a use for ``name``."""
    found = _CODE.search(repr(code))
    return found["name"] if found is not None else str(code)


def _find(operator: str, name: str, known: list[NodeProto], numbered: NodeProto | None) -> NodeProto | None:
    """Return the node that an error is about: the only one of that name, or the one of that number."""
    if not operator:
        return None
    named = [node for node in known if name and (node.op_type, node.name) == (operator, name)]
    if len(named) == 1:
        return named[0]
    return numbered if numbered is not None and numbered.op_type == operator else None


def _plain(said: str, function: str, operator: str) -> str:
    """Return what the parser says, without the condition in its source and without lines about the driver."""
    text = "; ".join(_useful(said))
    if operator and text == "false" and function == f"check{operator}":
        return _no_importer(operator)
    before, asserted, after = text.partition(_ASSERTION)
    condition = _CONDITION.match(after if asserted else text) if asserted or " && " in text else None
    if condition is not None:
        return f"{before if asserted else ''}{condition['quoted'] or condition['said']}".strip()
    return text or f"no reason given, by {function}"


def _useful(said: str) -> Iterator[str]:
    for line in _MESSAGES.split(said):
        if line.strip() and not _NO_DRIVER.search(line) and not _HEADING.match(line):
            yield _CALL.sub(lambda call: call["said"], _PLACE_IN_TENSORRT.sub("", line.strip()))


def of_builder(said: str, model: Path) -> Refusal:
    """Return what the builder said of a model that it built no engine of, with the node that it names."""
    text = "; ".join(_useful(said)) or "no reason given"
    proto = or_else(None, lambda: read_graph(model))
    found: list[tuple[str, NodeProto]] = []
    for node in [] if proto is None else all_nodes(proto):
        # a node without a name is called by its output
        name = node.name or next((f"node_of_{output}" for output in node.output if output), "")
        if name and re.search(rf"(?<![\w./]){re.escape(name)}(?![a-zA-Z])", text):
            found.append((name, node))
    if not found:
        return Refusal("BUILD", text)
    _, node = max(found, key=lambda pair: len(pair[0]))
    name = node.name or next(filter(None, node.output))
    return Refusal("BUILD", text, operator=node.op_type, node=name, line=line_of(node))
