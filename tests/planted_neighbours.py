"""Cases that change the process they run in, and cells that run after them; for ``test_neighbours.py``.

Run as a program, in a process of its own, it has a fork server of its own, which has imported torch for all workers.
It prints as JSON what came out.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from conformance.case.file import load
from conformance.checks.runner import Runner
from conformance.plan.catalogue import plan
from conformance.plan.cell import Cell
from conformance.plan.settings import Settings
from conformance.records.record import Record
from conformance.worker.warm import new_worker

# What the case does in its forward, and what a later case relies on, as expressions.
HARMS = {
    "folder": ("os.chdir('/')", "os.getcwd() == home"),
    "deleted_folder": ("delete_folder()", "os.getcwd() == home"),
    "default_dtype": ("torch.set_default_dtype(torch.float64)", "torch.tensor(0.5).dtype == torch.float32"),
    "default_device": ("torch.set_default_device('meta')", "torch.empty(0).device.type == 'cpu'"),
    "function_mode": ("Mode().__enter__()", "torch._C._len_torch_function_stack() == 0"),
    "num_threads": ("torch.set_num_threads(3)", "torch.get_num_threads() == 1"),
    "grad": ("torch.set_grad_enabled(False)", "torch.is_grad_enabled()"),
    "autocast": ("torch.set_autocast_enabled('cpu', True)", "not torch.is_autocast_enabled('cpu')"),
    "deterministic": ("torch.use_deterministic_algorithms(True)", "not torch.are_deterministic_algorithms_enabled()"),
    "matmul_precision": (
        "torch.set_float32_matmul_precision('medium')", "torch.get_float32_matmul_precision() == 'highest'"),
    "denormals": ("torch.set_flush_denormal(True)", "float('5e-324') != 0.0"),
    "rounding": ("ctypes.CDLL(None).fesetround(UPWARD)", "ctypes.CDLL(None).fegetround() == 0"),
    "numpy_errors": ("np.seterr(all='raise')", "np.geterr()['under'] == 'ignore'"),
    "recursion": ("sys.setrecursionlimit(5000)", "sys.getrecursionlimit() == 1000"),
    "limit": ("lower(resource.RLIMIT_NOFILE, 128)", "resource.getrlimit(resource.RLIMIT_NOFILE)[0] > 128"),
    "alarm": ("signal.alarm(1000)", "signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)"),
    "handler": ("signal.signal(signal.SIGTERM, signal.SIG_IGN)",
                "signal.getsignal(signal.SIGTERM) is not signal.SIG_IGN"),
    "blocked": ("signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2})",
                "not signal.pthread_sigmask(signal.SIG_BLOCK, ())"),
    "decimal": ("setattr(decimal.getcontext(), 'prec', 3)", "decimal.getcontext().prec == 28"),
    "variable": ("os.environ.update(PLANTED_NEIGHBOUR='a secret')", "'PLANTED_NEIGHBOUR' not in os.environ"),
    "umask": ("os.umask(0o111)", "umask() != 0o111"),
    "warnings": ("warnings.simplefilter('error')", "warnings.warn('only a warning') is None"),
    "stdout": ("setattr(sys, 'stdout', io.StringIO())", "not isinstance(sys.stdout, io.StringIO)"),
    "trace": ("sys.settrace(lambda *_: None)", "sys.gettrace() is None"),
    "collector": ("gc.disable()", "gc.isenabled()"),
    "start_method": ("multiprocessing.set_start_method('spawn', force=True)",
                     "multiprocessing.get_start_method(allow_none=True) != 'spawn'"),
    "relu": ("setattr(F, 'relu', torch.abs)", "float(F.relu(torch.tensor(-1.0))) == 0"),
    "method": ("setattr(torch.Tensor, 'relu', torch.abs)", "float(torch.tensor(-1.0).relu()) == 0"),
    "layer": ("setattr(torch.nn.ReLU, 'forward', lambda self, x: x)",
              "float(torch.nn.ReLU()(torch.tensor(-1.0))) == 0"),
    "deleted_function": ("delattr(F, 'relu') if hasattr(F, 'relu') else None", "hasattr(F, 'relu')"),
    "numpy": ("setattr(np, 'allclose', lambda *_: True)", "not np.allclose(1, 2)"),
    "runtime": ("setattr(onnxruntime.InferenceSession, 'run', OWN_RUN)",
                "onnxruntime.InferenceSession.run.__module__ != __name__"),
    "thread": ("threading.Thread(target=time.sleep, args=(600,), daemon=True).start()",
               "threading.active_count() == 1"),
    "files": ("KEPT or KEPT.extend(open(os.devnull) for _ in range(200))", "fresh_number() < 150"),
    "closed_stdout": ("os.close(1)", "os.fstat(1)"),
}  # fmt: skip
LEFT = {"thread", "files", "closed_stdout"}
"""What cannot be put back."""
JUDGING = {"numpy", "runtime"}
"""What the comparison itself rests on."""

PYTHON = """
import ctypes, decimal, gc, io, multiprocessing, os, platform, resource, signal, sys, tempfile, threading, time
import warnings
import numpy as np, onnxruntime, torch
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode as Mode

KEPT = []
UPWARD = 0x800 if platform.machine() in ("x86_64", "AMD64", "i686") else 0x400000
RUN = onnxruntime.InferenceSession.run

def OWN_RUN(self, *args, **kwargs):
    return RUN(self, *args, **kwargs)

def delete_folder():
    os.chdir(tempfile.mkdtemp())
    os.rmdir(os.getcwd())

def lower(which, soft):
    resource.setrlimit(which, (soft, resource.getrlimit(which)[1]))

def umask():
    mask = os.umask(0o77)
    os.umask(mask)
    return mask

def fresh_number():
    with open(os.devnull) as file:
        return file.fileno()

class Harm(torch.nn.Module):
    def __init__(self, code):
        super().__init__()
        self.code = compile(code, "harm", "eval")
    def forward(self, x):
        eval(self.code, globals())
        return torch.sin(x)

class Relies(torch.nn.Module):
    def __init__(self, on, home):
        super().__init__()
        self.on, self.home = on, home
    def forward(self, x):
        if not eval(self.on, globals(), {"home": self.home}):
            raise RuntimeError("harmed: " + self.on)
        return torch.sin(x)
"""
CASE = """
{name}:
  about: a test of the harness
  module: beside.{module}
  with: {arguments}
  inputs: {{x: "float32[batch, 3]"}}
  dims: {{batch: 1..2}}
  runtimes: onnxruntime
  specials: false
  export: {{torchscript: [17]}}
"""


def cells_of(folder: Path, name: str, module: str, python: str = PYTHON, **arguments: Any) -> dict[str, Cell]:
    """The cells of one case in a folder of its own, by check."""
    folder = folder / name
    folder.mkdir(parents=True)
    text = CASE.format(name=name, module=module, arguments=json.dumps(arguments))
    (folder / "case.yaml").write_text(text, encoding="utf-8")
    (folder / "beside.py").write_text(python, encoding="utf-8")
    (case,) = load(folder / "case.yaml")
    return {cell.check: cell for cell in plan(case)}


def told(record: Record) -> dict[str, Any]:
    """What tests look at."""
    plain = record.as_dict()
    names = ("status", "stage", "error", "fault", "reason", "signal", "changed", "after")
    return {name: plain.get(name) for name in names}


def pairs(folder: Path, run: Runner) -> Iterator[tuple[str, Any]]:
    """For each harm, the records of the case that does it and of a case after it that relies on the contrary."""
    for name, (code, contrary) in HARMS.items():
        sound = cells_of(folder, f"relies_on_{name}", "Relies", on=f"({contrary})", home=str(Path.cwd()))
        harm = cells_of(folder, name, "Harm", code=f"({code})")
        yield name, {
            "alone": told(run(sound["accuracy"])), "harm": told(run(harm["accuracy"], then=sound["accuracy"])),
            "after": told(run(sound["accuracy"])),
        }  # fmt: skip


def orders(folder: Path, store: Path, worker: Any) -> Iterator[tuple[str, Any]]:
    """The verdicts of all cells of some sound and some harmful cases, in ten random orders."""
    chosen = ("default_dtype", "folder", "relu", "layer", "numpy", "thread", "numpy_errors")
    cells = []
    for name in chosen:
        cells += cells_of(folder, f"o_{name}", "Harm", code=f"({HARMS[name][0]})").values()
        cells += cells_of(
            folder, f"o_relies_on_{name}", "Relies", on=f"({HARMS[name][1]})", home=str(Path.cwd())
        ).values()
    for seed in range(10):
        shuffled = random.Random(seed).sample(cells, len(cells))
        run = Runner(Settings(store=store, examples=1), 60, worker)
        records = [run(cell, then=then) for cell, then in zip(shuffled, [*shuffled[1:], None], strict=True)]
        yield str(seed), {record.id: told(record) for record in records}


def main(what: str, folder: Path) -> None:
    store = folder / "store"
    with new_worker() as worker:
        if what == "pairs":
            found = dict(pairs(folder, Runner(Settings(store=store, examples=1), 60, worker)))
        else:
            found = dict(orders(folder, store, worker))
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
