"""A repository with a hundred cells, as it was when it was committed."""

import shutil
from pathlib import Path

import pytest

from tests.models.changed.support import COUNT, MODULES, PLAIN, commit, git

SYMBOLICS = """
from helpers import rounded
def shared(g, x):
    return g.op("Identity", x)
def unused(g, x):
    return g.op("Neg", x)
"""
CASES = """
defaults:
  runtimes: onnxruntime
  export: {torchscript: [17], dynamo: [20]}
"""
ONE = """
op{n}:
  about: one of many
  forward: torch.asinh(x)
  inputs: {{x: "float32[batch, 5]"}}
  dims: {{batch: 1..4}}
  export: {{torchscript: {{opsets: [17], symbolics: {{"aten::asinh": symbolics.op{n}}}}}, dynamo: [20]}}
"""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "repository" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.needs("git"))


@pytest.fixture(scope="package")
def original(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("repository")
    cases = folder / "cases"
    cases.mkdir()
    symbolics = SYMBOLICS + "".join(
        f"\ndef op{n}(g, x):\n    return g.op('Asinh', rounded(g, x) if {n} == 7 else x)\n" for n in range(COUNT)
    )
    (cases / "symbolics.py").write_text(symbolics)
    (cases / "helpers.py").write_text("def rounded(g, x):\n    return x\n\ndef other(g, x):\n    return x\n")
    (cases / "modules.py").write_text(MODULES)
    (cases / "many.yaml").write_text(CASES + "".join(ONE.format(n=n) for n in range(COUNT)))
    (cases / "plain.yaml").write_text(PLAIN)
    (folder / "constraints.txt").write_text("torch==2.15.0\nonnx==1.23.2\n")
    git(folder, "init", "-q")
    commit(folder)
    return folder


@pytest.fixture
def repository(original, tmp_path) -> Path:
    return shutil.copytree(original, tmp_path / "r", symlinks=True)
