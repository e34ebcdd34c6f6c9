"""What takes longer than two seconds says what it is doing, in a terminal, in a log, and in processes of xdist."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import run_suite, say, write_case

QUICK = """
    forward: torch.abs(x)
    inputs: {x: "float32[3]"}
    export: {torchscript: [17]}
    runtimes: onnxruntime
    specials: false
"""
SLOW = """
    import time
    import torch
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            time.sleep(4)
        def forward(self, x):
            return torch.abs(x)
"""
LOOKING = """
import time

from conformance.depends import fingerprint

needs = fingerprint.needs


def slowly(case, **words):
    time.sleep(4)
    return needs(case, **words)


fingerprint.needs = slowly
"""
OFTEN = """
from conformance.plugin import waiting

waiting.IN_LOG = 0.5
"""
DOING = "export[planted-torchscript-op17]: declare,"


def searched(folder: Path) -> str:
    return os.pathsep.join([f"{folder}", os.environ.get("PYTHONPATH", "")])


@pytest.mark.parametrize("processes", [[], ["-n", "1"]], ids=["alone", "xdist"])
def test_finding_what_a_case_depends_on_says_so(tmp_path, processes):
    write_case(tmp_path / "cases", QUICK)
    (tmp_path / "slowly.py").write_text(LOOKING, encoding="utf-8")
    outcome = run_suite(tmp_path, "-p", "slowly", "--examples", "1", *processes, PYTHONPATH=searched(tmp_path))
    told = "planted: finding the files and packages that it depends on takes longer than 2 s, and goes on"
    assert outcome.code == 0 and outcome.text.count(told) == 1, outcome.text


def slow_case(folder: Path) -> None:
    write_case(folder / "cases", say(QUICK).replace("forward: torch.abs(x)", "module: beside.Net"), SLOW)


def test_a_slow_cell_says_in_a_log_what_it_is_doing(tmp_path):
    slow_case(tmp_path)
    (tmp_path / "often.py").write_text(OFTEN, encoding="utf-8")
    outcome = run_suite(tmp_path, "-p", "often", "--examples", "1", PYTHONPATH=searched(tmp_path))
    assert outcome.code == 0 and f"\n  {DOING}" in outcome.text, outcome.text
    quiet = run_suite(tmp_path, "-p", "often", "-q", "--store", "other", PYTHONPATH=searched(tmp_path))
    assert quiet.code == 0 and DOING not in quiet.text, quiet.text


def test_a_slow_cell_says_in_a_terminal_what_it_is_doing(tmp_path):
    slow_case(tmp_path)
    master, slave = os.openpty()
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--pyargs", "conformance", "--examples", "1"]
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "COV"))}
    environment = {**clean, "COLUMNS": "100", "TERM": "xterm"}
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
    assert lines and all(len(line) < 100 for line in lines), text
    assert "0 of 2 cells" in lines[-1]
