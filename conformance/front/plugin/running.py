"""Running cells: the worker, the cells that need not or cannot be run, and what records say besides a verdict."""

from __future__ import annotations

import contextlib
import json
import secrets
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

from conformance.front.plugin.saying import Waiting
from conformance.process.disk import DEFAULT_STORE
from conformance.runtimes import registry

if TYPE_CHECKING:
    from conformance.case.plan.cell import Cell
    from conformance.case.plan.settings import Settings
    from conformance.cells.runner import Runner
    from conformance.extras.cluster.coordinator import MadeCell
    from conformance.front.plugin.options import Options
    from conformance.front.plugin.progress import ProgressHooks
    from conformance.front.plugin.saying import Saying
    from conformance.models.kept.fingerprint import Fingerprints
    from conformance.process.worker.isolation import Worker
    from conformance.results.records.record import Record


_REASONS = 5
"""Reasons that a record gives why it was made again."""


class Elsewhere(Protocol):
    """The part of ``clustered.Clustered`` that is needed here."""

    def made(self, cell: Cell) -> MadeCell | None: ...

    def hosts(self) -> dict[str | None, list[dict[str, object]]]: ...

    def absence(self, runtime: str | None) -> str | None: ...


class Running:
    """Makes the record of each cell; the worker starts when the first cell is about to run."""

    def __init__(self, options: Options, progress: ProgressHooks, saying: Saying) -> None:
        self._options, self._progress, self._saying = options, progress, saying
        self._worker: Worker | None = None
        self._runner: Runner | None = None
        self._fingerprints: dict[str | None, Fingerprints] = {}
        self._earlier = options.earlier()
        self._reusable: dict[str, str | None] = {}
        """By cell id the record that is taken over."""
        self._again: dict[str, list[str]] = {}
        """By cell id why none is."""
        self._absences: dict[str | None, str | None] = {}
        self.following: Cell | None = None
        """The cell after the current one."""
        self.clustered: Elsewhere | None = None
        """Where cells run on a cluster."""
        self.given: Record | None = None
        """What a worker of several has made of the cell whose test runs next."""

    def prepare(self) -> None:
        """Start the worker, if it will be needed, so that it imports torch while the cases are read."""
        config = self._options.config
        runs_elsewhere = config.pluginmanager.hasplugin("dsession")  # in the processes of xdist
        runs_elsewhere |= self.clustered is not None
        if not config.option.collectonly and not self._earlier and not runs_elsewhere:
            self._start()

    def __call__(self, cell: Cell) -> Record:
        """The record of one cell."""
        from conformance.results.records.record import Record

        made = None if self.clustered is None else self.clustered.made(cell)
        reused = None if made is not None else self._reused(cell)
        if reused is not None:
            return Record.from_dict({**json.loads(reused), "reused": True})
        given, self.given = self.given, None
        # What a worker has made stands, also where none that could make it is left by now.
        host, absent = None, None if made is not None else self._absence(cell)
        if absent is not None:
            from conformance.cells import runner

            record = runner.skipped(cell, absent)
        elif given is not None and given.id == cell.id:
            record = given
        elif made is not None:
            _, record, record.worker, host = made
            record.source = cell.record().source
        else:
            waiting = Waiting(self._options.config, self._progress, cell.id)
            record = self._run()(cell, waiting, self._runs_next())
            waiting.done()
        record.command, record.fingerprint = self._command(cell), self._fingerprint(cell, host)
        record.again = self._again.get(cell.id, [])
        return self._as_required(cell, record)

    def has_to_run(self, cell: Cell) -> bool:
        """Return whether a cell is run: it can be, and no record of it is taken over.

        This host, or a worker of a cluster, can run it.
        """
        return self._reused(cell) is None and self._absence(cell) is None

    def _reused(self, cell: Cell) -> str | None:
        """The record that an earlier run has of a cell, made on a host such as run it now."""
        if not self._earlier:
            return None
        if cell.id not in self._reusable:
            self._reusable[cell.id] = self._looked_up(cell)
        return self._reusable[cell.id]

    def _looked_up(self, cell: Cell) -> str | None:
        from conformance.models.kept.observed_dependencies import Now, Observed

        hosts: dict[str | None, list[dict[str, Any]]] = {None: [{}]}
        if self.clustered is not None:
            hosts = self.clustered.hosts()
        home = cell.case.folder.resolve()
        why = ["no good record of the same case, settings, code, installation and processor"]
        for host, views in hosts.items():
            text = self._earlier.get(self._fingerprint(cell, host))
            depends = None if text is None else json.loads(text)["depends"]
            if depends is not None:
                known = Observed.from_dict(depends)
                nows = [Now(home, **view) for view in views]
                if all(map(known.holds, nows)):
                    return text
                with contextlib.suppress(Exception):  # files that cannot be read: what differs is not said
                    why = [line for now in nows for line in known.differences(now)]
            elif text is not None:
                why = ["what it depends on was not observed"]
        self._again[cell.id] = why[:_REASONS]
        return None

    def broken(self, cell: Cell, error: str, reason: str, raised: BaseException | None = None) -> Record:
        """The record of a cell whose test ended without one; see ``cells.runner.broken``."""
        from conformance.cells import runner

        record = runner.broken(cell, error, reason, raised)
        record.command = self._command(cell)
        return record

    def idle(self) -> list[Worker]:
        """Return the worker, which has run all that there was, if there is one."""
        return [] if self._worker is None else [self._worker]

    def close(self) -> None:
        if self._worker is not None:
            self._worker.close()
            self._worker = self._runner = None

    def _start(self) -> None:
        if self._worker is None and self._options["isolation"] == "process":
            from conformance.process.worker.warm import new_worker

            dynamo = self._options.may_need_dynamo()
            self._worker = new_worker(self._options.cell_memory(), dynamo=dynamo).__enter__()

    def _run(self) -> Runner:
        if self._runner is None:
            self._start()
            self._runner = self.runner(self._worker)
        return self._runner

    def runner(self, worker: Worker | None, shown: dict[str, str] | None = None) -> Runner:
        """Make what runs cells in a worker, or without one in this process.

        See ``Runner`` for ``shown``.
        """
        from conformance.cells.runner import Runner

        return Runner(self._settings, self._options["cell_timeout"], worker, shown, explaining=False)

    @cached_property
    def _settings(self) -> Settings:
        return self.settings()

    def settings(self) -> Settings:
        """Return the settings that the cells of this run read."""
        from conformance.case.plan.settings import Settings
        from conformance.models.kept.fingerprint import suite
        from conformance.models.kept.gathering import keep_in
        from conformance.models.kept.lowerings import read_lowerings
        from conformance.models.kept.results import note_conditions

        home = self._options.store
        settings = Settings(
            store=home / "models",
            examples=self._options["examples"],
            budget=self._options["budget"],
            random=secrets.randbits(64) if self._options["random"] else None,
            failures=home / "failures",
            answers=home / "answers",
            outcomes=home / "outcomes",
            require_provider=self._options["require_provider"],
            tensorrt=self._options.builder_options(),
            provider_option=self._options.provider_options(),
            observe=not self._options["no_observe"],
            explain_declared=self._options["explain"] == "all",
            suite=suite(),
        )
        note_conditions(settings.index)
        if settings.observe:  # while the workers' server imports PyTorch
            keep_in(home / "contents")
            read_lowerings()
        return settings

    def _runs_next(self) -> Cell | None:
        """The cell after the current one, if it has to be run."""
        following = self.following
        if following is None or self._reused(following) is not None:
            return None
        # A budget of time is measured while this run does nothing else.
        alone = following.check == "latency" or self._absence(following) is not None
        return None if alone else following

    def _absence(self, cell: Cell) -> str | None:
        """Say why this host or this kind of run cannot run a cell, None if it can; each runtime is asked once."""
        for_latency = "latency is measured only where nothing runs beside it: run it without {}, as with -m latency"
        if cell.check == "latency" and hasattr(self._options.config, "workerinput"):
            return for_latency.format("-n")
        if self.clustered is not None:
            return (
                for_latency.format("--cluster") if cell.check == "latency" else self.clustered.absence(cell.runtime)
            )
        if cell.runtime not in self._absences:
            self._absences[cell.runtime] = registry.absence(cell.runtime)
        return self._absences[cell.runtime]

    def _as_required(self, cell: Cell, record: Record) -> Record:
        """Failed instead of skipped where --require says so."""
        wanted = {cell.runtime, "latency" if cell.check == "latency" else None} & self._options.required()
        if record.status == "skipped" and wanted:
            record.status, record.error = "failed", "NotRun" if record.latency is None else "Inconclusive"
            record.undecided = False
            record.reason = f"--require {', '.join(sorted(map(str, wanted)))}: {record.reason}"
        return record

    def _fingerprint(self, cell: Cell, host: str | None = None) -> str:
        """``host`` is what fingerprints take of another host, None for this one."""
        if host not in self._fingerprints:
            from conformance.models.kept.fingerprint import Fingerprints

            run = {name: self._options[name] for name in ("examples", "budget", "tensorrt", "provider_option")}
            run["explain"] = self._options["explain"] == "all"
            self._fingerprints[host] = Fingerprints(run, host)
        with self._saying(f"{cell.case.name}: finding the files and packages that it depends on"):
            return self._fingerprints[host](cell)

    def _command(self, cell: Cell) -> str:
        """Write the command that runs this cell alone, from the folder of this run."""
        from conformance.case.plan.cell import command

        options = {name: self._options[name] for name in ("examples", "budget", "tensorrt", "store")}
        options["provider-option"] = self._options["provider_option"]
        if cell.runtime in registry.RUNNING and cell.runtime not in cell.case.says.runtimes:
            options["runtime"] = cell.runtime
        if options["store"] == DEFAULT_STORE:  # it keeps the failing draws that are replayed first
            options["store"] = None
        return command(cell.id, self._options.folder, self._options["cases"] or (), options)
