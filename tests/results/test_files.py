"""Where a run is written: folders that another run has, that cannot be written, or whose disk becomes full."""

import contextlib
import fcntl
import io
import re
import resource
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from conformance.process.disk import locks
from conformance.process.disk.foreign_files import unpack
from conformance.process.errors import UserError
from conformance.results.records.run_file import RunWriter, read_lines, read_run
from tests.kit.runs import Outcome, run_command, run_suite
from tests.kit.unrun import UNRUN
from tests.results.baseline.support import put, record

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
KEPT = Path(__file__).parent.parent / "kept"


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


HOLDER = """
import sys
from pathlib import Path
from conformance.results.records.run_file import RunWriter
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
def test_a_second_run_is_refused_with_the_name_of_the_first_until_that_is_killed(folder, more):
    file = folder / "reports/latest/records.jsonl"
    with another_run(folder) as first:
        before = file.read_bytes()
        line = one_error(run_suite(folder, *UNRUN, *more))
        assert f"process {first.pid}, started 2026-01-02T03:04:05+00:00 (pytest conformance -k 'a cell')" in line
        assert run_suite(folder, "--collect-only").code == 0, "it writes no run"
        assert file.read_bytes() == before
    assert run_suite(folder, *UNRUN).code == 0


def test_a_refused_run_leaves_the_finished_run_that_lies_there(tmp_path):
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


def test_commands_that_write_a_run_are_refused_too(tmp_path):
    run, (bundle,) = put(tmp_path / "run", [record()]), KEPT.iterdir()
    writer = RunWriter(tmp_path / "out", {})
    replay = ("replay", bundle, "--runtime", "onnx-reference", "--report", "out")
    for command in (("merge", "out", run), replay):
        refused = run_command(tmp_path, *command)
        assert refused.code == 2, refused.text
        (line,) = refused.text.splitlines()
        assert "writes its run there" in line
    writer.close(None)


def test_where_there_are_no_locks_nobody_is_refused(tmp_path, monkeypatch):
    def none(*_: object) -> None:
        raise OSError(37, "No locks available")

    monkeypatch.setattr(locks.fcntl, "flock", none)
    writers = [RunWriter(tmp_path, {}) for _ in range(2)]
    assert [writer.locked for writer in writers] == [False, False]
    for writer in writers:
        writer.close(None)


@pytest.mark.parametrize("option, place", [
    ("--report", "a file/below"), ("--report", "/proc/nowhere/run"), ("--report", "a pipe"),
    ("--store", "a file"), ("--store", "/proc/nowhere/store"), ("--store-limit", "much"),
])  # fmt: skip
def test_what_cannot_be_written_is_a_usage_error_in_one_line(folder, tmp_path, option, place):
    (tmp_path / "a file").write_text("mine")
    (tmp_path / "a pipe").mkdir()
    (tmp_path / "a pipe" / "records.jsonl").symlink_to("/dev/zero")
    run = (folder / "reports/latest/run.json").read_bytes()
    line = one_error(run_suite(folder, *UNRUN, option, place if place == "much" else tmp_path / place))
    assert option in line and ("a file is where a folder has to be" in line) == place.startswith("a file")
    assert (tmp_path / "a file").read_text() == "mine"
    if option != "--report":
        assert (folder / "reports/latest/run.json").read_bytes() == run, "the earlier run was lost"


FULL = """
import os, resource
def pytest_runtest_setup(item):
    # From the first cell on, this process cannot make the file of the records much longer.
    size = os.stat("reports/full/records.jsonl").st_size
    if resource.getrlimit(resource.RLIMIT_FSIZE)[0] == resource.RLIM_INFINITY:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 1500, resource.RLIM_INFINITY))
"""


def test_a_run_whose_disk_becomes_full_keeps_what_it_could_write_and_fails(folder):
    outcome = run_suite(folder, *UNRUN, "--report", "reports/full", plugin=FULL, own_process=True)
    assert outcome.code == 1, outcome.text
    assert "INTERNALERROR" not in outcome.text and outcome.text.count("the run is not whole") == 1
    assert "4 passed" in outcome.text
    place = folder / "reports/full"
    assert sorted(file.name for file in place.iterdir()) == ["records.jsonl"]
    assert place.joinpath("records.jsonl").read_text().endswith("\n")
    header, records = read_run(place)
    assert 0 < len(records) < 4
    assert header["process"]["pid"] > 0 and header["process"]["command"].startswith("pytest ")


def test_records_that_could_not_be_written_are_written_as_soon_as_there_is_room(tmp_path):
    writer = RunWriter(tmp_path, {})
    writer.add(record().as_dict())
    size = (tmp_path / "records.jsonl").stat().st_size
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 100, before[1]))
        for _ in range(2):
            with pytest.raises(OSError, match="File too large"):
                writer.add(record("export[one-dynamo-op20]").as_dict())
            assert (tmp_path / "records.jsonl").stat().st_size == size
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    writer.add(record("export[two-dynamo-op20]").as_dict())
    assert [one.case for one in read_lines(tmp_path / "records.jsonl")[1]] == ["one", "one", "one", "two"]
    writer.close(1.0)


def test_a_run_whose_folder_was_taken_away_says_so(tmp_path):
    writer = RunWriter(tmp_path / "run", {})
    (tmp_path / "run").rename(tmp_path / "away")
    put(tmp_path / "run", [record()])
    with pytest.raises(OSError, match="was replaced"):
        writer.close(1.0)
    assert len(read_run(tmp_path / "run")[1]) == 1, "the run of the other process"


def test_a_store_that_cannot_be_written_is_told_and_each_cell_makes_what_it_needs(folder):
    outcome = run_suite(folder, *QUICK, "--store", "/proc")
    assert outcome.code == 0, outcome.text
    assert len(re.findall(r"/proc: cannot be written \(.+\): each cell rebuilt", outcome.text)) == 1


def test_the_store_is_kept_below_its_limit_but_for_what_the_run_uses(folder, tmp_path):
    store = tmp_path / "store"
    (store / "models" / "of an earlier run").mkdir(parents=True)
    (store / "models" / "of an earlier run" / "model.onnx").write_bytes(bytes(100_000))
    (store / "models" / ".new-abc").mkdir()
    outcome = run_suite(folder, *QUICK, "--store", store, "--store-limit", "1B")
    assert outcome.code == 0 and outcome.text.count("more than --store-limit 1B") == 1, outcome.text
    names = [path.name for path in (store / "models").iterdir() if path.is_dir()]
    assert len(names) == 2 and "of an earlier run" not in names and ".new-abc" not in names


def test_of_an_archive_only_files_below_its_folder_are_written(tmp_path):
    """With Python 3.11.2 too, as Debian has it, whose ``tarfile`` filters nothing."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for name in ("./a/b.txt", "../outside", str(tmp_path / "absolute"), "a/../../outside", "c.py"):
            member = tarfile.TarInfo(name)
            member.size = 1
            tar.addfile(member, io.BytesIO(b"1"))
        for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE):
            member = tarfile.TarInfo(f"of type {kind!r}")
            member.type, member.linkname = kind, str(tmp_path / "elsewhere")
            tar.addfile(member)
    unpack(archive.getvalue(), tmp_path / "all")
    unpack(archive.getvalue(), tmp_path / "python", lambda place: place.suffix == ".py")
    written = {str(file.relative_to(tmp_path)) for file in tmp_path.rglob("*") if not file.is_dir()}
    assert written == {"all/a/b.txt", "all/c.py", "python/c.py"}
