"""The nodes that an operator becomes, cut out of the graph: what they are fed with, and what they have to give."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from conformance.compare.close import ratios
from conformance.compare.excuses import largest_of
from conformance.diagnose.nodes.operator_rules import broken_by
from conformance.diagnose.operators.captured_program import (
    Operator,
    Program,
    Values,
    array,
    called_with,
    joined,
    leaves,
)
from conformance.diagnose.operators.forced import Parting, limit_of, picked, rough
from conformance.diagnose.operators.inside import open_calls
from conformance.diagnose.operators.probes import Probe, probes
from conformance.diagnose.operators.scene import NodeChange, Scene
from conformance.models.otherwise.undefined import replace_undefined
from conformance.process.arrays import Array, Inputs
from conformance.process.errors import attempt, or_else
from conformance.runtimes.onnxgraph.cut import declare, model_of
from conformance.runtimes.onnxgraph.reads import Graph, copy_of, first_output, opset_of, reads, refill
from conformance.runtimes.onnxruntime import OnnxRuntimeSession

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto


SMALL = 4096
"""Bytes up to which a constant stays in the graph that is cut out; a larger one is fed to it."""
ELEMENTS = 2**17
"""How many elements the nodes are fed with at most for other values to be put there."""
_LITERALS = {"value_float": np.float32, "value_floats": np.float32, "value_int": np.int64, "value_ints": np.int64}
_OWN = ("aten.", "prims.", "prim.", "operator.", "math.")
"""How the names of PyTorch's operators begin, which take any values."""
FAR = 32.0
"""Times what two kernels may differ by, within which they give the same of values that nobody drew."""
JUMP = 0.01
"""The share of an output's largest value by which rounding moves nothing but across a step."""


@dataclass(frozen=True)
class PieceTrial:
    """The inputs of the nodes, and the outputs that they have to give."""

    feeds: dict[str, Array]
    wanted: list[Array]
    moved: list[Array | None]
    """What rounding the inputs of the operator makes of each of them."""
    values: Values
    """PyTorch's values before the operator."""
    times: float = 1.0
    """By how many times what two kernels may differ by the nodes may be off."""

    def special(self) -> bool:
        """Return whether NaN or infinity is among what goes in or comes out."""
        arrays = (*self.feeds.values(), *self.wanted)
        return any(one.dtype.kind == "f" and not np.isfinite(one).all() for one in arrays)


class Piece:
    """The nodes as a model of their own."""

    def __init__(
        self,
        model: ModelProto,
        nodes: Sequence[NodeProto],
        parting: Parting,
        program: Program,
        libraries: Sequence[str],
    ) -> None:
        from onnx import helper

        self._operator, self._program, self._libraries = parting.operator, program, libraries
        opened = list(open_calls(nodes, model))
        self.nodes = [node for node, _ in opened if node.op_type != "Constant"]
        self.calls = {first_output(node): call for node, call in opened if node is not call}
        """By the first output of a node of a function, the call of that."""
        made = {name for node in self.nodes for name in node.output}
        read = {name for node in self.nodes for name in reads(node)} - made
        self.constants = _constants([*model.graph.node, *(node for node, _ in opened)], model, read)
        self._large = {name: value for name, value in self.constants.items() if value.nbytes > SMALL}
        self._read = read - {*self.constants}
        self.fed = sorted(
            self._read | {*_given_to(parting.operator, program, Graph(model))} - made - {*self.constants}
        )
        """The tensors that the nodes are computed of, and those that the operator is."""
        self.given = [tensor for name in parting.operator.outputs for tensor in program.ties.get(name, ())]
        self.given = [tensor if tensor in made else None for tensor in self.given]
        """By member of the operator's outputs, the tensor that the nodes give."""
        self._tensors = {tensor: (name, place) for name, tied in program.ties.items()
                         for place, tensor in enumerate(tied) if tensor is not None}  # fmt: skip
        known = {self._tensors[name][0] for name in self.fed if name in self._tensors}
        self._between, self._ends = self._since(known)
        outputs = map(helper.make_empty_tensor_value_info, filter(None, self.given))
        small = {name: value for name, value in self.constants.items() if name not in self._large}
        self.model = model_of(model, "piece", self.nodes, outputs=outputs, constants=small)

    def node_of(self, made: str) -> NodeProto:
        """The node that makes a tensor."""
        return next(node for node in self.nodes if made in node.output)

    def call_of(self, node: NodeProto) -> NodeProto:
        """The node of the graph that a node is of, where that is the call of a function."""
        return self.calls.get(first_output(node), node)

    def tell(self, node: NodeProto, what: str) -> str:
        """Return what is changed, as seen from the node of the graph."""
        if first_output(node) not in self.calls:
            return what
        return f"in its function, at {node.op_type} {first_output(node).rpartition('/')[2]}: {what}"

    def _since(self, known: set[str]) -> tuple[list[Operator], set[str]]:
        """The operators that compute the outputs of the one in question of these values, or of what the program
        starts with, in order; and which values they take of those."""
        makers = {name: operator for operator in self._program.operators for name in operator.outputs}
        found, ends, todo = {self._operator.name}, set[str](), list(self._operator.inputs)
        while todo:
            name = todo.pop()
            if name in known or name not in makers:
                ends.add(name)
            elif makers[name].name not in found:
                found.add(makers[name].name)
                todo += makers[name].inputs
        return [operator for operator in self._program.operators if operator.name in found], ends

    def trial(self, inputs: Sequence[object], fed: Inputs) -> PieceTrial | None:
        """Return what PyTorch computes of inputs before the operator and by it; ``fed`` are those inputs as the graph
        has them, in the same order. None where PyTorch refuses them, or has no value for a tensor that the nodes are
        computed of."""
        if len(fed) == len(self._program.inputs):
            self._tensors |= {tensor: (name, 0) for name, tensor in zip(self._program.inputs, fed, strict=True)}
        needed = {name for operator in self._between for name in (*operator.inputs, *operator.outputs)}
        needed |= {self._tensors[name][0] for name in self.fed if name in self._tensors}

        def measured() -> tuple[Values, dict[str, Array | None]]:
            values = self._program.values(inputs, needed)
            return values, {n: fed[n] if n in fed else array(self._value(values, n)) for n in self.fed}

        # where PyTorch refuses the inputs, a change is not tried on them
        values, feeds = or_else((None, dict[str, Array | None]()), measured)
        if values is None or any(feeds[name] is None for name in self._read):
            return None
        known = {name: np.ascontiguousarray(value) for name, value in feeds.items() if value is not None}
        return self._trial(values, {**known, **self._large})

    def _value(self, values: Values, tensor: str) -> object:
        name, place = self._tensors[tensor]
        return leaves(values[name])[place]

    def _trial(self, values: Values, feeds: dict[str, Array], probe: Probe | None = None) -> PieceTrial | None:
        """Return what the operator gives for values, those of a probe perhaps."""
        members = [(output, place, member) for output, name in enumerate(self._operator.outputs)
                   for place, member in enumerate(leaves(values[name]))]  # fmt: skip
        if len(members) != len(self.given):
            return None
        wanted, moved = [], []
        for tensor, (output, place, member) in zip(self.given, members, strict=True):
            right = array(member)
            if tensor is None:
                continue
            if right is None:
                return None
            pick = partial(picked, output, place)
            far = rough(self._operator, values, right, pick, each_way=probe is not None)
            wanted.append(right)
            moved.append(far if probe is None or far is None else _for_probe(far, right, exact=probe.exact))
        return PieceTrial(feeds, wanted, moved, values, 1.0 if probe is None else FAR)

    def probed(self, trials: Sequence[PieceTrial]) -> Iterator[tuple[Probe, PieceTrial]]:
        """Yield what PyTorch's operator gives for values put into the largest of the trials, where it is computed of
        just what the nodes are fed with. Values for which PyTorch leaves open what it gives are left out, and so are
        operators that are not PyTorch's own: those may crash for some values."""
        if not all(one.plumbing or one.operator.startswith(_OWN) for one in self._between):
            return
        sizes = [sum(one.feeds[name].size for name in self.fed if name in one.feeds) for one in trials]
        fitting = [(size, place) for place, size in enumerate(sizes) if size <= ELEMENTS]
        if not fitting:
            return
        base = trials[max(fitting)[1]]
        fed = [name for name in self.fed if name in base.feeds]
        reached = [name for name in fed if name in self._tensors and self._tensors[name][0] in self._ends]
        if not all(name in reached or self._only_measured(name) or self._is_size(base, name) for name in fed):
            return
        whole = "b" + ("iu" if self._operator.pointwise else "")  # other operators may take them for indices
        like = {name: base.feeds[name] for name in reached
                if base.feeds[name].dtype.kind in f"f{whole}"
                and _is_alike(self._value(base.values, name), base.feeds[name])}  # fmt: skip
        numbers, _ = called_with(self._operator, base.values)
        special = base.special() or trials[0].special() or self._is_local(base)
        for probe in probes(like, numbers, special=special):
            trial = or_else(None, partial(self._of_values, base, probe))  # PyTorch may refuse such values
            if trial is not None:
                yield probe, trial

    def _of_values(self, base: PieceTrial, probe: Probe) -> PieceTrial | None:
        import torch

        values = dict(base.values)
        for tensor, given in probe.values.items():
            name, place = self._tensors[tensor]
            known = leaves(values[name])
            known[place] = torch.from_numpy(given)
            values[name] = joined(values[name], known)
        with replace_undefined(None) as noted:
            for operator in self._between:
                values.update(zip(operator.outputs, operator.compute(values), strict=True))
        return None if noted.rules else self._trial(values, {**base.feeds, **probe.values}, probe)

    def _only_measured(self, name: str) -> bool:
        """Return whether the values of a tensor do not matter to the nodes."""
        return all(node.op_type in ("Shape", "Size") for node in self.nodes if name in reads(node))

    def _is_size(self, trial: PieceTrial, name: str) -> bool:
        """Return whether a tensor is a size, which other values of the same shapes leave as it is."""
        known = self._tensors.get(name)
        return known is not None and isinstance(trial.values.get(known[0]), int)

    def _is_local(self, trial: PieceTrial) -> bool:
        """Return whether NaN in one element is not spread over others by weights, which kernels may leave out where
        they are zero."""
        shapes = [one.shape for one in trial.feeds.values() if one.dtype.kind == "f"]
        with contextlib.suppress(ValueError):
            together = np.broadcast_shapes(*shapes)
            return self._operator.pointwise or all(one.shape == together for one in trial.wanted)
        return False

    def changed(self, change: NodeChange) -> ModelProto | None:
        """The piece with a change; None where the change does not apply."""
        copy = copy_of(self.model)
        refused = attempt(lambda: change.apply(copy.graph))  # the node may lack what is changed, or such a value
        return None if isinstance(refused, Exception) else copy

    def wrong(self, model: ModelProto, trial: PieceTrial) -> list[Array] | None:
        """Return where the nodes give something else than they have to; None where they do not give that at all."""
        arrays = or_else(None, lambda: self._run(model, trial.feeds))
        if arrays is None:  # most changes make a graph that no runtime takes
            return None
        found = [
            _differ(got, wanted, moved, self._operator, trial.times)
            for got, wanted, moved in zip(arrays, trial.wanted, trial.moved, strict=True)
        ]
        return None if any(one is None for one in found) else [one for one in found if one is not None]

    def right(self, model: ModelProto, trial: PieceTrial) -> bool:
        """Return whether the nodes give what they have to."""
        wrong = self.wrong(model, trial)
        return wrong is not None and not any(one.any() for one in wrong)

    def scene(self, trial: PieceTrial) -> Scene:
        """The piece as changes are looked for in it; without the values of what cannot be computed."""
        from onnx import helper

        values = {**trial.feeds, **self.constants}

        def computed(node: NodeProto) -> dict[str, Array]:
            names = [name for name in node.output if name]
            alone = model_of(self.model, "piece", [node], outputs=map(helper.make_empty_tensor_value_info, names))
            feeds = {name: values[name] for name in dict.fromkeys(reads(node))}
            return dict(zip(names, self._run(alone, feeds), strict=True))

        for node in self.nodes:  # by itself, since a runtime computes all or nothing
            values |= or_else({}, partial(computed, node))
        constants = {name: value for name, value in self.constants.items() if name not in self._large}
        numbers, lists = called_with(self._operator, trial.values)
        return Scene(self.nodes, values, constants, numbers, lists, {*filter(None, self.given)}, self.opset)

    def rule_broken_by(self, node: NodeProto, scene: Scene) -> str | None:
        """Return the rule of its operator that a node breaks, as far as its inputs are known."""
        if not all(name in scene.values for name in node.input if name):
            return None
        return broken_by(node, [scene.values.get(name) for name in node.input], self.opset)

    @property
    def opset(self) -> int:
        """That of ONNX's own operators."""
        return opset_of(self.model, 1)

    def _run(self, model: ModelProto, feeds: Mapping[str, Array]) -> list[Array]:
        refill(model.graph.input, itertools.starmap(declare, feeds.items()))
        return OnnxRuntimeSession(model.SerializeToString(), self._libraries, optimize=False).run(feeds)


def _given_to(operator: Operator, program: Program, graph: Graph) -> Iterator[str]:
    """The tensors of a graph that an operator is computed of."""
    inputs = dict(zip(program.inputs, graph.inputs, strict=True)) if len(program.inputs) == len(graph.inputs) else {}
    for name in operator.inputs:
        for tensor in program.ties.get(name, [inputs.get(name)]):
            if tensor is not None and (tensor in graph.makers or tensor in graph.inputs):
                yield tensor


def _constants(nodes: Sequence[NodeProto], model: ModelProto, names: set[str]) -> dict[str, Array]:
    """Those of the tensors that are fixed in the graph."""
    from onnx import helper, numpy_helper

    found = {one.name: numpy_helper.to_array(one) for one in model.graph.initializer if one.name in names}
    for node in nodes:
        if node.op_type == "Constant" and node.output[0] in names:
            for attribute in node.attribute:
                value = helper.get_attribute_value(attribute)
                if attribute.name == "value":
                    found[node.output[0]] = numpy_helper.to_array(value)
                elif attribute.name in _LITERALS:
                    found[node.output[0]] = np.asarray(value, _LITERALS[attribute.name])
    return found


def _for_probe(moved: Array, wanted: Array, *, exact: bool) -> Array:
    """Return what rounding moves: with ``exact`` not across a step, and never less than by what it moves a number
    near 1, which a kernel may take a very small one from."""
    if wanted.dtype.kind != "f":
        return moved
    return np.where(exact & (moved > JUMP * largest_of(wanted)), 0.0, moved) + float(np.finfo(wanted.dtype).eps)


def _is_alike(value: object, like: Array) -> bool:
    """Return whether a value of PyTorch's is a tensor that an array like this one can stand for."""
    import torch

    known = array(value) if isinstance(value, torch.Tensor) and not value.is_complex() else None
    return known is not None and (known.dtype, known.shape) == (like.dtype, like.shape)


def _differ(got: Array, wanted: Array, moved: Array | None, operator: Operator, times: float) -> Array | None:
    """Return where two arrays differ by so many times what two kernels may; None where they are not of the same
    form."""
    if got.size == wanted.size == 1:
        got = got.reshape(wanted.shape)
    if got.shape != wanted.shape or got.dtype.kind != wanted.dtype.kind:
        return None
    return np.asarray(ratios(got, wanted, limit_of(operator), lambda: moved) > times)
