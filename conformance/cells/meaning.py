"""The check ``meaning``: what TensorRT's parser made of a model computes what the model means.

The network is computed in NumPy, on a host with or without a GPU. No kernel of TensorRT runs: this is TensorRT's half
of the work in which exporters meet it, and no run of TensorRT.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import cached_property

import numpy as np

from conformance.cells.compilation import builds, line_in_case
from conformance.compare.close import Limit, differs
from conformance.judge.red_cell import RedCell
from conformance.models.cell_run import CellRun
from conformance.models.kept.answers import KeptAnswers
from conformance.models.kept.model_store import Stored
from conformance.process.arrays import Array
from conformance.process.errors import Details, Unavailable, or_else
from conformance.results.records.record_types import Node
from conformance.runtimes import GuardedSession, opener
from conformance.runtimes.inner_tensors import values
from conformance.runtimes.onnxgraph.reads import line_of
from conformance.runtimes.registry import LITERAL, RTX
from conformance.runtimes.tensorrt.network.network_session import NetworkSession, arithmetic, refused
from conformance.runtimes.tensorrt.rtx import Job, absence, tried

_LENIENT = Limit(share=1e-5)
"""Within which two computations of a tensor are the same, relative to the largest value."""


class KeptNetwork:
    """The session of a network whose outputs an earlier run may have kept: it is parsed for other inputs than those,
    and where somebody looks into it."""

    def __init__(self, run: CellRun, model: Stored, kept: KeptAnswers) -> None:
        """Raises Unavailable where this host has no TensorRT for RTX, and what ``open_network`` raises for a model of
        which nothing was computed yet."""
        missing = absence()
        if missing is not None:
            raise Unavailable(missing)
        self.arithmetic: Mapping[str, object] = arithmetic()
        self._run, self._model, self._kept = run, model, kept
        self._by = str(self.arithmetic["provider"])
        if not kept.computed(self._by):
            trial = tried(model.file, model.facts.sha, Job(), builds(run))
            if trial.error is not None:
                raise refused(trial.said)
            _ = self._session

    def run(self, inputs: Mapping[str, Array]) -> list[Array]:
        """Return the model's outputs, kept or computed now; raises what ``NetworkSession.run`` does."""
        known = self._kept.outputs(self._by, dict(inputs))
        if known is None:
            session, start = self._session, time.process_time()
            known = session.run(inputs)
            self._kept.add_outputs(self._by, dict(inputs), known, time.process_time() - start)
        return known

    @property
    def direct(self) -> object:
        """The network's own session."""
        return self._session.direct

    @cached_property
    def _session(self) -> GuardedSession:
        return self._run.enter(opener(RTX)(self._model.file, self._run.libraries()))


def parting_node(red: RedCell) -> Details:
    """Return the first node of whose tensors the network has other values than ONNX Runtime computes node by node;
    nothing where that is none, or cannot be seen."""
    found: Node | None = or_else(None, lambda: _parting(red))
    return {} if found is None else {"parts_at": found}


def _parting(red: RedCell) -> Node | None:
    import onnx

    session, example = getattr(red.of.verify.session, "direct", None), red.example
    if not isinstance(session, NetworkSession) or example is None or red.stop.stage != "compare":
        return None
    model = onnx.load(red.of.model.file)
    made = session.inside(example.inputs)
    wanted = [name for node in model.graph.node for name in node.output if name in made]
    right = values(model, wanted, LITERAL, red.of.run.libraries(), example.inputs)
    for node in model.graph.node:
        for name in node.output:
            if name in right and name in made and (how := _differ(made[name], right[name], red)):
                what = {"value": "other values", "shape": "another shape", "dtype": "another dtype"}[how]
                line = line_in_case(red.of.run.cell.case, line_of(node))
                unread = [each for each in session.network.unread_inputs() if each in node.input]
                why = f"its layers give {what} for {name}{f', and none reads {unread[0]}' if unread else ''}"
                return Node(operator=node.op_type, node=node.name or name, line=line, how="parsed", why=why)
    return None


def _differ(got: Array, wanted: Array, red: RedCell) -> str | None:
    """Return in what a tensor differs: inside of a network whole numbers may have another width."""
    return differs(got, np.asarray(wanted), _LENIENT, dtypes=red.stop.error == "WrongDtype")
