"""Explain the failures of a run once all cells have their verdicts, each cause once, within the time for it."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import queue
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any
from xml.etree.ElementTree import Element, SubElement

import pytest

from conformance.front.plugin.properties import describe
from conformance.process.errors import display_path

if TYPE_CHECKING:
    from pathlib import Path

    from conformance.case.plan.cell import Cell
    from conformance.front.plugin.session_parts import Parts
    from conformance.front.plugin.writing import Writing
    from conformance.process.worker.isolation import OnWait, Worker
    from conformance.results.records.record import Record


class Junit:
    """The tests of the JUnit file of a session, if it has one (``--junit-xml``)."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    @functools.cached_property
    def _tests(self) -> dict[str, Element]:
        """The elements of all tests, by the name that pytest gives each. They are written after all else."""
        from _pytest.junitxml import xml_key

        log: Any = self._config.stash.get(xml_key, None)
        elements = () if log is None else (reporter.to_xml() for reporter in log.node_reporters_ordered)
        return {element.get("name", ""): element for element in elements}

    def explain(self, report: pytest.TestReport, text: str) -> None:
        """Write the text and the properties of a failed test in the place of those that it had."""
        from _pytest.junitxml import bin_xml_escape

        test = self._tests.get(report.nodeid.rpartition("::")[2])
        failure = None if test is None else test.find("failure")
        if test is None or failure is None:
            return
        failure.text = bin_xml_escape(text)
        failure.set("message", bin_xml_escape(text.partition("\n")[0]))
        properties = test.find("properties")
        if properties is not None:
            properties.clear()
            for name, value in report.user_properties:
                SubElement(properties, "property", name=name, value=bin_xml_escape(value))


class Explaining:
    """Keeps the red cells of a run, and has their causes explained at its end."""

    def __init__(self, session: Parts, writing: Writing, workers: Callable[[int], list[Worker]]) -> None:
        """``workers`` gives up to so many that do nothing."""
        self._session, self._options = session, session.options
        self._writing, self._workers = writing, workers
        self.red: dict[str, Record] = {}
        """The whole records of red cells, by id, in the order of the run."""
        self.reports: dict[str, pytest.TestReport] = {}
        """The reports of their tests."""
        self._junit = Junit(self._options.config)
        self._count = 0
        """The number of cells to be explained."""
        self._at_a_time = 1
        self._why_left = ""
        self._named: set[Path] = set()
        """Folders that carry the id of a finding of this run."""
        self._told = False
        """True if a log says that failures are explained now."""

    def add(self, record: Record, report: pytest.TestReport) -> None:
        """Keep the record of a red cell, and the report of its test, which shows what it says."""
        self.red[record.id], self.reports[record.id] = record, report

    def notes(self) -> Iterator[str]:
        """Say what was left out."""
        from conformance.results.records.causes import seconds_left

        left, seconds = self._unexplained(), seconds_left(self.red.values())
        if left:
            takes = "" if seconds is None else f"{_about(seconds / self._at_a_time)} more with "
            told = f"{left} red cells are not explained ({self._why_left})"
            yield f"{told}: {takes}--explain all, or conformance explain CELL"

    def _unexplained(self) -> int:
        return sum(record.status == "failed" and record.unexplained for record in self.red.values())

    # ---- the end of the run ----------------------------------------------------------------------------------

    def run(self) -> None:
        """Explain the causes, those first that take the least. What is not done when time is up, or at Ctrl-C, is
        left."""
        from conformance.results.records.causes import by_likeness

        waiting = [dataclasses.replace(record) for record in self.red.values() if record.unexplained]
        named = self._session.planning.named
        groups = [
            [(cell, record) for record in alike if (cell := named(record.id)) is not None]
            for alike in by_likeness(waiting)
        ]
        self._count, seconds = sum(map(len, groups)), self._options.explain_seconds()
        self._why_left = f"--explain {self._options['explain']}"
        if not self._count or not seconds:
            return
        start = time.monotonic()
        try:
            for records in self._explained(groups, start + seconds):
                for record in records:
                    self._replace(record)
                self._show_progress()
        except KeyboardInterrupt:
            self._why_left = "Ctrl-C"
        else:
            in_time = time.monotonic() < start + seconds
            self._why_left = "they did not fail alike again" if in_time else f"{seconds:g} s were over"
        finally:
            self._show("")

    def name_folders(self) -> None:
        """Give the folders of all findings their ids: where cells ran on a cluster, each was explained there."""
        for record in [*self.red.values()]:
            if record.bundle and not (record.unexplained or record.explained_with):
                self._replace(dataclasses.replace(record))

    def leave(self, why: str) -> None:
        """Explain nothing, as the run was broken off."""
        self._why_left = why

    def _explained(
        self, groups: Sequence[Sequence[tuple[Cell, Record]]], deadline: float
    ) -> Iterator[Sequence[Record]]:
        """Yield the explained records of each cause as they come."""
        from conformance.cells.runner import explain_alike

        self._show_progress()
        running = self._session.running
        if self._options["isolation"] == "none":
            for alike in groups:
                yield from explain_alike(running.runner(None), alike, deadline)
            return
        from conformance.cells.pool import InOrder, Pool

        done: queue.SimpleQueue[list[Record]] = queue.SimpleQueue()

        def explainer(worker: Worker) -> Callable[..., None]:
            runner = running.runner(worker)

            def explain(alike: Sequence[tuple[Cell, Record]], on_wait: OnWait | None, then: object) -> None:
                for records in explain_alike(runner, alike, deadline, on_wait):
                    done.put(records)

            return explain

        jobs = dict(enumerate(groups))
        workers = self._workers(len(groups))
        self._at_a_time = max(len(workers), 1)
        pool = Pool(workers, explainer, InOrder(jobs, deadline), jobs, _leave)
        pool.start()
        try:
            for _ in pool.results():
                while not done.empty():
                    yield done.get()
                if time.monotonic() > deadline:
                    return
        finally:
            pool.close()

    def _replace(self, record: Record) -> None:
        """Put the explained record in the place of the one that was written."""
        from conformance.results.records import text

        if record.explained_with is None:
            self._name_folder(record)
        self.red[record.id] = record
        self._writing.replace(record)
        report = self.reports[record.id]
        report.user_properties = self._session.properties.shared(describe(record))
        report.longrepr = text.failure(record)
        self._junit.explain(report, str(report.longrepr))

    def _name_folder(self, record: Record) -> None:
        """Give the folder of a failing example the id of its finding as a second name, by which texts call it."""
        failing = self._options.store / "failing"
        own, short = failing / f"{record.check}-{record.id.partition('[')[2][:-1]}", failing / _id_of(record)
        with contextlib.suppress(OSError):  # a file system without links: then the longer name has to do
            if not own.is_dir() or short in self._named:
                return
            self._named.add(short)
            if short.is_symlink():
                short.unlink()
            short.symlink_to(own.name)
            long, new = (f"{display_path(failing)}/{folder.name}" for folder in (own, short))
            if record.bundle is not None:
                record.bundle = record.bundle.replace(long, new, 1)
            small: Any = record.smallest or {}
            for name in {"repro", "issue", "bundle"} & small.keys():
                small[name] = small[name].replace(long, new, 1)

    def _show_progress(self) -> None:
        self._show(f"explaining failures: {self._count - self._unexplained()} of {self._count} red cells")

    def _show(self, line: str) -> None:
        reporter: pytest.TerminalReporter | None = self._options.config.pluginmanager.get_plugin("terminalreporter")
        if reporter is None or self._options.config.get_verbosity() < 0:
            return
        if reporter.isatty:
            reporter.ensure_newline()
            reporter.rewrite(line, erase=True)
        elif line and not self._told:
            self._told = True
            reporter.ensure_newline()
            reporter.write_line(line)


def _about(seconds: float) -> str:
    return f"about {seconds / 60:.0f} min" if seconds >= 90 else f"about {max(seconds, 1):.0f} s"


def _id_of(record: Record) -> str:
    from conformance.results.records.findings import Finding, key_of

    return Finding(key_of(record)).id


def _leave(alike: object, error: Exception) -> None:
    """Leave cells unexplained whose explanation raised: their verdicts stand."""
