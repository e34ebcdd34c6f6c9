"""The pytest front end: options, cells as test items, records to the run file, the matrix at the end.

pytest loads this module in every session of an environment that has the package installed. It does nothing
that shows unless the suite (``conformance/test_*.py``) is collected, and imports nothing heavy before that.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from conformance.plugin.session import SELECTION, Session
from conformance.runtimes import registry

if TYPE_CHECKING:
    from conformance.plan.cell import Cell


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("conformance", "accuracy conformance of exported models")
    group.addoption(
        "--cases", action="append", metavar="PATH", help="case files or folders (default: cases/); repeatable"
    )
    for name, what in (
        ("exporter", "torchscript, dynamo"),
        ("opset", "numbers"),
        ("runtime", ", ".join(registry.IN_CASES)),
        ("precision", "fp32, fp16, int8"),
    ):
        group.addoption(f"--{name}", metavar="A,B", help=f"keep only these: {what}")
    group.addoption(
        "--require",
        metavar="A,B",
        help="what cannot be run or decided here has failed, instead of being skipped: "
        + ", ".join((*registry.MAY_LACK, "latency")),
    )
    group.addoption(
        "--tensorrt",
        metavar="KEY=VALUE,...",
        help="builder options that go before those of the cases, as in optimization_level=5,workspace=1GiB",
    )
    group.addoption("--examples", type=int, metavar="N", help="drawn shapes for each cell, besides the boundary ones")
    group.addoption(
        "--random", action="store_true", help="draw anew in this run; failing draws are kept and replayed"
    )
    group.addoption(
        "--report", default="reports/latest", metavar="DIR", help="write the run there (default: %(default)s)"
    )
    group.addoption(
        "--reuse",
        metavar="RUN",
        help="take over what passed or failed as declared in that run, where nothing it depends on has changed",
    )
    group.addoption(
        "--baseline", metavar="RUN", help="also fail on what got worse since that run, or since a committed baseline"
    )
    group.addoption(
        "--changed-since",
        metavar="REV",
        help="only the cells whose case, Python, registration or pins differ from that git revision",
    )
    group.addoption("--shard", metavar="I/N", help="the I-th of N parts of the cells, for a job of its own")
    group.addoption(
        "--store",
        default=".conformance",
        metavar="DIR",
        help="exported models and failing draws (default: %(default)s)",
    )
    group.addoption(
        "--cell-timeout",
        type=float,
        default=300.0,
        metavar="S",
        help="a cell that takes longer has failed (default: %(default)s)",
    )
    group.addoption(
        "--isolation",
        choices=("process", "none"),
        default="process",
        help="none: in this process, for a debugger",
    )


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    state = config.stash[_SESSION] = Session(config)
    if any(config.getoption(name) is not None for name in SELECTION):
        state.selection()  # a word that is not known is a usage error now, not five collection errors later
    config.addinivalue_line("markers", "latency: cells of budgets of time (-m latency)")
    state.required()
    state.builder_options()
    if config.getoption("baseline") is not None or config.getoption("shard") is not None:
        state.check_gating()
    if config.getoption("reuse") is not None:
        state.read_earlier()


_SESSION = pytest.StashKey[Session]()
_RECORD = pytest.StashKey[dict[str, Any]]()


# ---- items -----------------------------------------------------------------------------------------------


def _is_suite(module: object) -> bool:
    return getattr(module, "__name__", "").startswith("conformance.test_")


@pytest.hookimpl(tryfirst=True)
def pytest_pycollect_makeitem(collector: pytest.Collector, name: str) -> list[pytest.Item] | None:
    """No items for a check without cells; pytest would make one of its own that shows as skipped."""
    module = getattr(collector, "module", None)
    if not _is_suite(module) or not name.startswith("test_") or name == "test_case_file":
        return None
    cells, _ = collector.config.stash[_SESSION].plan()
    return None if any(cell.check == name.removeprefix("test_") for cell in cells) else []


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if not _is_suite(metafunc.module):
        return
    cells, files = metafunc.config.stash[_SESSION].plan()
    if "cell" in metafunc.fixturenames:
        check = metafunc.function.__name__.removeprefix("test_")
        these = [cell for cell in cells if cell.check == check]
        metafunc.parametrize("cell", these, ids=[cell.label for cell in these])
    elif "case_file" in metafunc.fixturenames:
        metafunc.parametrize("case_file", list(files), ids=[name.removesuffix(".yaml") for name in files])


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(session: pytest.Session, items: list[pytest.Item]) -> None:
    """From what everything rests on to what rests on it: case files, exports, conversions, values."""
    if not session.config.stash[_SESSION].collected:
        return
    order = [f"conformance.test_{name}" for name in ("cases", "export", "registration", "fidelity")]

    def place(item: pytest.Item) -> int:
        name = getattr(getattr(item, "module", None), "__name__", "")
        return order.index(name) if name in order else len(order)

    items.sort(key=place)


def _cell_of(item: pytest.Item) -> Cell | None:
    from conformance.plan.cell import Cell

    callspec = getattr(item, "callspec", None)
    cell = callspec.params.get("cell") if callspec else None
    return cell if isinstance(cell, Cell) else None


def pytest_itemcollected(item: pytest.Item) -> None:
    """The words that ``-k`` finds a cell by, besides those of its test id: its own id and the case's tags."""
    if _is_suite(getattr(item, "module", None)):
        cell = _cell_of(item)
        if cell is not None:
            item.extra_keyword_matches.update(cell.case.says.tags)
            item.extra_keyword_matches.add(cell.id)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    state = item.config.stash[_SESSION]
    if state.collected:
        state.following = None if nextitem is None else _cell_of(nextitem)


@pytest.fixture
def run(request: pytest.FixtureRequest) -> Any:
    """``run(cell)``: runs the cell and ends the test as its record says."""
    state = request.config.stash[_SESSION]

    def run_cell(cell: Cell) -> None:
        from conformance.records import text

        record = state.run(cell)
        request.node.stash[_RECORD] = record
        request.node.user_properties += _properties(record)
        if record["status"] == "skipped":
            pytest.skip(record["reason"])
        if record["status"] == "xfailed":
            pytest.xfail(record["reason"])
        if record["status"] != "passed":
            first = state.first_of_its_kind(record)
            pytest.fail(text.repetition(record, first) if first else text.failure(record), pytrace=False)

    return run_cell


def _properties(record: dict[str, Any]) -> list[tuple[str, object]]:
    """What JUnit files tell of a cell besides pytest's own."""
    names = ("case", "exporter", "opset", "runtime", "precision", "check", "status", "stage", "error", "fault",
             "examples", "command", "bundle")  # fmt: skip
    found: list[tuple[str, object]] = [(name, record[name]) for name in names if record[name] is not None]
    found.append(("source", f"{record['source']['file']}:{record['source']['line']}"))
    if record["worst"] is not None:
        found.append(("ratio", record["worst"]["ratio"]))
    return found


@pytest.fixture
def read_case_file(request: pytest.FixtureRequest) -> Any:
    """``read_case_file(name)``: fails the test with everything that is wrong in that case file."""
    _, files = request.config.stash[_SESSION].plan()

    def read(name: str) -> None:
        error = files[name]
        if error is not None:
            pytest.fail(str(error), pytrace=False)

    return read


# ---- results ---------------------------------------------------------------------------------------------


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    record = item.stash.get(_RECORD, None)
    if record is not None and report.when == "call":
        report.conformance = record  # type: ignore[attr-defined]  # plain data, so xdist carries it along
    return report


class _Results:
    """Registered where the terminal is: not in xdist's workers."""

    def __init__(self, state: Session) -> None:
        self._state = state

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        record = getattr(report, "conformance", None)
        if record is not None:
            self._state.add(record)
            _hand_to_benchmark(self._state.config, report.nodeid, record)

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        from conformance.records import matrix

        records, width = self._state.records, terminalreporter._tw.fullwidth
        if self._state.collected or records:
            for line in _selection(self._state):
                terminalreporter.write_line(line)
        if not records:
            return
        terminalreporter.section("conformance")
        for line in matrix.lines(records, width):
            terminalreporter.write_line(line)
        terminalreporter.write_line("")
        for line in (*matrix.LEGEND, *matrix.fidelity(records), *matrix.latency(records), *matrix.slow(records)):
            terminalreporter.write_line(line)
        terminalreporter.write_line(matrix.counts(records))
        for line in _emptiness(self._state):
            terminalreporter.write_line(line, red=True)
        if self._state.config.getoption("baseline") is not None:
            from conformance.baseline import lines

            terminalreporter.section("since the baseline")
            for line in (*self._state.gating, *lines(self._state.baseline_changes, width)):
                terminalreporter.write_line(line)


def _hand_to_benchmark(config: pytest.Config, nodeid: str, record: dict[str, Any]) -> None:
    """The durations of a latency cell to pytest-benchmark, which shows, stores and compares them as its own."""
    session: Any = getattr(config, "_benchmarksession", None)
    if session is None or not (record["latency"] or {}).get("own"):
        return
    from conformance.latency.store import metadata

    session.benchmarks += metadata(record["id"], nodeid, record["latency"])


def _selection(state: Session) -> Iterator[str]:
    """What --changed-since chose; the process where the terminal is may not have read the cases itself."""
    if state.config.getoption("changed_since") is None:
        return
    state.plan()
    if state.changes is not None:
        yield from state.changes.lines(state.considered)


def _emptiness(state: Session) -> Iterator[str]:
    for runtime in sorted(state.unmet()):
        yield f"--require {runtime}: not one cell of {runtime} was run"
    if state.records and all(record["status"] == "skipped" for record in state.records):
        yield "every cell was skipped: that is not a success"


def pytest_sessionstart(session: pytest.Session) -> None:
    if not hasattr(session.config, "workerinput"):
        state = session.config.stash[_SESSION]
        session.config.pluginmanager.register(_Results(state), "conformance-results")


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """No cell, or only skipped ones, is no success."""
    state = session.config.stash[_SESSION]
    controls = not hasattr(session.config, "workerinput") and not session.config.option.collectonly
    option = session.config.getoption
    if controls and _may_be_empty(state) and (state.collected or state.records):
        state.begin()
    broken_off = session.exitstatus in (pytest.ExitCode.INTERRUPTED, pytest.ExitCode.INTERNAL_ERROR)
    state.close(finished=not (broken_off or session.shouldstop or session.shouldfail))
    if not controls or not (state.collected or state.records):
        return
    if option("baseline") is not None and state.records:
        state.compare_with_baseline()
    if session.exitstatus != pytest.ExitCode.OK:
        return
    proved = any(record["status"] != "skipped" for record in state.records)
    if state.unmet() or state.regressions:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
    elif not proved and not (state.records == [] and _may_be_empty(state)):
        session.exitstatus = pytest.ExitCode.NO_TESTS_COLLECTED


def _may_be_empty(state: Session) -> bool:
    """A job may get no part of the cells, and a change may concern none: that was found out, and is no oversight."""
    return any(state.config.getoption(name) is not None for name in ("shard", "changed_since"))


def pytest_unconfigure(config: pytest.Config) -> None:
    state = config.stash.get(_SESSION, None)
    if state is not None:
        state.close()
