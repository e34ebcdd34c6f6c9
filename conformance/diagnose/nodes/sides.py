"""The tensors of a file with their values, as a runtime computes them, or as the file means them."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from conformance.case.files.declaration import Case
from conformance.case.files.python import Folder
from conformance.compare.close import Limit, ratios
from conformance.diagnose.search import Asking, require_time, search_aside
from conformance.judge.case_edits import saying
from conformance.models.reference.file_reference import FileReference
from conformance.process.arrays import Array, Inputs
from conformance.process.disk.onnx_models import on_disk
from conformance.process.errors import or_else
from conformance.process.worker import aside
from conformance.runtimes import outputs_of, registry
from conformance.runtimes.inner_tensors import unmarked_values, values
from conformance.runtimes.onnxgraph.cut import expose
from conformance.runtimes.onnxgraph.reads import Graph, initializers, reads
from conformance.runtimes.registry import EVALUATOR, LITERAL

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

SAME = Limit(of_largest=64)
"""The difference up to which two tensors are the same: what other sums of many products make of them."""
SECONDS = 120.0
"""Seconds that a runtime may take for the tensors of a file; what it has not computed then is not known."""
ONE = 40.0
"""Seconds that it may take for one part of the file."""


@dataclass
class FileTensors:
    """A file with the values of its tensors, as a runtime computes them, or as the file means them."""

    model: ModelProto
    tensors: dict[str, Array]
    exact: Mapping[str, Array] = field(default_factory=dict)
    """The same in float64, as far as it is known."""

    def __post_init__(self) -> None:
        self.graph = Graph(self.model)
        fixed = [name for node in self.graph.nodes if node.op_type == "Constant" for name in node.output]
        self.constants = {
            **initializers(self.model), **{name: self.tensors[name] for name in fixed if name in self.tensors}
        }  # fmt: skip

    def computed(self, node: NodeProto) -> list[str]:
        """Return what a node reads that is no constant."""
        return [name for name in reads(node) if name not in self.constants]

    def off(self, name: str, got: object) -> float:
        """Return by how many times an array is further off a tensor than another order of its sums explains, be it in
        the file's types or in float64; infinitely for another shape or type."""
        right = self.tensors.get(name)
        if not isinstance(right, np.ndarray) or not isinstance(got, np.ndarray):
            return 0.0 if got is right else math.inf
        if got.dtype != right.dtype:
            return math.inf
        exact = self.exact.get(name, right)
        either = (ratios(got, wanted.astype(right.dtype), SAME).max(initial=0.0) for wanted in (right, exact))
        return float(min(either))


def _load(file: Path) -> ModelProto:
    import onnx

    return onnx.load(file)


def inner_names(model: ModelProto) -> list[str]:
    """Return the tensors that the nodes of a model make."""
    return [name for node in model.graph.node for name in node.output if name]


def literal_side(file: Path, libraries: Sequence[str], inputs: Inputs, runtime: str) -> FileTensors:
    """Return a file with its tensors as a runtime computes them that merges no nodes; raises what that raises."""
    model = _load(file)
    return FileTensors(model, {**inputs, **values(model, inner_names(model), runtime, libraries, inputs)})


def runtime_side(file: Path, libraries: Sequence[str], inputs: Inputs, runtime: str) -> FileTensors:
    """Return a file with its tensors as a runtime computes them with all that it merges (``unmarked_values``), as far
    as it does within ``SECONDS``, whatever it does to the process that it runs in."""
    model, entry = _load(file), registry.named(runtime)
    if entry.inside:
        return literal_side(file, libraries, inputs, runtime)

    def computed(part: ModelProto) -> list[Array]:
        os.environ.update(entry.witness_environment)  # of the process that is asked
        return outputs_of(part, runtime, libraries, inputs)

    def found(ask: Asking, deadline: float) -> dict[str, Array]:
        def run(part: ModelProto) -> list[Array] | None:
            return or_else(None, lambda: ask(partial(computed, part), min(require_time(deadline), ONE)))

        return unmarked_values(model, inner_names(model), run)

    return FileTensors(model, {**inputs, **search_aside(found, SECONDS, ONE)})


def meant_side(file: Path, case: Case, folder: Folder, libraries: Sequence[str], inputs: Inputs) -> FileTensors:
    """Return a file with its tensors as it means them, in its types and in float64 (``FileReference``), as far as
    NumPy has these types.

    Raises what FileReference does, and what both runtimes raise that compute node by node.
    """
    ask = partial(literal_side, file, libraries, inputs)
    like = or_else(None, lambda: aside.ask(partial(ask, LITERAL), ONE)) or aside.ask(partial(ask, EVALUATOR), ONE)
    model = like.model
    kept = [name for name in inner_names(model) if _is_plain(like.tensors.get(name))]
    shown = expose(model, kept, instead=True)
    with on_disk(shown) as whole:
        reference = FileReference(saying(case, onnx=str(whole), outputs=[]), folder)
        wanted = reference(inputs)
        exact = reference.oracle(inputs)
    names = [output.name for output in shown.graph.output]
    return FileTensors(
        model, {**inputs, **dict(zip(names, wanted, strict=True))}, dict(zip(names, exact or (), strict=False))
    )


def _is_plain(value: object) -> bool:
    own = isinstance(value, np.ndarray) and value.dtype.type.__module__ == "numpy"  # an unpickled one is not builtin
    return isinstance(value, np.ndarray) and own and value.dtype.kind in "biuf"
