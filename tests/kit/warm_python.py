"""A Python for scripts that has imported torch and ONNX Runtime already; each script runs in a fork of it.

A script that shows a defect takes seconds to import both, and a tenth of a second to do its work. Inside of
``warm_python()`` it is run as always, by ``sys.executable`` and in a process of its own, only without these seconds.
"""

import contextlib
import os
import runpy
import select
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Iterator
from pathlib import Path

IMPORTED = ("torch", "torch.onnx", "numpy", "onnx", "onnxruntime")


@contextlib.contextmanager
def warm_python() -> Iterator[None]:
    """Make ``sys.executable`` a Python that has imported what scripts need, and runs scripts alone."""
    import pytest  # which the Python that asks for a script to be run has not

    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        address, file = Path(name) / "socket", Path(name) / "python"
        words = [sys.executable, "-IS", str(Path(__file__).absolute()), str(address), sys.executable]
        file.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n', encoding="utf-8")
        file.chmod(0o700)
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(address))
            listener.listen()
            place = listener.fileno()
            command = [sys.executable, "-c", "from tests.kit import warm_python; warm_python.serve()", str(place)]
            root = Path(__file__).parents[2]
            server = subprocess.Popen(command, stdin=subprocess.PIPE, pass_fds=[place], cwd=root)
        patch.setattr(sys, "executable", str(file))
        try:
            yield
        finally:
            server.communicate()  # which closes its standard input, and ends it


def serve() -> None:
    """Import what scripts need, then run each that is asked for in a fork, until standard input is closed."""
    for name in IMPORTED:
        __import__(name)
    signal.signal(signal.SIGCHLD, _reap)
    listener = socket.socket(fileno=int(sys.argv[1]))
    while sys.stdin not in select.select([listener, sys.stdin], [], [])[0]:
        connection, _ = listener.accept()
        if os.fork() == 0:
            _keep(connection)


def _reap(*_: object) -> None:
    """Take leave of the processes that have ended."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _keep(connection: socket.socket) -> None:
    """Run a script in one more process, and say how it ended."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    said, descriptors, *_ = socket.recv_fds(connection, 1 << 16, 2)
    script = os.fork()
    if script == 0:
        for place, descriptor in enumerate(descriptors, 1):
            os.dup2(descriptor, place)
        folder, *sys.argv = said.decode().split("\0")
        os.chdir(folder)
        os._exit(_run(sys.argv[0]))
    connection.sendall(bytes([os.waitstatus_to_exitcode(os.waitpid(script, 0)[1]) & 255]))
    os._exit(0)


def _run(file: str) -> int:
    """Run a script as ``python file`` does. Return its exit code."""
    sys.path[0] = str(Path(file).parent)
    try:
        runpy.run_path(file, run_name="__main__")
        return 0
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:
        traceback.print_exc()
        return 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()


def _ask() -> None:
    """Have the server run a script, with the standard output and error of this process; all else runs as ever."""
    address, python, *words = sys.argv[1:]
    if not words or not words[0].endswith(".py"):
        os.execv(python, [python, *words])
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(address)
        socket.send_fds(connection, ["\0".join([str(Path.cwd()), *words]).encode()], [1, 2])
        answer = connection.recv(1)
    sys.exit(answer[0] if answer else "the server has ended")


if __name__ == "__main__":
    _ask()
