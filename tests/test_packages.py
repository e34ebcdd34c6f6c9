"""Cases about what is installed: modules of packages, parts of them, objects that they are made with, and what of all
that a result depends on."""

from __future__ import annotations

import importlib.machinery
import importlib.metadata
import json
import os
import sys
from pathlib import Path

import pytest

from conformance.case.made import value_of
from conformance.case.python import Folder
from conformance.depends import files as depends
from conformance.depends import imports, installed
from conformance.depends.installed import hooked_root, is_installed
from conformance.depends.slices import Slices
from conformance.errors import CaseFileError
from tests.support import PASSED, load_case, say, verdict, write_case

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
    (cell,) = [cell for cell in bench.cells(say(body, EXPORT), python) if cell.check == "accuracy"]
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


# ---- modules of packages -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    [
        NORM,
        ENCODER,
        'forward: torchvision.ops.box_area(x)\ninputs: {x: "float32[batch, 4]"}',
        say(NET, "with: {config: {new: beside.Config, with: {width: 5, depth: 2}}}"),
        LAZY,
        say(LAZY, "clones: true"),
        'module: torch.nn.LazyBatchNorm1d\ninputs: {x: "float32[batch, 4, 3]"}\nweights: awake',
    ],
    ids=["a class", "a part", "an expression", "a configuration", "a lazy class", "a lazy call", "a lazy norm"],
)
def test_modules_of_packages_need_no_python_beside_the_case(bench, body):
    assert verdict(accuracy(bench, body, CONFIG)) == PASSED


def test_a_package_beside_the_case_goes_before_an_installed_one(bench):
    nets = {"colorsys/__init__.py": "", "colorsys/nets.py": "import torch\nNet = torch.nn.Hardtanh\n"}
    record = accuracy(bench, 'module: colorsys.nets.Net\ninputs: {x: "float32[batch]"}', **nets)
    assert verdict(record) == PASSED and "colorsys.nets" not in sys.modules


@pytest.mark.parametrize(
    ("module", "error", "text"),
    [
        ("torch.nn.GroupNrm", "MissingName", "torch.nn has no 'GroupNrm' (for torch.nn.GroupNrm); did you mean"),
        ("torchh.nn.Linear", "MissingFile", "and no package torchh is installed"),
        ("torch.nn.Linear.depth", "MissingName", "torch.nn.Linear has no 'depth'"),
        ("math.pi", "TypeError", "math.pi cannot be built"),
    ],
)
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


# ---- objects that are made -----------------------------------------------------------------------------------


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


def test_what_a_configuration_keeps_though_it_is_no_field_may_mean_something(tmp_path):
    given = {"new": "transformers.T5Config", "with": {"decoder_start_token_id": 7}}
    assert value_of(given, Folder.of(tmp_path)).decoder_start_token_id == 7


@pytest.mark.parametrize(
    ("given", "error", "text"),
    [
        (
            "{new: beside.Config, with: {widht: 5}}",
            "TypeError",
            "Config knows no 'widht'; did you mean 'width'",
        ),
        ("{new: beside.Plain, with: {height: 5}}", "TypeError", "beside.Plain cannot be called"),
        (
            "{new: transformers.BertConfig, with: {hiden_size: 5}}",
            "TypeError",
            "transformers.BertConfig knows no 'hiden_size'; did you mean 'hidden_size'",
        ),
        ("{new: beside.Confg}", "MissingName", "beside.py has no 'Confg' (for beside.Confg); did you mean 'Config'"),
        ("{new: Config}", "MissingName", "new: 'Config' is no name"),
        ("{new: beside.Config, with: [5]}", "TypeError", "is no mapping of arguments"),
        ("{file: none.json, of: beside.Config}", "MissingFile", "there is no 'none.json' beside the case file"),
        ("{file: cut.json, of: beside.Config}", "WrongFile", "cut.json cannot be read as JSON"),
        ("{file: list.json, of: beside.Config}", "WrongFile", "list.json holds no object of names and values"),
        ("{file: odd.json, of: beside.Plain}", "TypeError", "beside.Plain cannot be called"),
    ],
)
def test_what_cannot_be_made_is_one_sentence(bench, given, error, text):
    files = {"cut.json": '{"width": ', "list.json": "[1]", "odd.json": '{"height": 1}'}
    told = declared(bench, say(NET, f"with: {{config: {given}}}"), CONFIG, **files)
    assert told[0] == error and text in told[1]


# ---- what is installed, and what is the user's own -----------------------------------------------------------


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
    known = (installed.is_installed, installed.hooked_root, installed._distributions)
    for function in known:
        function.cache_clear()
    yield
    for function in known:
        function.cache_clear()


def case_of(folder, module="planted_nets.Net"):
    return load_case(folder, say(f'module: {module}\ninputs: {{x: "float32[batch]"}}', EXPORT))


@pytest.mark.parametrize("layout", ["target", "lib/python3.11/site-packages", "lib/python3/dist-packages"])
def test_an_installed_package_counts_by_its_version_wherever_it_lies(tmp_path, monkeypatch, fresh, layout):
    site = packaged(tmp_path / layout, "planted_nets")
    monkeypatch.syspath_prepend(site)
    needs = depends.needs(case_of(tmp_path / "cases"))
    assert needs.files == () and needs.packages == {"planted_nets": "1.0"}
    installed._distributions.cache_clear()
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "2.0")
    assert depends.needs(case_of(tmp_path / "cases")).digest() != needs.digest()


def test_a_folder_on_the_path_without_a_distribution_is_the_users_own(tmp_path, monkeypatch, fresh):
    source = packaged(tmp_path / "checkout", "planted_nets")
    for file in (source / "planted_nets-1.0.dist-info").iterdir():
        file.unlink()
    (source / "planted_nets-1.0.dist-info").rmdir()
    monkeypatch.syspath_prepend(source)
    needs = depends.needs(case_of(tmp_path / "cases"))
    names = ["__init__.py", "deep.py"]
    assert [file.name for file in needs.files] == names and not needs.packages
    parts = Slices([source]).parts(tmp_path / "cases", "planted_nets.Net")
    assert {label.partition(":")[0] for label in parts} == {f"planted_nets/{name}" for name in names}


def test_an_editable_installation_behind_an_import_hook_is_the_users_own(tmp_path, monkeypatch, fresh):
    source = packaged(tmp_path / "checkout", "planted_nets") / "planted_nets"
    (tmp_path / "checkout" / "planted_nets-1.0.dist-info").rename(tmp_path / "elsewhere")

    class Hook:
        @staticmethod
        def find_spec(name, path=None, target=None):
            place = [str(source)] if name == "planted_nets" else None
            return place and importlib.machinery.PathFinder.find_spec(name, [str(source.parent)])

    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, Hook])
    assert hooked_root("planted_nets") == source.parent
    assert [file.name for file in depends.needs(case_of(tmp_path / "cases")).files] == ["__init__.py", "deep.py"]
    assert "planted_nets" not in sys.modules, "nothing is imported to find that out"


def test_pythons_own_library_and_this_environment_are_installed():
    assert is_installed(Path(os.__file__).parent) and is_installed(Path(pytest.__file__).parent.parent)
    assert is_installed(Path("somewhere/python311.zip")) and not is_installed(Path("/no/such/folder"))


def test_a_computed_import_counts_the_folder_but_no_environment_in_it(tmp_path):
    python = "import importlib, torch\nNet = getattr(importlib.import_module('torch.nn'), 'Identity')\n"
    case = load_case(tmp_path, say('module: beside.Net\ninputs: {x: "float32[batch]"}', EXPORT), python)
    (tmp_path / "other.py").write_text("", encoding="utf-8")
    for inside in (".venv/lib/python3.11/site-packages/torch", "env/lib/python3.11/site-packages/torch"):
        (tmp_path / inside).mkdir(parents=True)
        (tmp_path / inside / "big.py").write_text("import nothing\n", encoding="utf-8")
    assert [file.name for file in depends.files(case)] == ["beside.py", "other.py"]


def test_a_file_is_parsed_once_for_as_long_as_it_is_the_same(tmp_path, monkeypatch):
    python = "import importlib, torch\nNet = torch.nn.Identity\n"
    case = load_case(tmp_path, say('module: beside.Net\ninputs: {x: "float32[batch]"}', EXPORT), python)
    for number in range(300):
        (tmp_path / f"part{number}.py").write_text(f"x = {number}\n", encoding="utf-8")
    for file in tmp_path.glob("*.py"):
        os.utime(file, (1, 1))  # long ago: what was written just now may be written again at the same time
    was_read = []
    read = imports._text
    monkeypatch.setattr(imports, "_text", lambda file: was_read.append(Path(file).name) or read(file))
    first = depends.files(case)
    assert len(first) == len(was_read) == 301
    was_read.clear()
    assert depends.files(case) == first and not was_read
    (tmp_path / "part7.py").write_text("import part8, another\n", encoding="utf-8")
    write_case(tmp_path / "x", NORM)
    assert depends.files(case) == first and was_read == ["part7.py"]


IMPORTING = {
    "from __future__ import division\nimport os.path as p, json": "__future__ __future__.division os os.path json",
    "def f():\n    if True: import a; from b import c": "a b b.c",
    "from a import (  # c\n    b as x,\n    d,\n)\nfrom e import *": "a a.b a.d e e.*",
    "from a \\\n    import b\nx = 1; \\\nimport d": "a a.b d",
    "raise (ValueError()) \\\n    from error\nimport a": "a",
    "def f():\n    yield (\n        yield\n        from x)\n    import a": "a",
    '"""Text:\n\nimport a\n"""\nimport b  # import c\nd = "import e"': "b",
    "'''\\'''\nimport a'''\nimport b\nc = '\\'; import d'\ne = f\"{'import x'}\"": "b",
    "import a\r\nimport b\r": "a b",
    "important = 1\nfrom_a = important": "",
    "import é": "é",
}


@pytest.mark.parametrize("text", IMPORTING)
def test_imports_are_found_in_a_text_as_in_its_tree(text, tmp_path):
    for marked in (text, f"{text}\n# importlib"):  # of this the whole tree is looked at
        (tmp_path / "one.py").write_bytes(marked.encode())
        found = imports.imports_of(str(tmp_path / "one.py"))
        assert found == imports.Imports(frozenset(IMPORTING[text].split()))


def test_imports_are_relative_or_computed(tmp_path):
    def found(text):
        (tmp_path / "one.py").write_text(text, encoding="utf-8")
        return imports.imports_of(str(tmp_path / "one.py"))

    assert found("from .. import a\n").relative == {(2, ""), (2, "a")}
    assert found("from .a.b import c\n").relative == {(1, ""), (1, "a"), (1, "a.b"), (1, "a.b.c")}
    assert found("x = f'{__import__(y)}'\n").computed and found("import importlib.util\n").computed
    assert found("import runpy\n").computed and not found("def f():\n    '''__import__'''\n").computed


def test_every_import_of_this_suite_is_found(tmp_path):
    for file in sorted(Path(depends.__file__).parent.parent.rglob("*.py")):
        text = file.read_text(encoding="utf-8")
        (tmp_path / "one.py").write_text(f"{text}\n# importlib\n", encoding="utf-8")  # so that all of it is parsed
        assert imports.imports_of(str(file)) == imports.imports_of(str(tmp_path / "one.py")), file


def test_data_beside_a_case_is_no_package_of_its_name(tmp_path, monkeypatch, fresh):
    monkeypatch.syspath_prepend(packaged(tmp_path / "site-packages", "planted_nets"))
    case = case_of(tmp_path / "cases")
    (case.folder / "planted_nets.yaml").write_text("", encoding="utf-8")
    assert depends.needs(case).packages == {"planted_nets": "1.0"}


def test_modules_behind_links_and_beside_their_package_are_found(tmp_path):
    case = case_of(tmp_path / "cases", "nets.deep.Net")
    package = case.folder / "nets"
    package.mkdir()
    (tmp_path / "real.py").write_text("from . import other, missing\n", encoding="utf-8")
    (package / "deep.py").symlink_to(tmp_path / "real.py")
    (tmp_path / "other.py").write_text("", encoding="utf-8")
    (case.folder / "nets.py").write_text("", encoding="utf-8")
    assert [file.name for file in depends.files(case)] == ["nets.py", "other.py", "real.py"]
