"""What everything runs with: pins, settings and conftest.py."""

import pytest

from tests.models.changed.support import changes, commit, edit, put

PROJECT = """
[project]
name = "own"
description = "words"
dependencies = ["torch==2.15.0"]

[tool.pytest.ini_options]
addopts = "-q"
"""


@pytest.mark.parametrize("file, text, change, reason", [
    ("pyproject.toml", PROJECT, ("2.15.0", "2.16.0"), "pyproject.toml: project.dependencies changed"),
    ("pyproject.toml", PROJECT, ('"-q"', '"--examples=1"'), "pyproject.toml: tool.pytest changed"),
    ("pyproject.toml", PROJECT, ('"words"', '"others"'), None),
    ("pyproject.toml", "dependency-groups.a = ['b==1']", ("1", "2"), "pyproject.toml: dependency-groups changed"),
    ("pyproject.toml", "tool.conformance.opset = 17", ("17", "18"), "pyproject.toml: tool.conformance changed"),
    ("requirements-gpu.txt", "torch>=2.1\n", (">=2.1", ">=2.2"), "requirements-gpu.txt: torch >=2.1 -> >=2.2"),
    ("requirements.txt", "torch==2.15.0  # why\n", ("# why", "# because"), None),
    ("uv.lock", "torch 1\n", ("1", "2"), "uv.lock changed"),
    ("conftest.py", "import torch\n", ("import torch", "import torch  # changed"), "conftest.py changed"),
    ("pytest.ini", "[pytest]\naddopts = -q\n", ("-q", "-v"), "pytest.ini changed"),
    ("notes/requirements.txt", "sphinx==1\n", ("1", "2"), None),
], ids=lambda value: value if isinstance(value, str) and len(value) < 60 else "")  # fmt: skip
def test_what_everything_runs_with_is_a_change_of_everything(repository, file, text, change, reason):
    put(repository, {file: text})
    commit(repository)
    assert changes(repository) == {}
    edit(repository / file, *change)
    found = changes(repository)
    assert {one for reasons in found.values() for one in reasons} == ({reason} if reason else set())
    assert bool(found) == (reason is not None)
