"""The hook of pre-commit: what it names runs, refuses a broken case file, and imports nothing that takes long."""

import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from tests.kit.cases import write_case
from tests.kit.runs import ROOT

SOUND = "forward: torch.sin(x)\ninputs: {x: 'float32[n]'}\ndims: {n: 1..3}\n"
LIGHT = """
import sys
from conformance.front.cli import main
code = main(sys.argv[1:])
print("imported:", sorted({"torch", "onnx", "onnxruntime", "hypothesis", "pytest"} & sys.modules.keys()))
sys.exit(code)
"""


@pytest.fixture
def hook() -> dict[str, Any]:
    (only,) = YAML(typ="safe").load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))
    return dict(only)


def run(hook: dict[str, Any], folder: Path) -> tuple[int, list[str]]:
    """Call the hook as pre-commit does, with the names of the files that it is for."""
    files = sorted(file.relative_to(folder).as_posix() for file in folder.rglob("*.*"))
    chosen = [name for name in files if re.search(hook["files"], name) and name.endswith((".yaml", ".yml"))]
    program, *words = shlex.split(hook["entry"])
    assert program == "conformance" and (hook["language"], hook["types"]) == ("python", ["yaml"]) and chosen
    command = [sys.executable, "-c", LIGHT, *words, *chosen]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    *lines, imported = done.stdout.splitlines()
    assert imported == "imported: []"
    return done.returncode, lines


def test_sound_files_pass_and_other_files_are_not_looked_at(hook, tmp_path):
    write_case(tmp_path / "cases", SOUND)
    write_case(tmp_path / "net/cases/deep", SOUND, name="other")
    (tmp_path / "compose.yaml").write_text("services: {a: {image: b}}\n")
    assert run(hook, tmp_path) == (0, [])


def test_each_mistake_is_a_line_with_its_place(hook, tmp_path):
    write_case(tmp_path / "cases", SOUND)
    write_case(tmp_path / "cases", SOUND.replace("dims", "dimz"), name="wrong")
    (tmp_path / "cases/broken.yml").write_text("broken: [\n")
    write_case(tmp_path / "cases", f"{SOUND}fails: [{{stage: run, because: x, when: {{opset: 3}}}}]", name="none")
    code, lines = run(hook, tmp_path)
    assert code == 1
    assert [line.partition(":")[0] for line in lines] == ["cases/broken.yml", "cases/none.yaml", "cases/wrong.yaml"]
    assert lines[2] == "cases/wrong.yaml:5:3: unknown key 'dimz'; did you mean 'dims'?"
