"""Count what overflows in the own arithmetic of a file of 16 bits, on ordinary values."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from conformance.case.draw.draw import Draw, seed_of
from conformance.models.cell_run import CellRun
from conformance.models.reference.float64_model import in_float64, load
from conformance.process.arrays import Array, Inputs
from conformance.process.errors import Stopped, or_else
from conformance.runtimes import opener, registry
from conformance.runtimes.evaluator_rules import has_half
from conformance.runtimes.inferred import inferred
from conformance.runtimes.onnxgraph.mapped import read_graph
from conformance.runtimes.onnxgraph.reads import nodes

DRAWS = 8
MOST = 0.5
"""The share of draws from which an overflow is the file's failure, and no matter of single values."""
LARGEST = float(np.finfo(np.float16).max)
FAR = 0.5
"""The distance, as a share of the largest value of its output, up to which a value may be off before what overflows
inside counts as a loss: an infinity that is divided by leaves zeros."""


def check_own_overflow(run: CellRun, file: Path) -> None:
    """Stopped where a file gives NaN, infinities or values that are far off on most ordinary draws, of which float64
    has numbers, as 16 bits do not hold what a node computes; a warning in the record where it does on some of them.
    """
    if run.cell.case.says.onnx is None or not has_half(read_graph(file)):
        return
    draws = (Draw(run.prepared.trace(), "plain", seed_of(run.cell.case.name, "overflow", k)) for k in range(DRAWS))
    found = [(inputs, how) for inputs in map(run.prepared.maker, draws) if (how := _loses(run, file, inputs))]
    lost = [(how, node) for inputs, how in found if (node := or_else(None, partial(_first_beyond, file, inputs)))]
    if not lost:
        return
    how, node = lost[0]
    text = (
        f"on {len(lost)} of {DRAWS} draws of ordinary values outputs are {how}, where the same in float32 "
        f"has numbers: {node}, and float16 holds {LARGEST:g}"
    )
    if len(lost) >= MOST * DRAWS:
        raise Stopped("check", "Overflow", text, "case")
    run.record.warnings = [*run.record.warnings, {"name": "overflow", "error": "Overflow", "text": text}]


def _loses(run: CellRun, file: Path, inputs: Inputs) -> str:
    """Say how outputs are lost of which float64 has numbers, also where each node is computed in float32 and rounded
    once; nothing where none is."""

    def outputs() -> list[Array]:
        with opener(registry.LITERAL)(file, run.libraries()) as session:
            return session.run(inputs)

    got, exact = or_else(None, outputs), run.reference.oracle(inputs)
    if got is None or exact is None:
        return ""
    floats = [(one, true) for one, true in zip(got, exact, strict=False)
              if true.dtype.kind == one.dtype.kind == "f" and one.shape == true.shape]  # fmt: skip
    if any((np.isfinite(true) & ~np.isfinite(one)).any() for one, true in floats):
        return "NaN or infinite"
    far = any((np.abs(one - true) > FAR * np.abs(true).max(initial=0.0, where=np.isfinite(true))).any()
              for one, true in floats)  # fmt: skip
    return "off by more than half of the largest" if far else ""


def _first_beyond(file: Path, inputs: Mapping[str, Array]) -> str | None:
    """Say at which node of a file a value of float16 is larger than that holds, in float64."""
    from onnx import TensorProto
    from onnx.reference import ReferenceEvaluator

    loaded = load(file)
    known = inferred(loaded).graph
    halves = {one.name for one in (*known.value_info, *known.output)
              if one.type.tensor_type.elem_type == TensorProto.FLOAT16}  # fmt: skip
    model = in_float64(loaded)
    wide = {name: value.astype(float) if value.dtype.kind == "f" else value for name, value in inputs.items()}
    values = dict[str, Any](ReferenceEvaluator(model).run(None, wide, intermediate=True))
    for node in nodes(model.graph):
        for name in halves.intersection(node.output):
            value = np.asarray(values.get(name, 0.0))
            if value.dtype.kind == "f" and (size := np.abs(value).max(initial=0.0)) > LARGEST:
                return f"{node.op_type} '{node.name or name}' computes {size:.4g}"
    return None
