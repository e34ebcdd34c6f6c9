"""What the dependencies of a case take in a folder of many Python files."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path

from benchmarks.common import run_python

FILES = 1_000
CASE = """
one:
  about: One of many modules.
  module: modules.Net
  inputs: {x: "float32[batch, 3]"}
  dims: {batch: 1..3}
"""
PART = """import torch
{imports}

def scale_{number}(x):
    return torch.sin(x) * {number}


class Net{number}(torch.nn.Module):
    def forward(self, x):
        return scale_{number}(x) + 1
"""
SHAPES = {
    "imported by one file": "",
    "each imported by the one before": "",
    "imported by computed names": "def of(name):\n    return __import__(name)\n",
}
"""How the files hang together, with what lies beside them."""
ASK = """
import json, sys, time
from pathlib import Path
from conformance.case.files.case_file import load
from conformance.models.kept.dependency_files import needs

(other,) = load(Path(sys.argv[2]))
needs(other)  # what is asked once in a process, such as which folders are installations
(case,) = load(Path(sys.argv[1]))
seconds = []
for _ in range(2):
    start = time.perf_counter()
    found = needs(case)
    seconds.append(time.perf_counter() - start)
print(json.dumps([len(found.files), *seconds]))
"""


def milliseconds(shape: str, files: int = FILES, repeats: int = 5) -> tuple[list[float], list[float]]:
    """Of the first call in a process and of the second, in as many processes as there are repeats.

    Raises RuntimeError where not all files are found.
    """
    first, second = [], []
    with tempfile.TemporaryDirectory() as name:
        _written(Path(name) / "many", shape, files)
        _written(Path(name) / "one", shape, 1)
        for _ in range(repeats):
            told = run_python(Path(name), "-c", ASK, "many/case.yaml", "one/case.yaml")
            count, *seconds = json.loads(told)
            if count < files:
                raise RuntimeError(f"{count} of {files} files were found ({shape})")
            first.append(1e3 * seconds[0])
            second.append(1e3 * seconds[1])
    return first, second


def _written(folder: Path, shape: str, files: int) -> None:
    folder.mkdir()
    (folder / "case.yaml").write_text(CASE, encoding="utf-8")
    chained, helper = shape == "each imported by the one before", SHAPES[shape]
    for number in range(files - 1):
        imports = f"import part{number + 1}\n" if chained and number + 2 < files else ""
        (folder / f"part{number}.py").write_text(PART.format(number=number, imports=imports), encoding="utf-8")
    wanted = range(min(1, files - 1) if chained else files - 1)
    text = "import helper\n" if helper else "".join(f"import part{number}\n" for number in wanted)
    (folder / "modules.py").write_text(f"{text}import torch\nNet = torch.nn.Identity\n", encoding="utf-8")
    if helper:
        (folder / "helper.py").write_text(helper, encoding="utf-8")
    for file in folder.glob("*.py"):
        os.utime(file, (1, 1))  # long ago, as files are that nobody edits
