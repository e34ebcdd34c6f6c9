"""Ways in which a case changes the process that it runs in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from conformance.results.records.words import Exporter


@dataclass(frozen=True)
class Way:
    """``code`` runs while the case is loaded, or in each call of its module."""

    name: str
    code: str
    when: Literal["loaded", "run"] = "run"
    exporter: Exporter = "torchscript"


_ONCE = "KEPT or KEPT.append({})"
_SYMBOLIC = "torch.onnx.register_custom_op_symbolic('aten::{}', lambda g, x: g.op('{}', x), 9)"

PLAIN = {
    # Python and the operating system
    "os.chdir": "os.chdir('/')",
    "os.environ": "os.environ.update(PLANTED='1', OMP_NUM_THREADS='7')",
    "os.umask": "os.umask(0o111)",
    "sys.path": "sys.path.insert(0, '/nowhere')",
    "sys.setrecursionlimit": "sys.setrecursionlimit(500)",
    "a module in sys.modules": "sys.modules.update(colorsys=types.ModuleType('colorsys'))",
    "an import hook": "sys.meta_path.insert(0, Finder())",
    "warnings as errors": "warnings.simplefilter('error')",
    "sys.stdout": "setattr(sys, 'stdout', io.StringIO())",
    "sys.settrace": "sys.settrace(lambda *_: None)",
    "logging": "logging.disable(logging.CRITICAL)",
    "gc.disable": "gc.disable()",
    "atexit": _ONCE.format("atexit.register(print)"),
    "a thread": "threading.Thread(target=time.sleep, args=(600,), daemon=True).start()",
    "a child process": _ONCE.format("subprocess.Popen(['sleep', '600'])"),
    "200 open files": "KEPT or KEPT.extend(open(os.devnull) for _ in range(200))",
    "stdout closed": "os.close(1)",
    "a signal handler": "signal.signal(signal.SIGTERM, signal.SIG_IGN)",
    "a signal blocked": "signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2})",
    "an alarm": "signal.alarm(1000)",
    "a resource limit": "resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))",
    "a locale": "locale.setlocale(locale.LC_ALL, 'C.UTF-8')",
    "the decimal context": "setattr(decimal.getcontext(), 'prec', 2)",
    "the start method of multiprocessing": "multiprocessing.set_start_method('spawn', force=True)",
    "random seeds": "(random.seed(1), np.random.seed(1), torch.manual_seed(1))",
    # numbers
    "numpy.seterr": "np.seterr(all='raise')",
    "the rounding mode": "ctypes.CDLL(None).fesetround(UPWARD)",
    "torch.set_flush_denormal": "torch.set_flush_denormal(True)",
    "torch.set_default_dtype": "torch.set_default_dtype(torch.float64)",
    "torch.set_num_threads": "torch.set_num_threads(3)",
    "torch.set_grad_enabled": "torch.set_grad_enabled(False)",
    "torch.autocast": "torch.set_autocast_enabled('cpu', True)",
    "torch.use_deterministic_algorithms": "torch.use_deterministic_algorithms(True)",
    "torch.set_float32_matmul_precision": "torch.set_float32_matmul_precision('medium')",
    "torch.backends.mkldnn": "torch._C._set_mkldnn_enabled(False)",
    "a mode of torch functions": _ONCE.format("Mode().__enter__()"),
    # functions
    "F.relu": "setattr(F, 'relu', torch.abs)",
    "Tensor.relu": "setattr(torch.Tensor, 'relu', torch.abs)",
    "nn.ReLU.forward": "setattr(torch.nn.ReLU, 'forward', lambda self, x: x)",
    "json.loads": "setattr(json, 'loads', lambda *_, **__: {})",
    "Path.read_bytes": "setattr(pathlib.Path, 'read_bytes', lambda self: b'')",
    "numpy.allclose": "setattr(np, 'allclose', lambda *_, **__: True)",
    "InferenceSession.run": "setattr(onnxruntime.InferenceSession, 'run', RUN)",
    "onnx.checker.check_model": "setattr(onnx.checker, 'check_model', lambda *_, **__: None)",
    "Verifier.judged": "setattr(verify.Verifier, 'judged', lambda *_, **__: None)",
    "a built-in name of a module that compares": "setattr(tolerance, 'all', lambda *_: True)",
    "Fence.end": "setattr(fence.Fence, 'end', lambda self: [])",
    "hash of Path": "setattr(hashlib, 'sha256', lambda *_: hashlib.md5())",
    # registries
    "a symbolic of an operator that has one": _SYMBOLIC.format("relu", "Neg"),
    "a symbolic of an operator without one": _SYMBOLIC.format("special_i1", "Identity"),
    "a global forward hook": _ONCE.format(
        "torch.nn.modules.module.register_module_forward_hook(lambda module, given, result: result * 2)"
    ),
    "torch.library.define": _ONCE.format("torch.library.define('planted::one', '(Tensor x) -> Tensor')"),
    "an ONNX schema": _ONCE.format("onnx.defs.register_schema(onnx.defs.OpSchema('Planted', '', 1))"),
    "an ONNX schema gone": _ONCE.format("onnx.defs.deregister_schema('Relu', 14, '')"),
    # kept for whoever knows of it
    "an attribute of torch": "setattr(torch, 'planted', 1)",
    "an attribute of a function": "setattr(F.relu, 'planted', 1)",
    "a built-in name": "setattr(builtins, 'planted', 1)",
}
DYNAMO = {
    "a decomposition": "torch._decomp.decomposition_table.update({torch.ops.aten.relu.default: torch.neg})",
    "a kernel in Python": "torch.ops.aten.relu.default.py_kernels.update(planted=len)",
    "torch.library.impl": _ONCE.format("impl()"),
    "a pytree node": _ONCE.format("torch.utils._pytree.register_pytree_node(Given, list, list)"),
    "torchlib": "torchlib._registry.clear()",
}
LOADED = (
    "os.environ", "sys.path", "an import hook", "logging", "torch.set_default_dtype", "torch.set_grad_enabled",
    "F.relu", "json.loads", "Path.read_bytes", "Verifier.judged", "a symbolic of an operator that has one",
    "a symbolic of an operator without one", "a global forward hook", "an ONNX schema gone", "an attribute of torch",
)  # fmt: skip
"""Those that are also tried while the case is loaded."""
WAYS = (
    *(Way(name, code) for name, code in PLAIN.items()),
    *(Way(name, code, exporter="dynamo") for name, code in DYNAMO.items()),
    *(Way(name, PLAIN[name], "loaded") for name in LOADED),
    *(Way(name, code, "loaded", "dynamo") for name, code in DYNAMO.items()),
)
HEAD = """
import atexit, builtins, ctypes, decimal, gc, hashlib, io, json, locale, logging, multiprocessing, os, pathlib
import platform, random, resource, signal, subprocess, sys, threading, time, types, warnings
import numpy as np, onnx, onnxruntime, torch
import torch.nn.functional as F
from torch.onnx._internal.exporter._torchlib import _torchlib_registry as torchlib
from torch.overrides import TorchFunctionMode as Mode
from conformance.judge import verify
from conformance.compare import tolerance
from conformance.process.worker.state import fence

KEPT = []
UPWARD = 0x800 if platform.machine() in ("x86_64", "AMD64", "i686") else 0x400000

class Finder:
    def find_spec(self, name, path=None, target=None):
        return None

class Given:
    pass

def RUN(self, *given, **named):
    return []

def impl():
    library = torch.library.Library("aten", "IMPL")
    library.impl("relu", lambda x: x.abs(), "CompositeImplicitAutograd", allow_override=True)
    return library
"""
