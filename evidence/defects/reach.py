"""Which tests execute which line: each test file is run once under coverage.py, which notes the test function.

Tests of the tier ``thorough`` are left out: they are asked about what no other test finds.

Forks and processes that tests start are measured too. Of these only the test file is known: lines that a worker
executes belong to all tests of the file that start processes.
"""

from __future__ import annotations

import ast
import contextlib
import os
import shutil
import subprocess
import sys
import threading
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from coverage import CoverageData
from coverage.exceptions import CoverageException

from evidence.defects.listed import PACKAGE, Defect

LIMIT = 3600.0
"""Seconds for one test file under coverage."""
STARTS_PROCESSES = 0.3
"""Seconds from which on a test is taken to start a process, where its own lines do not say so."""
_WORKERS = (f"{PACKAGE}/worker/isolation.py", f"{PACKAGE}/worker/aside.py")
_SETTINGS = """[run]
source_pkgs = {package}
context = {name}
dynamic_context = test_function
parallel = True
patch = subprocess, fork, _exit
sigterm = True
data_file = {data}
disable_warnings =
    no-data-collected, module-not-measured, module-not-imported, couldnt-parse, already-imported, module-not-python
"""


@dataclass(frozen=True)
class Function:
    """A test function with all its parameters."""

    file: str
    name: str
    """``test_dims``, or ``TestDims::test_fit``."""
    seconds: float

    @property
    def id(self) -> str:
        return f"{self.file}::{self.name}"


# ---- measuring -------------------------------------------------------------------------------------------------


def measure(tree: Path, folder: Path, jobs: int = 1) -> None:
    """Runs each test file of a repository under coverage; what is in ``folder`` already is not measured again."""
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / PACKAGE).is_dir():  # by which lines are found again when the package has changed
        shutil.copytree(tree / PACKAGE, folder / PACKAGE, ignore=shutil.ignore_patterns("__pycache__"))
    files = sorted(path.relative_to(tree).as_posix() for path in (tree / "tests").rglob("test_*.py"))
    with ThreadPoolExecutor(jobs) as pool:
        for _ in pool.map(lambda file: _measure_file(tree, folder, file), files):
            pass


def _measure_file(tree: Path, folder: Path, file: str) -> None:
    place = folder / file.replace("/", "__").removesuffix(".py")
    report = place.with_name(f"{place.name}.xml")
    if report.is_file():
        return
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    settings = place / "settings"
    settings.write_text(_SETTINGS.format(package=PACKAGE, name=file, data=place / "lines"), encoding="utf-8")
    unfinished = place / "junit.xml"
    command = [sys.executable, "-m", "coverage", "run", f"--rcfile={settings}", "-m", "pytest", file, "-q"]
    command += ["-p", "no:cacheprovider", f"--junitxml={unfinished}"]
    environment = {**os.environ, "PYTHONPATH": str(tree)}
    with (place / "said").open("w") as said:
        subprocess.run(command, cwd=tree, stdout=said, stderr=said, env=environment, timeout=LIMIT)
    unfinished.replace(report)


# ---- reading ---------------------------------------------------------------------------------------------------


class Reach:
    """What ``measure`` has left in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lines: dict[str, dict[str, dict[str, set[int]]]] = {}
        self._reading = threading.Lock()
        """Held while files are put together, which are read by several threads."""

    @cached_property
    def functions(self) -> dict[str, Function]:
        """All test functions that were measured, by id."""
        return {function.id: function for report in self._reports for function in _functions_in(report)}

    @cached_property
    def _reports(self) -> list[Path]:
        return sorted(self._folder.glob("*.xml"))

    def source(self, path: str) -> str:
        """The text of a file of the package when it was measured."""
        return (self._folder / path).read_text(encoding="utf-8")

    def tests_of(self, defect: Defect) -> list[Function]:
        """The tests that execute a line of the defect, those of a file together: first the functions that do so in
        their own process, then the others of files that do, which start processes; the cheapest files first."""
        with self._reading:
            return self._tests_of(defect)

    def _tests_of(self, defect: Defect) -> list[Function]:
        text = self.source(defect.path)
        lines = executed_with(text, defect.lines(text))
        own: list[Function] = []
        others: list[Function] = []
        for report in self._reports:
            contexts = self._contexts(report, defect.path)
            if not any(lines & executed for executed in contexts.values()):
                continue
            known = {name: function for name, function in self.functions.items() if function.file == _file_of(report)}
            exact = [known[name] for name, executed in contexts.items() if name in known and lines & executed]
            own += exact
            if any(lines & executed for name, executed in contexts.items() if name not in known):
                others += [one for one in known.values() if one not in exact and self._starts_processes(report, one)]
        return [*_by_file(own), *_by_file(others)]

    def _starts_processes(self, report: Path, function: Function) -> bool:
        in_workers = any(function.id in self._contexts(report, path) for path in _WORKERS)
        return in_workers or function.seconds >= STARTS_PROCESSES

    def _contexts(self, report: Path, path: str) -> Mapping[str, set[int]]:
        """The executed lines of a file of the package by test id, or by the test file where no test is known."""
        kept = self._lines.setdefault(report.stem, {})
        if path not in kept:
            kept[path] = {}
            for data in self._data_of(report):
                for measured in data.measured_files():
                    if measured.endswith(f"/{path}"):
                        for line, contexts in data.contexts_by_lineno(measured).items():
                            for context in contexts:
                                kept[path].setdefault(_id_of(context, _file_of(report)), set()).add(line)
        return kept[path]

    def _data_of(self, report: Path) -> Sequence[CoverageData]:
        """What all processes of a test file have noted, put together once."""
        whole = report.with_suffix(".lines")
        if not whole.is_file():
            unfinished = CoverageData(str(report.with_suffix(".part")))
            unfinished.erase()
            for file in sorted(report.with_suffix("").glob("*.pid*")):
                with contextlib.suppress(CoverageException):  # of a process that was killed as it wrote
                    data = CoverageData(str(file))
                    data.read()
                    if data.measured_files():
                        unfinished.update(data)
            unfinished.write()
            unfinished.close()
            report.with_suffix(".part").replace(whole)
        data = CoverageData(str(whole))
        data.read()
        return [data]


def _file_of(report: Path) -> str:
    return f"{report.stem.replace('__', '/')}.py"


def _id_of(context: str, file: str) -> str:
    """The id of a test function of ``tests/case/test_dims.py|tests.case.test_dims.test_fit``; else the test file."""
    _, _, name = context.partition("|")
    module = f"{file.removesuffix('.py').replace('/', '.')}."
    return f"{file}::{name.removeprefix(module).replace('.', '::')}" if name.startswith(module) else file


def _functions_in(report: Path) -> Iterator[Function]:
    file = _file_of(report)
    module = file.removesuffix(".py").replace("/", ".")
    seconds: dict[str, float] = {}
    for case in ElementTree.parse(report).iter("testcase"):
        classes = case.attrib["classname"].removeprefix(module).strip(".").split(".")
        name = "::".join([*filter(None, classes), case.attrib["name"].partition("[")[0]])
        seconds[name] = seconds.get(name, 0.0) + float(case.attrib["time"])
    return (Function(file, name, spent) for name, spent in seconds.items())


def _by_file(functions: Iterable[Function]) -> list[Function]:
    """Those of a file together, the cheapest first, and the cheapest files first."""
    files: dict[str, list[Function]] = {}
    for function in functions:
        files.setdefault(function.file, []).append(function)
    ordered = sorted(files.values(), key=lambda own: sum(one.seconds for one in own))
    return [one for own in ordered for one in sorted(own, key=lambda one: one.seconds)]


def executed_with(text: str, lines: range) -> set[int]:
    """The lines by which is told that a test meets a defect: those of the statement that it is in. What stands
    outside of functions is executed by every import, so that there it is the lines of all functions of the file."""
    tree = ast.parse(text)
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]

    def body(function: ast.FunctionDef | ast.AsyncFunctionDef) -> set[int]:
        return set(range(function.body[0].lineno, (function.end_lineno or 0) + 1))

    if not any(body(function) & {*lines} for function in functions):
        return set().union(*map(body, functions))
    around = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.stmt)
        and node.lineno <= lines.start
        and (node.end_lineno or node.lineno) >= lines.stop - 1
    ]
    inmost = min(around, key=lambda node: (node.end_lineno or node.lineno) - node.lineno, default=None)
    if inmost is None or hasattr(inmost, "body"):  # the head of a loop or a condition, without what is in it
        return {*lines} if inmost is None else {*lines, inmost.lineno}
    return {*range(inmost.lineno, (inmost.end_lineno or inmost.lineno) + 1)}
