"""Hosts and folders that get in the way: each run works, or says in a sentence what to do."""

import os
import resource
import subprocess
import sys
from pathlib import Path

import onnx
import pytest

from conformance.front import cli
from conformance.process.errors import Stopped
from conformance.process.worker import memory
from conformance.process.worker.isolation import Death, Worker
from conformance.results.records.death import note_death
from conformance.results.records.explanation import fail
from tests.kit.cases import write_case
from tests.kit.models import model_of
from tests.kit.runs import ROOT, clean_environment, run_suite

FILE_CASE = 'forward: x + 1\ninputs: {x: "float32[2]"}'
COMMAND = "import sys; del sys.path[0]; from conformance.front.cli import main; sys.exit(main(sys.argv[1:]))"
"""As the installed command does: its folder is on the path in place of the working directory."""


def collect(folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """What ``conformance run`` finds in a folder with one case, without running it."""
    write_case(folder / "cases", FILE_CASE)
    return subprocess.run(
        [sys.executable, "-c", COMMAND, "run", "--collect-only", "-q"], cwd=folder, text=True, capture_output=True,
        env={**clean_environment(), "PYTHONPATH": str(ROOT), **environment}, timeout=100, check=False,
    )  # fmt: skip


def hide_modules(folder: Path) -> None:
    for name in ("conformance/__init__.py", "random.py", "json.py", "typing.py", "torch.py"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("", encoding="utf-8")


def test_files_of_the_working_directory_hide_nothing_that_a_run_needs(tmp_path):
    hide_modules(tmp_path)
    done = collect(tmp_path)
    assert done.returncode == 0 and "test_accuracy[planted-" in done.stdout, done.stdout + done.stderr


def test_a_run_loads_its_plugin_where_plugins_are_not_loaded_by_themselves(tmp_path):
    done = collect(tmp_path, PYTEST_DISABLE_PLUGIN_AUTOLOAD="1")
    assert done.returncode == 0 and "test_accuracy[planted-" in done.stdout, done.stdout + done.stderr


def test_a_session_of_pytest_without_the_plugin_says_what_to_add(tmp_path):
    write_case(tmp_path / "cases", FILE_CASE)
    done = run_suite(tmp_path, "-p", "no:conformance.plugin", own_process=True)
    assert done.code == 2 and "add -p conformance.plugin, or type conformance run" in done.text


def test_python_m_says_what_hides_the_package(tmp_path):
    """Where Python finds this package's ``__main__`` all the same, as in an editable installation."""
    (tmp_path / "conformance").mkdir()
    (tmp_path / "conformance/__init__.py").write_text("", encoding="utf-8")
    run = f"import runpy; runpy.run_path({str(ROOT / 'conformance/__main__.py')!r}, run_name='__main__')"
    command = [sys.executable, "-c", run]
    done = subprocess.run(command, cwd=tmp_path, env=clean_environment(), text=True, capture_output=True, check=False)
    assert done.returncode == 1 and done.stderr.startswith("a folder 'conformance' hides this package"), done.stderr


COLLECTS = "def pytest_collection_modifyitems(items):\n    items[:] = {}\n"


@pytest.mark.parametrize("items, cells, told", [
    ("[*items, *items]", 3, True), ("items[::-1]", 3, False), ("items[:-1]", 2, False),
])  # fmt: skip
def test_each_cell_is_run_once_whatever_others_make_of_the_tests(tmp_path, items, cells, told):
    write_case(tmp_path / "cases", f"{FILE_CASE}\nspecials: false")
    done = run_suite(
        tmp_path,
        "--exporter",
        "torchscript",
        "--isolation",
        "none",
        "--explain",
        "none",
        plugin=COLLECTS.format(items),
    )
    assert done.code == 0 and len(done.records) == cells, done.text
    assert ("collected more than once and run once: look at pytest_collection_modifyitems" in done.text) == told


READ_ONLY = """
import errno, os, sys

HOME = {folder!r}
CHANGES = {{"os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.chmod", "os.utime", "os.link", "os.symlink"}}
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC


def refuse(event, given):
    if event in CHANGES or event == "open" and (given[2] or 0) & WRITES:
        for path in given[: 1 if event == "open" else 2]:
            if isinstance(path, (str, bytes)) and os.path.abspath(os.fsdecode(path)).startswith(HOME):
                raise OSError(errno.EROFS, "Read-only file system", path)


sys.addaudithook(refuse)
"""
"""A folder that no Python process can write to; ``chmod`` keeps nothing from the user ``root``."""


CHECK = ("check", "net.onnx", "--runtime", "onnxruntime", "--precision", "fp32")


def run_in(folder: Path, *words: str, **environment: str | None) -> subprocess.CompletedProcess[str]:
    """Return what a command says in a folder with a sound file ``net.onnx``, without variables that are None."""
    (folder / "work").mkdir()
    model = model_of("g (float[batch, 3] x) => (float[batch, 3] y) { y = Relu (x) }")
    onnx.save(model, str(folder / "work" / next((word for word in words if word.endswith(".onnx")), "net.onnx")))
    known = {**clean_environment(), "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)]), **environment}
    return subprocess.run(
        [sys.executable, "-c", COMMAND, *words], cwd=folder / "work", text=True, capture_output=True, timeout=300,
        env={key: text for key, text in known.items() if text is not None}, check=False,
    )  # fmt: skip


@pytest.mark.parametrize("name, environment", [
    ("net.onnx", {"HOME": None}), ("net.onnx", {"HOME": "/proc/nowhere"}),
    ("größe.onnx", {"LANG": "C", "LC_ALL": "C"}),
], ids=["no home", "a home that cannot be", "C"])  # fmt: skip
def test_a_file_is_checked_on_a_host_without_a_home_and_a_locale(tmp_path, name, environment):
    done = run_in(tmp_path, "check", name, *CHECK[2:], **environment)
    assert done.returncode == 0 and "right: onnxruntime in fp32" in done.stdout, done.stdout + done.stderr


def test_a_file_is_checked_in_a_folder_that_cannot_be_written_to(tmp_path):
    (tmp_path / "sitecustomize.py").write_text(READ_ONLY.format(folder=str(tmp_path / "work")), encoding="utf-8")
    done = run_in(tmp_path, *CHECK)
    assert done.returncode == 0 and "right: onnxruntime in fp32" in done.stdout, done.stdout + done.stderr
    assert [file.name for file in (tmp_path / "work").iterdir()] == ["net.onnx"]


RUN = ("run", "../cases", "--store", "store", "-k", "onnxruntime and fp32 and op17")


@pytest.mark.parametrize("words", [CHECK, RUN, (*RUN, "--isolation", "none")], ids=["check", "run", "not isolated"])
def test_a_runtime_writes_nothing_into_the_home_and_tells_its_makers_nothing(tmp_path, words):
    """As ONNX Runtime does where it is not told otherwise, and no variable says that this is CI."""
    write_case(tmp_path / "cases", FILE_CASE)
    home = {"HOME": str(tmp_path / "home"), "XDG_CACHE_HOME": None}
    done = run_in(tmp_path, *words, **home, CI=None, ORT_DISABLE_TELEMETRY=None)
    assert done.returncode == 0, done.stdout + done.stderr
    assert not [*(tmp_path / "home").rglob("*")]


def test_a_command_that_lacks_memory_says_what_to_type(low_limit, monkeypatch, capsys, tmp_path):
    def lacks(*words: object, **more: object) -> None:
        raise MemoryError

    monkeypatch.setattr(Worker, "call", lacks)
    onnx.save(model_of("g (float[batch, 3] x) => (float[batch, 3] y) { y = Relu (x) }"), str(tmp_path / "net.onnx"))
    assert cli.main(["check", str(tmp_path / "net.onnx"), "--store", str(tmp_path / "store")]) == 2
    assert capsys.readouterr().err == f"conformance check: {ADVICE}, and run this again\n"


LONG = "l" * 120
SOCKETS = """
from conformance.process.worker.isolation import Worker
from conformance.process.worker import scratch
from tests.kit import hostile
with Worker() as worker:
    print(worker.call(hostile.well_behaved, 7, timeout=100))
    print(scratch._run.folder, scratch._run.sockets)
"""


def test_files_of_the_working_directory_hide_nothing_that_a_worker_needs(tmp_path):
    """The package is loaded before the folder counts, as by the installed command."""
    hide_modules(tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; del sys.path[0]\n{SOCKETS}"], cwd=tmp_path, text=True, check=False,
        env={**clean_environment(), "PYTHONPATH": str(ROOT)}, capture_output=True, timeout=100,
    )  # fmt: skip
    assert done.stdout.startswith("7\n") and done.stderr == ""


def test_sockets_have_a_short_path_where_temporary_files_have_a_long_one(tmp_path):
    place = tmp_path / LONG
    place.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", SOCKETS], text=True, capture_output=True, check=False, timeout=100,
        env={**clean_environment(), "TMPDIR": str(place), "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    answer, folders = done.stdout.splitlines()
    files, sockets = map(Path, folders.split())
    assert answer == "7" and done.stderr == "" and files.parent == place and sockets.parent != place
    assert not files.exists() and not sockets.exists()


@pytest.fixture
def low_limit(monkeypatch):
    """A limit as ``ulimit -v 1572864`` sets it, which nothing is yet refused for."""
    known = resource.getrlimit
    low = {resource.RLIMIT_AS: (int(1.5 * memory.GIB), resource.RLIM_INFINITY)}
    monkeypatch.setattr(resource, "getrlimit", lambda what: low.get(what) or known(what))


ADVICE = "this shell lets a process have 1.5 GiB of addresses, and cells need up to 8 GiB: type ulimit -v unlimited"


@pytest.mark.parametrize("how, name, error", [
    ("exit 1", None, "OutOfMemory"), ("SIGABRT", None, "OutOfMemory"), ("timeout after 1 s", "Timeout", "Timeout"),
    ("SIGTERM", None, "SIGTERM"),
])  # fmt: skip
def test_a_process_that_ends_below_a_low_limit_of_the_shell_blames_the_limit(bench, low_limit, how, name, error):
    (cell, *_) = bench.cells(FILE_CASE)
    record = cell.record()
    note_death(record, Death(how, {"stage": "declare"}, "no room", name), cell.case.folder)
    limited = error == "OutOfMemory"
    assert record.error == error and record.reason.startswith(ADVICE) == limited
    assert not limited or record.fault is None


def test_a_process_that_ends_without_such_a_limit_is_as_it_was(bench):
    (cell, *_) = bench.cells(FILE_CASE)
    record = cell.record()
    note_death(record, Death("exit 1", {"stage": "declare"}, ""), cell.case.folder)
    assert (record.error, record.fault) == ("exit 1", "case")


def test_memory_that_a_low_limit_of_the_shell_refuses_is_told_with_the_limit(bench, low_limit):
    (cell, *_) = bench.cells(FILE_CASE)
    for text in ("libx.so: failed to map segment from shared object", "std::bad_alloc"):
        record = cell.record()
        fail(record, Stopped("load", "ImportError", text, "case"))
        assert record.error == "OutOfMemory" and record.fault is None and record.reason.startswith(ADVICE)
    fail(record := cell.record(), Stopped("load", "ImportError", "no such file", "case"))
    assert (record.error, record.fault, record.reason) == ("ImportError", "case", "no such file")
