"""A failing example node by node: ONNX Runtime's kernel of each node against what others compute of the same inputs.

The first node at which they part says where to look. Whether it is the cause is tried: where the outputs are
PyTorch's as soon as such nodes have the others' values, the kernel is wrong, and else the model. A node that nobody
else can compute stays open, and with it the question only where it matters.
"""

from __future__ import annotations

import itertools
import re
import tempfile
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from conformance.compare.close import Limit, differs
from conformance.compare.nudge import largest_movement, to_neighbours
from conformance.diagnose.nodes.operator_rules import broken_by
from conformance.process.arrays import Array, in_dtype_of
from conformance.process.errors import attempt, or_else
from conformance.results.records.explanation import NodeByNode
from conformance.runtimes import opener, registry
from conformance.runtimes.onnxgraph.cut import Nodes
from conformance.runtimes.onnxgraph.reads import OWN, copy_of, first_output, line_of, needs, operator_of, opset_of

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

FIRST = "onnxruntime-unoptimized"
"""Whose kernels are looked at."""
_Values = Mapping[str, Any]
_Outputs = list[Any]
"""Tensors, and lists of those of a sequence."""
_ROUNDING = 16
"""Units in the last place of a value, and multiples of what the rounding of a node's inputs makes of it, within which
two kernels give the same."""
NUDGES = 2
_LENIENT = 1e-4
"""The same for a runtime that orders and fuses what it computes, relative to the largest value."""
_SUMS = re.compile(
    r"Attention|Conv|CumSum|Einsum|GRU|Gemm|GridSample|LSTM|.*MatMul|.*Normalization|.*Pool|RNN|Reduce|Resize|RoiAlign"
)
"""Operators that add up many products. What rounding makes of one sum may be nothing by luck, so that the most it
makes of any sum of the output is what counts."""
_NOT_IMPLEMENTED = re.compile(r"not[ _](yet[ _])?(implemented|supported)|could not find an implementation", re.I)


@dataclass(frozen=True)
class NodePlace:
    """A node at which something is to be said."""

    node: str
    operator: str
    line: str | None
    how: str
    """``parts``: another computes other values; ``alike``: one that may share a mistake computes the same; ``open``:
    nobody else computes it; ``breaks``: its inputs break the rules of its operator; ``unsaid``: ONNX has no rule for
    them; ``loses``: a converted file loses most there; ``stops``: ONNX Runtime stops there; ``invalid``: no node, but
    the model as a whole is refused by ONNX's own checks."""
    by: str | None = None
    """The runtime that computes other values."""
    why: str | None = None
    """The rule, or the error."""

    def as_dict(self) -> Any:
        """The place as ``parts_at`` of a record has it."""
        return {name: value for name, value in vars(self).items() if value is not None}


@dataclass
class Walked:
    """The result of a walk through the nodes of a model."""

    first: _Outputs | None = None
    """The model's outputs by ONNX Runtime's kernels; None where it stops."""
    second: _Outputs | None = None
    """The outputs with the values of others at each node that they compute; None where no node parts."""
    parted: list[NodePlace] = field(default_factory=list)
    misled: bool = False
    """Whether a node parts in a shape, a dtype or integers, so that what a later node gets may not be the model's."""
    substitutes: list[_Outputs] = field(default_factory=list)
    """What others compute at the nodes that part."""
    alike: list[NodePlace] = field(default_factory=list)
    """Nodes of which nobody but a runtime of its own rules (``values_only``) computes the same."""
    open: list[NodePlace] = field(default_factory=list)
    ended: NodePlace | None = None
    unsupported: bool = False
    """Whether ONNX Runtime stops for want of a kernel."""
    count: int = 0
    """How many nodes compute something."""
    refused: str | None = None
    """What ONNX's checker and inference of shapes refuse the model for at the sizes of the example."""


def walk(
    model: Path, libraries: Sequence[str], inputs: Mapping[str, Array], failing: Collection[int] = ()
) -> Walked:  # fmt: skip
    """Walk once with ONNX Runtime's values, and again with those of others where they part.

    With ``failing``, the numbers of outputs, only nodes are compared on which one of these depends.
    """
    import onnx

    walked = Walked()
    loaded = onnx.load(model)
    walked.refused = refusal(loaded, inputs)
    nodes = Nodes(loaded)
    walked.count = sum(node.op_type not in ("Constant", "Identity") for node in nodes)
    with tempfile.TemporaryDirectory() as folder:
        kernels = _Kernels(nodes, libraries, Path(folder))
        matter = _leading_to(nodes, failing)

        def compared(node: NodeProto, values: _Values) -> _Outputs | None:
            if first_output(node) in matter:
                return _compared(kernels, walked, node, values)
            return kernels.maybe(FIRST, node, values)

        walked.first = _chain(nodes, inputs, compared)
        if walked.parted and walked.first is not None:
            walked.second = _chain(nodes, inputs, kernels.by_others)
    return walked


def refusal(model: ModelProto, inputs: Mapping[str, Array]) -> str | None:
    """Return what the checker or the strict inference of shapes refuse a model for with inputs of these shapes."""
    import onnx

    concrete = copy_of(model)
    for value in concrete.graph.input:
        array = inputs.get(value.name)
        if array is not None and value.type.HasField("tensor_type"):
            shape = value.type.tensor_type.shape
            shape.Clear()
            for size in array.shape:
                shape.dim.add().dim_value = size
    for value in (*concrete.graph.output, *concrete.graph.value_info):  # what the exporter calls by name has a size
        for dim in value.type.tensor_type.shape.dim:
            dim.ClearField("dim_param")

    def check() -> None:
        onnx.checker.check_model(concrete)
        onnx.shape_inference.infer_shapes(concrete, check_type=True, strict_mode=True, data_prop=True)

    error = attempt(check)
    refused = isinstance(error, onnx.checker.ValidationError | onnx.shape_inference.InferenceError)
    return str(error).strip().splitlines()[0] if refused else None


def _leading_to(nodes: Nodes, failing: Collection[int]) -> set[str]:
    """Return the tensors on which these outputs of the model depend, themselves included; all where none is given."""
    every = list(nodes)
    named = {nodes.outputs[output] for output in failing if output < len(nodes.outputs)}
    if not named:
        return {first_output(node) for node in every}
    for node in reversed(every):
        if named & {*node.output}:
            named |= {first_output(node), *needs(node)}
    return named


_Compute = Callable[["NodeProto", _Values], _Outputs | None]


def _chain(nodes: Nodes, inputs: Mapping[str, Array], compute: _Compute) -> _Outputs | None:
    """The outputs of the model by ``compute``, which gives those of each node, or None to end there."""
    values = nodes.start(inputs)
    for node in nodes:
        outputs = compute(node, values)
        if outputs is None:
            return None
        values.update(zip([name for name in node.output if name], outputs, strict=False))
    return [values[name] for name in nodes.outputs]


def _compared(kernels: _Kernels, walked: Walked, node: NodeProto, values: _Values) -> _Outputs | None:
    """ONNX Runtime's outputs of a node; what they are next to those of others is noted."""
    rule = kernels.broken(node, values)
    if rule is not None and not walked.misled:
        walked.ended = _place(node, "breaks", why=rule)
        return None
    got = attempt(lambda: kernels.run(FIRST, node, values))
    if isinstance(got, Exception):
        name = type(got).__name__
        walked.ended = _place(node, "stops", why=name)
        walked.unsupported = bool(_NOT_IMPLEMENTED.search(f"{name} {got}")) or name == "NotImplemented"
        refused = kernels.refused(node, values)
        if refused is not None and not walked.misled:
            walked.ended = _place(node, "breaks", why=refused)
        return None
    for runtime in kernels.others:
        right = kernels.maybe(runtime, node, values)
        if right is not None:
            if kernels.alike(runtime, node, values, got, right):
                if registry.named(runtime).values_only:
                    walked.alike.append(_place(node, "alike", by=runtime))
            else:
                walked.parted.append(_place(node, "parts", by=runtime))
                walked.substitutes.append(right)
                walked.misled |= any(map(_misleads, got, right))
            return got
    walked.open.append(_place(node, "open"))
    return got


def _place(node: NodeProto, how: str, **more: str) -> NodePlace:
    return NodePlace(node.name, operator_of(node), line_of(node), how, **more)


class _Kernels:
    """The results of several runtimes for single nodes."""

    def __init__(self, nodes: Nodes, libraries: Sequence[str], folder: Path) -> None:
        self._nodes, self._libraries, self._file = nodes, libraries, folder / "node.onnx"
        self.others = [
            runtime.name
            for runtime in registry.second_opinions("onnxruntime")
            if runtime.computes_with != registry.named(FIRST).computes_with
        ]

    def run(self, runtime: str, node: NodeProto, values: _Values) -> _Outputs:
        """The node's outputs by a runtime; raises what that raises, and Exception where it is no witness."""
        import onnx

        onnx.save(self._nodes.alone(node, values), self._file)
        feed = {name: values[name] for name in needs(node)}
        why_not = registry.named(runtime).no_witness
        if why_not and registry.function(why_not)(self._file, feed) is not None:
            raise LookupError("no witness here")
        own = node.domain in OWN
        with opener(runtime)(self._file, () if own and runtime != FIRST else self._libraries) as session:
            outputs: _Outputs = session.run(feed)
        return [output if isinstance(output, list) else np.asarray(output) for output in outputs]

    def maybe(self, runtime: str, node: NodeProto, values: _Values) -> _Outputs | None:
        return or_else(None, lambda: self.run(runtime, node, values))

    def by_others(self, node: NodeProto, values: _Values) -> _Outputs | None:
        """The outputs of a node by the first of the others that computes it, or by ONNX Runtime."""
        first = self.maybe(FIRST, node, values)
        for runtime in self.others:
            outputs = self.maybe(runtime, node, values)
            if outputs is not None and first is not None and registry.named(runtime).values_only:
                outputs = [in_dtype_of(like, array) for array, like in zip(outputs, first, strict=False)]
            if outputs is not None:
                return outputs
        return first

    def alike(self, runtime: str, node: NodeProto, values: _Values, got: _Outputs, right: _Outputs) -> bool:
        """Return whether two runtimes give the same of a node, but for rounding, and for what the rounding of its
        inputs makes of that."""
        if len(got) != len(right):
            return False
        if registry.named(runtime).values_only:
            return all(map(_roughly, got, right))
        sums = bool(_SUMS.match(node.op_type)) or node.domain not in OWN

        @cache
        def moved() -> list[Array] | None:
            rng, names = np.random.default_rng(0), needs(node)
            nudged = ({name: to_neighbours(values[name], rng) for name in names} for _ in range(NUDGES))
            return largest_movement((self.maybe(runtime, node, {**values, **each}) for each in nudged), right)

        def same(output: int, one: object, other: object) -> bool:
            if not isinstance(one, np.ndarray) or not isinstance(other, np.ndarray):
                return str(one) == str(other)
            limit = Limit(_ROUNDING, spread=sums)
            return differs(one, other, limit, lambda: None if (far := moved()) is None else far[output]) is None

        return all(map(same, itertools.count(), got, right))

    def broken(self, node: NodeProto, values: _Values) -> str | None:
        given = [values.get(name) if name else None for name in node.input]
        return broken_by(node, given, opset_of(self._nodes.model))

    def refused(self, node: NodeProto, values: _Values) -> str | None:
        """Return what the inference of shapes refuses the node for, with all integers known."""
        import onnx

        def infer() -> None:
            alone = self._nodes.alone(node, values, constant=True)
            onnx.shape_inference.infer_shapes(alone, check_type=True, strict_mode=True, data_prop=True)

        error = attempt(infer)
        refused = isinstance(error, onnx.shape_inference.InferenceError)
        return str(error).strip().splitlines()[-1] if refused else None


def _misleads(got: object, right: object) -> bool:
    if not isinstance(got, np.ndarray) or not isinstance(right, np.ndarray):
        return True
    return got.shape != right.shape or (got.dtype.kind != "f" and bool((got != right).any()))


def _roughly(got: object, right: object) -> bool:
    if not isinstance(got, np.ndarray):
        return False
    return differs(got.astype(np.float64), np.asarray(right, np.float64), Limit(share=_LENIENT)) is None


def decided(
    walked: Walked,
    fails: Callable[[_Outputs], bool],
    stage: str,
    confirmed: Callable[[_Outputs], bool] = lambda _: False,
    *,
    special: bool = False,
) -> NodeByNode | None:
    """Return what a walk shows of a failure; None where that is nothing.

    ``fails`` is whether outputs of the model are wrong, ``confirmed`` whether PyTorch itself computes the outputs of
    a node: where the model is wrong either way, what takes a node's place may be wrong as well. ``special`` is
    whether it is about NaN and infinities, of which runtimes share what no rule asks for.
    """
    ended = walked.ended
    if ended is not None and ended.how == "breaks":
        return NodeByNode("rules", ended.as_dict())
    if stage != "compare":
        if walked.refused is not None:
            return NodeByNode("invalid", NodePlace("", "", None, "invalid", why=walked.refused).as_dict())
        return NodeByNode("unsupported", ended.as_dict()) if ended is not None and walked.unsupported else None
    if walked.first is None or not fails(walked.first):
        return None
    if walked.parted and walked.second is not None:
        at = walked.parted[0].as_dict()
        if not fails(walked.second):
            return NodeByNode("kernel", at)
        if walked.open:
            return NodeByNode("open", at)
        return NodeByNode("kernels" if all(map(confirmed, walked.substitutes)) else "either", at)
    if walked.open or (special and walked.alike):
        return NodeByNode("open", (walked.open or walked.alike)[0].as_dict())
    return NodeByNode("nodes", several=walked.count > 1)
