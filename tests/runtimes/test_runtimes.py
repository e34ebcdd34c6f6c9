"""The table of runtimes: nothing else lists them, and docs/runtimes.md says all that it takes to add one."""

import ast
import os
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from conformance import HOME
from conformance.results.records import text
from conformance.results.records.record import Record
from conformance.runtimes import opener, registry
from tests.kit.runs import run_suite

ROOT = Path(__file__).parent.parent.parent
PAGE = ROOT / "docs" / "runtimes.md"


def test_names_and_heads_are_unique_and_kernels_are_of_a_runtime():
    names = [runtime.name for runtime in registry.RUNTIMES]
    heads = [runtime.short for runtime in registry.RUNTIMES if runtime.short]
    assert len({*names}) == len(names) and len({*heads}) == len(heads)
    assert {runtime.computes_with for runtime in registry.RUNTIMES} <= {*names}


@pytest.mark.parametrize("runtime", registry.RUNTIMES, ids=lambda runtime: runtime.name)
def test_what_an_entry_names_is_there(runtime):
    assert runtime.only_builds or callable(registry.function(runtime.opens))
    assert not runtime.absent or callable(registry.function(runtime.absent))
    assert registry.absence(runtime.name) is None or runtime.absent


def test_a_runtime_gets_only_the_options_that_it_takes():
    config = {"session.x64quantprecision": "1"}
    assert opener("onnxruntime", config=config).keywords == {"config": config}
    for name in ("onnxruntime-literal", "onnx-reference"):
        opens = opener(name, config=config)
        assert (opens.args, opens.keywords) == ((registry.function(registry.named(name).opens),), {})


def lists_runtimes(node: ast.AST) -> bool:
    """Return whether several runtimes stand in one list, tuple, set, dict or Literal."""
    if not isinstance(node, (ast.List, ast.Tuple, ast.Set, ast.Dict)):
        return False
    parts = [*node.keys, *node.values] if isinstance(node, ast.Dict) else node.elts
    names = {runtime.name for runtime in registry.RUNTIMES}
    return len([part for part in parts if isinstance(part, ast.Constant) and part.value in names]) > 1


def test_no_other_module_lists_runtimes():
    listing = [
        file.relative_to(HOME).as_posix()
        for file in sorted(HOME.rglob("*.py"))
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if lists_runtimes(node)
    ]
    # The first chooses what a case runs that names no runtime; the second lists the keys of a case, two of which are
    # the settings of a runtime; the third lists packages whose files every case depends on; the fourth is the table
    # itself, with the providers of ONNX Runtime.
    assert listing == [
        "case/files/declaration.py",
        "models/kept/inventory.py",
        "process/worker/uses/whose.py",
        "runtimes/registry.py",
    ]


TOYKIT = """
import onnx.reference
def load(file):
    evaluator = onnx.reference.ReferenceEvaluator(file)
    return lambda inputs: evaluator.run(None, dict(inputs))
"""

CASES = """
defaults: {export: {torchscript: [17]}, examples: {shapes: 2}, specials: false}
sound:
  about: what every runtime computes right
  forward: torch.sin(x)
  inputs: {x: "float32[batch, 3]"}
  dims: {batch: 1..4}
  runtimes: [onnxruntime, toykit]
  latency: [{runtime: toykit, at_most: 1000 x toykit, seconds: 0.5}]
exported_wrong:
  about: the traced size becomes a constant, so that all runtimes are wrong
  forward: x + int(x.shape[0])
  inputs: {x: "float32[batch, 3]"}
  dims: {batch: 1..4}
  runtimes: [onnxruntime]
"""


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package with the runtime of the docs, added as the docs say."""
    module, entries = (
        textwrap.dedent(block)
        for block in re.findall(r"^   ```python\n(.*?)^   ```", PAGE.read_text(encoding="utf-8"), re.M | re.S)
    )
    tree = tmp_path_factory.mktemp("tree")
    shutil.copytree(HOME, tree / "conformance", ignore=shutil.ignore_patterns("__pycache__"))
    (tree / "conformance/runtimes/toykit.py").write_text(module, encoding="utf-8")
    registry_file = tree / "conformance/runtimes/registry.py"
    entry = entries.removeprefix("RUNTIMES = (\n    ...,\n")
    table, _, rest = registry_file.read_text(encoding="utf-8").partition("\n)\n")
    registry_file.write_text(f"{table}\n{entry}{rest}", encoding="utf-8")
    return tree


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the package toykit is installed."""
    site = tmp_path_factory.mktemp("site")
    (site / "toykit.py").write_text(TOYKIT, encoding="utf-8")
    return site


def command(tree: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments], cwd=tree, env={**os.environ, "PYTHONPATH": str(tree)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_a_runtime_that_is_added_runs_cells_and_is_asked_for_its_opinion(tree, site, tmp_path):
    (tmp_path / "cases").mkdir()
    (tmp_path / "cases" / "toy.yaml").write_text(CASES, encoding="utf-8")
    arguments = ("--runtime", "onnxruntime,toykit", "--require", "toykit")
    path = os.pathsep.join(map(str, (tree, site)))
    done = run_suite(tmp_path, *arguments, own_process=True, PYTHONPATH=path)
    records = done.records
    sound = records["accuracy[sound-torchscript-op17-toykit-fp32]"]
    assert (sound["status"], sound["arithmetic"]["provider"]) == ("passed", "toykit"), done.text
    assert records["latency[sound-torchscript-op17-toykit-fp32]"]["status"] in ("passed", "skipped")
    assert re.search(r"^ +ts export +ts ort fp32 +ts toy fp32$", done.text, re.M), done.text
    wrong = records["accuracy[exported_wrong-torchscript-op17-onnxruntime-fp32]"]
    assert wrong["fault"] == "exporter" and "toykit: is wrong too" in text.details(Record.from_dict(wrong))
    assert "toykit" in done.header["environment"]["versions"]


def test_what_is_made_from_the_table_knows_it(tree):
    for arguments in (["schema"], ["align", "--help"], ["replay", "--help"]):
        assert "toykit" in command(tree, "-m", "conformance", *arguments).stdout
    (tree / "wrong.yaml").write_text(CASES.replace("[onnxruntime, toykit]", "toykti"), encoding="utf-8")
    told = command(tree, "-m", "conformance", "align", "sound", "--cases", "wrong.yaml")
    assert f"{', '.join(map(repr, registry.IN_CASES))} or 'toykit'" in told.stderr
