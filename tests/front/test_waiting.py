"""A step of longer than two seconds says what it is doing, in a terminal and in a log.

Two seconds are a third of one here.
"""

import contextlib
import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from conformance.front.plugin.saying import Waiting
from tests.kit.cases import say, write_case
from tests.kit.runs import ROOT, clean_environment, run_suite
from tests.kit.unrun import UNRUN

QUICK = say(
    "forward: torch.abs(x)", 'inputs: {x: "float32[3]"}', "export: {torchscript: [17]}", "runtimes: onnxruntime",
    "specials: false",
)  # fmt: skip
SLOW = """
    import time
    import torch
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            time.sleep(1.5)
        def forward(self, x):
            return torch.abs(x)
"""
SOON = """
from conformance.front.plugin import pooled, saying, saying
usual = saying.SLOW_SECONDS, saying.IN_LOG
def put(slow, in_log):
    pooled.SLOW_SECONDS = saying.SLOW_SECONDS = saying.SLOW_SECONDS = slow
    saying.IN_LOG = in_log
def pytest_configure():
    put(1 / 3, 1 / 3)
def pytest_unconfigure():
    put(*usual)
"""
LOOKING = """
import time
from conformance.models.kept import fingerprint
stated = fingerprint.stated
def slowly(case):
    time.sleep(1.5)
    return stated(case)
def pytest_collection_finish():
    fingerprint.stated = slowly
def pytest_sessionfinish():
    fingerprint.stated = stated
"""
DOING = "export[planted-torchscript-op17]: declare,"


def test_finding_what_a_case_depends_on_says_so(tmp_path):
    write_case(tmp_path / "cases", QUICK)
    outcome = run_suite(tmp_path, *UNRUN, plugin=SOON + LOOKING)
    told = "planted: finding the files and packages that it depends on takes longer than 0.333333 s, and goes on"
    assert outcome.code == 0 and outcome.text.count(told) == 1, outcome.text


def slow_case(folder: Path) -> None:
    write_case(folder / "cases", say(QUICK).replace("forward: torch.abs(x)", "module: beside.Net"), SLOW)


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_slow_cell_says_in_a_log_what_it_is_doing(tmp_path, workers):
    slow_case(tmp_path)
    options = ("--examples", "1", "--cell-workers", workers)
    outcome = run_suite(tmp_path, *options, plugin=SOON)
    assert outcome.code == 0 and f"\n  {DOING}" in outcome.text, outcome.text
    quiet = run_suite(tmp_path, *options, "-q", "--store", "other", plugin=SOON)
    assert quiet.code == 0 and DOING not in quiet.text, quiet.text


def test_a_log_gets_a_line_now_and_then_and_not_at_each_look():
    lines: list[str] = []
    screen = SimpleNamespace(fullwidth=100, width_of_current_line=0, line=lines.append)
    log = SimpleNamespace(isatty=False, _tw=screen)
    plugins = SimpleNamespace(get_plugin={"terminalreporter": log}.get)
    config: Any = SimpleNamespace(pluginmanager=plugins, get_verbosity=lambda: 0)
    waiting = Waiting(config, None, "a", time.monotonic() - 60)  # type: ignore[arg-type]
    for _ in range(3):
        waiting({})
    assert [line.partition(",")[0] for line in lines] == ["  a: starting"]


def test_a_slow_cell_says_in_a_terminal_what_it_is_doing(tmp_path):
    slow_case(tmp_path)
    (tmp_path / "soon.py").write_text(SOON, encoding="utf-8")
    master, slave = os.openpty()
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "soon", "--pyargs", "conformance"]
    path = os.pathsep.join([str(tmp_path), str(ROOT)])
    environment = {**clean_environment(), "COLUMNS": "100", "TERM": "xterm", "PYTHONPATH": path}
    running = subprocess.Popen(command, cwd=tmp_path, stdout=slave, stderr=slave, stdin=slave, env=environment)
    os.close(slave)
    shown = b""
    with contextlib.suppress(OSError):  # nobody writes there any more
        while part := os.read(master, 65536):
            shown += part
    os.close(master)
    text = shown.decode("utf-8", "replace")
    assert running.wait(timeout=60) == 0, text
    lines = [line for line in text.split("\r") if line.strip().startswith(DOING)]
    assert lines and all(len(line) < 100 for line in lines) and "0 of 2 cells" in lines[-1], text
