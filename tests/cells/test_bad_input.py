"""Plants mistakes of the author in case files and in the Python beside them: one clear message each, nothing lost.

All bad cases are run by one pytest together with a good one.
"""

import re

import pytest

from tests.kit.runs import Outcome, run_suite

GOOD = """
good:
  about: the only case without a mistake
  forward: torch.sin(x)
  inputs: {x: "float32[batch, 3]"}
  dims: {batch: 1..4}
  export: {torchscript: [17]}
"""

# name: (text, line of the message, a part of the message)
FILES: dict[str, tuple[str | bytes, int, str]] = {
    "broken_yaml": ("broken:\n  about: [one, two\n  forward: x\n", 3, ""),
    "a_tab": ("tabbed:\n\tabout: x\n", 2, "spaces, not tabs"),
    "unquoted": ("flow:\n  about: x\n  inputs: {x: {type: float32[batch, 3]}}\n", 3, "needs quotes"),
    "empty": ("", 1, "no case"), "a_list": ("- one\n- two\n", 1, "mapping"),
    "unknown_key": (GOOD.replace("good", "one") + "  tag: R1\n", 8, "did you mean 'tags'?"),
    "unknown_dtype": (GOOD.replace("good", "three").replace("float32", "flaot32"), 5, "did you mean 'float32'?"),
    "undeclared_dim": (GOOD.replace("good", "six").replace("batch, 3", "batch, n"), 5, "'n' is not declared"),
    "twice": ("ten:\n  about: x\n  about: y\n", 3, "only once"), "good_again": (GOOD, 2, "good"),
    "matches_nothing": (
        GOOD.replace("good", "twelve") + '  fails:\n    - {when: {opset: "> 90"}, stage: run, because: a typo}\n',
        9, "matches no cell",
    ),
    "matches_no_graph": (
        GOOD.replace("good", "thirteen") + '  graph:\n    - {when: {opset: "> 90"}, nodes: {Sin: 1}}\n',
        9, "this entry of graph matches no cell",
    ),
    "one_of_two": (
        GOOD.replace("good", "sound") + GOOD.replace("good", "unsound") + "  tag: R1\n", 15, "did you mean 'tags'?",
    ),
}  # fmt: skip

CASE = """
{name}:
  about: planted
  {forward}
  inputs: {{x: {x}}}
  dims: {{batch: 1..4}}
  export: {{torchscript: [17]}}
  runtimes: onnxruntime
  specials: false
"""

PYTHON = """
import torch
COUNTER = [0]
class RaisesInInit(torch.nn.Module):
    def __init__(self):
        super().__init__()
        raise RuntimeError("planted in init")
class RaisesLate(torch.nn.Module):
    def forward(self, x):
        if x.shape[0] == 4:
            raise RuntimeError("planted at four")
        return torch.sin(x)
class Nothing(torch.nn.Module):
    def forward(self, x):
        return None
class ChangesInput(torch.nn.Module):
    def forward(self, x):
        return x.add_(1)
class ReadsGlobal(torch.nn.Module):
    def forward(self, x):
        COUNTER[0] += 1
        return x * COUNTER[0]
class Exits(torch.nn.Module):
    def forward(self, x):
        raise SystemExit(3)
def gives_a_list():
    return [1]
"""

# case: (what it says, error, a part of the message)
CASES = {
    "missing_file": ("module: modlues.Exits", "MissingFile", "did you mean 'modules'?"),
    "missing_name": ("module: modules.Exist", "MissingName", "did you mean 'Exits'?"),
    "does_not_parse": ("module: unparsed.Any", "SyntaxError", "unparsed.py:2"),
    "does_not_import": ("module: unimported.Any", "ModuleNotFoundError", "unimported.py:3"),
    "raises_in_init": ("module: modules.RaisesInInit", "RuntimeError", "planted in init (modules.py:6)"),
    "raises_at_four": ("module: modules.RaisesLate", "RuntimeError", "planted at four (modules.py:10)"),
    "nothing": ("module: modules.Nothing", "NoTensor", "returns nothing"),
    "changes_input": ("module: modules.ChangesInput", "ChangesInput", "in place"),
    "reads_a_global": ("module: modules.ReadsGlobal", "NotDeterministic", "changes"),
    "exits": ("module: modules.Exits", "SystemExit", "3"),
    "a_list_of_one": ("module: modules.gives_a_list", "TypeError", "not a torch.nn.Module"),
    "does_not_compile": ("forward: 'torch.sin(x'", "SyntaxError", "not a Python expression"),
    "unknown_name": ("forward: torch.sin(y)", "NameError", "there is no 'y'"),
    "wrong_shapes": ("forward: x @ x", "RuntimeError", "cannot be multiplied"),
    "hook_of_another_shape": ("values: hooks.flat", "ValueError", "hooks.flat returned"),
    "hook_that_raises": ("values: hooks.broken", "ZeroDivisionError", "hooks.py:5"),
}
HOOKS = """
import numpy as np
def flat(shape, dims, rng):
    return np.zeros(int(np.prod(shape)), "float32")
def broken(shape, dims, rng):
    return 1 / 0
"""


def case(name: str, says: str) -> str:
    """A case that says so; where that is how values are made, its forward is sound."""
    if says.startswith("values:"):
        return CASE.format(name=name, forward="forward: torch.sin(x)", x=f'{{type: "float32[batch, 3]", {says}}}')
    return CASE.format(name=name, forward=says, x='"float32[batch, 3]"')


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    folder = tmp_path_factory.mktemp("bad")
    files = {
        **{f"{name}.yaml": text for name, (text, _, _) in FILES.items()}, "a_good.yaml": GOOD,
        "modules.py": PYTHON.lstrip(), "unparsed.py": "import torch\ndef broken(:\n",
        "unimported.py": "import torch\n\nimport there_is_no_such_package\n", "hooks.py": HOOKS.lstrip(),
        "with_python.yaml": "".join(case(name, says) for name, (says, _, _) in CASES.items()),
    }  # fmt: skip
    (folder / "bad").mkdir()
    for name, text in files.items():
        (folder / "bad" / name).write_bytes(text.encode() if isinstance(text, str) else text)
    return run_suite(folder, "--cases", "bad", "--cases", "nowhere", "--examples", "2")


def test_the_run_fails_without_ending_early(outcome):
    assert outcome.code == 1 and "INTERNALERROR" not in outcome.text
    assert "errors during collection" not in outcome.text and "Traceback" not in outcome.text
    assert outcome.run["records"]


@pytest.mark.parametrize("name", FILES)
def test_a_file_with_a_mistake_says_once_where_and_what(outcome, name):
    _, line, message = FILES[name]
    (found,) = re.findall(rf"^bad/{name}\.yaml:(.*)", outcome.text, re.M)
    assert found.startswith(f"{line}:") and message in found
    assert f"bad/{name}.yaml:{found}" in outcome.failure(f"test_case_file[bad/{name}]")


def test_a_folder_that_is_not_there_is_a_failing_test_of_its_own(outcome):
    assert "there is no such case file or folder" in outcome.failure("test_case_file[nowhere]")


def test_the_good_case_keeps_all_its_cells(outcome):
    good = [one["status"] for one in outcome.records.values() if one["case"] == "good"]
    assert good == ["passed"] * 5


def test_no_case_is_lost(outcome):
    found = {record["case"] for record in outcome.records.values()}
    assert found == {"good", "sound", "twelve", "thirteen", *CASES}


@pytest.mark.parametrize("name", CASES)
def test_a_mistake_in_the_python_of_a_case_stops_it_at_declare_and_names_its_line(outcome, name):
    """It is the fault of the case, said in one line, with no traceback of ours."""
    _, error, message = CASES[name]
    record = outcome.records[f"accuracy[{name}-torchscript-op17-onnxruntime-fp32]"]
    assert (record["status"], record["stage"], record["error"]) == ("failed", "declare", error)
    assert (record["fault"], len(record["reason"].splitlines())) == ("case", 1) and message in record["reason"]
    source = record["source"]
    assert source["file"] == "bad/with_python.yaml"
    text = (outcome.folder / "bad/with_python.yaml").read_text().splitlines()
    assert text[source["line"] - 1] == f"{name}:"
    shown = outcome.failure(f"test_accuracy[{name}-")
    assert f"bad/with_python.yaml:{source['line']}" in shown
    assert not re.search(r"conformance/(?!.*test_)\w+\.py", shown)
