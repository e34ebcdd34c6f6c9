"""What everything runs with: pins, settings and conftest.py."""

from __future__ import annotations

import pytest

from tests.changed.support import changes, edit, git, put

PROJECT = """
[project]
name = "own"
description = "words"
dependencies = ["torch==2.15.0"]

[project.optional-dependencies]
dev = ["onnxruntime==1.31.1"]

[tool.pytest.ini_options]
addopts = "-q"

[tool.ruff]
line-length = 100
"""


@pytest.mark.parametrize(
    ("file", "text", "change", "reason"),
    [
        ("pyproject.toml", PROJECT, ("2.15.0", "2.16.0"), "pyproject.toml: project.dependencies changed"),
        ("pyproject.toml", PROJECT, ("1.31.1", "1.32.0"), "pyproject.toml: project.optional-dependencies changed"),
        ("pyproject.toml", PROJECT, ('"-q"', '"--examples=1"'), "pyproject.toml: tool.pytest changed"),
        ("pyproject.toml", PROJECT, ('"words"', '"others"'), None),
        ("pyproject.toml", PROJECT, ("100", "120"), None),
        ("requirements-gpu.txt", "torch>=2.1\n", (">=2.1", ">=2.2"), "requirements-gpu.txt: torch >=2.1 -> >=2.2"),
        ("requirements/ci.txt", "-r base.txt\n", ("-r base.txt", ""), "requirements/ci.txt: -r base.txt is gone"),
        ("requirements.txt", "torch==2.15.0  # why\n", ("# why", "# because"), None),
        ("cases/constraints.txt", "onnx==1.0\n", ("1.0", "1.1"), "cases/constraints.txt: onnx 1.0 -> 1.1"),
        ("uv.lock", "torch 1\n", ("1", "2"), "uv.lock changed"),
        ("conftest.py", "import torch\n", ("import torch", "import torch  # changed"), "conftest.py changed"),
        ("pytest.ini", "[pytest]\naddopts = -q\n", ("-q", "-v"), "pytest.ini changed"),
        ("notes/requirements.txt", "sphinx==1\n", ("1", "2"), None),
    ],
    ids=lambda value: value if isinstance(value, str) and len(value) < 60 else "",
)  # fmt: skip
def test_what_everything_runs_with_is_a_change_of_everything(repository, file, text, change, reason):
    put(repository, {file: text})
    git(repository, "add", "-A")
    git(repository, "commit", "-qm", "as it was")
    assert changes(repository) == {}
    edit(repository / file, *change)
    found = changes(repository)
    assert {one for reasons in found.values() for one in reasons} == ({reason} if reason else set())
    assert bool(found) == (reason is not None)
