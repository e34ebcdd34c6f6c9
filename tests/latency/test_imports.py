"""What the folder of latencies may be used without."""

from __future__ import annotations

import subprocess
import sys


def test_nothing_of_it_imports_pytest_or_a_runtime():
    names = ("decide", "host", "measure", "samples", "statistics", "store")
    modules = ", ".join(["conformance.case.time_budget", *(f"conformance.latency.{name}" for name in names)])
    never = ("torch", "onnx", "onnxruntime", "pytest", "_pytest")
    code = f"import sys, {modules}; print([name for name in {never!r} if name in sys.modules])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
