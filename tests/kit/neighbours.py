"""Cases that change the process they run in, and cells that run after them; for ``test_neighbours.py``."""

import json
import multiprocessing
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from conformance.case.files.case_file import load
from conformance.case.plan.catalogue import plan
from conformance.case.plan.cell import Cell
from conformance.cells.runner import Runner
from conformance.process.worker.isolation import Worker
from conformance.process.worker.progress_note import Progress
from conformance.process.worker.state.fence import Fence
from conformance.results.records.record import Record

# What the case does in its forward, and what a later case relies on, as expressions.
HARMS = {
    "folder": ("os.chdir('/')", "os.getcwd() == home"),
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
    "excepthook": ("setattr(sys, 'excepthook', print)", "sys.excepthook is sys.__excepthook__"),
    "thread_excepthook": ("setattr(threading, 'excepthook', print)", "threading.excepthook is not print"),
    "meta_path": ("sys.meta_path.insert(0, Finder()) if type(sys.meta_path[0]).__name__ != 'Finder' else 0",
                  "all(type(finder).__name__ != 'Finder' for finder in sys.meta_path)"),
    "path_hooks": ("sys.path_hooks.clear()", "sys.path_hooks"),
    "log_level": ("logging.root.setLevel('DEBUG')", "logging.root.level == logging.WARNING"),
    "logs": ("logging.disable()", "logging.root.manager.disable == 0"),
    "log_handlers": ("logging.root.addHandler(logging.NullHandler())",
                     "not any(isinstance(handler, logging.NullHandler) for handler in logging.root.handlers)"),
    "start_method": ("multiprocessing.set_start_method('spawn', force=True)",
                     "multiprocessing.get_start_method(allow_none=True) != 'spawn'"),
    "relu": ("setattr(F, 'relu', torch.abs)", "float(F.relu(torch.tensor(-1.0))) == 0"),
    "method": ("setattr(torch.Tensor, 'relu', torch.abs)", "float(torch.tensor(-1.0).relu()) == 0"),
    "layer": ("setattr(torch.nn.ReLU, 'forward', lambda self, x: x)",
              "float(torch.nn.ReLU()(torch.tensor(-1.0))) == 0"),
    "deleted_function": ("delattr(F, 'relu') if hasattr(F, 'relu') else None", "hasattr(F, 'relu')"),
    "code_of_relu": ("setattr(F.relu, '__code__', F.relu.__code__.replace(co_name='harmed'))",
                     "F.relu.__code__.co_name == 'relu'"),
    "numpy": ("setattr(np, 'allclose', lambda *_: True)", "not np.allclose(1, 2)"),
    "runtime": ("setattr(onnxruntime.InferenceSession, 'run', OWN_RUN)",
                "onnxruntime.InferenceSession.run.__name__ == 'run'"),
    "json": ("setattr(json, 'loads', len)", "json.loads('1') == 1"),
    "path": ("setattr(pathlib.Path, 'read_bytes', len)", "pathlib.Path.read_bytes is not len"),
    "shadow": ("setattr(tolerance, 'all', len)", "not hasattr(tolerance, 'all')"),
    "judged": ("setattr(verify.Verifier, 'judged', len)", "verify.Verifier.judged is not len"),
    "table": ("run_cell.CHECKS.update(latency=len)", "run_cell.CHECKS['latency'] is not len"),
    "code": ("setattr(tolerance.failed, '__code__', tolerance.failed.__code__.replace(co_name='harmed'))",
             "tolerance.failed.__code__.co_name == 'failed'"),
    "library_code": ("setattr(json.loads, '__code__', json.loads.__code__.replace(co_name='harmed'))",
                     "json.loads.__code__.co_name == 'loads'"),
    "default": ("setattr(tolerance.failed, '__defaults__', (1,))", "tolerance.failed.__defaults__ == (None, None)"),
    "schema_function": ("setattr(onnx.checker, 'check_model', len)", "onnx.checker.check_model is not len"),
    "symbolic": ("torch.onnx.register_custom_op_symbolic('aten::cos', len, 17)", ""),
    "decomposition": ("torch._decomp.decomposition_table.update({torch.ops.aten.cos.default: len})", ""),
    "operator": ("KEPT or KEPT.append(torch.library.define('planted::one', '(Tensor x) -> Tensor'))", ""),
    "kernel": ("torch.ops.aten.cos.default.py_kernels.update(planted=len)", ""),
    "pytree": ("KEPT or KEPT.append(torch.utils._pytree.register_pytree_node(Harm, list, list))", ""),
    "hook": ("KEPT or KEPT.append(torch.nn.modules.module.register_module_forward_hook(lambda *_: None))", ""),
    "schema": ("KEPT or KEPT.append(onnx.defs.register_schema(onnx.defs.OpSchema('Planted', '', 1)))", ""),
    "thread": ("threading.Thread(target=time.sleep, args=(600,), daemon=True).start()",
               "threading.active_count() == 1"),
    "files": ("KEPT or KEPT.extend(open(os.devnull) for _ in range(200))", "fresh_number() < 150"),
    "at_exit": ("atexit.register(len, ())", ""), "closed_stdout": ("os.close(1)", "os.fstat(1)"),
}  # fmt: skip
REGISTRIES = {"symbolic", "decomposition", "operator", "kernel", "pytree", "hook", "schema"}
LEFT = {"thread", "files", "at_exit", "closed_stdout", *REGISTRIES}
"""What cannot be put back."""
JUDGING = {
    "numpy", "runtime", "json", "path", "shadow", "judged", "table", "code", "library_code", "default",
    "schema_function",
}  # fmt: skip
"""What the comparison itself rests on."""

PYTHON = """
import atexit, ctypes, decimal, gc, io, json, logging, multiprocessing, os, pathlib, platform, resource, signal, sys
import threading, time, warnings
import numpy as np, onnx, onnxruntime, torch
import torch.nn.functional as F
from conformance.cells import run_cell
from conformance.judge import verify
from conformance.compare import tolerance
from torch.overrides import TorchFunctionMode as Mode
KEPT = []
UPWARD = 0x800 if platform.machine() in ("x86_64", "AMD64", "i686") else 0x400000
RUN = onnxruntime.InferenceSession.run
def OWN_RUN(self, *args, **kwargs):
    return RUN(self, *args, **kwargs)
def lower(which, soft):
    resource.setrlimit(which, (soft, resource.getrlimit(which)[1]))
def umask():
    mask = os.umask(0o77)
    os.umask(mask)
    return mask
def fresh_number():
    with open(os.devnull) as file:
        return file.fileno()
class Finder:
    def find_spec(self, *_):
        return None
class Harm(torch.nn.Module):
    def __init__(self, code):
        super().__init__()
        self.code = compile(code, "harm", "eval")
    def forward(self, x):
        eval(self.code, globals())
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


def harmed(folder: Path, run: Runner, worker: Worker) -> Iterator[tuple[str, Any]]:
    """For each harm, the record of the case that does it, and whether its contrary holds in that process then."""
    home = worker.call(working_directory, timeout=60)
    for name, (code, contrary) in HARMS.items():
        record = told(run(cells_of(folder, name, "Harm", code=f"({code})")["accuracy"]))
        record["held"] = name in LEFT or worker.call(holds, contrary, home, timeout=60)
        yield name, record


def holds(progress: Progress, contrary: str, home: str) -> bool:
    names: dict[str, Any] = {"home": home}
    exec(PYTHON, names)
    return bool(eval(contrary, names))


def working_directory(progress: Progress) -> str:
    return str(Path.cwd())


def starts_threads(progress: Progress) -> list[tuple[list[tuple[str, str]], bool]]:
    """The thread of tqdm, and the lock with which multiprocessing settles on its default; then a thread of a case's:
    what a fence says of each."""
    stay, fence, said = threading.Event(), Fence(), []
    for name in ("tqdm_monitor", "worker of the case"):
        fence.begin()
        multiprocessing.RLock()
        threading.Thread(target=stay.wait, name=name, daemon=True).start()
        changes = [(change.what, change.after) for change in fence.end()]
        said.append((changes, fence.spoilt))
    return said


def draws_a_bar(progress: Progress) -> list[int]:
    from tqdm import tqdm

    return [*tqdm(range(3))]
