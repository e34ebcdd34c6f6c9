"""A session whose cells run on a cluster: their tests run here in the order in which the records come back."""

from __future__ import annotations

import dataclasses
import itertools
import pickle
import re
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from conformance.front.plugin.options import refusing
from conformance.front.plugin.ordering import cell_of
from conformance.front.plugin.session_parts import may_run, run_tests
from conformance.process.errors import display_path, why
from conformance.results.records.sanitize import literal
from conformance.runtimes import registry

if TYPE_CHECKING:
    from conformance.case.plan.cell import Cell
    from conformance.extras.cluster.coordinator import CellJob, Cluster, MadeCell
    from conformance.extras.cluster.run_description import Run
    from conformance.front.plugin.options import Options
    from conformance.front.plugin.session_parts import Parts
    from conformance.results.records.record import Record

ADDRESS = re.compile(r"local:[1-9][0-9]{0,3}|[a-z]+://\S+")
"""What ``--cluster`` takes."""

_OF_CELLS = (
    "examples",
    "budget",
    "random",
    "require_provider",
    "tensorrt",
    "provider_option",
    "observe",
    "explain_declared",
)
"""The settings of a run that its cells read wherever they run."""
ALONE = 0.25
"""A case that takes longer than this part of a worker's share of the run is begun first, so that it does not go on
alone when all others have ended; otherwise short cases come first."""


class Clustered:
    """Hooks of a session with ``--cluster``, and what the rest of the session asks of the cluster."""

    def __init__(self, session: Parts) -> None:
        self._session, self._options = session, session.options
        self._cluster: Cluster | None = None
        self._made: dict[str, MadeCell] = {}

    # ---- what the session asks

    def absence(self, runtime: str | None) -> str | None:
        """Say why no worker can run a runtime; None where one can, or where no runtime is needed."""
        assert self._cluster is not None
        return None if runtime not in registry.MAY_LACK else self._cluster.absence(runtime)

    def made(self, cell: Cell) -> MadeCell | None:
        """The record of a cell that was given to the workers; None of any other."""
        return self._made.get(cell.id)

    def hosts(self) -> dict[str | None, list[dict[str, object]]]:
        """Return what fingerprints take of each worker's host, with the variables and facts there."""
        assert self._cluster is not None
        hosts: dict[str | None, list[dict[str, object]]] = {}
        for worker in self._cluster.fit:
            view = {name: worker.facts.get(name) for name in ("variables", "facts")}
            known = hosts.setdefault(worker.facts["fingerprint"], [])
            known += [] if view in known else [view]
        return hosts

    def environment(self) -> dict[str, object]:
        """Describe the workers for the header of the run, in place of this host."""
        from conformance.results.baseline.merging import one_processor

        if self._cluster is None:  # no cell is run
            return {}
        workers = self._cluster.fit
        return {
            "cpu": one_processor([worker.facts["cpu"] for worker in workers]),
            "gpu": one_processor([worker.facts["gpu"] for worker in workers]),
            "platform": " and ".join(sorted({worker.facts["platform"] for worker in workers})),
            "workers": {worker.name: worker.host for worker in workers},
        }

    def close(self) -> None:
        if self._cluster is not None:
            self._cluster.close()

    # ---- hooks

    @pytest.hookimpl(tryfirst=True)  # before the run file is begun, whose header tells of the workers
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        cells = [cell for item in session.items if (cell := cell_of(item)) is not None]
        if session.config.option.collectonly or not cells:
            return
        try:
            from conformance.extras.cluster.coordinator import Cluster
        except ImportError as error:
            text = f"--cluster needs Dask ({error}): pip install 'onnx-export-conformance[cluster]'"
            raise pytest.UsageError(text) from None
        packages: dict[str, str] = {}
        commands: set[str] = set()
        for case in {(cell.case.file, cell.case.name): cell.case for cell in cells}.values():
            named, called = _find_stated(case)
            packages |= _find_needs(case).packages | named
            commands |= called
        options = self._options
        self._cluster = Cluster(
            options["cluster"],
            options.store,
            self._tell,
            needs=options.cluster_needs(),
            packages=packages,
            commands=sorted(commands),
            patience=options["cluster_timeout"],
        )
        with refusing("--cluster: "), self._session.saying(f"asking {options['cluster']} for its workers"):
            self._cluster.connect()
        self._session.ordering.workers = len(self._cluster.fit)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        """Run the tests of cells as their records come, all others first; as pytest does it in all else."""
        if self._cluster is None:
            return None
        if not may_run(session):
            return None
        expected = self._session.ordering.seconds([item.nodeid for item in session.items])
        seconds = dict(zip(session.items, expected, strict=True))
        jobs, waiting, at_once = self._divided(session.items, seconds)
        run_tests(session, at_once, itertools.chain.from_iterable(waiting.values()))
        from conformance.extras.cluster.workers import SchedulerLost

        try:
            for made in self._cluster.records(jobs, self._run, self._record_loss):
                self._session.progress.staff(len(self._cluster.fit))
                if made is None:
                    self._session.progress.pytest_runtest_logfinish()
                    continue
                self._made[made.cell] = made
                items = waiting.pop(made.cell)
                run_tests(session, items, itertools.chain.from_iterable(waiting.values()))
                del self._made[made.cell]
        except SchedulerLost:
            text = (
                f"the scheduler at {self._options['cluster']} is gone; {len(waiting)} cells were not run. What was "
                f"run is in {display_path(self._options.report)}, from where --reuse takes it over"
            )
            raise session.Interrupted(text) from None
        if self._cluster.twice:
            self._tell(f"{self._cluster.twice} records came twice, as cases were begun again: the first ones count")
        return True

    def _divided(
        self, items: Sequence[pytest.Item], seconds: Mapping[pytest.Item, float]
    ) -> tuple[list[CellJob], dict[str, list[pytest.Item]], list[pytest.Item]]:
        """The jobs for the cluster in their order, the tests that wait for them by cell, and all other tests. A cell
        is run once, however many tests there are of it."""
        from conformance.cells.runner import broken
        from conformance.extras.cluster.coordinator import CellJob, MadeCell
        from conformance.extras.cluster.freight import files_of
        from conformance.extras.cluster.host_facts import RUNTIME
        from conformance.extras.cluster.tasks import run_cells

        assert self._cluster is not None
        groups: dict[tuple[object, ...], list[tuple[Cell, pytest.Item]]] = {}
        waiting: dict[str, list[pytest.Item]] = {}
        at_once = []
        for item in items:
            cell = cell_of(item)
            if cell is None or not self._session.running.has_to_run(cell):
                at_once.append(item)
            else:
                lacked = cell.runtime if cell.runtime in registry.MAY_LACK else None
                groups.setdefault((cell.case.file, cell.case.name, lacked), []).append((cell, item))
        jobs = []
        for (*_, runtime), members in groups.items():
            cells = tuple({cell.id: cell for cell, _ in members}.values())
            needs = _find_needs(cells[0].case)
            words = {f"package {name}" for name in needs.packages}
            words |= {RUNTIME.format(runtime)} if runtime else set()
            stated = _words_of_stated_needs(cells[0].case)
            # A case goes to workers that have what it names under needs; where none has that, any of them skips it.
            words = words | stated if self._cluster.lacking(words | stated) is None else words - stated
            lacking = self._cluster.lacking(words)
            trouble = None
            if lacking is not None:
                trouble = "NoWorker", f"no worker of {self._options['cluster']} has {lacking}"
            try:
                files = files_of(cells[0].case, needs)
            except OSError as error:  # gone since its case file was read
                trouble = "MissingFile", f"{error.filename} cannot be read ({why(error)})"
            if trouble is not None:
                for cell, item in members:
                    self._made[cell.id] = MadeCell(cell.id, broken(cell, *trouble), None)
                    at_once.append(item)
                continue
            for cell, item in members:
                waiting.setdefault(cell.id, []).append(item)
            jobs.append(
                CellJob(
                    tuple(cell.id for cell in cells), run_cells, partial(_packed, cells),
                    files, frozenset(words), sum(seconds[item] for _, item in members),
                )
            )  # fmt: skip
        share = sum(job.seconds for job in jobs) / max(len(self._cluster.fit), 1)
        first = [job for job in jobs if job.seconds > ALONE * share]
        rest = [job for job in jobs if job.seconds <= ALONE * share]
        return [*sorted(first, key=_expected, reverse=True), *sorted(rest, key=_expected)], waiting, at_once

    def _run(self, name: str, neighbours: int) -> Run:
        from conformance.extras.cluster.run_description import Run
        from conformance.models.kept.installed import own_roots

        options, settings = self._options, self._session.running.settings()
        told = {
            field.name: getattr(settings, field.name)
            for field in dataclasses.fields(settings)
            if field.name in _OF_CELLS
        }
        roots = tuple(dict.fromkeys(str(root.absolute()) for root in own_roots(options.folder)))
        return Run(
            name=name, folder=str(options.folder), store=str(options.store.absolute()),
            store_shown=display_path(options.store), roots=roots, settings=told,
            timeout=options["cell_timeout"], memory_gib=options["cell_memory"], neighbours=neighbours,
        )  # fmt: skip

    def _record_loss(self, id: str, error: str, reason: str) -> Record:
        from conformance.cells.runner import broken

        cell = self._session.planning.named(id)
        assert cell is not None
        return broken(cell, error, reason)

    def _tell(self, line: str) -> None:
        reporter: pytest.TerminalReporter | None = self._options.config.pluginmanager.get_plugin("terminalreporter")
        if reporter is not None:
            reporter.ensure_newline()
            for text in line.splitlines():
                reporter.write_line(literal(text))


def _packed(cells: Sequence[Cell], ids: Sequence[str]) -> bytes:
    return pickle.dumps([cell for cell in cells if cell.id in ids])


def _expected(job: CellJob) -> float:
    return job.seconds


def _find_needs(case: Any) -> Any:
    """Find what a case depends on; all Python of its folder where that fails.

    There it fails as it does here.
    """
    from conformance.models.kept.dependency_files import Needs, needs
    from conformance.models.kept.installed import python_below

    try:
        return needs(case)
    except Exception:  # a file that is not there, or Python that cannot be parsed; the cell says it
        return Needs(tuple(map(Path, python_below(case.folder))), {})


def _find_stated(case: Any) -> tuple[dict[str, str], set[str]]:
    from conformance.models.kept.dependency_files import stated_needs

    return stated_needs(case)


def _words_of_stated_needs(case: object) -> set[str]:
    packages, commands = _find_stated(case)
    return {f"package {name}" for name in packages} | {f"command {name}" for name in commands}


def check_options(options: Options) -> None:
    """UsageError for options that do not go together."""
    if options["cluster"] is None:
        if options["cluster_needs"] is not None:
            raise pytest.UsageError(
                "--cluster-needs says which workers of a cluster are used: give --cluster with it"
            )
        return
    if not ADDRESS.fullmatch(options["cluster"]):
        text = f"--cluster {options['cluster']}: give the address of a Dask scheduler, as tcp://host:8786, or local:4"
        raise pytest.UsageError(text)
    options.cluster_needs()
    if options.config.getoption("dist", "no") != "no":
        raise pytest.UsageError("--cluster hands the cells to its workers, -n to processes here: give one of them")
    if options.config.getoption("stepwise", False):
        text = "--stepwise goes on behind the test that failed last; on a cluster tests end in any order: give one"
        raise pytest.UsageError(text)
    if options["isolation"] == "none":
        raise pytest.UsageError("--isolation none runs the cells in this process, --cluster on others: give one")
