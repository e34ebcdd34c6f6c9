"""Find the operators that a model calls: of a module by exporting it, of files by reading them.

An operator is named as PyTorch's programs name it, with the texts that it is called with, which choose what it does:
``aten.pad.default(reflect)``. Calls that only ask for sizes, or assert, are none.
"""

from __future__ import annotations

import dataclasses
import json
import re
import zipfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from conformance.diagnose.operators.instruments import frames_of
from conformance.extras.draft.drafting import Request, building, fitted
from conformance.extras.draft.guessed_inputs import arguments_of
from conformance.process.errors import UserError, attempt, stopping, summarize

if TYPE_CHECKING:
    from torch.fx import Graph
    from torch.nn import Module

PLUMBING = re.compile(r"aten\.(sym_\w+|_assert_\w+|lift_fresh_copy|detach_)\.|getitem$")
"""Calls that compute nothing of a model."""
SCHEMA = 8
"""The major version of the format that ``torch.export.save`` of PyTorch 2.15 writes."""
_OF_TORCH = re.compile(r"(^|-packages[/\\])torch[/\\]|^<")
"""The path of a file of PyTorch's own, also of another host, or of code that it made."""
_PROGRAM = re.compile(r"(.*/)?(models/[^/]+|serialized_exported_program)\.json")


@dataclass(frozen=True)
class CalledOperator:
    """Hold an operator, how often it is called, and from which line first."""

    name: str
    calls: int = 1
    line: str | None = None
    """Of the user's Python, as ``net.py:12``; None where it is not known."""

    def as_dict(self) -> dict[str, object]:
        return dataclasses.asdict(self)


def operators_of_module(request: Request) -> list[CalledOperator]:
    """Build a module, find inputs by trying, and return the operators of the program that torch.export makes of it.

    Raises Stopped with why it cannot be built, run or exported.
    """
    import torch

    with building(request) as module:
        inputs, keywords, sizes = fitted(module, request.inputs, request.dims)
        positional, named = arguments_of(inputs, keywords, sizes)
        with stopping("export", "case", partial(_refused, request.module)):
            program = torch.export.export(module, tuple(positional), named, strict=False)
    return counted(calls_of(program.graph_module))


def _refused(name: str, error: Exception) -> str:
    return f"torch.export does not take {name}, so that its operators are not known: {summarize(error)}"


def calls_of(module: Module) -> Iterator[CalledOperator]:
    """Yield the calls of a captured program, and then those of the programs that it chooses between."""
    for part in module.modules():
        graph: Graph | None = getattr(part, "graph", None)
        yield from () if graph is None else _of_graph(graph)


def _of_graph(graph: Graph) -> Iterator[CalledOperator]:
    from torch._ops import OperatorBase

    for node in graph.nodes:
        if node.op == "call_function" and isinstance(node.target, OperatorBase):
            texts = (value for value in (*node.args, *node.kwargs.values()) if isinstance(value, str))
            yield from _called(str(node.target), texts, node.meta.get("stack_trace"))


def _called(target: str, texts: Iterable[str], trace: object) -> Iterator[CalledOperator]:
    if not PLUMBING.match(target):
        words = ", ".join(texts)
        frames = frames_of(trace) if isinstance(trace, str) else []
        lines = [f"{Path(file).name}:{line}" for file, line, _ in frames if not _OF_TORCH.search(file)]
        yield CalledOperator(f"{target}({words})" if words else target, line=lines[-1] if lines else None)


def counted(calls: Iterable[CalledOperator]) -> list[CalledOperator]:
    """Return each operator once."""
    every = list(calls)
    counts, first = Counter(one.name for one in every), {one.name: one for one in reversed(every)}
    return [CalledOperator(name, count, first[name].line) for name, count in counts.items()]


# ---- of files ------------------------------------------------------------------------------------------------


def operators_of_program(file: Path) -> list[CalledOperator]:
    """Return the operators of a program that ``torch.export.save`` wrote. Nothing in it is run, and no weight read.

    Raises OSError, and UserError for a file that holds no such program, or one of another version.
    """
    with file.open("rb") as stream:
        programs = attempt(lambda: list(_programs(zipfile.ZipFile(stream))))
    if isinstance(programs, Exception):
        raise UserError(f"{file} cannot be read as what torch.export.save writes: {summarize(programs)}")
    if not programs:
        raise UserError(f"{file} holds no program of torch.export; write one with torch.export.save")
    for program in programs:
        version = _version(program)
        if version != f"version {SCHEMA}":
            how = "save it again with the PyTorch that is to export it"
            raise UserError(f"{file} is a program of {version}, and version {SCHEMA} is read: {how}")
    calls = attempt(lambda: [call for one in programs for call in _of_nodes(one["graph_module"]["graph"])])
    if isinstance(calls, Exception):
        raise UserError(f"{file} is a damaged program of torch.export: {summarize(calls)}")
    return counted(calls)


def _version(program: Any) -> str:
    """Return the version of a program's format in words, with the PyTorch that wrote one that is not read."""
    said: Any = program if isinstance(program, dict) else {}
    version = said.get("schema_version")
    major = version.get("major") if isinstance(version, dict) else None
    by = f" (PyTorch {said['torch_version']})" if major != SCHEMA and "torch_version" in said else ""
    return "no known format" if major is None else f"version {major}{by}"


def _programs(archive: zipfile.ZipFile) -> Iterator[Any]:
    for name in archive.namelist():
        if _PROGRAM.fullmatch(name):
            yield json.loads(archive.read(name))


def _of_nodes(graph: Mapping[str, Any]) -> Iterator[CalledOperator]:
    for node in graph["nodes"]:
        given = [one["arg"] for one in node["inputs"]]
        target = str(node["target"])
        if target.startswith("torch.ops."):
            texts = (str(one["as_string"]) for one in given if "as_string" in one)
            name = target.removeprefix("torch.ops.").removeprefix("higher_order.")
            yield from _called(name, texts, (node.get("metadata") or {}).get("stack_trace"))
        for one in given:
            if "as_graph" in one:
                yield from _of_nodes(one["as_graph"]["graph"])


def operators_of_file(file: Path) -> list[CalledOperator]:
    """Return the operators of an ONNX file. Raises OSError, and UserError for one that is damaged."""
    from conformance.case.files.onnx_header import NotOnnx, header
    from conformance.runtimes.onnxgraph.mapped import read_graph
    from conformance.runtimes.onnxgraph.reads import all_nodes, line_of, operator_of

    try:
        header(file)
    except NotOnnx as error:
        raise UserError(f"{file}: {error}") from None
    model = attempt(partial(read_graph, file))
    if isinstance(model, Exception):
        raise UserError(f"{file} is a damaged ONNX model: {summarize(model)}")
    return counted(CalledOperator(operator_of(node), line=line_of(node)) for node in all_nodes(model))
