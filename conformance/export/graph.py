"""Reading an exported model: its facts, and holding them against what a case says. Needs onnx, not torch."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from conformance.case.declaration import Case
from conformance.case.dims import Sizes
from conformance.case.must_hold import Graph
from conformance.errors import did_you_mean

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto

Axis = int | str | None


@dataclass(frozen=True)
class Facts:
    """What was found in a model file. Dims are sizes, names, or None where nothing is said."""

    opset: int
    domains: dict[str, int]
    nodes: dict[str, int]
    """Count by ``Operator``, or ``domain::Operator`` outside of ONNX's own; subgraphs included."""
    inputs: dict[str, list[Axis] | None]
    outputs: dict[str, list[Axis] | None]
    dtypes: dict[str, str]
    """NumPy dtype of each input and output."""
    initializers: int
    overridable: int
    sha: str
    structure: str
    """A hash of operators, attributes, wiring and small constants, without names and doc strings."""
    invalid: list[str] | None = None
    """[error, text] of onnx.checker or shape inference, or None."""

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def read(model: ModelProto, data: bytes) -> Facts:
    """The facts of ``model``, whose serialized form is ``data``, with what onnx.checker says of it."""
    import onnx
    from onnx import helper

    domains = {one.domain or "ai.onnx": one.version for one in model.opset_import}
    parameters = {one.name for one in model.graph.initializer}
    inputs = [one for one in model.graph.input if one.name not in parameters]
    values = [*inputs, *model.graph.output]
    return Facts(
        opset=domains.get("ai.onnx", 0),
        domains=domains,
        nodes=dict(sorted(Counter(_operators(model.graph)).items())),
        inputs={one.name: _dims(one) for one in inputs},
        outputs={one.name: _dims(one) for one in model.graph.output},
        dtypes={
            one.name: str(helper.tensor_dtype_to_np_dtype(one.type.tensor_type.elem_type))
            for one in values
            if one.type.tensor_type.elem_type not in (0, onnx.TensorProto.STRING)
        },
        initializers=len(model.graph.initializer),
        overridable=len(parameters & {one.name for one in model.graph.input}),
        sha=hashlib.sha256(data).hexdigest()[:16],
        structure=structure(model),
        invalid=_validate(model),
    )


def _validate(model: ModelProto) -> list[str] | None:
    import onnx

    try:
        onnx.checker.check_model(model, full_check=True)
    except Exception as error:  # ValidationError, InferenceError and what their C++ lets through
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        return [type(error).__name__, lines[0] if lines else "no text"]
    return None


def _operators(graph: GraphProto) -> Iterator[str]:
    for node in graph.node:
        yield node.op_type if node.domain in ("", "ai.onnx") else f"{node.domain}::{node.op_type}"
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                yield from _operators(inner)


def _dims(value: Any) -> list[Axis] | None:
    tensor = value.type.tensor_type
    if not tensor.HasField("shape"):
        return None
    return [one.dim_value if one.HasField("dim_value") else (one.dim_param or None) for one in tensor.shape.dim]


def structure(model: ModelProto) -> str:
    """A hash that is equal for two exports of one module unless the graphs really differ.

    Constants above 64 values count by their shape only: weights are the same anyway.
    """
    from onnx import numpy_helper

    digest = hashlib.sha256()
    names: dict[str, str] = {}

    def rename(name: str) -> str:
        return names.setdefault(name, f"v{len(names)}") if name else ""

    def constant(tensor: Any) -> bytes:
        array = numpy_helper.to_array(tensor)
        head = f"{array.dtype}{array.shape}".encode()
        return head + (array.tobytes() if array.size <= 64 else b"")

    def visit(graph: GraphProto) -> None:
        for tensor in graph.initializer:
            digest.update(rename(tensor.name).encode() + constant(tensor))
        for value in graph.input:
            rename(value.name)
        for node in graph.node:
            digest.update(f"{node.domain}|{node.op_type}".encode())
            digest.update("|".join(rename(name) for name in (*node.input, *node.output)).encode())
            for attribute in sorted(node.attribute, key=lambda one: one.name):
                digest.update(attribute.name.encode())
                if attribute.HasField("t"):
                    digest.update(constant(attribute.t))
                elif attribute.HasField("g"):
                    visit(attribute.g)
                else:
                    copy = type(attribute)()
                    copy.CopyFrom(attribute)
                    copy.doc_string = ""
                    digest.update(copy.SerializeToString(deterministic=True))
        digest.update("|".join(rename(value.name) for value in graph.output).encode())

    visit(model.graph)
    return digest.hexdigest()[:16]


# ---- what must hold ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Finding:
    """Something in the graph that should not be so; ``error`` is the name for ``fails`` entries."""

    error: str
    text: str
    fault: str


def signature(case: Case, facts: Facts, wanted: list[str], traced: Sizes, static: Sequence[str]) -> Iterator[Finding]:
    """Names, dtypes and dims of the graph's inputs and outputs against the case's; ``wanted`` are the names of
    the inputs in the order of forward's parameters."""
    found = list(facts.inputs)
    if found != wanted:
        missing = [name for name in wanted if name not in found]
        what = f"lost the inputs {missing}" if missing else f"has the inputs {found}"
        yield Finding("WrongInputs", f"the graph {what}, declared are {wanted}", "exporter")
    names = [one.name for one in case.says.outputs]
    if names and list(facts.outputs) != names:
        yield Finding(
            "WrongOutputs",
            f"the graph has the outputs {list(facts.outputs)}, declared are {names}",
            "exporter",
        )
    for name, one in case.says.inputs.items():
        if name not in facts.inputs:
            continue
        if facts.dtypes.get(name) != one.type.dtype:
            yield Finding(
                "WrongDtype",
                f"the graph's input {name} is {facts.dtypes.get(name)}, declared {one.type.dtype}",
                "exporter",
            )
        dims = facts.inputs[name]
        if dims is None or len(dims) != len(one.type.shape):
            yield Finding(
                "WrongRank", f"the graph's input {name} has dims {dims}, declared is {one.type}", "exporter"
            )
            continue
        for axis, (dim, size) in enumerate(zip(dims, one.type.shape, strict=True)):
            varies = any(not case.dims.ranges[n].fixed and n not in static for n in size.names)
            if varies and isinstance(dim, int):
                yield Finding(
                    "FrozenDim",
                    f"axis {axis} ('{size}') of the graph's input {name} is fixed at {dim}, the size it was "
                    f"traced at; other sizes of {size} will not load or not run",
                    "exporter",
                )
            elif not varies and isinstance(dim, int) and dim != size(traced):
                yield Finding(
                    "WrongDim",
                    f"axis {axis} of the graph's input {name} is {dim}, declared {size}",
                    "exporter",
                )


def assertions(graph: Graph, facts: Facts) -> Iterator[Finding]:
    """One ``graph`` entry of a case against the facts."""

    def finding(text: str) -> Finding:
        return Finding("GraphMismatch", text, "exporter")

    for operator, count in graph.nodes.items():
        found = facts.nodes.get(operator, 0)
        if found != count:
            near = did_you_mean(operator, facts.nodes) if not found else ""
            yield finding(f"{found} {operator} nodes, declared {count}{near}")
    if graph.only and set(facts.nodes) - set(graph.nodes):
        extra = ", ".join(f"{facts.nodes[name]} {name}" for name in facts.nodes if name not in graph.nodes)
        yield finding(f"nodes that are not declared: {extra}")
    for operator in graph.absent:
        if operator in facts.nodes:
            yield finding(f"{facts.nodes[operator]} {operator} nodes, declared absent")
    for what, names, found_names in (
        ("inputs", graph.inputs, list(facts.inputs)),
        ("outputs", graph.outputs, list(facts.outputs)),
    ):
        if names is not None and names != found_names:
            yield finding(f"the {what} are {found_names}, declared {names}")
    for what, wanted, has in (
        ("initializers", graph.initializers, facts.initializers),
        ("initializers that are inputs too", graph.overridable, facts.overridable),
    ):
        if wanted is not None and wanted != has:
            yield finding(f"{has} {what}, declared {wanted}")
    for domain, version in graph.domains.items():
        if facts.domains.get(domain) != version:
            yield finding(f"the model imports {domain} {facts.domains.get(domain)}, declared {version}")
    yield from (finding(text) for text in _dims_differ(graph, facts))


def _dims_differ(graph: Graph, facts: Facts) -> Iterator[str]:
    known: Mapping[str, list[Axis] | None] = {**facts.inputs, **facts.outputs}
    for name, wanted in graph.dims.items():
        if name not in known:
            yield f"dims: the graph has no input or output '{name}'{did_you_mean(name, known)}"
            continue
        found = known[name]
        same = found is not None and len(found) == len(wanted)
        if same and found is not None:
            same = all(
                want is None or (want == "symbolic" and not isinstance(dim, int)) or want == dim
                for dim, want in zip(found, wanted, strict=True)
            )
        if not same:
            yield f"the dims of {name} are {found}, declared {wanted}"
