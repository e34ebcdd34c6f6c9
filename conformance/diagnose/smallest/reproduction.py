"""The template of scripts and texts about a defect, for whoever mends it: ``repro.py`` and ``issue.md``.

A script makes ``model`` and ``feeds``, runs them, and holds what comes out against ``expected``. It ends with 1 while
the defect lives and with 0 once it is gone; any other end shows nothing. Names and texts of the case appear in it as
Python literals only.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from conformance.process.arrays import Array
from conformance.process.errors import display_path
from conformance.results.records.environment import environment, versions
from conformance.results.records.record_types import Smallest
from conformance.results.records.sanitize import fenced, one_line
from conformance.runtimes.openvino import DEVICE, SETTINGS

MOST_LINES = 39
"""Lines of a script."""
WIDEST = 400
"""Characters of a line."""
MOST_VALUES = 64
"""Values of an array that are written out."""
_SHORT = 4
"""Values of an array that are written out whatever they are."""
VALUES = "values.npz"
"""The file of arrays that are too large to be written out."""
LIVES = "the defect lives"
_IMPORTS = {
    "io": "import io", "math": "import math", "operator": "import operator", "sys": "import sys",
    "Path": "from pathlib import Path", "np": "import numpy as np", "onnx": "import onnx",
    "onnxsim": "import onnxsim", "onnxslim": "import onnxslim", "ort": "import onnxruntime as ort",
    "ov": "import openvino as ov", "torch": "import torch",
    "ReferenceEvaluator": "from onnx.reference import ReferenceEvaluator",
}  # fmt: skip


@dataclass(frozen=True)
class Reproduction:
    """A script, and what an issue for a tracker says beside it."""

    script: str
    title: str
    ruled_out: Sequence[str]
    packages: Sequence[str]
    """Those whose versions are told."""
    arrays: Mapping[str, Array] = field(default_factory=dict)
    """Those that the script reads from ``VALUES``."""
    modules: Sequence[str] = ()
    """Those that it imports for the defect, some of which have to lie beside it."""
    beside: Sequence[str] = ()
    """What is said of these."""
    expected: Sequence[str] = ()
    cause: Sequence[str] = ()
    """What is known of why."""

    def leave(self, folder: Path, seconds: float) -> Smallest:
        """Write the script into a folder, run it, and keep it with the issue where it shows the defect; where they
        are, or ``why_not``."""
        file = folder / "repro.py"
        file.write_text(self.script, encoding="utf-8")
        if self.arrays:
            np.savez(folder / VALUES, allow_pickle=False, **self.arrays)
        lives, said = shows(file, seconds)
        if not lives:
            file.unlink()
            return {"why_not": (said.splitlines() or ["it said nothing"])[-1][:300]}
        about, known = environment([]), versions()
        of_packages = {name: known.get(name) for name in self.packages}
        host = {"Python": about["python"], "platform": about["platform"]}
        (folder / "issue.md").write_text(self.issue(said, {**of_packages, **host}), encoding="utf-8")
        return {"repro": display_path(file), "issue": display_path(folder / "issue.md")}

    def issue(self, said: str, versions: Mapping[str, str | None]) -> str:
        """The issue: the script, what it ``said`` beside what is expected, and the versions that it ran with."""
        lines = [
            f"# {self.title}", "", "## To reproduce", "", *fenced(self.script.rstrip(), "python"), "",
            "The script ends with 1 while the defect lives, and with 0 once it is gone.", *self.beside, "",
            "## Expected and actual", "", *(part for one in self.expected for part in (one, "")),
            *fenced(said[:4000].rstrip()), "",
            *(["## Cause", "", *(f"- {one_line(line, 400)}" for line in self.cause), ""] if self.cause else []),
            "## What was ruled out", "", *(f"- {line}" for line in self.ruled_out), "", "## Versions", "",
            *(f"- {name} {one_line(version)}" for name, version in versions.items() if version),
        ]  # fmt: skip
        return "\n".join(lines) + "\n"


def shows(file: Path, seconds: float) -> tuple[bool, str]:
    """Return whether the script, in a process of its own, ends within so many seconds as the defect has it; and what
    it said."""
    try:
        done = subprocess.run(
            [sys.executable, str(file.absolute())], cwd=file.parent, capture_output=True, text=True, timeout=seconds,
            check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return False, f"it took longer than {seconds:g} s"
    except (OSError, subprocess.SubprocessError) as error:
        return False, str(error)
    return done.returncode == 1 and LIVES in done.stdout, done.stdout.strip() or done.stderr.strip()[-400:]


def script(lines: Sequence[str], modules: Iterable[str] = ()) -> str | None:
    """The text of a script with what it imports, which are ``modules`` too; None where it would be too long."""
    whole = [*imports(lines, modules), "", *lines]
    if len(whole) > MOST_LINES:
        whole = [line for line in whole if line]
    fits = len(whole) <= MOST_LINES and all(len(line) <= WIDEST for line in whole)
    return "\n".join(whole) + "\n" if fits else None


def imports(lines: Iterable[str], modules: Iterable[str] = ()) -> list[str]:
    """The lines that import what a script uses, and then ``modules``."""
    text = "\n".join(lines)
    used = [line for name, line in _IMPORTS.items() if re.search(rf"(?<![\w.]){name}[.(]", text)]
    return [*used, *(f"import {name}" for name in modules)]


def literal(value: Array) -> str | None:
    """An array as Python; None where it is too large to be read."""
    if value.dtype.kind not in "fiub":
        return None
    if value.size > _SHORT and bool((value == value.flat[0]).all()):
        return f"np.full({value.shape}, {_plain(value.flat[0].item())}, {str(value.dtype)!r})"
    if value.size > _SHORT and np.array_equal(value, np.arange(value.size).reshape(value.shape)):
        return f"np.arange({value.size}, dtype={str(value.dtype)!r}).reshape({value.shape})"
    if value.size > MOST_VALUES:
        return None
    shaped = f".reshape({value.shape})" if not value.size else ""
    return f"np.array({_plain(value.tolist())}, {str(value.dtype)!r}){shaped}"


def _plain(numbers: object) -> str:
    return re.sub(r"\b(nan|inf)\b", r"np.\1", repr(numbers))


def running(config: Mapping[str, str]) -> list[str]:
    """The function ``run`` of a script: what ONNX Runtime gives at a level of optimization."""
    return [
        "",
        "def run(level):",
        "    options = ort.SessionOptions()",
        "    options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, level)",
        *(f"    options.add_session_config_entry({key!r}, {value!r})" for key, value in config.items()),
        "    session = ort.InferenceSession(model, options, ['CPUExecutionProvider'])",
        "    return session.run(None, {one.name: feeds[one.name] for one in session.get_inputs()})",
        "",
    ]


def running_openvino() -> list[str]:
    """The function ``run`` of a script: what OpenVINO gives, with the settings of the suite."""
    return [
        "",
        "def run():",
        f"    settings = {SETTINGS}",
        f"    compiled = ov.Core().compile_model(ov.Core().read_model(model), {DEVICE!r}, settings)",
        "    results = compiled(list(feeds.values()))",
        "    return [results[port] for port in compiled.outputs]",
        "",
    ]


def ending(kind: str, atol: Sequence[float], run: str) -> list[str]:
    """The end of a script: what the call ``run`` gives is held against ``expected``, or what it raises is shown."""
    if kind.startswith("stops"):
        return raising([run], "it runs")
    return [
        f"actual = {run}",
        f"for got, wanted, atol in zip(actual, expected, {[float(f'{one:.2g}') for one in atol]}, strict=True):",
        "    same = got.dtype == wanted.dtype and got.shape == wanted.shape",
        "    if not same or not np.allclose(got, wanted, 0, atol, equal_nan=True):",
        f"        print('{LIVES}: expected', expected, 'actual', actual)",
        "        sys.exit(1)",
        "print('the outputs are right')",
    ]


def raising(lines: Iterable[str], gone: str, named: str | None = None) -> list[str]:
    """Lines that have to raise an error, the one that is ``named`` or any; ``gone`` is said where they do not."""
    said, code = ("error", "1") if named is None else (
        "type(error).__name__, error", f"1 if type(error).__name__ == {named!r} else 2"
    )  # fmt: skip
    return [
        "try:", *(f"    {line}" for line in lines), "except Exception as error:", f"    print('{LIVES}:', {said})",
        f"    sys.exit({code})", f"print('{gone}')",
    ]  # fmt: skip
