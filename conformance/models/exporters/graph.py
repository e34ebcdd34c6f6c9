"""Reading the facts of an exported model, and comparing them with what a case says. Needs onnx, not torch."""

from __future__ import annotations

import hashlib
import math
import re
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from conformance.case.files.declaration import Case
from conformance.case.files.dims import Sizes
from conformance.case.files.must_hold import GraphAssertion
from conformance.models.exporters.taken_file import TakenFile
from conformance.process.disk.onnx_models import Written, serialized
from conformance.process.errors import Details, Stopped, attempt, did_you_mean, works
from conformance.runtimes.onnxgraph.reads import copy_of, dims_of, nodes, operator_of

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, TensorProto, TypeProto, ValueInfoProto

Axis = int | str | None


@dataclass(frozen=True)
class Facts:
    """The content of a model file. Dims are sizes, names, or None where the model says nothing of a dim."""

    opset: int
    domains: dict[str, int]
    nodes: dict[str, int]
    """Number of nodes by ``Operator``, or ``domain::Operator`` outside of ONNX's own domain; subgraphs included."""
    inputs: dict[str, list[Axis] | None]
    outputs: dict[str, list[Axis] | None]
    dtypes: dict[str, str]
    """NumPy dtype of each input and output; of a sequence, that of its tensors."""
    initializers: int
    overridable: int
    sha: str
    structure: str
    """A hash of operators, attributes, wiring and small constants, without names and doc strings."""
    canonical: str = ""
    """The same without values of several floats, which differ in their last bits by processor: equal on any host."""
    sequences: list[str] = field(default_factory=list)
    """The outputs that are sequences of tensors."""
    invalid: list[str] | None = None
    """[error, text] of onnx.checker or type inference; None for a model that both accept."""
    doubted: list[str] | None = None
    """[error, text] where nothing refuses the model but that shape inference infers another size than it declares.
    Inference has the size of some outputs wrong (``ceil_mode``), so that it is for runtimes to say."""

    def as_dict(self) -> dict[str, object]:
        return asdict(self)


def read(model: ModelProto, data: Written) -> Facts:
    """The facts of ``model``, which is written as ``data``, with what onnx.checker says of it."""
    domains = {imported.domain or "ai.onnx": imported.version for imported in model.opset_import}
    invalid, doubted = _validate(data)
    parameters = {initializer.name for initializer in model.graph.initializer}
    inputs = [value for value in model.graph.input if value.name not in parameters]
    values = [*inputs, *model.graph.output]
    return Facts(
        opset=domains.get("ai.onnx", 0),
        domains=domains,
        nodes=dict(sorted(Counter(map(operator_of, nodes(model.graph))).items())),
        inputs={value.name: _dims(value) for value in inputs},
        outputs={value.name: _dims(value) for value in model.graph.output},
        dtypes={
            value.name: _dtype(_tensor_type(value).elem_type) for value in values if _tensor_type(value).elem_type
        },
        initializers=len(model.graph.initializer),
        overridable=len(parameters & {value.name for value in model.graph.input}),
        sha=data.sha[:16],
        structure=structure(model),
        canonical=structure(model, floats=1),
        sequences=[value.name for value in model.graph.output if value.type.WhichOneof("value") == "sequence_type"],
        invalid=invalid,
        doubted=doubted,
    )


def _dtype(number: int) -> str:
    from onnx import TensorProto, helper

    return "str" if number == TensorProto.STRING else str(helper.tensor_dtype_to_np_dtype(number))


def _validate(data: Written) -> tuple[list[str] | None, list[str] | None]:
    """Return what refuses the model, as [error, text]: the checker or type inference; or shape inference alone."""
    import onnx

    bare = data.declared() if isinstance(data, TakenFile) else None
    if bare is not None and works(lambda: onnx.checker.check_model(bare, full_check=True)):
        return None, None  # and what refuses it is asked about the model itself
    error = attempt(lambda: _check(data, full=True))
    if error is None:
        return None, None
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    told = [type(error).__name__, "; ".join([" ".join(lines) or "no text", *_later(lines)])]
    of_function = type(error) is onnx.shape_inference.InferenceError and all(map(_OF_FUNCTION.match, lines))
    sizes_differ = all(any(words in line for words in _SIZES_DIFFER) for line in lines)
    passes = bool(lines) and (sizes_differ or of_function) and works(lambda: _check(data, full=False))
    return (None, told) if passes else (told, None)


def refusal(model: ModelProto, *, sizes: bool = False) -> list[str] | None:
    """Return [error, text] of what refuses the model; None where nothing does. ``sizes`` is whether it counts that
    shape inference infers another size than the model declares."""
    invalid, doubted = _validate(serialized(model))
    return invalid or (doubted if sizes else None)


_SIZES_DIFFER = (
    "Inferred shape and existing shape differ in dimension",
    "Both inferred and declared dimension have values but they differ",
)
"""What shape inference says (onnx/defs/shape_inference.h) where it infers another size than the model declares, and
not that an operator cannot be given such types or shapes."""


_OF_FUNCTION = re.compile(r"\[ShapeInferenceError\] .*\(op_type:\w+.*\): \[ShapeInferenceError\] .*\(op_type:")
"""A complaint of shape inference about a node inside of a function, as of that by which ONNX defines an operator:
where an attribute is left to its default, the function of ONNX itself may be refused."""


_UNSUPPORTED = re.compile(r"\(op_type:(\w+).*\): \w+ typestr: (\w+), has unsupported type: (tensor\((\w+)\))")
"""A sentence of shape inference about an operator that does not take such a type at the model's opset."""


def _later(lines: Iterable[str]) -> Iterator[str]:
    """Yield the opset from which ONNX's operators take the types that they are refused for, where there is one."""
    import onnx

    refused = (found.groups() for found in map(_UNSUPPORTED.search, lines) if found)
    for name, kind, tensor, dtype in dict.fromkeys(refused):
        since = [
            schema.since_version for schema in onnx.defs.get_all_schemas_with_history()
            if (schema.domain, schema.name) == ("", name)
            and any(one.type_param_str == kind and tensor in one.allowed_type_strs for one in schema.type_constraints)
        ]  # fmt: skip
        if since:
            yield f"{name} takes {dtype} from opset {min(since)} on"


def _check(data: Written, *, full: bool) -> None:
    """Raise what onnx.checker raises, which reads a large model from a file alone, and another one faster from its
    bytes, as it would make them anew."""
    import onnx

    message = data.message()
    if message is not None:
        onnx.checker.check_model(message, full_check=full)
        return
    with tempfile.TemporaryDirectory() as folder:
        onnx.checker.check_model(data.write(Path(folder)), full_check=full)


def _tensor_type(value: ValueInfoProto) -> TypeProto.Tensor:
    """The type of an input or output that is a tensor, or of the tensors in one that is a sequence or optional."""
    kind = value.type
    while (holder := kind.WhichOneof("value")) in ("sequence_type", "optional_type"):
        kind = getattr(kind, holder).elem_type
    return kind.tensor_type


def _dims(value: ValueInfoProto) -> list[Axis] | None:
    return dims_of(_tensor_type(value))


def structure(model: ModelProto, *, floats: int = 64) -> str:
    """Return a hash that is equal for two exports of one module unless the graphs really differ.

    Constants of more than 64 values, and those of more than ``floats`` floating-point ones, count by their dtype and
    shape only: the weights of two exports of one module are equal.
    """
    from onnx import helper, numpy_helper

    digest = hashlib.sha256()
    names: dict[str, str] = {}

    def rename(name: str) -> str:
        return names.setdefault(name, f"v{len(names)}") if name else ""

    @cache
    def dtype_of(number: int) -> tuple[str, int]:
        dtype = np.dtype(helper.tensor_dtype_to_np_dtype(number))
        return str(dtype), floats if dtype.kind not in "biu" else 64

    def constant(tensor: TensorProto) -> bytes:
        dtype, most = dtype_of(tensor.data_type)
        head = f"{dtype}{tuple(tensor.dims)}".encode()
        return head + (numpy_helper.to_array(tensor).tobytes() if math.prod(tensor.dims) <= most else b"")

    def visit(graph: GraphProto) -> None:
        weights = {tensor.name: tensor for tensor in graph.initializer}
        for value in graph.input:
            rename(value.name)
        for node in graph.node:
            for name in node.input:  # in the order of their use: the exporters list them in any
                if name in weights:
                    digest.update(rename(name).encode() + constant(weights.pop(name)))
            digest.update(f"{node.domain}|{node.op_type}".encode())
            digest.update("|".join(rename(name) for name in (*node.input, *node.output)).encode())
            for attribute in sorted(node.attribute, key=lambda attribute: attribute.name):
                digest.update(attribute.name.encode())
                if attribute.HasField("t"):
                    digest.update(constant(attribute.t))
                elif attribute.HasField("g"):
                    visit(attribute.g)
                else:
                    copy = copy_of(attribute)
                    copy.doc_string = ""
                    digest.update(copy.SerializeToString(deterministic=True))
        digest.update("|".join(rename(value.name) for value in graph.output).encode())
        digest.update("|".join(sorted(str(constant(tensor)) for tensor in weights.values())).encode())

    visit(model.graph)
    return digest.hexdigest()[:16]


# ---- what must hold ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class GraphFinding:
    """Something in the graph that the case does not allow; ``error`` is its name in ``fails`` entries."""

    error: str
    text: str


def signature(
    case: Case,
    facts: Facts,
    wanted: list[str],
    traced: Sizes,
    static: Sequence[str],
    outputs: list[str] | None = None,
) -> Iterator[GraphFinding]:
    """Names, dtypes and dims of the graph's inputs and outputs against the case's; ``wanted`` are the names of
    the inputs in the order of forward's parameters, ``outputs`` those of the outputs where they are not as declared.
    """
    names = list(facts.inputs)
    wanted = [name for name in wanted if name in names or name not in case.says.unused]
    if names != wanted:
        missing = [name for name in wanted if name not in names]
        what = f"lost the inputs {missing}" if missing else f"has the inputs {names}"
        yield GraphFinding("WrongInputs", f"the graph {what}, declared are {wanted}")
    outputs = [output.name for output in case.says.outputs] if outputs is None else outputs
    if outputs and list(facts.outputs) != outputs:
        yield GraphFinding("WrongOutputs", f"the graph has the outputs {list(facts.outputs)}, declared are {outputs}")
    for name, declared in case.says.inputs.items():
        if name not in facts.inputs:
            continue
        if facts.dtypes.get(name) != declared.type.carrier:
            text = f"the graph's input {name} is {facts.dtypes.get(name)}, declared {declared.type.dtype}"
            yield GraphFinding("WrongDtype", text)
        dims = facts.inputs[name]
        if dims is None or len(dims) != len(declared.type.shape):
            yield GraphFinding("WrongRank", f"the graph's input {name} has dims {dims}, declared is {declared.type}")
            continue
        for axis, (dim, size) in enumerate(zip(dims, declared.type.shape, strict=True)):
            varies = any(not case.dims.ranges[n].fixed and n not in static for n in size.names)
            if varies and isinstance(dim, int):
                yield GraphFinding(
                    "FrozenDim",
                    f"axis {axis} ('{size}') of the graph's input {name} is fixed at {dim}, the size it was "
                    f"traced at; other sizes of {size} will not load or not run",
                )
            elif not varies and isinstance(dim, int) and dim != size(traced):
                yield GraphFinding("WrongDim", f"axis {axis} of the graph's input {name} is {dim}, declared {size}")


def assertions(graph: GraphAssertion, facts: Facts) -> Iterator[GraphFinding]:
    """Yield what differs between a ``graph`` entry of a case and the facts of a model."""

    def finding(text: str) -> GraphFinding:
        return GraphFinding("GraphMismatch", text)

    for operator, count in graph.nodes.items():
        actual = facts.nodes.get(operator, 0)
        if actual != count:
            near = did_you_mean(operator, facts.nodes) if not actual else ""
            yield finding(f"{actual} {operator} nodes, declared {count}{near}")
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


def _dims_differ(graph: GraphAssertion, facts: Facts) -> Iterator[str]:
    known: Mapping[str, list[Axis] | None] = {**facts.inputs, **facts.outputs}
    for name, wanted in graph.dims.items():
        if name not in known:
            yield f"dims: the graph has no input or output '{name}'{did_you_mean(name, known)}"
            continue
        actual = known[name]
        same = actual is not None and len(actual) == len(wanted)
        if same and actual is not None:
            same = all(
                want is None or (want == "symbolic" and not isinstance(dim, int)) or want == dim
                for dim, want in zip(actual, wanted, strict=True)
            )
        if not same:
            yield f"the dims of {name} are {actual}, declared {wanted}"


def invalid_model(error: str, text: str, details: Details | None = None) -> Stopped:
    """Return the failure of a model that onnx.checker refuses."""
    return Stopped("check", error, f"onnx.checker refuses the model: {text}", "exporter", details)
