"""A scheduler and workers of Dask on this machine, started as a user starts them, and a folder of small cases."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.kit.processes import spawned, waited_for
from tests.kit.runs import Outcome, run_suite

CASES = """
small:
  about: two layers, three sizes of them
  module: beside.Small
  vary: {n: [2, 3, 4]}
  inputs: {x: "float32[batch, 6]"}
  dims: {batch: 1..8}
  export: {torchscript: [17]}
wrong:
  about: a symbolic that is another function
  forward: torch.asinh(x)
  inputs: {x: "float32[n]"}
  dims: {n: 1..8}
  export: {torchscript: {opsets: [17], symbolics: {"aten::asinh": beside.wrong}}}
  runtimes: onnxruntime
  specials: false
"""
PYTHON = """
import torch
class Small(torch.nn.Module):
    def __init__(self, n):
        super().__init__()
        self.one, self.two = torch.nn.Linear(6, n), torch.nn.Linear(n, 4)
    def forward(self, x):
        return self.two(torch.relu(self.one(x)))
def wrong(g, x):
    return g.op("Sinh", x)
"""

CELLS = 18
"""Of these cases."""

LATEST = "reports/latest"


def end_group(leader: int) -> None:
    """Kills a process and all others of its process group, if there are any."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGKILL)


@dataclass
class Loopback:
    """A scheduler, and the workers that a test starts."""

    folder: Path
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def scheduler(self) -> str:
        """Starts it; its address."""
        file = self.folder / "scheduler.json"
        self._start(
            "dask_scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard", "--scheduler-file", file
        )
        address: str = waited_for(lambda: json.loads(file.read_text(encoding="utf-8"))["address"])
        return address

    def workers(
        self, address: str, *arguments: str, folder: str = "worker", **environment: str
    ) -> subprocess.Popen[bytes]:
        """Starts workers in a folder of their own, where nothing of the project lies, and waits for them."""
        place = self.folder / folder
        place.mkdir(exist_ok=True)
        number = int(arguments[arguments.index("--nworkers") + 1]) if "--nworkers" in arguments else 1
        log = self.folder / f"dask_worker-{len(self.processes)}.log"
        started = self._start(
            "dask_worker", address, "--nthreads", "1", "--no-dashboard", "--memory-limit", "0",
            "--local-directory", place / "local", *arguments, cwd=place, **environment,
        )  # fmt: skip
        waited_for(lambda: log.read_text(encoding="utf-8").count("Registered to") >= number)
        return started

    def _start(self, tool: str, *arguments: str | Path, cwd: Path | None = None, **environment: str) -> Any:
        log = (self.folder / f"{tool}-{len(self.processes)}.log").open("wb")
        whole = {**os.environ, **environment}
        with log:
            process = subprocess.Popen(
                [sys.executable, "-m", f"distributed.cli.{tool}", *map(str, arguments)],
                cwd=cwd or self.folder, env=whole, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        self.processes.append(process)
        return process

    def end_one(self, process: subprocess.Popen[bytes]) -> None:
        end_group(process.pid)
        process.wait()

    def end(self) -> None:
        for process in self.processes:
            end_group(process.pid)
            process.wait()


@contextlib.contextmanager
def loopback(folder: Path) -> Iterator[Loopback]:
    cluster = Loopback(folder)
    try:
        yield cluster
    finally:
        cluster.end()


def project(folder: Path, cases: str = CASES, python: str = PYTHON) -> Path:
    """A folder with these cases."""
    (folder / "cases").mkdir(parents=True)
    (folder / "cases" / "some.yaml").write_text(cases, encoding="utf-8")
    (folder / "cases" / "beside.py").write_text(python, encoding="utf-8")
    return folder


def run(
    folder: Path, address: str | None, *arguments: str, report: str = LATEST, plugin: str = "", **environment: str
) -> Outcome:
    """The suite on all cases of the project."""
    where = [] if address is None else ["--cluster", address]
    return run_suite(folder, *where, "--report", report, *arguments, plugin=plugin, **environment)


def records(folder: Path, report: str = LATEST) -> dict[str, dict[str, Any]]:
    """The records by cell, of which there is one each."""
    lines = (folder / report / "records.jsonl").read_text(encoding="utf-8").splitlines()[1:]
    found = [json.loads(line) for line in lines]
    assert len({record["id"] for record in found}) == len(found)
    return {record["id"]: record for record in found}


OF_A_RUN = ("seconds", "worker", "command", "fingerprint", "depends", "smallest", "draw")
"""Fields of a record in which two runs differ: times, who made it, where files lie, and whether a failing draw is one
that was kept, as where the cell was run again in a fresh process since others had run before it."""


def differences(there: dict[str, Any], here: dict[str, Any]) -> list[tuple[Any, ...]]:
    """The fields in which cells differ that should not, with the values."""
    assert there.keys() == here.keys()
    return [
        (id, name, value, here[id][name])
        for id, record in there.items()
        for name, value in record.items()
        if name not in OF_A_RUN and value != here[id][name]
    ]


def dask_workers(nanny: int) -> list[int]:
    """The processes of the workers that a nanny has started."""
    below = {pid: Path(f"/proc/{pid}/cmdline") for pid in spawned(nanny)}
    return [pid for pid, command in below.items() if command.exists() and b"spawn_main" in command.read_bytes()]
