"""What a case depends on: every kind of file and value moves the model store's keys, the fingerprints of --reuse and
the choice of --changed-since where it should."""

from __future__ import annotations

import runpy
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conformance import HOME
from conformance.case.draw.draw import Maker
from conformance.case.files.case_file import load
from conformance.case.files.declaration import Case, Declaration
from conformance.case.plan.catalogue import Selection, plan, read_suite
from conformance.models.kept.changed import changed_since
from conformance.models.kept.fingerprint import Fingerprints, suite
from conformance.models.kept.inventory import KEYS
from conformance.models.kept.model_store import derived_key, key
from conformance.models.precision.calibration import gather
from conformance.process.worker import uses
from conformance.results.records.environment import hash_of

CASES = """
defaults:
  inputs: {x: "float32[batch, 3]"}
  dims: {batch: 1..16}
  specials: false
planted:
  about: names a file of every kind
  tags: first
  module: modules.Net
  prepare: preparing.prepare
  inputs: {x: {type: "float32[batch, 3]", values: valuing.values}}
  draw: drawing.draw
  depends: data/*.bin
  libraries: [ops.so, building.library]
  runtimes: [onnxruntime, tensorrt]
  tensorrt: {plugins: [plugin.so, plugging.plugin]}
  metric: {of: scoring.score, data: scored.npz, drop: 1}
  preprocess: {pytorch: training.made, deployed: deploying.made, data: raw.npz}
  precisions:
    int8: {calibration: {data: samples.npy}}
    int8-entropy: {calibration: {data: samples.npz, method: entropy}}
    int8-percentile: {calibration: {data: feeding.batches, method: percentile}}
  export:
    torchscript: {opsets: [17], symbolics: {"aten::sin": symbolics.sin}, registers: {"aten::tan": registering.tan}}
    dynamo: {opsets: [20], translations: {"aten::cos.default": translating.cos}, functions: [functions.local]}
expressed:
  about: takes a function out of a file in an expression
  forward: expressing.formula(x)
"""

PYTHON = {
    "modules": "import helper\nclass Net:\n    def forward(self, x):\n        return helper.AMOUNT * x + 1\n",
    "helper": "AMOUNT = 1\n", "preparing": "def prepare(module):\n    module.amount = 1\n",
    "valuing": "def values(shape, dims, rng):\n    return rng.normal(size=shape).astype('float32') + 1\n",
    "drawing": "def draw(dims, rng):\n    return {'x': 1}\n", "building": "def library():\n    return 'ops1.so'\n",
    "plugging": "def plugin():\n    return 'plugin1.so'\n",
    "feeding": "def batches(rng):\n    for _ in range(8):\n"
    "        yield {'x': (rng.normal(size=(8, 3)) + 1).astype('float32')}\n",
    "symbolics": "def sin(g, x):\n    return g.op('Sin', x, n_i=1)\n", "registering": "def tan():\n    return 1\n",
    "translating": "def cos(x):\n    return x + 1\n", "functions": "def local(x):\n    return x + 1\n",
    "expressing": "def formula(x):\n    return x + 1\n", "scoring": "def score(outputs, batch):\n    return 1\n",
    "training": "def made(raw):\n    return raw['x'] + 1\n", "deploying": "def made(raw):\n    return raw['x'] - 1\n",
}  # fmt: skip


@dataclass(frozen=True)
class State:
    """By id or name, what each of the three readers of the list makes of the cases."""

    exported: dict[str, str]
    converted: dict[str, str]
    fingerprints: dict[str, str | None]

    def moved(self, before: State) -> dict[str, set[str]]:
        return {
            name: {one for one, value in here.items() if value != getattr(before, name)[one]}
            for name, here in vars(self).items()
        }


def state(folder: Path) -> State:
    cases = load(folder / "cases.yaml")
    exported = {
        f"{case.name}-{exporter}": key(case, exporter, 17, "weights", [], "suite")
        for case in cases
        for exporter in case.says.export.exporters
    }
    converted = {
        f"{case.name}-{precision}": derived_key("exported", [precision, feeds(case, precision)], "suite")
        for case in cases
        for precision in case.says.precisions
    }
    found = Fingerprints({})
    chosen = [cell for case in cases for cell in plan(case) if Selection().keeps(cell)]
    return State(exported, converted, {cell.id: found(cell) for cell in chosen})


def feeds(case: Case, precision: str) -> dict[str, Any]:
    """What is told of the calibration data, as in the key of a converted model."""

    def resolve(dotted: str) -> Callable[..., Any]:
        stem, _, name = dotted.partition(".")
        found: Callable[..., Any] = runpy.run_path(str(case.folder / f"{stem}.py"))[name]
        return found

    maker = Maker(case, resolve)
    return gather(
        case, case.says.precisions[precision].calibration, case.dims, {"batch": 2}, maker, resolve
    ).as_dict()


@pytest.fixture
def files(tmp_path: Path) -> Path:
    cases = tmp_path / "cases"
    (cases / "data").mkdir(parents=True)
    (cases / "cases.yaml").write_text(CASES)
    for name, text in PYTHON.items():
        (cases / f"{name}.py").write_text(text)
    for name in ("data/weights.bin", "ops.so", "plugin.so"):
        (cases / name).write_bytes(b"1")
    samples = np.random.default_rng(0).normal(size=(16, 3)).astype(np.float32)
    np.save(cases / "samples.npy", samples)
    for name in ("samples", "scored", "raw"):
        np.savez(cases / f"{name}.npz", x=samples)
    return cases


@pytest.fixture
def folder(files: Path, tmp_path: Path) -> Path:
    """The files, committed."""
    identity = ("-c", "user.name=Someone", "-c", "user.email=someone@example.org")
    for command in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "as it was"]):
        subprocess.run(["git", *identity, "-C", str(tmp_path), *command], check=True)
    return files


def chosen(folder: Path) -> set[str]:
    """The cells that --changed-since chooses."""
    cells, files = read_suite([folder], Selection())
    assert not any(files.values())
    return set(changed_since("HEAD", [folder], cells, Selection()).reasons)


def ids(folder: Path, name: str, exporter: str = "") -> set[str]:
    cells = (cell for case in load(folder / "cases.yaml") for cell in plan(case) if Selection().keeps(cell))
    return {cell.id for cell in cells if cell.case.name == name and exporter in cell.exporter}


def edit(file: Path) -> None:
    if file.suffix == ".npy":
        np.save(file, np.load(file) + 1)
    elif file.suffix == ".npz":
        np.savez(file, x=np.load(file)["x"] + 1)
    else:
        content = file.read_bytes()
        assert b"1" in content
        file.write_bytes(content.replace(b"1", b"2", 1))


EXPORT = [
    "modules.py", "helper.py", "preparing.py", "valuing.py", "drawing.py", "data/weights.bin", "symbolics.py",
    "registering.py", "translating.py", "functions.py",
]  # fmt: skip
CONVERSION = {"samples.npy": "int8", "samples.npz": "int8-entropy", "feeding.py": "int8-percentile"}
VERDICT = [
    "ops.so", "building.py", "plugin.so", "plugging.py", "scoring.py", "scored.npz", "training.py", "deploying.py",
    "raw.npz",
]  # fmt: skip
OF_EXPORTER = {
    "symbolics.py": "torchscript", "registering.py": "torchscript",
    "translating.py": "dynamo", "functions.py": "dynamo",
}  # fmt: skip


@pytest.mark.parametrize("file", [*EXPORT, *CONVERSION, *VERDICT])
@pytest.mark.needs("git")
def test_a_file_moves_all_that_depends_on_it(folder, file):
    before = state(folder)
    assert chosen(folder) == set()
    edit(folder / file)
    moved = state(folder).moved(before)
    assert moved["converted"] == ({f"planted-{CONVERSION[file]}"} if file in CONVERSION else set())
    assert moved["exported"] == moved["fingerprints"] == set()  # files are observed, and no part of what is stated
    assert chosen(folder) == ids(folder, "planted", OF_EXPORTER.get(file, ""))


@pytest.mark.needs("git")
def test_a_file_that_an_expression_names_moves_what_depends_on_it(folder):
    edit(folder / "expressing.py")
    assert chosen(folder) == ids(folder, "expressed")


@pytest.mark.parametrize("old, new, readers", [
    ("about: names", "about: says", {"fingerprints"}), ("tags: first", "tags: second", {"fingerprints"}),
    ("runtimes: [onnxruntime,", "fails: [{stage: run, when: {opset: 17}, because: x}]\n  runtimes: [onnxruntime,",
     {"fingerprints", "changed"}),
    ("tensorrt: {", "tensorrt: {tf32: true, ", {"fingerprints", "changed"}),
    ("precisions:", "tolerance: {fp32: {rtol: 1.0e-7}}\n  precisions:", {"fingerprints", "changed"}),
    ("precisions:", "seed: 3\n  precisions:", {"exported", "fingerprints", "changed"}),
    ("precisions:", "mode: train\n  precisions:", {"exported", "fingerprints", "changed"}),
    ("module: modules.Net", "module: modules.Net\n  with: {size: 3}", {"exported", "fingerprints", "changed"}),
    ("prepare: preparing.prepare\n  ", "", {"exported", "fingerprints", "changed"}),
    ("aten::sin", "aten::cos", {"exported", "fingerprints", "changed"}),
])  # fmt: skip
@pytest.mark.needs("git")
def test_the_case_file_itself_moves_what_each_key_matters_to(folder, old, new, readers):
    before, text = state(folder), (folder / "cases.yaml").read_text()
    assert text.count(old) == 1
    (folder / "cases.yaml").write_text(text.replace(old, new))
    moved = {**state(folder).moved(before), "changed": chosen(folder)}
    assert {name for name, here in moved.items() if here} == readers
    assert all("planted-" in one for here in moved.values() for one in here)


def test_the_list_has_every_key_of_a_case():
    assert KEYS.keys() == Declaration.model_fields.keys()


def test_any_change_of_this_package_or_of_a_variable_that_libraries_read_moves_every_key(
    files, tmp_path, monkeypatch
):
    copied = tmp_path / "conformance"
    shutil.copytree(HOME, copied, ignore=shutil.ignore_patterns("__pycache__"))
    assert hash_of(copied) == hash_of(HOME)
    for name in (
        "front/cli.py",
        "compare/tolerance.py",
        "runtimes/tensorrt/build.py",
        "process/worker/state/fence.py",
    ):
        before = hash_of(copied)
        (copied / name).write_text((copied / name).read_text() + "\n")
        assert hash_of(copied) != before
    (case, *_) = load(files / "cases.yaml")
    (cell, *_) = plan(case)
    found = []
    for value in ("1", "2"):
        monkeypatch.setitem(uses.variables_at_first, "OMP_PLANTED", value)
        monkeypatch.setenv("OMP_PLANTED", value)
        exported = key(case, "dynamo", 17, "weights", [], suite())
        found.append((exported, derived_key("model", [], suite()), Fingerprints({})(cell)))
    assert not set(found[0]) & set(found[1])
