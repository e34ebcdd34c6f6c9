"""The suite as pytest runs it: cells as test items, records to the run file, the matrix at the end."""

from __future__ import annotations

import os
import sys
from collections.abc import Generator
from typing import TYPE_CHECKING, Any

import pytest

from conformance.front.plugin.ordering import TELLS, cell_of
from conformance.front.plugin.properties import describe
from conformance.front.plugin.session import SessionParts
from conformance.front.plugin.session_parts import STARTED_BY
from conformance.front.plugin.terminal import FindingsFirst, Terminal
from conformance.process import collector
from conformance.results.records.sanitize import block, one_line
from conformance.runtimes import registry

if TYPE_CHECKING:
    from conformance.case.plan.cell import Cell
    from conformance.results.records.record import Record

_SUITE = "conformance.test_suite"
_HYPOTHESIS = "hypothesispytest"
"""The plugin of Hypothesis, which at the end imports all of Hypothesis, also where no test has used it: cells draw
their shapes in other processes."""
_SESSION = pytest.StashKey[SessionParts]()
_RECORD: pytest.StashKey[Record] = pytest.StashKey()


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "latency: cells of budgets of time (-m latency)")
    config.stash[_SESSION] = SessionParts(config)
    for sentence in registry.LEFT_OUT.values():
        config.issue_config_time_warning(pytest.PytestConfigWarning(sentence), 2)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    ordering = node.config.stash[_SESSION].ordering
    node.workerinput[STARTED_BY] = os.getpid()
    node.workerinput[TELLS] = node.gateway.newchannel()
    node.workerinput[TELLS].setcallback(ordering.hear)
    ordering.workers = node.workerinput["workercount"]


# ---- items -----------------------------------------------------------------------------------------------


def _is_suite(module: object) -> bool:
    return getattr(module, "__name__", "") == _SUITE


@pytest.hookimpl(tryfirst=True)
def pytest_pycollect_makeitem(collector: pytest.Collector, name: str) -> list[pytest.Item] | None:
    """No items for a check without cells, for which pytest would make an item that shows as skipped."""
    module = getattr(collector, "module", None)
    if not _is_suite(module) or not name.startswith("test_") or name == "test_case_file":
        return None
    cells, _ = collector.config.stash[_SESSION].planning()
    return None if any(cell.check == name.removeprefix("test_") for cell in cells) else []


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if not _is_suite(metafunc.module):
        return
    cells, files = metafunc.config.stash[_SESSION].planning()
    if "cell" in metafunc.fixturenames:
        check = metafunc.function.__name__.removeprefix("test_")
        checked = [cell for cell in cells if cell.check == check]
        metafunc.parametrize("cell", checked, ids=[cell.label for cell in checked])
    elif "case_file" in metafunc.fixturenames:
        metafunc.parametrize("case_file", list(files), ids=[name.removesuffix(".yaml") for name in files])


def pytest_itemcollected(item: pytest.Item) -> None:
    """The words that ``-k`` finds a cell by, besides those of its id: its own id and the case's tags."""
    if _is_suite(getattr(item, "module", None)):
        cell = cell_of(item)
        if cell is not None:
            item.extra_keyword_matches.update(cell.case.says.tags)
            if cell.id not in item.name:  # pytest writes out what is not ASCII
                item.extra_keyword_matches.add(cell.id)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Generator[None]:
    """Sort the cells before others select and sort tests; by an earlier run afterwards, where they did not sort.

    A case file with a mistake is kept out of what others select of: whichever words it was selected by, nobody knows
    which cells it would have had.
    """
    session = config.stash[_SESSION]
    refused: list[pytest.Item] = []
    if session.planning.collected:
        refused = [item for item in items if session.planning.mistakes(item) is not None]
        items[:] = [item for item in items if item not in refused]
        session.ordering.sort(items, session.planning()[0])
    yield
    items[:0] = refused
    if session.planning.collected:
        session.planning.twice = _leave_out_double(items)
    if session.planning.collected and _has_terminal(config) and not config.option.collectonly:
        session.ordering.sort_by_past(items)


def _leave_out_double(items: list[pytest.Item]) -> int:
    """Keep each test once, and each cell, which has one record; return how many others there were."""
    first: dict[object, pytest.Item] = {}
    for item in items:
        cell = cell_of(item)
        first.setdefault(item if cell is None else cell.id, item)
    double = len(items) - len(first)
    items[:] = first.values()
    return double


@pytest.hookimpl(tryfirst=True)  # before xdist tells of the tests, at which they are handed out
def pytest_collection_finish(session: pytest.Session) -> None:
    own = session.config.stash[_SESSION]
    if own.planning.collected:
        # the cases stay to the end, where pytest would have the collector look through them ten times
        collector.leave_out_present()
        if not _has_terminal(session.config):
            own.ordering.tell_terminal(session.items)


# ---- running ---------------------------------------------------------------------------------------------


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    session = item.config.stash[_SESSION]
    if session.planning.collected:
        session.running.following = None if nextitem is None else cell_of(nextitem)


@pytest.fixture
def run(request: pytest.FixtureRequest) -> object:
    """``run(cell)``: runs the cell and ends the test as its record says."""
    session = request.config.stash[_SESSION]
    running, shared = session.running, session.properties.shared

    def run_cell(cell: Cell) -> None:
        from conformance.results.records import known, text

        record = running(cell)
        request.node.stash[_RECORD] = record  # until its report is made
        request.node.user_properties += shared(describe(record))
        if record.status == "skipped":
            pytest.skip(one_line("; ".join([str(record.reason), *known.lines(record)])))
        if record.status == "xfailed":
            pytest.xfail(one_line(record.reason))
        if record.status != "passed":
            pytest.fail(text.failure(record), pytrace=False)

    return run_cell


@pytest.fixture
def read_case_file(request: pytest.FixtureRequest) -> object:
    """``read_case_file(name)``: fails the test with everything that is wrong in that case file."""
    _, files = request.config.stash[_SESSION].planning()

    def read(name: str) -> None:
        error = files[name]
        if error is not None:
            pytest.fail("\n".join(map(block, error.problems)), pytrace=False)

    return read


# ---- results ---------------------------------------------------------------------------------------------


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    record = item.stash.get(_RECORD, None)
    if record is not None and report.when == "teardown":
        del item.stash[_RECORD]
    if record is None and report.failed and call.excinfo is not None and report.when in ("setup", "call"):
        cell = cell_of(item)
        if cell is not None:
            record = item.stash[_RECORD] = item.config.stash[_SESSION].running.broken(
                cell, call.excinfo.typename, "the test ended without a record of its cell", call.excinfo.value
            )
            report.conformance = record.as_dict()  # type: ignore[attr-defined]  # plain data, so xdist carries it along
    elif record is not None and report.when == "call":
        report.conformance = record.as_dict()  # type: ignore[attr-defined]  # the same
    return report


def _has_terminal(config: pytest.Config) -> bool:
    return not hasattr(config, "workerinput")


def pytest_sessionstart(session: pytest.Session) -> None:
    if _has_terminal(session.config):
        own, plugins = session.config.stash[_SESSION], session.config.pluginmanager
        if own.clustered is not None:
            plugins.register(own.clustered, "conformance-cluster")
        if own.pooled is not None:
            plugins.register(own.pooled, "conformance-workers")
        plugins.register(Terminal(own), "conformance-results")
        plugins.register(FindingsFirst(own), "conformance-findings")
        plugins.register(own.progress, "conformance-progress")  # later, and so asked before, the run file is begun


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """No cell, or only skipped ones, is no success."""
    stopped = session.exitstatus in (pytest.ExitCode.INTERRUPTED, pytest.ExitCode.INTERNAL_ERROR)
    broken_off = bool(stopped or session.shouldstop or session.shouldfail)
    own = session.config.stash[_SESSION]
    plugins = session.config.pluginmanager
    if own.has_cells and "hypothesis" not in sys.modules and plugins.hasplugin(_HYPOTHESIS):
        plugins.unregister(name=_HYPOTHESIS)
    if _has_terminal(session.config) and not session.config.option.collectonly:
        session.exitstatus = own.finish(session.exitstatus, broken_off=broken_off)
    else:
        own.close(finished=not broken_off)


def pytest_unconfigure(config: pytest.Config) -> None:
    session = config.stash.get(_SESSION, None)
    if session is not None:
        session.close()
        session.keeping.end()
