"""The cells of this page: small sound cases, and cases that each do harm to the process that runs them."""

from __future__ import annotations

from pathlib import Path

from conformance.case.files.case_file import load
from conformance.case.plan.catalogue import plan
from conformance.case.plan.cell import Cell

SOUND = 20
"""Sound cases; each multiplies by a number of its own, so that no two have the same answer."""

_SOUND = """
sound_{number:02}:
  about: Sound, and it notices a process that is not as it should be.
  forward: F.relu(x * {number}.5) + torch.zeros(3)
  inputs: {{x: "float32[3]"}}
  runtimes: onnxruntime
  specials: false
  export: {{torchscript: [17]}}
"""
_HOSTILE = """
{name}:
  about: Harms the process that runs it.
  module: harm.Harm
  with: {{name: {name}}}
  inputs: {{x: "float32[3]"}}
  runtimes: onnxruntime
  specials: false
  export: {{torchscript: [17]}}
"""

HARM = '''"""Modules that harm the process that runs them, whenever they run."""

import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time

import numpy
import torch


def forks():
    if os.fork() == 0:
        sys.exit(0)


def forks_and_returns():
    os.fork()


def leaves_a_child():
    subprocess.Popen(["sleep", "600"], start_new_session=True)


def leaves_a_thread():
    threading.Thread(target=time.sleep, args=(600,), daemon=True).start()


def writes_everywhere():
    for fd in range(3, 4096):
        try:
            os.write(fd, b"\\0\\0\\0\\x10garbage!")
        except OSError:
            pass


def closes_everything():
    os.closerange(3, 4096)


def exits():
    os._exit(3)


def ends():
    sys.exit(3)


def crashes():
    os.kill(os.getpid(), signal.SIGSEGV)


def floods():
    for _ in range(100):
        os.write(1, b"x" * 2**16)


def moves():
    os.chdir("/")


def loses_its_folder():
    folder = tempfile.mkdtemp()
    os.chdir(folder)
    os.rmdir(folder)


def sets_the_dtype():
    torch.set_default_dtype(torch.float64)


def sets_the_device():
    torch.set_default_device("meta")


def forbids_gradients():
    torch.autograd.set_grad_enabled(False)
    torch.use_deterministic_algorithms(True)


def seeds():
    torch.manual_seed(7)
    random.seed(7)
    numpy.random.seed(7)


def patches_torch():
    torch.nn.functional.relu = lambda x, inplace=False: x


def patches_numpy():
    numpy.allclose = lambda *args, **kwargs: True
    numpy.abs = numpy.absolute = lambda x: x * 0


def alarms():
    signal.setitimer(signal.ITIMER_REAL, 0.05)


def takes_files():
    resource.setrlimit(resource.RLIMIT_NOFILE, (16, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))


def shortens_the_stack():
    sys.setrecursionlimit(200)


def sets_the_environment():
    os.environ.clear()
    os.environ["PATH"] = "/nowhere"


class Harm(torch.nn.Module):
    def __init__(self, name):
        super().__init__()
        self.harm = globals()[name]

    def forward(self, x):
        self.harm()
        return x * 2
'''
HARMS = tuple(line.split("(")[0].removeprefix("def ") for line in HARM.splitlines() if line.startswith("def "))


def write_sound(folder: Path) -> Path:
    """Writes the sound cases into a folder; their file."""
    return _write(folder, "sound.yaml", "".join(_SOUND.format(number=number) for number in range(SOUND)))


def write_hostile(folder: Path) -> Path:
    """Writes a case for each harm into a folder; their file."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "harm.py").write_text(HARM, encoding="utf-8")
    return _write(folder, "hostile.yaml", "".join(_HOSTILE.format(name=name) for name in HARMS))


def cells(file: Path) -> list[Cell]:
    return [cell for case in load(file) for cell in plan(case)]


def _write(folder: Path, name: str, text: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text, encoding="utf-8")
    return folder / name
