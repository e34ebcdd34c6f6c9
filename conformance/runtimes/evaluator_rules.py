"""Find the nodes on which ONNX's evaluator has a say.

These are the ones that it computes by the rules of the model's opset.

The evaluator has a class for each operator, and for some operators one for each version that it knows. Where it has
none for the version in force at an opset it takes another version's, and says nothing. ``evaluator_table.csv`` holds
every version of every operator against ONNX Runtime; ``JUDGED`` says of those that part who is right, and where.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from conformance.process.errors import attempt
from conformance.runtimes.evaluator_operators import RECURRENT, is_covered, left_out
from conformance.runtimes.onnxgraph.reads import OWN, all_nodes, by_opset, nodes

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

TABLE = Path(__file__).with_name("evaluator_table.csv")


def _read_table() -> dict[tuple[str, int], tuple[str, str, str]]:
    _, _, *lines = TABLE.read_text(encoding="utf-8").splitlines()
    return {(operator, int(version)): (used, verdict, models)
            for operator, version, used, verdict, models in csv.reader(lines)}  # fmt: skip


ROWS = _read_table()
"""By operator and version: the class that the evaluator uses, whether it agrees with ONNX Runtime, and on how many
models, or why not."""

_NEWEST = 10_000
RANDOM = "random"
"""Why operators that draw random numbers cannot be asked about."""


@dataclass(frozen=True)
class Where:
    """Nodes of an operator: those for which all that is said holds."""

    attributes: Mapping[str, tuple[object, ...]] = field(default_factory=dict)
    """The values of an attribute; of one that is not there, its default."""
    given: tuple[int, ...] = ()
    """Inputs, by place, that the node has."""
    used: tuple[int, ...] = ()
    """Outputs, by place, that the node has."""

    def holds(self, node: NodeProto, opset: int) -> bool:
        from onnx import defs, helper

        def value(name: str) -> object:
            for attribute in node.attribute:
                if attribute.name == name:
                    return _plain(helper.get_attribute_value(attribute))
            default = defs.get_schema(node.op_type, opset).attributes[name].default_value
            return _plain(helper.get_attribute_value(default)) if default.type else None

        return (
            all(len(node.input) > place and node.input[place] for place in self.given)
            and all(len(node.output) > place and node.output[place] for place in self.used)
            and all(value(name) in values for name, values in self.attributes.items())
        )


@dataclass(frozen=True)
class Judgement:
    """Judge an operator on which the evaluator and ONNX Runtime part.

    Who is right, and for which nodes it matters.
    """

    why: str
    doubtful: tuple[Where, ...] = (Where(),)
    """The nodes on which the evaluator has no say; none where it is ONNX Runtime that is wrong."""
    until: int = _NEWEST
    """The last version of the operator that this is about."""

    @property
    def misread(self) -> bool:
        """Return whether the evaluator lacks the rules of these versions."""
        return self.until < _NEWEST


_NONE: tuple[Where, ...] = ()
_CROPPED = Where({"coordinate_transformation_mode": (b"tf_crop_and_resize",)})
_CORNERS = Where({"coordinate_transformation_mode": (b"align_corners",)}, given=(2,))
_FLOAT8 = Where({"to": (17, 18, 19, 20, 24)})
_WRITTEN_OUT = "it knows only the rules of opset 13, and is given what these say of a matrix (flattening)"
_LOGARITHM = "it takes the logarithm of a softmax, which may be zero"
_RANGE = "the models that part break its rules: targets out of range"

JUDGED: dict[str, tuple[Judgement, ...]] = {
    "Attention": (Judgement("it gives other scores as fourth output", (Where(used=(3,)),)),),
    "AveragePool": (Judgement("the model that parts has no window that fits", _NONE),),
    "BatchNormalization": (Judgement("it normalises by the batch, as in training", until=9),),
    "Cast": (Judgement("it rounds to float8 in another way", (_FLOAT8,)),),
    "Dropout": (
        Judgement("its mask has numbers", (Where(used=(1,)),), until=10),
        Judgement("random in training", (Where(given=(2,)),)),
    ),
    "GridSample": (
        Judgement("it knows only the modes of opset 20", (Where({"mode": (b"bilinear", b"bicubic")}),), until=16),
    ),
    "Hardmax": (Judgement(_WRITTEN_OUT, _NONE, until=11),),
    "If": (Judgement("they part in how an empty optional is given back, which no output of a case is", _NONE),),
    "LogSoftmax": (Judgement(_LOGARITHM),),
    "MaxPool": (Judgement("it counts indices in another way", (Where(used=(1,)),)),),
    "MaxUnpool": (Judgement("it places values in another way", (Where(given=(2,)),)),),
    "NegativeLogLikelihoodLoss": (Judgement(_RANGE, _NONE),),
    "Resize": (
        Judgement("it knows only the rules of opset 13", until=11),
        Judgement("they read the rules of tf_crop_and_resize and of align_corners with scales in two ways",
                  (_CROPPED, _CORNERS)),
    ),
    "RoiAlign": (Judgement("it moves coordinates by half a pixel, as from opset 16 on", until=10),),
    "Scan": (Judgement("it knows only the rules of opset 9", until=8),),
    "Softmax": (Judgement(_WRITTEN_OUT, _NONE, until=11),),
    "SoftmaxCrossEntropyLoss": (Judgement(_LOGARITHM),),
    "Unsqueeze": (Judgement("it stops at axes that are not in order", _NONE),),
    "Upsample": (Judgement("it knows only the rules of opset 9", until=7),),
}  # fmt: skip
"""By operator, in the order of versions: the first that is about a version counts."""

OF_LATER: Mapping[str, int] = {"DequantizeLinear": 19}
"""By operator the version whose class also computes the earlier ones, which have none."""

_SMALL = "it loses small values to cancellation"
_WRONG_BEFORE_1_23 = {
    "Attention": "it gives other values than ONNX Runtime",
    "Celu": _SMALL,
    "Elu": _SMALL,
    "LpNormalization": "it gives other values than ONNX Runtime",
    "Mish": "it loses small values to rounding",
    "QLinearMatMul": "it gives other values than ONNX Runtime",
    "RNN": "it gives other values than ONNX Runtime",
    "Selu": _SMALL,
    "Softplus": "it overflows",
}
"""What ONNX 1.20 computes otherwise than ONNX Runtime, by the same models and by values from 1e-37 to 1e37, and 1.23
does not."""


@dataclass(frozen=True)
class Doubt:
    """Tell why the evaluator has no say on a node."""

    operator: str
    version: int
    why: str
    misread: bool
    """Whether it computes by other rules than the model's, so that its results mean nothing; else it can be run, but
    that it gives other values than another runtime shows nothing."""
    mended: bool = False
    """True if this package computes it in its place where it says what is right for a file
    (``onnxreference.evaluator_class``)."""

    def __str__(self) -> str:
        return f"{self.operator} of opset {self.version} ({self.why})"


def open_clip(model: ModelProto, inputs: Mapping[str, Any]) -> str | None:
    """Why others than ONNX Runtime show nothing where a Clip lacks a limit and meets infinities: ONNX says that the
    limit is then the largest number of the dtype, and they leave the infinity as it is."""
    import numpy as np

    finite = all(np.isfinite(array).all() for array in inputs.values() if array.dtype.kind == "f")
    lacks = any(
        node.op_type == "Clip" and sum(map(bool, node.input)) < 3 and not node.attribute
        for graph in (model.graph, *model.functions)
        for node in graph.node
    )
    return "it takes a limit that Clip lacks for infinite" if lacks and not finite else None


def has_half(model: ModelProto) -> bool:
    """Return whether a model computes in 16 bits.

    The evaluator adds up in 16 bits too: what runtimes hold in float32 then overflows.
    """
    return bool(halves(model))


def halves(model: ModelProto) -> set[str]:
    """Return the floats of 16 bits that a model computes in."""
    names = {10: "float16", 16: "bfloat16"}
    values = [*model.graph.input, *model.graph.output, *model.graph.value_info]
    kinds = {value.type.tensor_type.elem_type for value in values}
    kinds |= {constant.data_type for constant in model.graph.initializer}
    given = [one for node in all_nodes(model) for one in node.attribute]
    kinds |= {one.i for one in given if one.name == "to"} | {one.t.data_type for one in given if one.HasField("t")}
    return {name for kind, name in names.items() if kind in kinds}


def doubts(model: ModelProto, onnx_version: tuple[int, ...] = ()) -> list[Doubt]:
    """Find what the evaluator has no say on in a model, each once.

    In its subgraphs and functions too; of the ONNX that is installed unless another version is given.
    """
    own = {(function.domain, function.name) for function in model.functions}
    told: dict[Doubt, None] = {}
    for opset, graph in by_opset(model):
        for node in nodes(graph):
            if node.domain in OWN and (node.domain, node.op_type) not in own:
                found = doubt(node, opset, onnx_version)
                if found is not None:
                    told[found] = None
    return list(told)


def doubt(
    node: NodeProto,
    opset: int,
    onnx_version: tuple[int, ...] = (),
    rows: Mapping[tuple[str, int], tuple[str, str, str]] = ROWS,
) -> Doubt | None:
    """Say why the evaluator has no say on a node of ONNX's own domain; None where it computes it by the rules of the
    opset, and for an operator that the opset does not have, which is no question of versions.

    ``rows``: what is known of each version of each operator, in place of the table. See ``doubts``.
    """
    version = _version(node.op_type, opset)
    if version is None:
        return None

    def told(why: str, *, misread: bool, mended: bool = False) -> Doubt:
        return Doubt(node.op_type, version, why, misread, mended)

    used, row = uses(node.op_type, opset), rows.get((node.op_type, version))
    if used == "nothing":
        return told("it has no implementation", misread=True, mended=node.op_type in OF_LATER)
    if node.op_type in RECURRENT and (names := left_out(node)):
        return told(f"it leaves out {', '.join(names)}", misread=True, mended=is_covered(node))
    if (onnx_version or _installed()) < (1, 23) and node.op_type in _WRONG_BEFORE_1_23:
        return told(_WRONG_BEFORE_1_23[node.op_type], misread=False)
    if row is not None and row[2] == RANDOM:
        return told("it is random", misread=False)
    judgement = judgement_of(node.op_type, version)
    if judgement is not None and any(where.holds(node, opset) for where in judgement.doubtful):
        return told(judgement.why, misread=judgement.misread)
    if row is None or row[0] != used or row[1] == "unasked":
        own = _is_own(used, node.op_type, version)
        return None if own else told("it has the rules of another version", misread=True)
    if row[1] == "differs" and judgement is None:
        return told("it gives other values than ONNX Runtime", misread=True)
    return None


def judgement_of(operator: str, version: int) -> Judgement | None:
    """The judgement about a version of an operator; None where there is none."""
    return next((entry for entry in JUDGED.get(operator, ()) if version <= entry.until), None)


@cache
def _version(operator: str, opset: int) -> int | None:
    """The version of an operator in force at an opset; None where it has none."""
    from onnx import defs

    try:
        return int(defs.get_schema(operator, opset).since_version)
    except defs.SchemaError:
        return None


def _is_own(used: str, operator: str, version: int) -> bool:
    """Return whether what the evaluator uses is for this version.

    By its name, by being made of the version's own schema, or for want of another one by the version being the
    newest.
    """
    from onnx import defs

    if used == "function":
        return True
    named_version = used.rpartition("_")[2]
    if used != operator and named_version.isdigit():
        return int(named_version) == version
    return int(defs.get_schema(operator).since_version) == version


@cache
def _installed() -> tuple[int, ...]:
    import onnx

    return tuple(int(part) for part in onnx.__version__.split(".")[:3] if part.isdigit())


def _plain(value: object) -> object:
    return value.encode() if isinstance(value, str) else value


@cache
def uses(operator: str, opset: int) -> str:
    """The name of the class that the evaluator takes for an operator at an opset; ``function`` where it evaluates the
    body that the schema gives, ``nothing`` where it has neither."""
    from onnx import defs
    from onnx.reference import ReferenceEvaluator
    from onnx.reference.ops._op_list import load_op

    implementation = attempt(lambda: load_op("", operator, opset, evaluator_cls=ReferenceEvaluator))
    if isinstance(implementation, Exception):
        try:
            schema: Any = defs.get_schema(operator, opset)
        except defs.SchemaError:
            return "nothing"
        return "function" if schema.has_context_dependent_function else "nothing"
    return str(implementation.__name__) if isinstance(implementation, type) else "function"
