"""The evaluator that comes with the ONNX specification: slow, literal, a second opinion on every model."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from conformance.process.arrays import Array
from conformance.process.errors import NoVerdict
from conformance.runtimes.evaluator_kernels import quicker
from conformance.runtimes.evaluator_loop import NodeLoop
from conformance.runtimes.evaluator_operators import lacking_operators, recurrent_operators
from conformance.runtimes.evaluator_rules import OF_LATER, doubts, open_clip
from conformance.runtimes.flattening import write_out
from conformance.runtimes.onnxgraph.mapped import mapped, read_graph
from conformance.runtimes.onnxgraph.reads import refill
from conformance.runtimes.sequences import tensors

if TYPE_CHECKING:
    from onnx import FunctionProto, ModelProto, NodeProto
    from onnx.reference import ReferenceEvaluator
    from onnx.reference.op_run import OpRun


Outputs = tuple[Array, ...]
Compute = Callable[..., Outputs]
"""The operator of a node, from the arrays of its inputs to those of its outputs."""
Beyond: TypeAlias = Literal["ignore", "raise"]
"""The ways to take numbers that are too large or too small for their type."""


class ReferenceSession:
    arithmetic: Mapping[str, object] = {
        "provider": "onnx.reference",
        "optimizer": False,
        "storage": "float32",
        "arithmetic": "float32",
    }

    def __init__(self, model: ModelProto, weights: Mapping[str, Array] | None = None) -> None:
        """``model`` is changed: what the evaluator knows no other form of is written out. ``weights`` are the values
        of initializers that the model has none of."""
        write_out(model)
        weights, names = weights or {}, [tensor.name for tensor in model.graph.initializer]
        if weights:
            refill(model.graph.initializer, [one for one in model.graph.initializer if one.name not in weights])
        self._evaluator = self._evaluator_of(model)
        if weights:
            own = {**self._evaluator.rt_inits_, **weights}
            self._evaluator.rt_inits_ = {**{name: own[name] for name in names}, **own}  # in the order of the model
        self._inputs = list(self._evaluator.input_names)

    def _evaluator_of(self, model: ModelProto) -> ReferenceEvaluator:
        return evaluator_class()(model)

    def run(self, inputs: Mapping[str, Array], *, beyond: Beyond = "ignore") -> list[Array]:
        """Return the outputs; have numbers that are too large or too small for their type ``raise``
        FloatingPointError."""
        with np.errstate(all="ignore", over=beyond, under=beyond):  # ``specials`` is about infinities and NaN
            outputs = self._evaluator.run(
                None, {name: _held(inputs[name]) for name in self._inputs if name in inputs}
            )
        return [np.asarray(output) for output in tensors(outputs)]


def _held(value: Array) -> Array:
    """Return an input as the evaluator holds it: texts as it holds those of constants, with which they are compared
    and joined."""
    return value.astype(object) if value.dtype.kind == "U" else value


@functools.cache
def evaluator_class(*, quick: bool = False) -> type[ReferenceEvaluator]:
    """Return ONNX's evaluator, with coefficients of ``Resize`` that are as exact as its other results, and with
    operators that it lacks. A ``quick`` one is for what is right, and no runtime that is judged: some of its kernels
    are this package's, which are quicker or leave nothing out."""
    from onnx.reference import ReferenceEvaluator
    from onnx.reference.ops._op_list import load_op

    class Evaluator(ReferenceEvaluator):  # which runs the bodies of loops and functions as well
        def __init__(self, proto: ModelProto | FunctionProto, opsets: dict[str, int] | None = None,
                     functions: list[ReferenceEvaluator | FunctionProto] | None = None, verbose: int = 0,
                     new_ops: list[type[OpRun]] | None = None, **more: Any) -> None:  # fmt: skip
            own = [*lacking_operators(), *(recurrent_operators() if quick else ())]
            super().__init__(proto, opsets, functions, verbose, new_ops or own, **more)

        def _load_impl(self, node: NodeProto, *more: Any) -> Any:
            later = OF_LATER.get(node.op_type, 0) if quick and node.domain in ("", "ai.onnx") else 0
            return (
                load_op("", node.op_type, later)
                if self.opsets_.get("", 0) < later
                else super()._load_impl(node, *more)
            )

        def _init(self) -> None:
            super()._init()
            for node in self.rt_nodes_:
                if node.op_type == "Resize":
                    unround_attributes(node)
                if quick:
                    node.run = quicker(node, node.run)

        @functools.cached_property
        def _loop(self) -> NodeLoop:  # made once all that wraps a node's run has done so
            return NodeLoop(self)

        def run(self, output_names: Any, feed_inputs: dict[str, Any], attributes: dict[str, Any] | None = None,
                *more: Any, **others: Any) -> Any:  # fmt: skip
            if not quick or output_names is not None or attributes or more or others:
                return super().run(output_names, feed_inputs, attributes, *more, **others)
            return self._loop.run(self.rt_inits_, feed_inputs)

    return Evaluator


def evaluator_with(wrap: Callable[[OpRun, Compute], Compute], model: ModelProto) -> ReferenceEvaluator:
    """Return a quick evaluator of a model in which each node computes as ``wrap`` makes it."""
    base: Any = evaluator_class(quick=True)

    class WrappedEvaluator(base):  # which runs the bodies of loops and functions as well
        def _init(self) -> None:
            super()._init()
            for node in self.rt_nodes_:
                node.run = wrap(node, node.run)

    return WrappedEvaluator(model)


def unround_attributes(node: OpRun) -> None:
    """Have the attributes of an evaluator's node take the type of what they are multiplied with.

    They are of ``numpy.float32``, which makes a float32 of a Python number (NumPy, NEP 50), as the coefficients of
    ``Resize`` are computed of, and rounds it in the midst of a computation in float64.
    """
    for name, value in vars(node).items():
        if isinstance(value, np.float32):
            setattr(node, name, float(value))


@contextlib.contextmanager
def open_model(model: Path, libraries: Sequence[str]) -> Iterator[ReferenceSession]:
    if libraries:
        raise NoVerdict("onnx-reference cannot load custom-operator libraries")
    loaded = mapped(model)
    misread = [str(doubt) for doubt in doubts(loaded.model) if doubt.misread]
    if misread:
        raise NoVerdict(f"ONNX's evaluator has no say on {', '.join(misread)}")
    yield ReferenceSession(loaded.model, loaded.weights)


def no_witness(model: Path, inputs: Mapping[str, Array]) -> str | None:
    """Say why what the evaluator computes of a model says nothing about it; None where it does."""
    loaded = read_graph(model)
    told = doubts(loaded)
    if told:
        return f"it has no say on {', '.join(map(str, told))}"
    return open_clip(loaded, inputs)
