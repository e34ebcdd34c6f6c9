"""Who may import whom: folders import from those below them only; what has to start fast, or runs where there is no
PyTorch, needs neither torch nor a runtime."""

import subprocess
import sys
from pathlib import Path

import pytest

from conformance import HOME
from tests.kit.imports import imported, modules

ORDER = (
    "plugin", "__main__", "api", "cli", "commands", "cluster", "versions", "draft", "repairs", "sensitivity",
    "mutants", "checks", "align", "coverage", "precision", "export", "depends", "bundle", "plan", "draw",
    "explanations", "verdict", "baseline", "latency", "report", "case", "records", "runtimes", "compare",
    "onnxgraph", "explain", "worker", "disk", "errors", "arrays", "collector", "__init__",
)  # fmt: skip
"""From what people call down to what everything rests on; ``docs/architecture.md`` walks through them."""


def room(path: Path) -> str:
    """The folder or module at the top of the package that a file belongs to."""
    first = path.relative_to(HOME).parts[0].removesuffix(".py")
    return "plugin" if first.startswith("test_") else first


def test_every_folder_has_its_place():
    assert {room(file) for file in modules()} == {*ORDER}


def test_modules_import_from_below_only():
    upwards = [
        f"{file.relative_to(HOME)}:{line}: {other.relative_to(HOME)}"
        for file in modules()
        for line, other in imported(file)
        if ORDER.index(room(other)) < ORDER.index(room(file))
    ]
    assert upwards == []


def test_what_a_replay_imports_is_not_brought_in_by_a_package():
    """A replay has no pydantic; importing a module of ``case`` must not import its neighbours."""
    assert (HOME / "case" / "__init__.py").read_text(encoding="utf-8") == ""


READING = ("case.declaration", "case.case_file", "plan.catalogue", "records.settle", "records.text", "records.matrix")
COMPARING = ("draw.shapes", "draw.value_regimes", "compare.tolerance", "compare.vacuity")
WITHOUT_PYTORCH = (
    "bundle.bundle_layout", "bundle.replay_bundle", "compare.judges", "verdict.blame", "records.settle",
    "runtimes.tensorrt", "records.environment", "worker.isolation",
)  # fmt: skip
GATING = (
    "baseline", "depends.changed", "depends.observed_dependencies", "depends.packages", "report.command",
    "report.html", "report.markdown", "report.annotations",
)  # fmt: skip
LATENCY = ("case.time_budget", *(f"latency.{file.stem}" for file in (HOME / "latency").glob("[a-z]*.py")))
RUNTIMES = ("runtimes", "runtimes.onnxruntime", "runtimes.onnxreference", "export.graph", "export.model_store")


@pytest.mark.parametrize("modules, never", [
    ((*READING, *COMPARING), ("torch", "onnx", "onnxruntime", "pytest", "_pytest")),
    (RUNTIMES, ("torch", "pytest", "_pytest")),
    (WITHOUT_PYTORCH, ("torch", "pytest", "_pytest", "pydantic", "ruamel", "onnxruntime", "hypothesis")),
    ((*GATING, *LATENCY), ("torch", "onnx", "onnxruntime", "pytest", "_pytest")),
    (("checks.run_cell", "checks.runner", "cli", "worker.isolation"), ("pytest", "_pytest")),
], ids=["reading and comparing", "runtimes", "replaying", "gating", "running"])  # fmt: skip
def test_modules_do_not_import_what_is_not_theirs(modules, never):
    names = ", ".join(f"conformance.{module}" for module in modules)
    code = f"import sys, {names}; print([name for name in {never!r} if name in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
