"""``conformance new`` on modules of strangers: whatever their attributes are, wherever their file lies, and however
they are named."""

import re
import shlex
import sys
from pathlib import Path

import pytest

from conformance.case.files.case_file import load
from conformance.case.files.python import Folder
from conformance.extras.draft.case_text import as_text
from conformance.extras.draft.drafting import Draft, Request, draft_module
from conformance.extras.draft.guessed_inputs import Sizes, candidates, guesses_in
from conformance.extras.draft.tiny import draft_tiny
from conformance.models.kept.dependency_files import needs
from conformance.process.errors import Stopped
from tests.kit.cases import load_case
from tests.kit.runs import AS_RUN, Outcome, run_command, run_pytest

TYPES = ["float32[batch, 4]"]
STRANGE = """
import torch
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.line = torch.nn.Linear(4, 3)
    def forward(self, x):
        return self.line(x)
class Bare(torch.nn.Linear):
    def __init__(self):
        torch.nn.Module.__init__(self)
        self.only = torch.nn.Parameter(torch.ones(3, 5))
    def forward(self, x):
        return x @ self.only.T
class Slots:
    __slots__ = ("num_mel_bins",)
class Anything:
    def __getattr__(self, name):
        return self
class Raises:
    def __getattr__(self, name):
        raise RuntimeError("no such thing")
class Strange(Net):
    BODY
"""
BODIES = {
    "nothing": "pass",
    "a dict": "config = {'num_mel_bins': 4}",
    "slots": "config = Slots()",
    "a number": "config = 3",
    "anything": "config = Anything()",
    "one that raises": "config = Raises()",
    "a text": "config = 'tiny'",
    "a property": "config = property(lambda self: 1 // 0)",
    "a name": "main_input_name = 7",
    "a list": "main_input_name = ['x']",
    "an unknown name": "main_input_name = 'y'",
    "no state": "def state_dict(self, *args, **kwargs): return None",
    "no mode": "def train(self, mode=True): super().train(mode)",
    "no signature": "__signature__ = 4",
    "norm": "norm = type('Norm', (torch.nn.LayerNorm,), {'normalized_shape': 3})(3)",
    "parameters": "def parameters(self, recurse=True): return {'a': 1}",
}


def write(folder: Path, **files: str) -> None:
    """Files by their names without ``.py``, in which ``__`` stands for a slash; each folder is a package."""
    for name, text in files.items():
        file = folder / f"{name.replace('__', '/')}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        if file.parent != folder:
            (file.parent / "__init__.py").touch()
        file.write_text(text, encoding="utf-8")


def drafted(folder: Path, module: str, **given: object) -> Draft:
    return draft_module(Request(folder, module, given, {}, typed=("conformance", "new", "net", "--from", module)))


@pytest.mark.parametrize("body", BODIES)
def test_no_attribute_of_a_module_need_have_a_type(tmp_path, body):
    write(tmp_path, strange=STRANGE.replace("BODY", BODIES[body]))
    assert [guess.type for guess in guesses_in(drafted(tmp_path, "strange.Strange").inputs)] == TYPES


def test_a_layer_without_the_attributes_of_its_class_is_known_by_its_weights(tmp_path):
    write(tmp_path, strange=STRANGE.replace("BODY", "pass"))
    assert [guess.type for guess in guesses_in(drafted(tmp_path, "strange.Bare").inputs)] == ["float32[batch, 5]"]


RAISES = """
import torch
count = 0
class Worn(torch.nn.Module):
    def forward(self, x):
        global count
        count += 1
        if count > 1:
            raise OverflowError("worn out")
        return x
class Built(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.line = torch.nn.Linear(4)
class Exits(torch.nn.Module):
    def __init__(self):
        raise SystemExit("no licence")
class Config:
    def to_json_string(self, indent):
        return ""
    @classmethod
    def from_dict(cls, said):
        return cls()
"""


@pytest.mark.parametrize("name, said", [
    ("Worn", r"raises OverflowError: worn out \(raises.py:9\); correct it, or write the case by hand"),
    ("Built", r"raises.Built cannot be built: TypeError: Linear.__init__\(\) missing .* \(raises.py:14\)$"),
])  # fmt: skip
def test_what_a_class_raises_is_a_sentence_with_its_line(tmp_path, name, said):
    """An argument that a class forgets for a layer of its own is none that the user can give."""
    write(tmp_path, raises=RAISES)
    with pytest.raises(Stopped, match=said):
        drafted(tmp_path, f"raises.{name}")


def test_a_class_of_a_package_is_blamed_at_its_own_line_not_torchs(tmp_path, monkeypatch):
    text = "import torch\nclass Net(torch.nn.Module):\n    def forward(self, x):\n        return torch.cat(x, 'a')\n"
    write(tmp_path / "site", blamed__net=text)
    monkeypatch.syspath_prepend(tmp_path / "site")
    with pytest.raises(Stopped, match=r"no inputs that were tried .*blamed/net.py:4 raised it"):
        drafted(tmp_path, "blamed.net.Net")


GRAPH = """
import torch
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.line = torch.nn.Linear(4, 3)
    def forward(self, x, edge_index):
        y = self.line(x)
        return torch.zeros_like(y).index_add(0, edge_index[1], y[edge_index[0]])
class Both(torch.nn.Module):
    def forward(self, image, ids, other):
        raise ValueError("never")
"""


def test_the_edges_of_a_graph_are_pairs_of_its_nodes(tmp_path):
    write(tmp_path, graph=GRAPH)
    nodes, edges = guesses_in(drafted(tmp_path, "graph.Net").inputs)
    assert (nodes.type, edges.type) == ("float32[batch, 4]", "int64[2, e]")
    assert edges.values == {"integers": {"low": 0, "high": "batch - 1"}}


def test_all_inputs_that_are_to_be_said_are_named_by_what_they_may_be(tmp_path):
    write(tmp_path, graph=GRAPH)
    words = "image='float32[batch, 3, 64, 64]' --input ids='int64[batch, seq]' --input other='float32[batch, 8]'"
    with pytest.raises(Stopped, match=re.escape(f"say them, as in --input {words}")):
        draft_module(Request(tmp_path, "graph.Both", {}, {}), seconds=0.1)


FURTHEST = """
import torch
class Net(torch.nn.Module):
    def forward(self, x):
        if x.ndim != 4:
            raise ValueError("no image")
        self.check()
    def check(self):
        raise TypeError("no tuple")
"""


def test_the_refusal_that_is_told_came_furthest(tmp_path):
    write(tmp_path, furthest=FURTHEST)
    with pytest.raises(
        Stopped, match=r"no inputs that were tried \(TypeError: no tuple\); .*furthest.py:9 raised it"
    ):
        drafted(tmp_path, "furthest.Net")


# ---- arguments -----------------------------------------------------------------------------------------------

NEEDS = """
import torch
from typing import List, Optional, Union
class Config:
    pass
class Base(torch.nn.Module):
    def __init__(self, width: int, plain):
        super().__init__()
class Handed(Base):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
class Typed(torch.nn.Module):
    def __init__(self, width: int, scale: float, on: bool, name: str, sizes: List[int], pair: "tuple[int, int]",
                 either: Union[int, List[int]], perhaps: Optional[float], act: torch.nn.ReLU, plain, *, deep: int,
                 usual=3):
        super().__init__()
def function(width: int):
    return torch.nn.Linear(width, 3)
"""


@pytest.mark.parametrize("module, given, words", [
    ("torch.nn.LSTM", {}, "--with input_size=8 --with hidden_size=8"),
    ("torch.nn.LSTM", {"input_size": 6}, "--with hidden_size=8"),
    ("torch.nn.Conv2d", {"in_channels": 3, "out_channels": 4}, "--with kernel_size=8"),
    ("need.Handed", {}, "--with width=8 --with plain=VALUE"), ("need.function", {}, "--with width=8"),
    ("need.Typed", {"width": 4},
     "--with scale=0.5 --with on=true --with name=text --with 'sizes=[8, 8]' --with 'pair=[8, 8]' --with either=8 "
     "--with perhaps=0.5 --with 'act={new: torch.nn.modules.activation.ReLU, with: {}}' --with plain=VALUE "
     "--with deep=8"),
])  # fmt: skip
@pytest.mark.parametrize("draft", [draft_module, draft_tiny])
def test_arguments_that_a_class_lacks_are_named_with_the_line_to_type(tmp_path, module, given, words, draft):
    write(tmp_path, need=NEEDS)
    typed = ("conformance", "new", "net", "--from", module)
    with pytest.raises(Stopped) as stop:
        draft(Request(tmp_path, module, given, {}, typed=typed))
    names = [word.partition("=")[0] for word in shlex.split(words)[1::2]]
    listed = " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))
    assert f"{module} cannot be built without {listed}; " in stop.value.reason
    assert stop.value.reason.endswith(f"\n{shlex.join(typed)} {words}")


def test_another_argument_is_told_with_the_one_that_was_meant(tmp_path):
    with pytest.raises(Stopped, match="unexpected keyword argument 'in_feature'; did you mean 'in_features'"):
        drafted(tmp_path, "torch.nn.Linear", in_feature=4, out_features=3)


def test_numbers_are_written_as_they_were_given(tmp_path):
    given = {"kernel_size": [3, 3], "one": 2.0, "small": 1e-05, "long": 0.12345678901, "word": "True"}
    write(tmp_path, strange=STRANGE.replace("BODY", "def __init__(self, **given): super().__init__()"))
    request = Request(tmp_path, "strange.Strange", given, {})
    (tmp_path / "one.yaml").write_text(as_text("one", request, draft_module(request), {}, awake=False))
    (case,) = load(tmp_path / "one.yaml")
    assert {name: (type(value), value) for name, value in case.says.given.items()} == {
        name: (type(value), value) for name, value in given.items()
    }


@pytest.mark.parametrize("name", ["img", "image", "images", "pixel_values", "input_image"])
def test_an_image_by_its_name_is_tried_as_one_first(name):
    assert candidates(name, Sizes(features=[768]))[0].type == "float32[batch, 3, h, w]"
    assert candidates("imagination", Sizes(features=[768]))[0].type == "float32[batch, 768]"


# ---- where it lies -------------------------------------------------------------------------------------------

RELATIVE = """
import torch
from .base import FACTOR
class Net(torch.nn.Module):
    def forward(self, x):
        return x * FACTOR
"""


def package(folder: Path, name: str, factor: float = 2.0) -> None:
    write(folder, **{f"{name}__inner__rel": RELATIVE.replace(".base", "..base"), f"{name}__net": RELATIVE,
                     f"{name}__base": f"FACTOR = {factor}\n"})  # fmt: skip


def test_the_working_directory_counts_as_with_python_m(tmp_path, monkeypatch):
    package(tmp_path, "planted_here")
    (tmp_path / "cases").mkdir()
    case = load_case(tmp_path / "cases", 'module: planted_here.net.Net\ninputs: {x: "float32[3]"}')
    folder = Folder.of(tmp_path / "cases")
    with (
        folder.active(),
        pytest.raises(Stopped, match="no package planted_here is installed, or lies in the working"),
    ):
        folder.resolve("planted_here.net.Net")
    monkeypatch.chdir(tmp_path)
    with folder.active(), pytest.raises(Stopped, match="did you mean 'planted_here'"):
        folder.resolve("planted_her.net.Net")
    with folder.active():
        assert folder.resolve("planted_here.net.Net").__name__ == "Net"
    for name in [name for name in sys.modules if name.startswith("planted_here")]:
        monkeypatch.delitem(sys.modules, name)
    before = needs(case).digest()
    (tmp_path / "planted_here" / "base.py").write_text("FACTOR = 3.0\n", encoding="utf-8")
    assert needs(case).digest() != before, "a result that was kept would stay for another module"


def test_a_case_in_a_package_has_it_at_hand_and_no_other_of_its_name(tmp_path):
    """Folders of one package share it, as what it registers can be registered once; it is gone where it is not
    meant."""
    for place, factor in (("one", 2.0), ("other", 3.0)):
        package(tmp_path / place, "planted_twice", factor)
    found = {}
    for place in ("one/planted_twice", "one/planted_twice/inner", "other/planted_twice"):
        with Folder.of(tmp_path / place).active() as folder:
            found[place] = folder.resolve("planted_twice.inner.rel.Net"), folder.resolve("planted_twice.base.FACTOR")
        assert not [name for name in sys.modules if name.startswith("planted_twice")]
    assert [factor for _, factor in found.values()] == [2.0, 2.0, 3.0]
    first, second, third = (net for net, _ in found.values())
    assert first is second is not third


def test_a_case_in_a_package_depends_on_it(tmp_path):
    package(tmp_path, "planted_around")
    folder = tmp_path / "planted_around" / "inner"
    case = load_case(folder, 'module: planted_around.inner.rel.Net\ninputs: {x: "float32[3]"}')
    names = {file.relative_to(tmp_path / "planted_around").as_posix() for file in needs(case).files}
    assert {"__init__.py", "base.py", "inner/__init__.py", "inner/rel.py"} <= names and "net.py" not in names


def printed(outcome: Outcome) -> list[str]:
    """The words of the command that ``new`` prints last."""
    (line,) = (line for line in outcome.text.splitlines() if line.startswith("  conformance run "))
    return shlex.split(line)


@pytest.mark.thorough
@pytest.mark.parametrize("module, file", [
    ("planted.net.Net", "cases/Branch.yaml"), ("planted.net:Net", "cases/Branch.yaml"),
    ("./planted/inner/rel.py:Net", "planted/inner/Branch.yaml"), ("./in a box/own.py:Net", "in a box/Branch.yaml"),
    ("./my-lib/own.py:Net", "my-lib/Branch.yaml"),
])  # fmt: skip
def test_the_command_that_is_printed_runs_the_case_that_was_written(tmp_path, module, file):
    package(tmp_path, "planted")
    alone = RELATIVE.replace("from .base import FACTOR", "FACTOR = 2.0")
    write(tmp_path, **{"in a box__own": alone, "my-lib__own": alone})
    made = run_command(tmp_path, "new", "Branch", "--from", module, "--input", "x=float32[batch, 4]")
    assert made.code == 0 and printed(made) == ["conformance", "run", file], made.text
    run = run_pytest(tmp_path, *AS_RUN, *printed(made)[2:])
    assert run.code == 0 and {record["status"] for record in run.records.values()} == {"passed"}


def test_a_starter_says_the_command_that_runs_it(tmp_path):
    made = run_command(tmp_path, "new", "Branch", "--folder", "a b")
    assert made.code == 0 and printed(made) == ["conformance", "run", "a b/Branch.yaml"]
    listed = run_pytest(tmp_path, *AS_RUN, *printed(made)[2:], "--collect-only", "-q")
    assert listed.code == 0 and "Branch-dynamo-op20-onnxruntime-fp32" in listed.text


@pytest.mark.parametrize("name, said", [
    ("my-net", "letters, digits and _; as in my_net"), ("3d", "a letter or _, then letters"),
    ("a" * 129, "128 bytes"),
    ("null", "means something else in a case file; as in null_"), ("True", "as in True_"),
    ("defaults", "as in defaults_"),
])  # fmt: skip
def test_a_name_that_no_case_can_have_is_refused_with_one_that_it_can(tmp_path, name, said):
    refused = run_command(tmp_path, "new", name)
    assert refused.code == 2 and said in refused.text and "Traceback" not in refused.text
    assert not list(tmp_path.iterdir())


def test_a_file_that_has_no_name_in_python_is_to_be_renamed(tmp_path):
    write(tmp_path, **{"my-net": RELATIVE})
    refused = run_command(tmp_path, "new", "net", "--from", "./my-net.py:Net")
    assert refused.code == 2 and "my-net.py is no module that Python imports by its name: rename the" in refused.text


@pytest.mark.parametrize("value, said", [
    ("2026-11-28", "put a text into quotes: '\"2026-11-28\"'"), ("2026-13-28", "the value is no YAML"),
    ("[!!set {a, b}]", "no case can say such a value"), ("{a", "the value is no YAML"),
])  # fmt: skip
def test_a_value_that_no_case_can_say_is_refused(tmp_path, value, said):
    refused = run_command(tmp_path, "new", "net", "--from", "torch.nn.ReLU", "--with", f"a={value}")
    assert refused.code == 2 and said in refused.text and "Traceback" not in refused.text


@pytest.mark.parametrize("module, said", [
    ("torch.nn.LSTM", "conformance new net --from torch.nn.LSTM --with dropout=0.0 --with input_size=8 --with"),
    ("./raises.py:Exits", "this ends the process: SystemExit: no licence (raises.py:17)"),
    ("./raises.py:Config", "gave a Config, not a torch.nn.Module"),
])  # fmt: skip
def test_the_command_ends_with_a_sentence(tmp_path, module, said):
    write(tmp_path, raises=RAISES)
    words = ["--with", "dropout=0.0"] if module.startswith("torch") else []
    refused = run_command(tmp_path, "new", "net", "--from", module, *words)
    assert refused.code == 2 and said in refused.text and "mistake in the harness" not in refused.text
    assert not list(tmp_path.rglob("*.yaml")) and not (tmp_path / "cases").exists()


# ---- run -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("words, said", [
    ([], "there is no {folder}/cases; name case files or folders"), (["nowhere.yaml"], "there is no nowhere.yaml; "),
    (["empty", "-k", "asinh"], "there is no case file (.yaml, .yml) in empty; "),
    (["--cases", "nowhere", "-q"], "there is no nowhere; "),
])  # fmt: skip
def test_a_run_without_cases_says_in_a_line_what_it_looked_for(tmp_path, words, said):
    (tmp_path / "empty").mkdir()
    outcome = run_pytest(tmp_path, *AS_RUN, *words, "--rootdir", tmp_path)
    lines = outcome.text.splitlines()
    assert outcome.code == 2 and len(lines) == 1
    assert lines[0].startswith(f"conformance run: {said.format(folder=tmp_path)}")
    assert lines[0].endswith("conformance new NAME")


def test_a_run_with_a_case_beside_what_is_not_there_goes_on(tmp_path):
    load_case(tmp_path / "cases", 'forward: x\ninputs: {x: "float32[3]"}')
    for words in ([], ["cases", "nowhere"], ["cases/planted.yaml"]):
        outcome = run_pytest(tmp_path, *AS_RUN, *words, "--collect-only", "-q")
        assert outcome.code == 0 and "planted-dynamo" in outcome.text
