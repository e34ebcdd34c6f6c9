"""Who may import whom: what reads, plans and compares needs neither torch nor a runtime, and nothing but the front
end needs pytest."""

from __future__ import annotations

import subprocess
import sys

import pytest

READING = ("case", "casefile", "plan", "expect", "suite", "record", "text", "matrix")
COMPARING = ("inputs", "values", "compare", "vacuity")
WITHOUT_PYTORCH = (
    "bundle", "replay", "judges", "blame", "expect", "runtimes.tensorrt", "environment", "isolation",
)  # fmt: skip
GATING = ("baseline", "changed", "slices", "report.command", "report.html", "report.markdown", "report.annotations")
RUNTIMES = ("runtimes", "runtimes.onnxruntime", "runtimes.onnxreference", "graph", "store")


@pytest.mark.parametrize(
    "modules, never",
    [
        ((*READING, *COMPARING), ("torch", "onnx", "onnxruntime", "pytest", "_pytest")),
        (RUNTIMES, ("torch", "pytest", "_pytest")),
        (WITHOUT_PYTORCH, ("torch", "pytest", "_pytest", "pydantic", "ruamel", "onnxruntime", "hypothesis")),
        (GATING, ("torch", "onnx", "onnxruntime", "pytest", "_pytest")),
        (("cell", "runner", "cli", "isolation"), ("pytest", "_pytest")),
    ],
    ids=["reading and comparing", "runtimes", "replaying", "gating", "running"],
)
def test_modules_do_not_import_what_is_not_theirs(modules: tuple[str, ...], never: tuple[str, ...]) -> None:
    names = ", ".join(f"conformance.{module}" for module in modules)
    code = f"import sys, {names}; print([name for name in {never!r} if name in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
