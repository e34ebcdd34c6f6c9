"""Keep the outcomes of declared failures for a later run: how an export failed, and what explains a failing example
(``diagnose.remembered``). Beside them it is kept that a module gives the same graph at other sizes.

A failure that nobody has declared is explained anew, and its export tried again.
"""

from __future__ import annotations

import hashlib
from typing import Any

from conformance.case.files.must_hold import Fails
from conformance.case.plan.cell import Cell
from conformance.case.plan.expected import fails_as_declared
from conformance.case.plan.settings import Settings
from conformance.models.kept.fingerprint import host
from conformance.models.kept.results import Keeping
from conformance.process.errors import Stopped, lacks_memory, trouble_of_host


class Outcomes:
    """The declared failures and the second traces of one cell in earlier runs."""

    def __init__(self, cell: Cell, settings: Settings, keeping: Keeping, suite: str) -> None:
        self._cell, self._settings, self._keeping, self._suite = cell, settings, keeping, suite
        # a run that draws anew meets other examples, which no run meets again
        self._folder = settings.outcomes if settings.random is None and settings.observe else None

    def is_declared(self, stop: Stopped) -> bool:
        """Return whether the case says that the whole cell fails like this."""
        return self.declared(stop) is not None

    def declared(self, stop: Stopped) -> Fails | None:
        """Return the entry of ``fails`` by which the whole cell fails like this, or None."""
        return fails_as_declared(self._cell, self._settings.instructions, stop)

    # ---- exports ---------------------------------------------------------------------------------------------

    def failed_export(self, model: str) -> Stopped | None:
        """Return how the export of the model with this key failed, where the cell is declared to fail like that; None
        where it has to be tried."""
        try:
            told = self.recall(key_of_outcome("export", model, self.host()))
            stop = Stopped(told["stage"], told["error"], told["reason"], told["fault"], told["details"])
            stop.caused_by = told["caused_by"]
        except (TypeError, KeyError, ValueError):
            return None
        return stop if self.is_declared(stop) else None

    def note_failed_export(self, model: str, stop: Stopped) -> None:
        """Keep how the export of the model with this key failed, if it is declared to and nothing but the exporter
        made it fail."""
        of_the_host = trouble_of_host(stop) is not None or lacks_memory(stop)
        if stop.stage != "export" or stop.fault != "exporter" or of_the_host or not self.is_declared(stop):
            return
        told = {name: getattr(stop, name) for name in ("stage", "error", "reason", "fault", "details", "caused_by")}
        self.keep(key_of_outcome("export", model, self.host()), told)

    def same_graph(self, model: str, structure: str) -> bool:
        """Return whether the module of the model with this key, traced at other sizes, has given this graph in an
        earlier run. A graph that differed is traced again."""
        return bool(self.recall(key_of_outcome("trace", model, self.host())) == structure)

    def note_same_graph(self, model: str, structure: str) -> None:
        """Keep that the module of the model with this key has given this graph at other sizes too."""
        self.keep(key_of_outcome("trace", model, self.host()), structure)

    # ---- whatever else is kept about them ------------------------------------------------------------------------

    def recall(self, key: str) -> Any:
        """Return what an earlier run kept under a key of ``key_of_outcome``; None for nothing."""
        return self._keeping.get(self._folder, key)

    def keep(self, key: str, value: object) -> None:
        """Keep a value that JSON can hold for later runs."""
        self._keeping.put(self._folder, key, value)

    def host(self) -> str:
        """Return what of this host and this package the outcomes rest on."""
        return host(self._suite)


def key_of_outcome(*parts: object) -> str:
    """Return the key under which an outcome is kept, of all that it depends on."""
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:32]
