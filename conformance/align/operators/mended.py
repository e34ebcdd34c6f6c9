"""Which change of a single node makes right what an operator's nodes compute.

Of the nodes that an operator becomes, only the last has a value of PyTorch's to be held against. The nodes are cut
out of the graph, fed with what PyTorch has before the operator, and changed one by one until they give what PyTorch
has after it. Generating changes and keeping those that hold is how programs are repaired (Weimer, Nguyen, Le Goues,
Forrest: "Automatically Finding Patches Using Genetic Programming", ICSE 2009).
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from conformance.align.nodes import label, reads
from conformance.align.operators.changes import Change, Scene, changes
from conformance.align.operators.forced import Parting, picked, ratios, rough
from conformance.align.operators.program import Operator, Program, Values, array, leaves
from conformance.arrays import Array, Inputs
from conformance.runtimes.onnxruntime import OnnxRuntimeSession
from conformance.verdict.rules import broken_by

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

TRIED = 1500
"""How many changes are tried."""
BYTES = 2**31
"""How many bytes all of them together may be given and give; fewer are tried where one takes much."""
SMALL = 4096
"""Bytes up to which a constant stays in the graph that is cut out; a larger one is fed to it."""
KEPT = 4
"""How many changes are told at most."""
OTHERS = 5
"""On how many other inputs a change has to hold, as far as PyTorch takes them."""
LARGEST = 10_000
"""Numbers above it, of those that PyTorch's operator is called with, are not tried: they may be sizes."""


@dataclass(frozen=True)
class Mended:
    """A node of an operator's that is wrong, as far as can be told."""

    node: NodeProto
    changes: list[str]
    """The change of the node with which all of them are right, then others that do as well, each with its node; none
    where the node is the first that breaks the rules of its operator, or cannot be computed."""
    breaks: str | None = None
    """The rule that it breaks."""


@dataclass(frozen=True)
class _Trial:
    """What the nodes are fed with, and what they have to give."""

    feeds: dict[str, Array]
    wanted: list[Array]
    moved: list[Array | None]
    """What rounding the inputs of the operator makes of each of them."""


def mended(
    model: ModelProto,
    nodes: Sequence[NodeProto],
    parting: Parting,
    program: Program,
    given: Iterable[tuple[Sequence[Any], Inputs]],
    libraries: Sequence[str],
) -> Mended | None:
    """The node with the likeliest change that makes what the nodes give right, or else that which cannot be computed.
    None where neither is known.

    ``nodes`` are those that an operator becomes, in order. ``given`` has inputs as the program takes them and as the
    graph does, the failing ones first: the change has to hold on the others too.
    """
    piece, inputs = _Piece(model, nodes, parting, program, libraries), iter(given)
    trial = piece.trial(*next(inputs))
    if trial is None or not trial.wanted or piece.right(piece.model, trial):
        return None
    scene = piece.scene(trial)
    size = sum(value.nbytes for value in (*trial.feeds.values(), *scene.values.values()))
    limit = min(TRIED, max(BYTES // max(size, 1), 1))
    others = [one for one in itertools.starmap(piece.trial, itertools.islice(inputs, OTHERS)) if one is not None]
    right = (
        change for change in itertools.islice(changes(scene), limit)
        if piece.holds(change, trial) and all(piece.holds(change, other) for other in others)
    )  # fmt: skip
    found = [(next(node for node in piece.nodes if change.made in node.output), change.what)
             for change in itertools.islice(right, KEPT)]  # fmt: skip
    if found:
        (node, what), *more = found
        told = [what, *(f"{label(other)}: {what}" for other, what in more)]
        return Mended(node, told, piece.rule_broken_by(node, scene))
    rules = ((node, piece.rule_broken_by(node, scene)) for node in piece.nodes)
    breaking = next(((node, rule) for node, rule in rules if rule is not None), None)
    if breaking is not None:
        return Mended(breaking[0], [], breaking[1])
    needed = {*filter(None, piece.given), *(name for node in piece.nodes for name in reads(node))}
    stops = (node for node in piece.nodes if (needed & {*node.output}) - {*scene.values})
    stopping = next(stops, None)
    return None if stopping is None else Mended(stopping, [])


class _Piece:
    """The nodes as a model of their own."""

    def __init__(
        self,
        model: ModelProto,
        nodes: Sequence[NodeProto],
        parting: Parting,
        program: Program,
        libraries: Sequence[str],
    ) -> None:
        from onnx import helper, numpy_helper

        self._operator, self._program, self._libraries = parting.operator, program, libraries
        self.nodes = [node for node in nodes if node.op_type != "Constant"]
        made = {name for node in self.nodes for name in node.output}
        read = {name for node in self.nodes for name in reads(node)} - made
        self.constants = _constants(model, read)
        self._large = {name: value for name, value in self.constants.items() if value.nbytes > SMALL}
        self.fed = sorted(read - {*self.constants})
        """The tensors that the nodes are computed of."""
        self.given = [tensor for name in parting.operator.outputs for tensor in program.ties.get(name, ())]
        self.given = [tensor if tensor in made else None for tensor in self.given]
        """By member of the operator's outputs, the tensor that the nodes give."""
        self._of = model
        self.model = self._empty()
        self.model.graph.node.extend(self.nodes)
        self.model.graph.initializer.extend(
            numpy_helper.from_array(value, name) for name, value in self.constants.items() if name not in self._large
        )
        self.model.graph.output.extend(helper.make_empty_tensor_value_info(name) for name in self.given if name)

    def trial(self, inputs: Sequence[Any], fed: Inputs) -> _Trial | None:
        """What PyTorch computes of inputs before the operator and by it; ``fed`` are those inputs as the graph has
        them. None where PyTorch refuses them, or has no value for a tensor that the nodes are computed of."""
        tensors = {tensor: (name, place) for name, tied in self._program.ties.items()
                   for place, tensor in enumerate(tied) if tensor is not None}  # fmt: skip
        needed = {*self._operator.inputs, *self._operator.outputs}
        needed |= {tensors[name][0] for name in self.fed if name in tensors}
        values: Values = {**self._program.start, **dict(zip(self._program.inputs, inputs, strict=True))}

        def keep(name: str, value: Any) -> None:
            if name in needed:
                values[name] = value

        try:
            self._program.run(inputs, keep)
            feeds = {name: fed[name] if name in fed else array(leaves(values[tensors[name][0]])[tensors[name][1]])
                     for name in self.fed}  # fmt: skip
        except Exception:
            return None
        members = [(output, place, member) for output, name in enumerate(self._operator.outputs)
                   for place, member in enumerate(leaves(values[name]))]  # fmt: skip
        if len(members) != len(self.given) or any(value is None for value in feeds.values()):
            return None
        wanted, moved = [], []
        for tensor, (output, place, member) in zip(self.given, members, strict=True):
            right = array(member)
            if tensor is None:
                continue
            if right is None:
                return None
            wanted.append(right)
            moved.append(rough(self._operator, values, right, partial(picked, output, place)))
        known = {name: np.ascontiguousarray(value) for name, value in feeds.items() if value is not None}
        return _Trial({**known, **self._large}, wanted, moved)

    def changed(self, change: Change) -> ModelProto | None:
        """The piece with a change; None where the change does not apply."""
        from onnx import ModelProto

        copy = ModelProto()
        copy.CopyFrom(self.model)
        try:
            change.apply(copy.graph)
        except Exception:
            return None
        return copy

    def holds(self, change: Change, trial: _Trial) -> bool:
        """Whether the nodes give what they have to with a change."""
        model = self.changed(change)
        return model is not None and self.right(model, trial)

    def right(self, model: ModelProto, trial: _Trial) -> bool:
        """Whether the nodes give what they have to."""
        try:
            arrays = self._run(model, trial.feeds)
        except Exception:  # most changes make a graph that no runtime takes
            return False
        return all(
            _same(got, wanted, moved, self._operator)
            for got, wanted, moved in zip(arrays, trial.wanted, trial.moved, strict=True)
        )

    def scene(self, trial: _Trial) -> Scene:
        """The piece as changes are looked for in it; without the values of what cannot be computed."""
        from onnx import helper

        values = {**trial.feeds, **self.constants}
        for node in self.nodes:  # by itself, since a runtime computes all or nothing
            alone = self._empty()
            alone.graph.node.append(node)
            names = [name for name in node.output if name]
            alone.graph.output.extend(helper.make_empty_tensor_value_info(name) for name in names)
            with contextlib.suppress(Exception):
                feeds = {name: values[name] for name in dict.fromkeys(reads(node))}
                values |= dict(zip(names, self._run(alone, feeds), strict=True))
        constants = {name: value for name, value in self.constants.items() if name not in self._large}
        return Scene(self.nodes, values, constants, _numbers(self._operator), self.opset)

    def rule_broken_by(self, node: NodeProto, scene: Scene) -> str | None:
        """Return the rule of its operator that a node breaks, as far as its inputs are known."""
        if not all(name in scene.values for name in node.input if name):
            return None
        return broken_by(node, [scene.values.get(name) for name in node.input], self.opset)

    @property
    def opset(self) -> int:
        """That of ONNX's own operators."""
        return next((entry.version for entry in self.model.opset_import if entry.domain in ("", "ai.onnx")), 1)

    def _empty(self) -> ModelProto:
        from onnx import ModelProto

        model = ModelProto(ir_version=self._of.ir_version, opset_import=self._of.opset_import)
        model.functions.extend(self._of.functions)
        model.graph.name = "piece"
        return model

    def _run(self, model: ModelProto, feeds: Mapping[str, Array]) -> list[Array]:
        from onnx import helper

        del model.graph.input[:]
        model.graph.input.extend(
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
            for name, value in feeds.items()
        )
        return OnnxRuntimeSession(model.SerializeToString(), self._libraries, optimize=False).run(feeds)


def _constants(model: ModelProto, names: set[str]) -> dict[str, Array]:
    """Those of the tensors that are fixed in the graph."""
    from onnx import numpy_helper

    found = {one.name: one for one in model.graph.initializer if one.name in names}
    for node in model.graph.node:
        if node.op_type == "Constant" and node.output[0] in names:
            found.update((node.output[0], one.t) for one in node.attribute if one.name == "value")
    return {name: numpy_helper.to_array(tensor) for name, tensor in found.items()}


def _numbers(operator: Operator) -> list[float]:
    """The numbers that an operator is called with, those in lists among them."""
    found: list[float] = []
    todo = list(operator.constants)
    while todo:
        value = todo.pop(0)
        if isinstance(value, list | tuple):
            todo = [*value, *todo]
        elif isinstance(value, int | float) and abs(value) <= LARGEST and value not in found:
            found.append(value)
    return found


def _same(got: Array, wanted: Array, moved: Array | None, operator: Operator) -> bool:
    if got.size == wanted.size == 1:
        got = got.reshape(wanted.shape)
    if got.shape != wanted.shape or got.dtype.kind != wanted.dtype.kind:
        return False
    return not (ratios(got, wanted, operator, lambda: moved) > 1).any()
