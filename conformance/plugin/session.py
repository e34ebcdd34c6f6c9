"""What one pytest session knows of the suite: its cells, worker and records. Imports pytest, as ``plugin`` does."""

from __future__ import annotations

import datetime
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from conformance.checks.runner import Runner
    from conformance.depends.changed import Changes
    from conformance.depends.fingerprint import Fingerprints
    from conformance.errors import CaseFileError
    from conformance.plan.catalogue import Selection
    from conformance.plan.cell import Cell
    from conformance.plan.settings import Settings
    from conformance.records.record import Record
    from conformance.worker.isolation import Worker

SELECTION = ("exporter", "opset", "runtime", "precision")

SLOW_SECONDS = 2.0
"""A cell that takes longer shows what it is doing, in a terminal."""


class Session:
    """What one pytest session knows of the suite; cases are read when the first suite test asks for them."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.records: list[dict[str, Any]] = []
        self.collected = False
        self._failed: dict[tuple[object, ...], str] = {}
        self._plan: tuple[list[Cell], dict[str, CaseFileError | None]] | None = None
        self._worker: Worker | None = None
        self._fingerprints: Fingerprints | None = None
        self._runner: Runner | None = None
        self._writer: Any = None
        self._started = time.time()
        self._earlier: dict[str, dict[str, Any]] = {}
        self.changes: Changes | None = None
        """With --changed-since: what changed, known once the cases have been read."""
        self.considered = 0
        """How many cells there were before --changed-since left some."""
        self.baseline_changes: list[Any] = []
        self.gating: list[str] = []
        """What to say before those changes."""
        self.regressions = 0
        """With --baseline: how many regressions nobody has accepted, known at the end."""
        self._absences: dict[str | None, str | None] = {}
        self.following: Cell | None = None
        """The cell after the one that runs."""

    # ---- cases -------------------------------------------------------------------------------------

    def plan(self) -> tuple[list[Cell], dict[str, CaseFileError | None]]:
        """All selected cells, and every case file with what is wrong with it."""
        if self._plan is None:
            self.collected = True
            if not self.config.option.collectonly and not self._earlier:
                self._start()  # a worker imports torch while the cases are read
            from conformance.plan.catalogue import read_suite

            paths, selection = self._case_paths(), self.selection()
            cells, files = read_suite(paths, selection)
            self._plan = self._part_of(cells, paths, selection), files
        return self._plan

    def _part_of(self, cells: list[Cell], paths: list[Path], selection: Selection) -> list[Cell]:
        """The cells that --changed-since and --shard leave."""
        revision, part = self.config.getoption("changed_since"), self.config.getoption("shard")
        if revision is not None:
            from conformance.depends.changed import changed_since

            try:
                self.changes = changed_since(revision, paths, cells, selection)
            except ValueError as error:
                raise pytest.UsageError(f"--changed-since {revision}: {error}") from None
            self.considered = len(cells)
            cells = [cell for cell in cells if cell.id in self.changes.reasons]
        if part is not None:
            from conformance.baseline import parse_shard, shard

            kept = shard([cell.id for cell in cells], *parse_shard(part))
            cells = [cell for cell in cells if cell.id in kept]
        return cells

    def _case_paths(self) -> list[Path]:
        given = self.config.getoption("cases")
        if given:
            return [Path(path) for path in given]
        for folder in (self.config.invocation_params.dir, self.config.rootpath):
            if (folder / "cases").is_dir():
                return [folder / "cases"]
        return [self.config.invocation_params.dir / "cases"]

    def selection(self) -> Selection:
        from conformance.plan.catalogue import selection

        options = {name: self.config.getoption(name) for name in SELECTION}
        try:
            return selection(options)
        except ValueError as error:
            raise pytest.UsageError(str(error)) from None

    def required(self) -> frozenset[str]:
        """The runtimes that a run must not do without."""
        given = self.config.getoption("require")
        if given is None:
            return frozenset()
        from conformance.runtimes.registry import MAY_LACK

        known = {*MAY_LACK, "latency"}
        found = frozenset(word.strip() for word in given.split(",") if word.strip())
        for word in sorted(found - known):
            raise pytest.UsageError(
                f"--require: '{word}' is nothing that can be required; known: {', '.join(sorted(known))}"
            )
        if given is not None and not found:
            raise pytest.UsageError("--require is empty")
        return found

    def builder_options(self) -> dict[str, Any]:
        """What --tensorrt says, checked like the ``tensorrt`` of a case."""
        given = self.config.getoption("tensorrt")
        if given is None:
            return {}
        from conformance.case.deploy import builder_options

        try:
            return builder_options(given)
        except ValueError as error:
            raise pytest.UsageError(f"--tensorrt: {error}") from None

    # ---- running -----------------------------------------------------------------------------------

    def settings(self) -> Settings:
        from conformance.plan.settings import Settings

        home = self._home(self.config.getoption("store"))
        return Settings(
            store=home / "models",
            examples=self.config.getoption("examples"),
            random=self.config.getoption("random"),
            failures=home / "failures",
            tensorrt=self.builder_options(),
        )

    def _home(self, option: str) -> Path:
        home = self.config.invocation_params.dir / option
        home.mkdir(parents=True, exist_ok=True)
        ignore = home / ".gitignore"
        if not ignore.exists():
            ignore.write_text("*\n", encoding="utf-8")
        return home

    def run(self, cell: Cell) -> dict[str, Any]:
        """The record of one cell, as plain data."""
        fingerprint = self._fingerprint(cell)
        if fingerprint in self._earlier:
            return {**self._earlier[fingerprint], "reused": True}
        absent = self._absence(cell)
        if absent is not None:
            return self._not_run(cell, absent)
        waiting = Waiting(self.config)
        record = self._run()(cell, waiting, self._runs_next())
        waiting.done()
        record.command = self._command(cell)
        record.fingerprint = fingerprint
        return self._as_required(cell, record).as_dict()

    def _runs_next(self) -> Cell | None:
        """The cell after this one, where it has to be run."""
        following = self.following
        if following is None or (self._earlier and self._fingerprint(following) in self._earlier):
            return None
        # A budget of time is measured while nothing else is done here.
        alone = following.check == "latency" or self._absence(following) is not None
        return None if alone else following

    def _absence(self, cell: Cell) -> str | None:
        """Why this host, or this kind of run, cannot run a cell; asked once for each runtime."""
        if cell.check == "latency" and hasattr(self.config, "workerinput"):
            return "latency is measured only where nothing runs beside it: run it without -n, as with -m latency"
        if cell.runtime not in self._absences:
            from conformance.runtimes.registry import absence

            self._absences[cell.runtime] = absence(cell.runtime)
        return self._absences[cell.runtime]

    def _not_run(self, cell: Cell, reason: str) -> dict[str, Any]:
        """The record of a cell that cannot be run here."""
        record = cell.record()
        record.status, record.stage, record.reason = "skipped", "load", reason
        record.command, record.fingerprint = self._command(cell), self._fingerprint(cell)
        return self._as_required(cell, record).as_dict()

    def _as_required(self, cell: Cell, record: Record) -> Record:
        """Failed instead of skipped where --require says so."""
        wanted = {cell.runtime, "latency" if cell.check == "latency" else None} & self.required()
        if record.status == "skipped" and wanted:
            record.status, record.error = "failed", "NotRun" if record.latency is None else "Inconclusive"
            record.reason = f"--require {', '.join(sorted(map(str, wanted)))}: {record.reason}"
        return record

    def read_earlier(self) -> None:
        """Reads, by fingerprint, the records of the earlier run that need not be made again."""
        from conformance.records.run_file import read_run

        if self.config.getoption("random"):
            raise pytest.UsageError("--random draws anew, --reuse does not run what has run: give one of them")
        try:
            _, records = read_run(self.config.invocation_params.dir / self.config.getoption("reuse"))
        except ValueError as error:
            raise pytest.UsageError(f"--reuse {error}") from None
        # a duration is of the run that measured it
        sound = [r for r in records if r["status"] in ("passed", "xfailed") and r["check"] != "latency"]
        self._earlier = {record["fingerprint"]: record for record in sound if record["fingerprint"]}

    def check_gating(self) -> None:
        """Usage errors of --baseline and --shard, now and not after the run."""
        from conformance.baseline import load, parse_shard

        try:
            if self.config.getoption("shard") is not None:
                parse_shard(self.config.getoption("shard"))
            if self.config.getoption("baseline") is not None:
                load(self._baseline())
        except ValueError as error:
            raise pytest.UsageError(str(error)) from None

    def _baseline(self) -> Path:
        place: Path = self.config.invocation_params.dir / self.config.getoption("baseline")
        return place

    def compare_with_baseline(self) -> None:
        """Holds the finished run against --baseline; what changed goes into ``changes.json`` beside the run."""
        from conformance.baseline import compare_runs, environment_changes, gate, load, selection_of
        from conformance.records.run_file import read_run

        try:
            before, after = load(self._baseline()), read_run(self.report)
        except ValueError as error:
            self.gating = [str(error)]
            self.regressions = 1
            return
        selected, note = selection_of(after[0])
        self.baseline_changes = compare_runs(before, after, selected=selected)
        self.gating = [*environment_changes(before, after), *([note] if note else [])]
        self.regressions = gate(self.baseline_changes)
        text = json.dumps([change.as_dict() for change in self.baseline_changes], indent=1, default=str)
        (self.report / "changes.json").write_text(text + "\n", encoding="utf-8")

    @property
    def report(self) -> Path:
        """The folder that the run is written to."""
        folder: Path = self.config.invocation_params.dir / self.config.getoption("report")
        return folder

    def _fingerprint(self, cell: Cell) -> str | None:
        if self._fingerprints is None:
            from conformance.depends.fingerprint import Fingerprints

            self._fingerprints = Fingerprints(
                {name: self.config.getoption(name) for name in ("examples", "tensorrt")}
            )
        return self._fingerprints(cell)

    def _start(self) -> None:
        if self._worker is None and self.config.getoption("isolation") == "process":
            from conformance.worker.warm import new_worker

            self._worker = new_worker().__enter__()

    def _run(self) -> Runner:
        if self._runner is None:
            self._start()
            from conformance.checks.runner import Runner

            self._runner = Runner(self.settings(), self.config.getoption("cell_timeout"), self._worker)
        return self._runner

    def _command(self, cell: Cell) -> str:
        """What runs this cell alone, from the folder in which this run was started."""
        import shlex

        words = ["pytest", "conformance"]
        if not (self.config.invocation_params.dir / "conformance").is_dir():
            words.insert(1, "--pyargs")
        for path in self.config.getoption("cases") or []:
            words += ["--cases", path]
        for option in ("examples", "tensorrt"):
            if self.config.getoption(option) is not None:
                words += [f"--{option}", str(self.config.getoption(option))]
        return shlex.join([*words, "-k", cell.id])

    def first_of_its_kind(self, record: dict[str, Any]) -> str | None:
        """The id of an earlier cell that failed in the same way, before there was a model to run."""
        if record["stage"] not in ("declare", "export", "check") or record["status"] != "failed":
            return None
        kind = (record["case"], record["exporter"], record["opset"], record["stage"], record["reason"])
        first = self._failed.setdefault(kind, record["id"])
        return None if first == record["id"] else first

    def unmet(self) -> frozenset[str]:
        """The required runtimes of which no cell has been run."""
        run = [record for record in self.records if record["status"] != "skipped"]
        return self.required() - {record["runtime"] for record in run} - {record["check"] for record in run}

    # ---- records -----------------------------------------------------------------------------------

    def add(self, record: dict[str, Any]) -> None:
        """Writes a finished cell down at once; called where the terminal is, also under xdist."""
        if self._writer is None:
            self.begin()
        self.records.append(record)
        self._writer.add(record)

    def begin(self) -> None:
        """Begins the run file. A shard without cells has one too, or it would count as missing."""
        from conformance.records.environment import environment
        from conformance.records.run_file import RunWriter

        if self._writer is None:
            (self.report / "changes.json").unlink(missing_ok=True)
            started = datetime.datetime.fromtimestamp(self._started, datetime.timezone.utc)
            flags = [*self._standing_options(), *(str(one) for one in self.config.invocation_params.args)]
            header = {"started": started.isoformat(timespec="seconds"), "environment": environment(flags)}
            self._writer = RunWriter(self.report, header)

    def _standing_options(self) -> list[str]:
        """Options that stand in the environment or in the settings; they select cells as those of the command do."""
        import os
        import shlex

        return [*self.config.getini("addopts"), *shlex.split(os.environ.get("PYTEST_ADDOPTS", ""))]

    def close(self, *, finished: bool = True) -> None:
        """Ends the worker and the run file; a run that did not reach its end has no ``run.json``."""
        if self._worker is not None:
            self._worker.close()
            self._worker = self._runner = None
        if self._writer is not None:
            self._writer.close(time.time() - self._started if finished else None)
            self._writer = None


class Waiting:
    """A line in the terminal that tells what a slow cell is doing, gone when it is done."""

    def __init__(self, config: pytest.Config) -> None:
        reporter: Any = config.pluginmanager.get_plugin("terminalreporter")
        self._reporter: Any = reporter if reporter is not None and reporter.isatty else None
        self._start = time.monotonic()
        self._shown = False

    def __call__(self, note: dict[str, Any]) -> None:
        spent = time.monotonic() - self._start
        if self._reporter is None or spent < SLOW_SECONDS:
            return
        dims = ", ".join(f"{name}={size}" for name, size in (note.get("draw") or {}).get("dims", {}).items())
        examples = f", {note['examples']} examples" if note.get("examples") else ""
        text = f"  {note.get('stage', 'starting')}{f' at {dims}' if dims else ''}{examples}, {spent:.0f} s"
        self._reporter.rewrite(text[: self._reporter._tw.fullwidth - 1], erase=True)
        self._shown = True

    def done(self) -> None:
        if self._shown:
            self._reporter.rewrite("", erase=True)
