"""A Python that has imported PyTorch, from which runs of pytest are forked: most take less time than the import.

Neither pytest nor anything of the repository is imported before the fork, so that a run has them as they are then.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

_SERVER = """
import atexit, gc, importlib, json, os, runpy, sys
gc.disable()
for name in ("torch", "torch.onnx", "onnx", "onnxruntime", "onnxscript", "hypothesis", "numpy"):
    importlib.import_module(name)
gc.freeze()
gc.enable()
for line in sys.stdin:
    request = json.loads(line)
    pid = os.fork()
    if pid:
        print(pid, flush=True)
        print(os.waitpid(pid, 0)[1], flush=True)
        continue
    code = 3
    try:
        os.setsid()
        os.chdir(request["folder"])
        os.environ.clear()
        os.environ.update(request["environment"])
        said = os.open(request["said"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        nowhere = os.open(os.devnull, os.O_RDWR)
        for target, source in ((0, nowhere), (1, said), (2, said)):
            os.dup2(source, target)
        sys.path[:0] = [request["folder"], *request["environment"]["PYTHONPATH"].split(os.pathsep)]
        sys.argv = ["pytest", *request["arguments"]]
        try:
            runpy.run_module("pytest", run_name="__main__", alter_sys=True)
            code = 0
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
        sys.stdout.flush()
        atexit._run_exitfuncs()
    finally:
        os._exit(code)
"""


class Warm:
    """Start the server, and run pytest in forks of it; a context manager."""

    def __init__(self, python: Path, folder: Path) -> None:
        """Start ``python`` in ``folder``."""
        self._process = subprocess.Popen(
            [str(python), "-c", _SERVER], cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self._read = b""
        """What the server has written beyond the lines that were taken."""

    def __enter__(self) -> Warm:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()

    def pytest(
        self, arguments: Sequence[str], folder: Path, environment: Mapping[str, str], said: Path, limit: float
    ) -> int | None:
        """Return the exit code of pytest; None where the time limit ended it, with all processes of its session."""
        assert self._process.stdin is not None
        request = {
            "arguments": [*arguments], "folder": str(folder), "environment": {**environment}, "said": str(said)
        }  # fmt: skip
        self._process.stdin.write(json.dumps(request).encode() + b"\n")
        self._process.stdin.flush()
        pid = int(self._line(600.0) or "0")
        assert pid, "the server has ended"
        status = self._line(limit)
        if status is not None:
            return os.waitstatus_to_exitcode(int(status))
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
        self._line(60.0)
        return None

    def _line(self, seconds: float) -> str | None:
        """Return the next line of the server; None where there is none within so many seconds."""
        assert self._process.stdout is not None
        end = time.monotonic() + seconds
        while b"\n" not in self._read:
            left = end - time.monotonic()
            if left <= 0 or not select.select([self._process.stdout], [], [], left)[0]:
                return None
            part = os.read(self._process.stdout.fileno(), 4096)
            if not part:
                return None
            self._read += part
        line, _, self._read = self._read.partition(b"\n")
        return line.decode()
