"""Cases, runs, wheels and Pythons that stand in for those of an environment."""

import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.kit.cases import case_of

CELL = "accuracy[planted-torchscript-op17-onnxruntime-fp32]"
BODY = case_of(
    "torch.sin(x)", "export: {torchscript: [17]}", "specials: false", "runtimes: [onnxruntime]", dims="batch: 1..4"
)
FAILED = {"status": "failed", "stage": "compare", "error": "WrongValue", "reason": "planted", "fault": "runtime"}

StandIn = Callable[[list[str], Callable[[str], str]], None]
"""``stand_in(releases, shell)``: pip has these releases, and the Python of a version does what ``shell(version)``
says, with the folder of the run that is wanted in ``$report``."""


def python(file: Path, shell: str) -> Path:
    """A program that does what ``shell`` says with the folder after ``--report`` in ``$report``."""
    find = 'while [ $# -gt 0 ]; do [ "$1" = --report ] && report=$2; shift; done'
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"#!/bin/sh\n{find}\n{shell}\n", encoding="utf-8")
    file.chmod(0o755)
    return file


def leaves(run: Path) -> str:
    """The shell of a Python that leaves a copy of a run."""
    return f'mkdir -p "$report" && cp \'{run}\'/* "$report"'


def changed(run: Path, folder: Path, **fields: Any) -> Path:
    """A copy of a run of one cell whose record has other fields."""
    folder.mkdir()
    header, line = (run / "records.jsonl").read_text(encoding="utf-8").splitlines()
    record = {**json.loads(line), **fields}
    (folder / "records.jsonl").write_text(f"{header}\n{json.dumps(record)}\n", encoding="utf-8")
    return folder


def wheel(folder: Path, name: str, version: str, *needs: str) -> None:
    """A wheel with a module that has no more than its version."""
    info = f"{name}-{version}.dist-info"
    required = "".join(f"Requires-Dist: {need}\n" for need in needs)
    kind = "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as file:
        file.writestr(f"{name}/__init__.py", f"__version__ = {version!r}\n")
        file.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{required}")
        file.writestr(f"{info}/WHEEL", kind)
        file.writestr(f"{info}/RECORD", "")


def versions_in(python: Path) -> dict[str, str]:
    """What is installed in the environment of a Python, by name."""
    site = next(python.parent.parent.glob("lib/python*/site-packages"))
    found = (path.name.removesuffix(".dist-info").split("-") for path in site.glob("*.dist-info"))
    return {name: version for name, version in found if name not in ("pip", "setuptools")}
