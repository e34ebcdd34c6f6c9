"""Take the explanation of a declared failure from an earlier run.

A failure that is declared comes in every run, and finding its cause takes longer than showing it. So the example is
run and compared in every run, and what an earlier run found of the cause is taken where all is bit for bit as it was:
what the cell depends on (``models.kept.fingerprint``), its models, the inputs, what is right for them, and what the
runtime gave. Of a declared failure nobody is asked, unless ``--explain all`` or ``conformance explain`` wants it.
"""

from __future__ import annotations

import dataclasses
import hashlib
import time
from collections.abc import Iterable, Sequence
from typing import Any

from conformance.case.draw.example import Example
from conformance.diagnose.unproven import Ask
from conformance.judge.verify import Verifier
from conformance.models.cell_run import CellRun
from conformance.models.kept.fingerprint import Fingerprints
from conformance.models.kept.outcomes import key_of_outcome
from conformance.process.arrays import Array
from conformance.process.errors import Details, Stopped, attempt
from conformance.results.records.explanation import Explanation, UnexplainedFailure, explain
from conformance.results.records.record import Witness

CERTAIN = 20.0
"""Seconds within which no time limit of a question ends, so that none has cut the answer short; see
``diagnose.nodes.other_runtime``, ``diagnose.nodes.blame`` and ``diagnose.nodes.guilty_pass``."""


def remembering(run: CellRun, ask: Ask, verify: Verifier, models: Sequence[str]) -> Ask:
    """Return what asks as ``ask`` does, but for declared failures that an earlier run has explained. ``models`` are
    the hashes of all models that are asked about."""
    outcomes = run.outcomes

    def recall(stop: Stopped, example: Example) -> Explanation:
        declared = outcomes.declared(stop)
        if declared is None:
            return ask(stop, example)
        if not run.settings.explain_declared:
            details: Details = {"unexplained": True} if declared.fault is None else {}
            return explain(UnexplainedFailure(stop.stage, declared.fault), (), details)
        key = _key(run, stop, example, verify, (*models, run.record.fidelity))
        try:
            return _explanation(outcomes.recall(key))
        except (TypeError, KeyError, ValueError):
            start = time.monotonic()
            found = ask(stop, example)
            if time.monotonic() - start < CERTAIN and _is_final(found):
                outcomes.keep(key, dataclasses.asdict(found))
            return found

    return recall


def _key(run: CellRun, stop: Stopped, example: Example, verify: Verifier, about: object) -> str:
    """The key of an explanation, of all that is known before anybody is asked."""
    fingerprint = Fingerprints({}, run.outcomes.host())(run.cell)
    session = verify.session
    outputs = None if session is None else attempt(lambda: _digest(session.run(example.inputs)))
    if isinstance(outputs, Exception):  # which the cell may have stopped with
        outputs = f"{type(outputs).__name__}: {outputs}"
    worst = getattr(stop, "worst", None)
    return key_of_outcome(
        "opinion", fingerprint, sorted(run.settings.instructions), about,
        (stop.stage, stop.error, stop.reason, worst), list(example.inputs), _digest(example.inputs.values()),
        _digest(example.wanted), None if example.exact is None else _digest(example.exact), outputs,
    )  # fmt: skip


def _explanation(told: Any) -> Explanation:
    """TypeError, KeyError or ValueError for what is none."""
    return Explanation(**{**told, "witnesses": tuple(Witness(**witness) for witness in told["witnesses"])})


def _is_final(found: Explanation) -> bool:
    """Return whether nothing that has to do with the host, such as memory, may have kept a question from its
    answer."""
    lost = any(witness.answer == "lost" for witness in found.witnesses)
    stopped = any(isinstance(value, str) for value in (found.details.get("loss") or {}).values())
    return not (lost or stopped or (found.details.get("optimizer") or {}).get("unfinished"))


def _digest(arrays: Iterable[Array]) -> str:
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(f"{array.dtype.str} {array.shape} ".encode() + array.tobytes())
    return digest.hexdigest()
