"""Find out whether this host has another execution provider than the CPU's."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from functools import cache

from conformance.runtimes.registry import PROVIDERS

SECONDS = 120.0
"""How long a provider may take to run its first model."""
_TRY = """
import sys
import numpy
from onnx import TensorProto, helper
from conformance.process.errors import Unavailable
from conformance.runtimes.onnxruntime import OnnxRuntimeSession
from conformance.runtimes.plugin_providers import devices
import onnxruntime
provider = sys.argv[1]
known = onnxruntime.get_available_providers()
try:
    own = devices(provider)
except Unavailable as error:
    print(f"why {error}")
    sys.exit(4)
if not own and provider not in known:
    print(f"no {', '.join(known)}")
    sys.exit(3)
value = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in "xy"]
graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "relu", value[:1], value[1:])
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
session = OnnxRuntimeSession(model.SerializeToString(), (), optimize=True, provider=provider)
session.run({"x": numpy.ones(2, numpy.float32)})
"""


@cache
def absence(provider: str) -> str | None:
    """Say why ONNX Runtime has no such provider here, or cannot run a model of one node with it; None where it can.

    It is tried in a process of its own, which a driver may end.
    """
    if importlib.util.find_spec("onnxruntime") is None:
        return "onnxruntime is not installed"
    command = [sys.executable, "-c", _TRY, provider]
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return f"ONNX Runtime's {provider} did not run a model of one node in {SECONDS:g} s"
    if done.returncode == 0:
        return None
    if done.returncode == 3 and done.stdout.startswith("no "):
        package = next((package for name, _, package in PROVIDERS.values() if name == provider), "onnxruntime")
        has = done.stdout[3:].strip()
        return f"this ONNX Runtime has no {provider} (it has {has}); one that has: {package}"
    if done.returncode == 4 and done.stdout.startswith("why "):
        return done.stdout[4:].strip().splitlines()[0]
    said = (done.stderr.strip() or done.stdout.strip() or f"exit {done.returncode}").splitlines()[-1]
    end = said if len(said) <= 300 else f"... {said[-300:].partition(' ')[2]}"
    return f"ONNX Runtime's {provider} cannot run here: {end}"
