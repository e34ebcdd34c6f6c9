"""Where a run is written: folders that another run has, that cannot be written, or whose disk becomes full."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from conformance import cli
from conformance.bundle import replay as replaying
from conformance.disk import locks
from conformance.errors import UserError
from conformance.records.run_file import RunWriter, read_lines, read_run
from tests.baseline.support import put, record
from tests.support import Outcome, run_suite

CASES = """
defaults:
  about: passes
  inputs: {x: "float32[batch, 3]"}
  dims: {batch: 1..4}
  export: {torchscript: [17]}
  runtimes: onnxruntime
  specials: false
one: {forward: torch.sin(x)}
two: {forward: torch.cos(x)}
"""
QUICK = ("--examples", "1")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with cases whose models the store has."""
    folder = tmp_path_factory.mktemp("files")
    (folder / "cases").mkdir()
    (folder / "cases/cases.yaml").write_text(CASES, encoding="utf-8")
    assert run_suite(folder, *QUICK).code == 0
    return folder


def one_error(outcome: Outcome) -> str:
    """The only line of a usage error, of which pytest's exit code is 4."""
    assert outcome.code == 4, outcome.text
    assert "INTERNALERROR" not in outcome.text and "Traceback" not in outcome.text
    (line,) = [line for line in outcome.text.splitlines() if line.startswith("ERROR: ")]
    return line


# ---- another run writes there --------------------------------------------------------------------------------

HOLDER = """
import sys
from pathlib import Path
from conformance.records.run_file import RunWriter
sys.argv = ["/usr/bin/pytest", "conformance", "-k", "a cell"]
writer = RunWriter(Path("reports/latest"), {"started": "2026-01-02T03:04:05+00:00"})
print("writes", flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def another_run(folder: Path) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER], cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with process:
        assert process.stdout is not None and process.stdout.readline() == "writes\n"
        yield process
        process.kill()


@pytest.mark.parametrize("more", [(), ("-n", "1")], ids=["alone", "under xdist"])
def test_a_second_run_is_refused_with_the_name_of_the_first_until_that_is_killed(
    folder: Path, more: tuple[str, ...]
) -> None:
    file = folder / "reports/latest/records.jsonl"
    with another_run(folder) as first:
        before = file.read_bytes()
        line = one_error(run_suite(folder, *QUICK, *more))
        assert f"process {first.pid}, started 2026-01-02T03:04:05+00:00 (pytest conformance -k 'a cell')" in line
        assert run_suite(folder, "--collect-only", *more).code == 0, "it writes no run"
        assert file.read_bytes() == before
    assert run_suite(folder, *QUICK, *more).code == 0


def test_a_refused_run_leaves_the_finished_run_that_lies_there(tmp_path: Path) -> None:
    place = put(tmp_path / "run", [record()])
    (place / "changes.json").write_text("[]")
    before = {file.name: file.read_bytes() for file in place.iterdir()}
    with (place / "records.jsonl").open("r+") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(UserError, match=f"process .* {'.*'}writes its run there"):
            RunWriter(place, {})
    assert {file.name: file.read_bytes() for file in place.iterdir()} == before
    RunWriter(place, {}).close(1.0)
    assert not (place / "changes.json").exists()


def test_commands_that_write_a_run_are_refused_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = put(tmp_path / "run", [record()])
    (tmp_path / "bundle").mkdir()

    class Bundle:
        def __init__(self, folder: Path) -> None:
            self.folder, self.entries, self.environment = folder, ["an entry"], {}

    monkeypatch.setattr("conformance.bundle.layout.Bundle", Bundle)
    monkeypatch.setattr(replaying, "_cells", lambda entry, runtime: [entry])
    monkeypatch.setattr(replaying, "id_of", lambda entry, runtime: entry)
    writer = RunWriter(tmp_path / "out", {})
    for command in (["merge", "out", str(run)], ["replay", "bundle", "--report", "out"]):
        monkeypatch.chdir(tmp_path)
        assert cli.main(command) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert "writes its run there" in line
    writer.close(None)


def test_where_there_are_no_locks_nobody_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_: object) -> None:
        raise OSError(37, "No locks available")

    monkeypatch.setattr(locks.fcntl, "flock", none)
    writers = [RunWriter(tmp_path, {}) for _ in range(2)]
    assert [writer.locked for writer in writers] == [False, False]
    for writer in writers:
        writer.close(None)


# ---- what cannot be written ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("option", "place"),
    [
        ("--report", "a file"), ("--report", "a file/below"), ("--report", "/proc/nowhere/run"),
        ("--report", "a pipe"), ("--report", "locked"),
        ("--store", "a file"), ("--store", "a file/below"), ("--store", "/proc/nowhere/store"),
        ("--store-limit", "much"),
    ],
)  # fmt: skip
def test_what_cannot_be_written_is_a_usage_error_in_one_line(
    folder: Path, tmp_path: Path, option: str, place: str
) -> None:
    (tmp_path / "a file").write_text("mine")
    (tmp_path / "a pipe").mkdir()
    (tmp_path / "locked").mkdir()
    (tmp_path / "a pipe" / "records.jsonl").symlink_to("/dev/zero")
    (tmp_path / "locked" / "records.jsonl").mkdir()
    run = (folder / "reports/latest/run.json").read_bytes()
    line = one_error(run_suite(folder, *QUICK, option, place if place == "much" else tmp_path / place))
    assert option in line
    assert ("a file is where a folder has to be" in line) == place.startswith("a file")
    assert (tmp_path / "a file").read_text() == "mine"
    if option != "--report":
        assert (folder / "reports/latest/run.json").read_bytes() == run, "the earlier run was lost"


def beside(folder: Path) -> str:
    """The environment's PYTHONPATH with a folder before it, so that ``-p`` finds a plugin there."""
    return os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])


FULL = """
import os, resource

def pytest_runtest_setup(item):
    # From the first cell on, this process cannot make the file of the records much longer.
    size = os.stat("reports/full/records.jsonl").st_size
    if resource.getrlimit(resource.RLIMIT_FSIZE)[0] == resource.RLIM_INFINITY:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 2500, resource.RLIM_INFINITY))
"""


def test_a_run_whose_disk_becomes_full_keeps_what_it_could_write_and_fails(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "full.py").write_text(FULL, encoding="utf-8")
    outcome = run_suite(folder, *QUICK, "--report", "reports/full", "-p", "full", PYTHONPATH=beside(tmp_path))
    assert outcome.code == 1, outcome.text
    assert "INTERNALERROR" not in outcome.text
    assert outcome.text.count("the run is not whole") == 1
    assert "4 passed" in outcome.text
    place = folder / "reports/full"
    assert sorted(file.name for file in place.iterdir()) == ["records.jsonl"]
    assert place.joinpath("records.jsonl").read_text().endswith("\n")
    _, records = read_run(place)
    assert 0 < len(records) < 4


def test_records_that_could_not_be_written_are_written_as_soon_as_there_is_room(tmp_path: Path) -> None:
    writer = RunWriter(tmp_path, {})
    writer.add(record())
    size = (tmp_path / "records.jsonl").stat().st_size
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 100, before[1]))
        for _ in range(2):
            with pytest.raises(OSError, match="File too large"):
                writer.add(record("export[one-dynamo-op20]"))
            assert (tmp_path / "records.jsonl").stat().st_size == size
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    writer.add(record("export[two-dynamo-op20]"))
    assert [one["case"] for one in read_lines(tmp_path / "records.jsonl")[1]] == ["one", "one", "one", "two"]
    writer.close(1.0)


def test_a_run_whose_folder_was_taken_away_says_so(tmp_path: Path) -> None:
    writer = RunWriter(tmp_path / "run", {})
    (tmp_path / "run").rename(tmp_path / "away")
    put(tmp_path / "run", [record()])
    with pytest.raises(OSError, match="was replaced"):
        writer.close(1.0)
    assert len(read_run(tmp_path / "run")[1]) == 1, "the run of the other process"


# ---- the store of a whole run --------------------------------------------------------------------------------


def test_a_store_that_can_only_be_read_is_used_and_told(folder: Path, tmp_path: Path) -> None:
    plugin = """
import tempfile
from conformance.plugin import keeping

class ReadOnly:
    @staticmethod
    def TemporaryFile(dir):
        raise OSError(30, "Read-only file system")

keeping.tempfile = ReadOnly
"""
    (tmp_path / "read_only.py").write_text(plugin, encoding="utf-8")
    outcome = run_suite(folder, *QUICK, "-p", "read_only", PYTHONPATH=beside(tmp_path))
    assert outcome.code == 0, outcome.text
    assert outcome.text.count(".conformance: cannot be written (Read-only file system)") == 1


@pytest.mark.parametrize("more", [(), ("-n", "1")], ids=["alone", "under xdist"])
def test_the_store_is_kept_below_its_limit_but_for_what_the_run_uses(
    folder: Path, tmp_path: Path, more: tuple[str, ...]
) -> None:
    store = tmp_path / "store"
    (store / "models" / "of an earlier run").mkdir(parents=True)
    (store / "models" / "of an earlier run" / "model.onnx").write_bytes(bytes(100_000))
    (store / "models" / ".new-abc").mkdir()
    outcome = run_suite(folder, *QUICK, *more, "--store", store, "--store-limit", "1B")
    assert outcome.code == 0, outcome.text
    assert outcome.text.count("more than --store-limit 1B") == 1
    names = [path.name for path in (store / "models").iterdir() if path.is_dir()]
    assert len(names) == 2 and "of an earlier run" not in names and ".new-abc" not in names


def test_draws_that_cannot_be_read_are_told_at_the_end(folder: Path) -> None:
    name = "accuracy[one-torchscript-op17-onnxruntime-fp32]"
    place = folder / ".conformance" / "failures" / hashlib.sha384(name.encode()).hexdigest()[:16]
    place.mkdir(parents=True)
    (place / "garbage").write_bytes(b"\0\xff")
    outcome = run_suite(folder, *QUICK)
    assert outcome.code == 0
    assert outcome.text.count(f"{name}: 1 kept failing draw could not be read and was dropped") == 1
    assert outcome.records[name]["dropped_draws"] == 1


def test_two_runs_may_use_one_store_at_a_time(folder: Path, tmp_path: Path) -> None:
    def run(name: str) -> Outcome:
        limits = ("--store", tmp_path / "store", "--store-limit", "1B")
        return run_suite(folder, *QUICK, *limits, "--report", tmp_path / name)

    with ThreadPoolExecutor(2) as pool:
        outcomes = list(pool.map(run, ("first", "second")))
    assert [outcome.code for outcome in outcomes] == [0, 0], [outcome.text for outcome in outcomes]
    verdicts: list[dict[str, Any]] = [
        {one["id"]: one["status"] for one in read_run(tmp_path / name)[1]} for name in ("first", "second")
    ]
    assert verdicts[0] == verdicts[1] and set(verdicts[0].values()) == {"passed"}
    assert not [path for path in (tmp_path / "store" / "models").iterdir() if path.name.startswith(".new-")]


def test_the_header_of_a_run_names_its_process(folder: Path) -> None:
    header = json.loads((folder / "reports/latest/records.jsonl").read_text().splitlines()[0])
    assert header["process"]["pid"] > 0 and header["process"]["command"].startswith("pytest ")
