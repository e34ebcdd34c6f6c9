"""Find out whether a wrong value of NaN comes of nothing but what ONNX does not say: what a MaxPool gives of a window
with one.

PyTorch keeps such a NaN. Runtimes keep it at some places of a window and not at others, so that which of them agrees
hangs on where it was drawn. ONNX's evaluator computes the model with NaN kept there, and with other values: where
keeping makes it right, and what a runtime gives is wrong only where these differ, nobody has broken a rule.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from conformance.compare.close import distances
from conformance.diagnose.nodes.node_walk import NodePlace
from conformance.models.otherwise.undefined import FILLED
from conformance.models.otherwise.undefined_file import OpenSession, UndefinedInFile
from conformance.process.arrays import Array
from conformance.runtimes.onnxgraph.mapped import mapped
from conformance.runtimes.onnxgraph.reads import line_of, nodes

_RULE = ("pool",)
_WHY = "ONNX does not say what it gives of a window with NaN; PyTorch keeps it, and runtimes do so at some places"


def unsaid(
    model: Path, inputs: Mapping[str, Array], got: Sequence[Array], wanted: Sequence[Array],
    right: Callable[[list[Array]], bool],
) -> NodePlace | None:  # fmt: skip
    """Return the first MaxPool of a model where what ONNX does not say of it explains all of ``got`` that is wrong;
    None where it does not. ``right`` says whether outputs would pass. Raises what ONNX's evaluator raises."""
    found = mapped(model)
    pool = next((node for node in nodes(found.model.graph) if node.op_type == "MaxPool"), None)
    if pool is None:
        return None
    session = OpenSession(found.model, found.weights)
    kept, *others = (_filled(session, inputs, seed) for seed in range(len(FILLED)))
    if [one.shape for one in kept] != [np.shape(one) for one in got]:
        return None
    parts = [np.zeros(one.shape, bool) for one in kept]
    for other in others:
        parts = [part | (distances(*both) > 0) for part, *both in zip(parts, kept, other, strict=True)]

    # places hold no NaN that could be kept, and the evaluator counts them in another way
    keeping = [due if due.dtype.kind in "iu" else one for due, one in zip(wanted, kept, strict=True)]
    settled = [np.where(part, due, one).astype(one.dtype) for part, due, one in zip(parts, wanted, got, strict=True)]
    explains = right(keeping) and right(settled)
    return NodePlace(pool.name, pool.op_type, line_of(pool), "unsaid", why=_WHY) if explains else None


def _filled(session: OpenSession, inputs: Mapping[str, Array], seed: int) -> list[Array]:
    with UndefinedInFile(session, seed, _RULE):
        return session.run(inputs)
