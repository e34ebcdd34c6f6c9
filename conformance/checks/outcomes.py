"""Keep the outcomes of declared failures for a later run: how an export failed, and what explains a failing example.

Beside them it is kept that a module gives the same graph at other sizes.

A failure that is declared comes in every run, and finding its cause takes longer than showing it. So the example is
run and compared in every run, and what an earlier run found of the cause is taken where all is bit for bit as it was:
what the cell depends on (``depends.fingerprint``), its models, the inputs, what is right for them, and what the
runtime gave. Of a declared failure nobody is asked, unless ``--explain all`` or ``conformance explain`` wants it. A
failure that nobody has declared is explained anew, and its export tried again.
"""

from __future__ import annotations

import dataclasses
import hashlib
import time
from collections.abc import Iterable, Sequence
from typing import Any

from conformance.arrays import Array
from conformance.case.must_hold import Fails
from conformance.checks.verify import Verifier
from conformance.depends.fingerprint import Fingerprints, host
from conformance.depends.results import Keeping
from conformance.errors import Details, Stopped, attempt, lacks_memory, trouble_of_host
from conformance.plan.cell import Cell
from conformance.plan.expected import fails_as_declared
from conformance.plan.settings import Settings
from conformance.records.explanation import Explanation, Failure, explain
from conformance.records.record import Record, Witness
from conformance.verdict.comparer import Ask
from conformance.verdict.example import Example

CERTAIN = 20.0
"""Seconds within which no time limit of a question ends, so that none has cut the answer short; see
``verdict.other_runtime``, ``verdict.blame`` and ``verdict.guilty_pass``."""


class Outcomes:
    """The declared failures and the second traces of one cell in earlier runs."""

    def __init__(self, cell: Cell, settings: Settings, keeping: Keeping, suite: str) -> None:
        self._cell, self._settings, self._keeping, self._suite = cell, settings, keeping, suite
        # a run that draws anew meets other examples, which no run meets again
        self._folder = settings.outcomes if settings.random is None and settings.observe else None

    def is_declared(self, stop: Stopped) -> bool:
        """Return whether the case says that the whole cell fails like this."""
        return self._declared(stop) is not None

    def _declared(self, stop: Stopped) -> Fails | None:
        return fails_as_declared(self._cell, self._settings.instructions, stop.stage, stop.error, stop.reason)

    # ---- exports ---------------------------------------------------------------------------------------------

    def failed_export(self, model: str) -> Stopped | None:
        """Return how the export of the model with this key failed, where the cell is declared to fail like that; None
        where it has to be tried."""
        try:
            told = self._keeping.get(self._folder, _key("export", model, self._host()))
            stop = Stopped(told["stage"], told["error"], told["reason"], told["fault"], told["details"])
        except (TypeError, KeyError, ValueError):
            return None
        return stop if self.is_declared(stop) else None

    def note_failed_export(self, model: str, stop: Stopped) -> None:
        """Keep how the export of the model with this key failed, if it is declared to and nothing but the exporter
        made it fail."""
        of_the_host = trouble_of_host(stop) is not None or lacks_memory(stop)
        if stop.stage != "export" or stop.fault != "exporter" or of_the_host or not self.is_declared(stop):
            return
        told = {name: getattr(stop, name) for name in ("stage", "error", "reason", "fault", "details")}
        self._keeping.put(self._folder, _key("export", model, self._host()), told)

    def same_graph(self, model: str, structure: str) -> bool:
        """Return whether the module of the model with this key, traced at other sizes, has given this graph in an
        earlier run. A graph that differed is traced again."""
        return bool(self._keeping.get(self._folder, _key("trace", model, self._host())) == structure)

    def note_same_graph(self, model: str, structure: str) -> None:
        """Keep that the module of the model with this key has given this graph at other sizes too."""
        self._keeping.put(self._folder, _key("trace", model, self._host()), structure)

    # ---- explanations --------------------------------------------------------------------------------------------

    def remembering(self, ask: Ask, verify: Verifier, record: Record, models: Sequence[str]) -> Ask:
        """Return what asks as ``ask`` does, but for declared failures that an earlier run has explained. ``models``
        are the hashes of all models that are asked about."""

        def recall(stop: Stopped, example: Example) -> Explanation:
            declared = self._declared(stop)
            if declared is None:
                return ask(stop, example)
            if not self._settings.explain_declared:
                details: Details = {"unexplained": True} if declared.fault is None else {}
                return explain(Failure(stop.stage, declared.fault), (), details)
            key = self._key_of(stop, example, verify, (*models, record.fidelity))
            try:
                return _explanation(self._keeping.get(self._folder, key))
            except (TypeError, KeyError, ValueError):
                start = time.monotonic()
                found = ask(stop, example)
                if time.monotonic() - start < CERTAIN and _is_final(found):
                    self._keeping.put(self._folder, key, dataclasses.asdict(found))
                return found

        return recall

    def _host(self) -> str:
        return host(self._suite)

    def _key_of(self, stop: Stopped, example: Example, verify: Verifier, about: object) -> str:
        """The key of an explanation, of all that is known before anybody is asked."""
        fingerprint = Fingerprints({}, self._host())(self._cell)
        session = verify.session
        outputs = None if session is None else attempt(lambda: _digest(session.run(example.inputs)))
        if isinstance(outputs, Exception):  # which the cell may have stopped with
            outputs = f"{type(outputs).__name__}: {outputs}"
        worst = getattr(stop, "worst", None)
        return _key(
            "opinion", fingerprint, sorted(self._settings.instructions), about,
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


def _key(*parts: object) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:32]


def _digest(arrays: Iterable[Array]) -> str:
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(f"{array.dtype.str} {array.shape} ".encode() + array.tobytes())
    return digest.hexdigest()
