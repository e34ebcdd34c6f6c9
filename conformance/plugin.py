"""The pytest front end: options, cells as test items, records to the run file, the matrix at the end.

pytest loads this module in every session of an environment that has the package installed. It does nothing
that shows unless the suite (``conformance/test_*.py``) is collected, and imports nothing heavy before that.
"""

from __future__ import annotations

import datetime
import time
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from conformance.errors import CaseFileError
    from conformance.fingerprint import Fingerprints
    from conformance.isolation import Worker
    from conformance.plan import Cell, Selection
    from conformance.runner import Runner
    from conformance.settings import Settings

_SELECTION = ("exporter", "opset", "runtime", "precision")

SLOW_SECONDS = 2.0
"""A cell that takes longer shows what it is doing, in a terminal."""


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("conformance", "accuracy conformance of exported models")
    group.addoption(
        "--cases", action="append", metavar="PATH", help="case files or folders (default: cases/); repeatable"
    )
    for name, what in (
        ("exporter", "torchscript, dynamo"),
        ("opset", "numbers"),
        ("runtime", "onnx-reference, onnxruntime, tensorrt"),
        ("precision", "fp32, fp16, int8"),
    ):
        group.addoption(f"--{name}", metavar="A,B", help=f"keep only these: {what}")
    group.addoption(
        "--require",
        metavar="A,B",
        help="a cell of this runtime that this host cannot run has failed, instead of being skipped: tensorrt",
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
    state = config.stash[_SESSION] = _Session(config)
    if any(config.getoption(name) is not None for name in _SELECTION):
        state.selection()  # a word that is not known is a usage error now, not five collection errors later
    state.required()
    state.builder_options()
    if config.getoption("reuse") is not None:
        state.read_earlier()


class _Session:
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
            from conformance.suite import read_suite

            self._plan = read_suite(self._case_paths(), self.selection())
        return self._plan

    def _case_paths(self) -> list[Path]:
        given = self.config.getoption("cases")
        if given:
            return [Path(path) for path in given]
        for folder in (self.config.invocation_params.dir, self.config.rootpath):
            if (folder / "cases").is_dir():
                return [folder / "cases"]
        return [self.config.invocation_params.dir / "cases"]

    def selection(self) -> Selection:
        from conformance.suite import selection

        options = {name: self.config.getoption(name) for name in _SELECTION}
        try:
            return selection(options)
        except ValueError as error:
            raise pytest.UsageError(str(error)) from None

    def required(self) -> frozenset[str]:
        """The runtimes that a run must not do without."""
        given = self.config.getoption("require")
        if given is None:
            return frozenset()
        from conformance.runtimes import ABSENT

        found = frozenset(word.strip() for word in given.split(",") if word.strip())
        for word in sorted(found - ABSENT.keys()):
            raise pytest.UsageError(
                f"--require: '{word}' is nothing that can be required; known: {', '.join(ABSENT)}"
            )
        if given is not None and not found:
            raise pytest.UsageError("--require is empty")
        return found

    def builder_options(self) -> dict[str, Any]:
        """What --tensorrt says, checked like the ``tensorrt`` of a case."""
        given = self.config.getoption("tensorrt")
        if given is None:
            return {}
        from conformance.deploy import builder_options

        try:
            return builder_options(given)
        except ValueError as error:
            raise pytest.UsageError(f"--tensorrt: {error}") from None

    # ---- running -----------------------------------------------------------------------------------

    def settings(self) -> Settings:
        from conformance.settings import Settings

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
        absent = self._absence(cell.runtime)
        if absent is not None:
            return self._not_run(cell, absent)
        waiting = _Waiting(self.config)
        record = self._run()(cell, waiting, self._runs_next())
        waiting.done()
        record.command = self._command(cell)
        record.fingerprint = fingerprint
        return record.as_dict()

    def _runs_next(self) -> Cell | None:
        """The cell after this one, where it has to be run."""
        following = self.following
        if following is None or (self._earlier and self._fingerprint(following) in self._earlier):
            return None
        return following if self._absence(following.runtime) is None else None

    def _absence(self, runtime: str | None) -> str | None:
        """Why this host cannot run a runtime; asked once for each."""
        if runtime not in self._absences:
            from conformance.runtimes import ABSENT

            self._absences[runtime] = ABSENT.get(runtime or "", lambda: None)()
        return self._absences[runtime]

    def _not_run(self, cell: Cell, reason: str) -> dict[str, Any]:
        """The record of a cell that this host cannot run: skipped, or failed where its runtime is required."""
        record = cell.record()
        record.status, record.stage, record.reason = "skipped", "load", reason
        record.command, record.fingerprint = self._command(cell), self._fingerprint(cell)
        if cell.runtime in self.required():
            record.status, record.error = "failed", "NotRun"
            record.reason = f"--require {cell.runtime}, and this host cannot run it: {reason}"
        return record.as_dict()

    def read_earlier(self) -> None:
        """Reads, by fingerprint, the records of the earlier run that need not be made again."""
        from conformance.record import read_run

        if self.config.getoption("random"):
            raise pytest.UsageError("--random draws anew, --reuse does not run what has run: give one of them")
        try:
            _, records = read_run(self.config.invocation_params.dir / self.config.getoption("reuse"))
        except ValueError as error:
            raise pytest.UsageError(f"--reuse {error}") from None
        sound = [record for record in records if record["status"] in ("passed", "xfailed")]
        self._earlier = {record["fingerprint"]: record for record in sound if record["fingerprint"]}

    def _fingerprint(self, cell: Cell) -> str | None:
        if self._fingerprints is None:
            from conformance.fingerprint import Fingerprints

            self._fingerprints = Fingerprints(
                {name: self.config.getoption(name) for name in ("examples", "tensorrt")}
            )
        return self._fingerprints(cell)

    def _start(self) -> None:
        if self._worker is None and self.config.getoption("isolation") == "process":
            from conformance.warm import new_worker

            self._worker = new_worker().__enter__()

    def _run(self) -> Runner:
        if self._runner is None:
            self._start()
            from conformance.runner import Runner

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
        return self.required() - {record["runtime"] for record in self.records if record["status"] != "skipped"}

    # ---- records -----------------------------------------------------------------------------------

    def add(self, record: dict[str, Any]) -> None:
        """Writes a finished cell down at once; called where the terminal is, also under xdist."""
        from conformance.environment import environment
        from conformance.record import RunWriter

        if self._writer is None:
            folder = self.config.invocation_params.dir / self.config.getoption("report")
            started = datetime.datetime.fromtimestamp(self._started, datetime.timezone.utc)
            flags = [str(argument) for argument in self.config.invocation_params.args]
            header = {"started": started.isoformat(timespec="seconds"), "environment": environment(flags)}
            self._writer = RunWriter(folder, header)
        self.records.append(record)
        self._writer.add(record)

    def close(self) -> None:
        if self._worker is not None:
            self._worker.close()
            self._worker = self._runner = None
        if self._writer is not None:
            self._writer.close(time.time() - self._started)
            self._writer = None


_SESSION = pytest.StashKey[_Session]()
_RECORD = pytest.StashKey[dict[str, Any]]()


class _Waiting:
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
    from conformance.plan import Cell

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
        from conformance import text

        record = state.run(cell)
        request.node.stash[_RECORD] = record
        if record["status"] == "skipped":
            pytest.skip(record["reason"])
        if record["status"] == "xfailed":
            pytest.xfail(record["reason"])
        if record["status"] != "passed":
            first = state.first_of_its_kind(record)
            pytest.fail(text.repetition(record, first) if first else text.failure(record), pytrace=False)

    return run_cell


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

    def __init__(self, state: _Session) -> None:
        self._state = state

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        record = getattr(report, "conformance", None)
        if record is not None:
            self._state.add(record)

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        from conformance import matrix

        records = self._state.records
        if not records:
            return
        terminalreporter.section("conformance")
        for line in matrix.lines(records, terminalreporter._tw.fullwidth):
            terminalreporter.write_line(line)
        terminalreporter.write_line("")
        for line in (*matrix.LEGEND, *matrix.fidelity(records), *matrix.slow(records)):
            terminalreporter.write_line(line)
        terminalreporter.write_line(matrix.counts(records))
        for line in _emptiness(self._state):
            terminalreporter.write_line(line, red=True)


def _emptiness(state: _Session) -> Iterator[str]:
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
    state.close()
    if state.collected and session.exitstatus == pytest.ExitCode.OK and not session.config.option.collectonly:
        proved = any(record["status"] != "skipped" for record in state.records)
        if not proved and not hasattr(session.config, "workerinput"):
            session.exitstatus = pytest.ExitCode.NO_TESTS_COLLECTED
        elif state.unmet() and not hasattr(session.config, "workerinput"):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_unconfigure(config: pytest.Config) -> None:
    state = config.stash.get(_SESSION, None)
    if state is not None:
        state.close()
