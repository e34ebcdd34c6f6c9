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
from conformance.testing import NoRuntime, check_runtime
from tests.kit.cases import say
from tests.kit.runs import run_suite
from tests.kit.runtimes import wrong_runtime
from tests.plants.kernels import KERNELS, wrong

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
    more = 1e-3 if "Cos" in {node.op_type for node in evaluator.proto_.graph.node} else 0  # its kernel is wrong
    return lambda inputs: [one + one.dtype.type(more) for one in evaluator.run(None, dict(inputs))]
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
wrong_kernel:
  about: what toykit computes wrong
  forward: torch.cos(x)
  inputs: {x: "float32[batch, 3]"}
  dims: {batch: 1..4}
  runtimes: [toykit]
exported_wrong:
  about: the traced size becomes a constant, so that all runtimes are wrong
  forward: x + int(x.shape[0])
  inputs: {x: "float32[batch, 3]"}
  dims: {batch: 1..4}
  runtimes: [onnxruntime]
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the package toykit is installed, and the one of the docs that adds it as a runtime."""
    return install(tmp_path_factory.mktemp("site"), TOYKIT)


def install(site: Path, toykit: str) -> Path:
    (site / "toykit.py").write_text(toykit, encoding="utf-8")
    page = PAGE.read_text(encoding="utf-8")
    entry, session, test = map(textwrap.dedent, re.findall(r"^   ```python\n(.*?)^   ```", page, re.M | re.S))
    (points,) = map(textwrap.dedent, re.findall(r"^   ```toml\n(.*?)^   ```", page, re.M | re.S))
    files = {
        "toykit_conformance/__init__.py": "", "toykit_conformance/entry.py": entry, "test_toykit.py": test,
        "toykit_conformance/session.py": session,
        "toykit_conformance-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: toykit-conformance\nVersion: 1\n",
        "toykit_conformance-1.0.dist-info/entry_points.txt":
            points.replace('project.entry-points."conformance.runtimes"', "conformance.runtimes").replace('"', ""),
    }  # fmt: skip
    for name, text_ in files.items():
        (site / name).parent.mkdir(exist_ok=True)
        (site / name).write_text(text_, encoding="utf-8")
    return site


def command(site: Path | str, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments], cwd=folder, capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (ROOT, site)))},
    )  # fmt: skip


def test_a_runtime_that_a_package_adds_runs_cells_and_is_asked_for_its_opinion(site, tmp_path):
    (tmp_path / "cases").mkdir()
    (tmp_path / "cases" / "toy.yaml").write_text(CASES, encoding="utf-8")
    arguments = ("--runtime", "onnxruntime,toykit", "--require", "toykit")
    path = os.pathsep.join(map(str, (ROOT, site)))
    done = run_suite(tmp_path, *arguments, own_process=True, PYTHONPATH=path)
    records = done.records
    sound = records["accuracy[sound-torchscript-op17-toykit-fp32]"]
    assert (sound["status"], sound["arithmetic"]["provider"]) == ("passed", "toykit"), done.text
    assert records["latency[sound-torchscript-op17-toykit-fp32]"]["status"] in ("passed", "skipped")
    assert re.search(r"^ +ts export +ts ort fp32 +ts toy fp32$", done.text, re.M), done.text
    planted = records["accuracy[wrong_kernel-torchscript-op17-toykit-fp32]"]
    assert (planted["error"], planted["fault"]) == ("WrongValue", "runtime"), done.text
    wrong = records["accuracy[exported_wrong-torchscript-op17-onnxruntime-fp32]"]
    assert wrong["fault"] == "exporter" and "toykit: is wrong too" in text.details(Record.from_dict(wrong))
    assert "toykit" in done.header["environment"]["versions"]


WRONG_TOYKIT = """
import onnx.reference
from tests.plants.kernels import KERNELS, wrong
def load(file):
    evaluator = onnx.reference.ReferenceEvaluator(file)
    def run(inputs):
        outputs = evaluator.run(None, dict(inputs))
        return [wrong(evaluator.proto_.graph.node[-1].op_type, *inputs.values(), one) for one in outputs]
    return run
"""


@pytest.mark.thorough
def test_wrong_kernels_of_a_plug_in_are_found_as_those_of_onnx_runtime(tmp_path, bench):
    (tmp_path / "cases").mkdir()
    body = "\n".join(
        f'{name}:\n  about: its kernel is wrong\n  forward: "{forward}"' for name, (forward, _) in KERNELS.items()
    )
    says = """
    export: {torchscript: [17]}
    specials: false
    inputs: {x: "float32[batch, 6]"}
    dims: {batch: 1..4}
    """
    defaults = textwrap.indent(textwrap.dedent(says) + "runtimes: [onnxruntime, toykit]\n", "  ")
    (tmp_path / "cases" / "kernels.yaml").write_text(f"defaults:\n{defaults}{body}\n", encoding="utf-8")
    site = install(tmp_path, WRONG_TOYKIT)
    done = run_suite(tmp_path, own_process=True, PYTHONPATH=os.pathsep.join(map(str, (ROOT, site))))
    for name, (forward, _) in KERNELS.items():
        found = [done.records[f"accuracy[{name}-torchscript-op17-{one}-fp32]"] for one in ("onnxruntime", "toykit")]
        assert [one["status"] for one in found] == ["passed", "failed"], (name, found)
        with wrong_runtime(lambda inputs, outputs, name=name: [wrong(name, *inputs.values(), *outputs)]):
            by_onnxruntime = bench.run(say(says, "runtimes: onnxruntime", f'forward: "{forward}"'))
        assert by_onnxruntime.status == "failed"
        assert (found[1]["error"], found[1]["fault"]) == (by_onnxruntime.error, by_onnxruntime.fault) == (
            "WrongValue", "runtime",
        ), name  # fmt: skip
    assert len(KERNELS) >= 40


def test_what_is_made_from_the_table_knows_it(site, tmp_path):
    for arguments in (["schema"], ["align", "--help"], ["replay", "--help"], ["doctor"]):
        assert "toykit" in command(site, tmp_path, "-m", "conformance", *arguments).stdout
    (tmp_path / "wrong.yaml").write_text(CASES.replace("[onnxruntime, toykit]", "toykti"), encoding="utf-8")
    told = command(site, tmp_path, "-m", "conformance", "align", "sound", "--cases", "wrong.yaml")
    assert f"{', '.join(map(repr, registry.IN_CASES))} or 'toykit'" in told.stderr


def test_the_runtime_of_the_page_passes_its_own_test(site, tmp_path):
    done = command(site, tmp_path, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(site / "test_toykit.py"))
    assert done.returncode == 0 and "1 passed" in done.stdout, done.stdout


HELD = """
import threading
_BUFFERS, _GIVEN, _MEETING = {}, {}, threading.Barrier(2, timeout=60)
def _held(place, output):
    held = _BUFFERS.setdefault((threading.get_ident(), place, output.shape, output.dtype), output.copy())
    held[...] = output
    return held
def _second():
    return threading.current_thread() is not threading.main_thread()
def _met(inputs, given):
    given.update(inputs)
    if _second():
        _MEETING.wait()  # until the other thread is here, too
    return dict(given)
def _alone():
    if _second():
        raise Unavailable("toykit runs in the thread that opened it")
"""
ENTRY = {"interface": 1, "name": "toy", "title": "toy", "opens": "toy.session:opens"}
SESSION = {
    "outputs in the order of names": ("return list(", "return sorted(", "outputs by name and order"),
    "inputs by place": (
        "self._program(inputs)", "self._program(dict(zip('ab', inputs.values())))", "outputs by name and order",
    ),
    "another dtype": (
        "list(self._program(inputs))", "[one.astype('float64') for one in self._program(inputs)]", "float64[2, 3]",
    ),
    "other bits": (
        "list(self._program(inputs))",
        "[one + __import__('random').random() for one in self._program(inputs)]",
        "the same bits again: other bits",
    ),
    "a mapping": ("list(self._program(inputs))", "dict(enumerate(self._program(inputs)))", "dict in place of a list"),
    "no context manager": ("@contextlib.contextmanager\n", "", "open_model gives generator, no context manager"),
    "its package": ("import contextlib\n", "import contextlib\nimport toykit\n", "its modules imports toykit"),
    "nothing to say": ('{"provider": "toykit", "storage"', '{"storage"', "arithmetic does not say provider"),
    "a library": ("if libraries", "if False", "a library that is not there: no exception is raised"),
    "what two threads give in one place": (
        "self._program(inputs)", "self._program(_met(inputs, _GIVEN))", "two threads at once: other bits than in one",
    ),
    "the end of its process": ("import toykit\n", "import os; os._exit(3)\n", "Lost: exit 3"),
    "torch": ("import contextlib\n", "import contextlib\nimport torch\n", "importing its modules imports torch"),
}  # fmt: skip


@pytest.mark.parametrize("what", SESSION)
def test_a_runtime_that_the_suite_may_not_rely_on_is_told_in_what(site, tmp_path, monkeypatch, what):
    before, after, said = SESSION[what]
    shutil.copytree(site, tmp_path / "site")
    session = tmp_path / "site" / "toykit_conformance" / "session.py"
    session.write_text(session.read_text(encoding="utf-8").replace(before, after) + HELD, encoding="utf-8")
    if what == "torch":
        (tmp_path / "site" / "torch.py").touch()  # PyTorch's own takes seconds to import
    monkeypatch.syspath_prepend(tmp_path / "site")
    for name in ("toykit", "toykit_conformance", "toykit_conformance.session"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    entry = {**ENTRY, "opens": "toykit_conformance.session:open_model", "packages": ("toykit",)}
    with pytest.raises(NoRuntime, match=re.escape(said)):
        check_runtime(entry)


@pytest.mark.parametrize("more, said", [
    ({"no_witness": "toykit_conformance.session:gone"}, "no_witness: there is no toykit_conformance.session:gone"),
    ({"name": "openvino"}, "there is a runtime openvino already"),
])  # fmt: skip
def test_an_entry_that_names_what_is_not_there_or_what_is_taken_is_told(site, monkeypatch, more, said):
    monkeypatch.syspath_prepend(site)
    with pytest.raises(NoRuntime, match=re.escape(said)):
        check_runtime({**ENTRY, "opens": "toykit_conformance.session:open_model", **more})


COPED = {
    "the outputs of every call of a thread in one buffer": (
        "list(self._program(inputs))",
        "[_held(*each) for each in enumerate(self._program(inputs))]",
    ),
    "inputs that it writes into": (
        "list(self._program(inputs))",
        "[list(self._program(inputs)), [array.fill(0) for array in inputs.values()]][0]",
    ),
    "two threads at once": ("self._program(inputs)", "self._program(_met(inputs, {}))"),
    "no second thread": ("list(self._program(inputs))", "_alone() or list(self._program(inputs))"),
}


@pytest.mark.parametrize("what", COPED)
def test_what_the_suite_copes_with_is_no_fault_of_a_runtime(site, tmp_path, what):
    """That its cells are right then shows ``test_guarded.py``."""
    shutil.copytree(site, tmp_path / "site")
    session = tmp_path / "site" / "toykit_conformance" / "session.py"
    before, after = COPED[what]
    session.write_text(session.read_text(encoding="utf-8").replace(before, after) + HELD, encoding="utf-8")
    assert after in session.read_text(encoding="utf-8")
    test = str(tmp_path / "site" / "test_toykit.py")
    done = command(tmp_path / "site", tmp_path, "-m", "pytest", "-q", "-p", "no:cacheprovider", test)
    assert done.returncode == 0 and "1 passed" in done.stdout, done.stdout


def test_of_two_versions_of_a_package_the_first_on_the_path_is_the_one_that_runs(site, tmp_path):
    newer = tmp_path / "newer"
    shutil.copytree(site, newer)
    (newer / "toykit_conformance-1.0.dist-info").rename(newer / "toykit_conformance-2.0.dist-info")
    metadata = newer / "toykit_conformance-2.0.dist-info" / "METADATA"
    metadata.write_text(metadata.read_text(encoding="utf-8").replace("Version: 1", "Version: 2"), encoding="utf-8")
    entry = newer / "toykit_conformance" / "entry.py"
    entry.write_text(
        entry.read_text(encoding="utf-8").replace('"title": "toykit"', '"title": "newer"'), encoding="utf-8"
    )
    code = "from conformance.runtimes import registry as r; print(r.named('toykit').title, len(r.LEFT_OUT))"
    for path, title in ((f"{newer}{os.pathsep}{site}", "newer"), (f"{site}{os.pathsep}{newer}", "toykit")):
        assert command(path, tmp_path, "-c", code).stdout.split() == [title, "0"]


class Point:
    """An entry point of a package that is not installed."""

    def __init__(self, name: str, said: object) -> None:
        self.name, self.value, self.dist, self._said = name, "toy.entry:ENTRY", None, said

    def load(self) -> object:
        if isinstance(self._said, Exception):
            raise self._said
        return self._said


@pytest.mark.parametrize(("said", "why"), [
    (ImportError("no module toy"), "toy.entry:ENTRY raises ImportError: no module toy"),
    ("toy", "it is a str, and no dictionary"), ({**ENTRY, "interface": 2}, "it is written for the interface 2"),
    ({**ENTRY, "name": "openvino"}, "there is a runtime openvino already"),
    ({**ENTRY, "open": "toy:opens"}, "there is no open; did you mean 'opens'"),
    ({**ENTRY, "packages": "toy"}, "packages is a str, and has to be a tuple"),
    ({**ENTRY, "name": "a toy"}, "a name of lower-case letters"), ({**ENTRY, "opens": "toy"}, "module:function"),
    ({**ENTRY, "no_witness": "toy"}, "module:function"), ({**ENTRY, "takes": ("toys",)}, "takes is of config,"),
    ({**ENTRY, "kernels": "gone"}, "there is no runtime gone"), ({}, "for the interface None"),
    ({"interface": 1, "name": "toy", "title": "toy"}, "module:function"),
])  # fmt: skip
def test_what_cannot_be_taken_is_left_out_with_a_sentence(said, why):
    (told,) = registry.added([Point("toy", said)])
    assert told[0] == "toy" and str(told[1]).startswith("the runtime toy is left out: ") and why in str(told[1])


def test_an_absence_that_raises_is_one(monkeypatch):
    """As where a package that it looks for is broken."""
    entry = registry.RuntimeEntry(**{**ENTRY, "absent": "toy.there_is_none:absence"})
    monkeypatch.setitem(registry._BY_NAME, "toy", entry)
    assert str(registry.absence("toy")).startswith("toy.there_is_none:absence raises ModuleNotFoundError")


def test_of_two_of_one_name_the_first_is_taken():
    first, second = registry.added([Point("toy", ENTRY), Point("again", ENTRY)])
    assert [type(told).__name__ for _, told in (first, second)] == ["RuntimeEntry", "str"]


def test_what_is_left_out_is_told_by_a_run_and_by_doctor(site, tmp_path):
    shutil.copytree(site, tmp_path / "site")
    entry = tmp_path / "site" / "toykit_conformance" / "entry.py"
    entry.write_text(entry.read_text(encoding="utf-8").replace('"toykit",', '"openvino",', 1), encoding="utf-8")
    said = "the runtime toykit of the package toykit-conformance is left out: there is a runtime openvino already"
    cases = re.sub(r"runtimes: \[.*toykit\]", "runtimes: onnxruntime", CASES)
    (tmp_path / "toy.yaml").write_text(cases, encoding="utf-8")
    collected = command(tmp_path / "site", tmp_path, "-m", "conformance", "run", "--cases", ".", "--collect-only")
    assert said in collected.stdout
    assert said in command(tmp_path / "site", tmp_path, "-m", "conformance", "doctor").stdout
    asked = command(tmp_path / "site", tmp_path, "-m", "conformance", "run", "--cases", ".", "--runtime", "toykit")
    assert said in asked.stdout + asked.stderr and asked.returncode == 4


def test_a_check_says_which_runtimes_of_others_it_leaves_out(site, tmp_path):
    shutil.copytree(site, tmp_path / "site")

    def said(*options: str) -> str:
        return command(tmp_path / "site", tmp_path, "-m", "conformance", "check", "gone.onnx", *options).stdout

    assert "toykit" not in said()
    (tmp_path / "site" / "toykit.py").unlink()
    assert said().startswith("toykit: left out, as toykit is not installed\n")
    assert "toykit" not in said("--runtime", "onnxruntime")
    entry = tmp_path / "site" / "toykit_conformance" / "entry.py"
    entry.write_text(entry.read_text(encoding="utf-8").replace('"toykit",', '"openvino",', 1), encoding="utf-8")
    assert "is left out: there is a runtime openvino already\n" in said()
