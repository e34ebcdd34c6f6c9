"""Edits of a repository of cases, and the cells that depend on them."""

import subprocess
from pathlib import Path

from conformance.case.plan.catalogue import Selection, read_suite
from conformance.models.kept.changed import changed_since

COUNT = 12
"""Cases with a symbolic of their own, all of which stand in one file."""

PLAIN = """
plain:
  about: one with a module
  module: modules.Plain
  inputs: {x: "float32[batch, 5]"}
  dims: {batch: 1..4}
  draw: modules.draw
"""
MODULES = """
import torch
import numpy as np
FACTOR = 2.0
class Base(torch.nn.Module):
    pass
class Plain(Base):
    def forward(self, x):
        return x * FACTOR
class Other(torch.nn.Module):
    def forward(self, x):
        return x
def draw(dims, rng):
    return {"x": rng.normal(size=(dims["batch"], 5)).astype(np.float32)}
"""


def git(folder: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=Someone", "-c", "user.email=someone@example.org")
    command = ["git", *identity, "-C", str(folder), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def commit(folder: Path) -> None:
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "as it was")


def edit(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert text.count(old) == 1, text.count(old)
    file.write_text(text.replace(old, new))


def changes(repository: Path, selection: Selection | None = None) -> dict[str, list[str]]:
    selection = selection or Selection()
    cells, files = read_suite([repository / "cases"], selection)
    assert not any(files.values())
    return changed_since("HEAD", [repository / "cases"], cells, selection).reasons


def cases_of(found: dict[str, list[str]]) -> set[str]:
    return {name.split("[")[1].split("-")[0] for name in found}


def put(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        place = folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
