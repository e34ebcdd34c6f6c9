"""A case that is aligned, what its answer says, and calls and graphs written by hand."""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx
from onnx import helper

from conformance.align.modules import calls_of
from conformance.align.parting import Row
from conformance.commands.align import align_text
from conformance.commands.align.question import Answer, Question, align
from conformance.onnxgraph.reads import Graph
from tests.kit.cases import write_case
from tests.kit.networks import PYTHON


@dataclass
class Trial:
    """Cases, each in a folder of its own that all tests of it share, and the store that their models are in."""

    folder: Path
    store: Path

    def place(self, body: str) -> Path:
        """The folder of a case."""
        return self.folder / hashlib.sha256(body.encode()).hexdigest()[:12]

    def write(self, body: str) -> Path:
        return write_case(self.place(body), body, PYTHON)

    def __call__(self, body: str, **asked: Any) -> Answer:
        return align(Question("planted", [self.write(body)], self.store, **asked))


def rows(answer: Answer) -> dict[str, Row]:
    found = {row.place.name: row for row in answer.alignment.rows}
    assert len(found) == len(answer.alignment.rows), "two rows have one name"
    return found


def kinds(answer: Answer) -> dict[str, str]:
    return {name: row.place.kind for name, row in rows(answer).items()}


def parting(answer: Answer) -> str:
    assert answer.alignment.first is not None
    return answer.alignment.first.place.name


def said(answer: Answer) -> str:
    return "\n".join(align_text.sentences(answer.alignment))


def _from(node: onnx.NodeProto, path: str, operation: str, kind: str) -> onnx.NodeProto:
    for key, value in (("name_scopes", ["", path, operation]), ("class_hierarchy", ["M", "S", kind])):
        entry = node.metadata_props.add()
        entry.key, entry.value = f"pkg.torch.onnx.{key}", repr(value)
    return node


def sub_calls(count: int) -> list[Any]:
    import torch

    class Outer(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.sub = torch.nn.Hardswish()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for _ in range(count):
                x = self.sub(x) * 2
            return x

    return calls_of(lambda: Outer()(torch.linspace(-2, 2, 5)))


def chain(operations: list[tuple[str, str]]) -> Graph:
    """One node after the other, each with the path and the kind of operation that it comes from."""
    nodes = [
        _from(helper.make_node(kind, [f"t{index}"], [f"t{index + 1}"], name=f"n{index}"), path, f"op{index}", kind)
        for index, (path, kind) in enumerate(operations)
    ]
    value = helper.make_tensor_value_info
    graph = helper.make_graph(nodes, "g", [value("t0", 1, [5])], [value(f"t{len(nodes)}", 1, [5])])
    return Graph(helper.make_model(graph))
