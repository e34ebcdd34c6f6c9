"""Whole pytest runs and commands, in this process or in one of their own."""

import contextlib
import importlib
import json
import os
import subprocess
import sys
import tempfile
import warnings
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from conformance.front import cli
from conformance.models.kept import installed

ROOT = Path(__file__).parents[2]
"""Where the tests can be imported from."""


@dataclass(frozen=True)
class Said:
    """What a command has ended with, and what it has written to each of its streams."""

    code: int
    out: str
    err: str


@dataclass(frozen=True)
class Outcome:
    """What a run or a command has ended with, and what it left in its folder."""

    folder: Path
    code: int
    text: str

    @property
    def header(self) -> dict[str, Any]:
        return self._lines()[0]

    @property
    def records(self) -> dict[str, dict[str, Any]]:
        """The records by cell id."""
        records = self._lines()[1:]
        by_id = {record["id"]: record for record in records}
        assert len(by_id) == len(records), "a cell has two records"
        return by_id

    @property
    def run(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.folder / "reports/latest/run.json").read_text())
        return found

    def _lines(self) -> list[dict[str, Any]]:
        text = (self.folder / "reports/latest/records.jsonl").read_text(encoding="utf-8")
        return [json.loads(line) for line in text.splitlines()]

    def failure(self, name: str) -> str:
        """Return all that is known of one failing test, by a part of its id: of a cell what JUnit files and ``-vv``
        show, of any other test what the terminal does."""
        from conformance.results.records import text
        from conformance.results.records.record import Record

        cells = [one for one in self._red() if name.removeprefix("test_") in one["id"]]
        if cells:
            (record,) = cells
            return text.failure(Record.from_dict(record))
        sections = self.text.split("\n____")
        (found,) = (one for one in sections if name in one.split("\n", 1)[0])
        return found.split("\n", 1)[1].split("\n====")[0]

    def _red(self) -> list[dict[str, Any]]:
        try:
            return [record for record in self.records.values() if record["status"] in ("failed", "xpassed")]
        except FileNotFoundError:
            return []


def run_suite(
    folder: Path, *arguments: str | Path, own_process: bool = False, plugin: str = "", **environment: str
) -> Outcome:
    """Run ``pytest --pyargs conformance`` from ``folder``, as after an installation; none of its caches are kept."""
    return run_pytest(
        folder, "--pyargs", "conformance", *arguments, own_process=own_process, plugin=plugin, **environment
    )


AS_RUN = ("--pyargs", "conformance", "--conformance-run")
"""What ``conformance run`` gives to pytest before the words of its own."""


def run_pytest(
    folder: Path, *arguments: str | Path, own_process: bool = False, plugin: str = "", **environment: str
) -> Outcome:
    """Run pytest from ``folder`` with the plugins that are installed, and with ``plugin``, the Python of one more.

    The run takes place in this process, whose fork server has imported torch already: that saves most of the time of
    a run of few cells. ``own_process`` starts another, for tests of what a process imports, prints as it starts, or
    leaves when it ends, and so does ``-n``: xdist gives its processes the path that it was first imported with. A
    plugin that replaces something of this process has to put it back (``pytest_unconfigure``).
    """
    words = ["-p", "no:cacheprovider", *map(str, arguments)]
    if plugin:
        name = f"planted_{zlib.crc32(plugin.encode()):08x}"  # of the text, since bytecode may be that of another
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{name}.py").write_text(plugin, encoding="utf-8")
        words += ["-p", name]
        environment["PYTHONPATH"] = search_path(folder, environment.get("PYTHONPATH"))
    return _run("pytest", pytest.main, words, folder, own_process or "-n" in words, {"COLUMNS": "160", **environment})


def run_command(folder: Path, *arguments: str | Path, own_process: bool = False, **environment: str) -> Outcome:
    """Run ``conformance`` with these arguments from ``folder``, as ``run_pytest`` runs pytest."""
    words = [*map(str, arguments)]
    return _run("conformance", cli.main, words, folder, own_process, {"COLUMNS": "160", **environment})


def search_path(folder: Path, known: str | None = None) -> str:
    """PYTHONPATH with the folder before what it has already."""
    return os.pathsep.join([str(folder), *filter(None, [known or os.environ.get("PYTHONPATH")])])


def clean_environment() -> dict[str, str]:
    """The environment without what pytest, coverage and tox tell their own processes.

    In the folder of tox pytest keeps which tests failed, where the next run of the same test would find them.
    """
    return {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "COV", "TOX_"))}


def _run(
    module: str,
    function: Callable[[list[str]], int],
    words: list[str],
    folder: Path,
    own_process: bool,
    environment: dict[str, str],
) -> Outcome:
    folder.mkdir(parents=True, exist_ok=True)
    changed = {**clean_environment(), **environment}
    if own_process:
        changed["PYTHONPATH"] = os.pathsep.join([*filter(None, [changed.get("PYTHONPATH")]), str(ROOT)])
        done = subprocess.run(
            [sys.executable, "-m", module, *words], cwd=folder, env=changed, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, timeout=600, check=False,
        )  # fmt: skip
        return Outcome(folder, done.returncode, done.stdout)
    with tempfile.TemporaryFile("w+", encoding="utf-8") as output:
        with _inside(folder, changed), contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
            # What pytest would print at a crash goes where the test process has it, not to this file.
            code = _ended(function, ["-p", "no:faulthandler", *words] if module == "pytest" else words)
        output.seek(0)
        return Outcome(folder, code, output.read())


def _ended(function: Callable[[list[str]], int], words: list[str]) -> int:
    """The exit code, also of what ends as argparse does."""
    try:
        return int(function(words))
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 1


@contextlib.contextmanager
def _inside(folder: Path, environment: dict[str, str]) -> Iterator[None]:
    """Stand in the folder with the environment, and put everything back at the end."""
    home, variables, path, modules = Path.cwd(), dict(os.environ), list(sys.path), set(sys.modules)
    places = [Path(place) for place in environment.get("PYTHONPATH", "").split(os.pathsep) if place]
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.path[:0] = map(str, places)
    importlib.invalidate_caches()
    installed.forget()  # packages of an earlier run, or of none
    try:
        with warnings.catch_warnings():
            warnings.resetwarnings()  # what is an error in a test is none in the run that it looks at
            yield
    finally:
        for name in set(sys.modules) - modules:
            file = Path(getattr(sys.modules[name], "__file__", None) or "/")
            if any(file.is_relative_to(place) for place in (folder, *places) if place not in map(Path, path)):
                del sys.modules[name]  # a conftest.py of the folder, a plugin, or Python beside its cases
        sys.path[:] = path
        installed.forget()
        os.environ.clear()
        os.environ.update(variables)
        os.chdir(home)
