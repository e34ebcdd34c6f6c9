"""Cases about what is installed: modules of packages, parts of them, objects that they are made with, and what of all
that a result depends on."""

import importlib.machinery
import json
import os
import shutil
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from conformance.models.kept import dependency_files as depends
from conformance.models.kept import installed
from conformance.models.kept.installed import hooked_root
from conformance.process.errors import CaseFileError, UserError
from conformance.process.worker.reserved import unhide
from tests.kit.cases import PASSED, load_case, say, verdict

EXPORT = """
    dims: {batch: 1..3}
    export: {torchscript: [17]}
    runtimes: [onnxruntime]
    specials: false
"""
NORM = """
    module: torch.nn.GroupNorm
    with: {num_groups: 2, num_channels: 4}
    weights: awake
    inputs: {x: "float32[batch, 4, 3]"}
"""
ENCODER = """
    module: torch.nn.TransformerEncoder
    with:
      encoder_layer:
        new: torch.nn.TransformerEncoderLayer
        with: {d_model: 8, nhead: 2, dim_feedforward: 16, batch_first: true}
      num_layers: 2
    submodule: layers.1.linear1
    inputs: {x: "float32[batch, 8]"}
"""
LAZY = """
    module: torch.nn.LazyLinear
    with: {out_features: 3}
    inputs: {x: "float32[batch, 4]"}
"""
CONFIG = """
    import torch
    class Config:
        def __init__(self, width=4, **more):
            self.width, self.depth = width, 1
            vars(self).update(more)
    class Plain:
        def __init__(self, width):
            self.width = width
    class Net(torch.nn.Module):
        def __init__(self, config):
            super().__init__()
            self.line = torch.nn.Linear(3, config.width)
        def forward(self, x):
            return self.line(x)
"""
NET = """
    module: beside.Net
    inputs: {x: "float32[batch, 3]"}
"""


def accuracy(bench, body, python="", **beside):
    """The record of the case's cell, with the files ``beside`` it."""
    cell = bench.cell(say(body, EXPORT), python)
    for name, content in beside.items():
        file = cell.case.folder / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(content, encoding="utf-8")
    return bench.run_cell(cell)


def declared(bench, body, python="", **beside):
    """The error and the reason for which the case cannot be built, at the fault of the case."""
    record = accuracy(bench, body, python, **beside)
    assert (record.status, record.stage, record.fault) == ("failed", "declare", "case")
    return record.error, record.reason


@pytest.mark.parametrize("body", [
    pytest.param(NORM, id="a class"), pytest.param(ENCODER, id="a part"),
    pytest.param('forward: torchvision.ops.box_area(x)\ninputs: {x: "float32[batch, 4]"}', id="an expression"),
    pytest.param(say(NET, "with: {config: {new: beside.Config, with: {width: 5, depth: 2}}}"), id="a configuration"),
    pytest.param(LAZY, id="a lazy class"), pytest.param(say(LAZY, "clones: true"), id="a lazy call"),
])  # fmt: skip
def test_modules_of_packages_need_no_python_beside_the_case(bench, body):
    assert verdict(accuracy(bench, body, CONFIG)) == PASSED


USES = "import random, torch\nrandom.Random(1)\nNet = torch.nn.Hardtanh\n"


@pytest.mark.parametrize("name", ["random", "typing", "onnx", "cProfile"])
def test_a_file_beside_the_case_hides_no_module_that_others_need(bench, name):
    beside = {"nets.py": USES, f"{name}.py": "X = 1\n"}
    assert verdict(accuracy(bench, 'module: nets.Net\ninputs: {x: "float32[batch]"}', **beside)) == PASSED


@pytest.mark.parametrize("module, nets", [("random.Net", ""), ("nets.Net", "from random import Net\n")])
def test_a_case_that_means_such_a_file_is_told_to_rename_it(bench, module, nets):
    beside = {"random.py": "import torch\nNet = torch.nn.Hardtanh\n", "nets.py": nets}
    record = accuracy(bench, f'module: {module}\ninputs: {{x: "float32[batch]"}}', **beside)
    assert (record.stage, record.fault) == ("declare", "case")
    assert "random.py has the name of a module of Python, which is used in its place: rename it" in record.reason


@pytest.mark.parametrize("name", ["onnx", "onnxruntime", "numpy", "torch"])
@pytest.mark.parametrize("nets", [
    "import torch, {0}\nclass Net(torch.nn.Module):\n    scale = {0}.OWN\n",
    "import torch, {0}\nclass Net(torch.nn.Module):\n    def forward(self, x):\n        return x * {0}.OWN\n",
    "import torch\nfrom {0} import OWN\nNet = torch.nn.Hardtanh\n",
    "import torch\nimport {0}.own\nNet = torch.nn.Hardtanh\n",
], ids=["imported", "called", "a name", "a part"])  # fmt: skip
def test_a_case_that_looks_for_its_own_in_such_a_module_is_told_to_rename_the_file(bench, name, nets):
    beside = {f"{name}.py": "OWN = 1\n", "nets.py": nets.format(name)}
    record = accuracy(bench, 'module: nets.Net\ninputs: {x: "float32[batch]"}', **beside)
    assert (record.status, record.fault) == ("failed", "case"), record.reason
    assert f"{name}.py has the name of a module that this suite needs, which is used in its place" in record.reason


def test_what_such_a_module_lacks_is_no_reason_to_name_a_file_that_is_not_there(bench):
    nets = "import torch, onnx\nclass Net(torch.nn.Module):\n    scale = onnx.OWN\n"
    record = accuracy(bench, 'module: nets.Net\ninputs: {x: "float32[batch]"}', **{"nets.py": nets})
    assert record.fault == "case" and "has the name" not in record.reason


@pytest.fixture
def program(tmp_path, monkeypatch):
    """A working directory that is first on ``sys.path``, as with ``python -m``."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *(entry for entry in sys.path if entry)])
    return tmp_path


@pytest.mark.parametrize("file", ["numpy.py", "torch.py", "onnx/__init__.py"])
def test_a_file_of_the_working_directory_hides_nothing_that_the_suite_needs(program, file):
    (program / file).parent.mkdir(exist_ok=True)
    (program / file).write_text("")
    (program / "mine.py").write_text("")
    unhide()
    assert sys.path[-1] == str(program) and sys.path[0] != str(program)


def test_where_it_is_loaded_already_it_is_named(program, monkeypatch):
    (program / "onnx.py").write_text("")
    monkeypatch.setitem(sys.modules, "onnx", SimpleNamespace(__file__=str(program / "onnx.py")))
    with pytest.raises(UserError, match=r"onnx\.py hides the module 'onnx', which this suite needs: rename it"):
        unhide()


def test_other_files_of_the_working_directory_stay_first(program):
    for name in ("mine.py", "cases.py", "onnx_tools.py"):
        (program / name).write_text("")
    before = [*sys.path]
    unhide()
    assert sys.path == before


def test_a_package_beside_the_case_goes_before_an_installed_one(bench):
    nets = {"iniconfig/__init__.py": "", "iniconfig/nets.py": "import torch\nNet = torch.nn.Hardtanh\n"}
    record = accuracy(bench, 'module: iniconfig.nets.Net\ninputs: {x: "float32[batch]"}', **nets)
    assert verdict(record) == PASSED and "iniconfig.nets" not in sys.modules


@pytest.mark.parametrize(("module", "error", "text"), [
    ("torch.nn.GroupNrm", "MissingName", "torch.nn has no 'GroupNrm' (for torch.nn.GroupNrm); did you mean"),
    ("torchh.nn.Linear", "MissingFile", "and no package torchh is installed"),
    ("torch.nn.Linear.depth", "MissingName", "torch.nn.Linear has no 'depth'"),
    ("math.pi", "TypeError", "math.pi cannot be built"),
])  # fmt: skip
def test_what_a_package_does_not_have_is_one_sentence(bench, module, error, text):
    told = declared(bench, f'module: {module}\ninputs: {{x: "float32[batch]"}}')
    assert told[0] == error and text in told[1]


def test_a_package_that_does_not_import_is_named(bench, tmp_path, monkeypatch):
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "brokenpackage.py").write_text("raise RuntimeError('no licence')\n", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path / "site")
    told = declared(bench, 'module: brokenpackage.Net\ninputs: {x: "float32[batch]"}')
    assert told == ("RuntimeError", "brokenpackage does not import: RuntimeError: no licence")


def test_a_part_that_is_not_there_has_its_neighbour_named(bench):
    error, text = declared(bench, ENCODER.replace("layers.1.linear1", "layers.1.linear3"))
    assert error == "MissingName" and text.startswith("submodule: TransformerEncoder has no 'layers.1.linear3'; did")


def test_an_expression_has_no_parts(tmp_path):
    with pytest.raises(CaseFileError, match="submodule is a part of module"):
        load_case(tmp_path, say('forward: x\nsubmodule: a.b\ninputs: {x: "float32[batch]"}', EXPORT))


def test_a_file_describes_a_configuration(bench):
    body = say(NET, "with: {config: {file: tiny.json, of: beside.Config}}")
    tiny = {"tiny.json": json.dumps({"width": 7, "unheard_of": 1})}
    assert verdict(accuracy(bench, body, CONFIG, **tiny)) == PASSED


def test_a_result_depends_on_the_file_that_describes_it(tmp_path):
    case = load_case(tmp_path, say(NET, "with: {config: {file: tiny.json, of: beside.Config}}", EXPORT), CONFIG)
    texts = []
    for width in (7, 8):
        (tmp_path / "tiny.json").write_text(json.dumps({"width": width}), encoding="utf-8")
        texts.append(depends.needs(case, "export").digest())
    assert texts[0] != texts[1]


@pytest.mark.parametrize(("given", "error", "text"), [
    ("{new: beside.Config, with: {widht: 5}}", "TypeError", "Config knows no 'widht'; did you mean 'width'"),
    ("{new: beside.Plain, with: {height: 5}}", "TypeError", "beside.Plain cannot be called"),
    ("{new: beside.Confg}", "MissingName", "beside.py has no 'Confg' (for beside.Confg); did you mean 'Config'"),
    ("{file: none.json, of: beside.Config}", "MissingFile", "there is no 'none.json' beside the case file"),
    ("{file: cut.json, of: beside.Config}", "WrongFile", "cut.json cannot be read as JSON"),
    ("{file: list.json, of: beside.Config}", "WrongFile", "list.json holds no object of names and values"),
])  # fmt: skip
def test_what_cannot_be_made_is_one_sentence(bench, given, error, text):
    files = {"cut.json": '{"width": ', "list.json": "[1]"}
    told = declared(bench, say(NET, f"with: {{config: {given}}}"), CONFIG, **files)
    assert told[0] == error and text in told[1]


def packaged(site: Path, name: str, version: str = "1.0") -> Path:
    """A package as ``pip install --target`` leaves it."""
    (site / name).mkdir(parents=True)
    (site / name / "__init__.py").write_text("from . import deep\nNet = deep.Net\n", encoding="utf-8")
    (site / name / "deep.py").write_text("import torch\nNet = torch.nn.Identity\n", encoding="utf-8")
    told = site / f"{name}-{version}.dist-info"
    told.mkdir()
    (told / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n", encoding="utf-8")
    (told / "top_level.txt").write_text(f"{name}\n", encoding="utf-8")
    return site


@pytest.fixture
def fresh():
    """What was known of installations is asked anew, before and after."""
    path = list(sys.meta_path)
    installed.forget()
    yield
    sys.meta_path[:] = path
    installed.forget()


def case_of(folder, module="planted_nets.Net"):
    return load_case(folder, say(f'module: {module}\ninputs: {{x: "float32[batch]"}}', EXPORT))


@pytest.mark.parametrize("layout", ["target", "lib/python3.11/site-packages", "lib/python3/dist-packages"])
def test_an_installed_package_counts_by_its_version_wherever_it_lies(tmp_path, monkeypatch, fresh, layout):
    site = packaged(tmp_path / layout, "planted_nets")
    monkeypatch.syspath_prepend(site)
    needs = depends.needs(case_of(tmp_path / "cases"))
    assert needs.files == () and needs.packages == {"planted_nets": "1.0"}
    metadata = site / "planted_nets-1.0.dist-info" / "METADATA"
    metadata.write_text(
        metadata.read_text(encoding="utf-8").replace("Version: 1.0", "Version: 2.0"), encoding="utf-8"
    )
    installed.forget()
    assert depends.needs(case_of(tmp_path / "cases")).digest() != needs.digest()


def test_a_folder_on_the_path_without_a_distribution_is_the_users_own(tmp_path, monkeypatch, fresh):
    source = packaged(tmp_path / "checkout", "planted_nets")
    shutil.rmtree(source / "planted_nets-1.0.dist-info")
    monkeypatch.syspath_prepend(source)
    for module in ("planted_nets.Net", "planted_nets.deep.Net"):  # of the one in a package, the package too
        needs = depends.needs(case_of(tmp_path / "cases", module))
        assert [file.name for file in needs.files] == ["__init__.py", "deep.py"] and not needs.packages


def test_an_editable_installation_behind_an_import_hook_is_the_users_own(tmp_path, fresh):
    source = packaged(tmp_path / "checkout", "planted_nets") / "planted_nets"
    (tmp_path / "checkout" / "planted_nets-1.0.dist-info").rename(tmp_path / "elsewhere")

    class Hook:
        @staticmethod
        def find_spec(name, path=None, target=None):
            place = [str(source)] if name == "planted_nets" else None
            return place and importlib.machinery.PathFinder.find_spec(name, [str(source.parent)])

    sys.meta_path.append(Hook)
    assert hooked_root("planted_nets") == source.parent
    assert [file.name for file in depends.needs(case_of(tmp_path / "cases")).files] == ["__init__.py", "deep.py"]
    assert "planted_nets" not in sys.modules, "nothing is imported to find that out"


def test_a_computed_import_counts_the_folder_but_no_environment_in_it(tmp_path):
    python = "import importlib, torch\nNet = getattr(importlib.import_module('torch.nn'), 'Identity')\n"
    case = load_case(tmp_path, say('module: beside.Net\ninputs: {x: "float32[batch]"}', EXPORT), python)
    (tmp_path / "other.py").write_text("", encoding="utf-8")
    for inside in (".venv/lib/python3.11/site-packages/torch", "env/lib/python3.11/site-packages/torch"):
        (tmp_path / inside).mkdir(parents=True)
        (tmp_path / inside / "big.py").write_text("import nothing\n", encoding="utf-8")
    assert [file.name for file in depends.files(case)] == ["beside.py", "other.py"]


def test_a_file_that_was_changed_is_read_again(tmp_path):
    """A file that was changed just now is read again even if its size and its time are as before."""
    file, now = tmp_path / "one.py", time.time() + 1000  # however long this takes
    for name, then in (("one", 1), ("two", 2), ("six", now), ("ten", now)):
        file.write_text(f"import {name}\n", encoding="utf-8")
        os.utime(file, (then, then))
        assert depends.imports_of(str(file)).names == {name}


IMPORTING = {
    "from __future__ import division\nimport os.path as p, json": "__future__ __future__.division os os.path json",
    "def f():\n    if True: import a; from b import c": "a b b.c",
    "from a import (  # c\n    b as x,\n    d,\n)\nfrom e import *": "a a.b a.d e e.*",
    "from a \\\n    import b\nx = 1; \\\nimport d": "a a.b d",
    "raise (ValueError()) \\\n    from error\nimport a": "a",
    '"""Text:\n\nimport a\n"""\nimport b  # import c\nd = "import e"': "b",
    "'''\\'''\nimport a'''\nimport b\nc = '\\'; import d'\ne = f\"{'import x'}\"": "b",
    "import a\r\nimport b\r": "a b",
    "important = 1\nfrom_a = important": "",
}


def test_imports_are_found_in_a_text_as_in_its_tree(tmp_path):
    for text, names in IMPORTING.items():
        for marked in (text, f"{text}\n# importlib"):  # of this the whole tree is looked at
            (tmp_path / "one.py").write_bytes(marked.encode())
            found = depends.imports_of(str(tmp_path / "one.py"))
            assert found == depends.Imports(frozenset(names.split())), text


def test_imports_are_relative_or_computed(tmp_path):
    def found(text):
        (tmp_path / "one.py").write_text(text, encoding="utf-8")
        return depends.imports_of(str(tmp_path / "one.py"))

    assert found("from .. import a\n").relative == {(2, ""), (2, "a")}
    assert found("from .a.b import c\n").relative == {(1, ""), (1, "a"), (1, "a.b"), (1, "a.b.c")}
    assert found("x = f'{__import__(y)}'\n").computed and found("import importlib.util\n").computed
    assert found("import runpy\n").computed and not found("def f():\n    '''__import__'''\n").computed
