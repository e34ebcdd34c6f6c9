"""Plants mistakes of the author in case files and in the Python beside them: one clear message each, nothing lost.

All bad cases are run by one pytest together with a good one.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support import Outcome, run_suite

GOOD = """
good:
  about: the only case without a mistake
  forward: torch.sin(x)
  inputs: {x: "float32[batch, 3]"}
  dims: {batch: 1..4}
"""

# name: (text, line of the message, a part of the message)
FILES: dict[str, tuple[str | bytes, int, str]] = {
    "broken_yaml": ("broken:\n  about: [one, two\n  forward: x\n", 3, ""),
    "a_tab": ("tabbed:\n\tabout: x\n", 2, "spaces, not tabs"),
    "unquoted": ("flow:\n  about: x\n  inputs: {x: {type: float32[batch, 3]}}\n", 3, "needs quotes"),
    "empty": ("", 1, "no case"),
    "a_list": ("- one\n- two\n", 1, "mapping"),
    "binary": (b"\xff\xfe\x00case: 1\n", 1, "UTF-8"),
    "unknown_key": (GOOD.replace("good", "one") + "  tag: R1\n", 7, "did you mean 'tags'?"),
    "wrong_type": (GOOD.replace("good", "two") + "  script: [1]\n", 7, "script"),
    "unknown_dtype": (GOOD.replace("good", "three").replace("float32", "flaot32"), 5, "did you mean 'float32'?"),
    "reversed_dims": (GOOD.replace("good", "four").replace("1..4", "9..4"), 6, "9 is larger than 4"),
    "negative_dims": (GOOD.replace("good", "five").replace("1..4", "-3..4"), 6, "negative"),
    "undeclared_dim": (GOOD.replace("good", "six").replace("batch, 3", "batch, n"), 5, "'n' is not declared"),
    "circle": (GOOD.replace("good", "seven").replace("1..4", "1..n, n: 1..batch"), 6, "need each other"),
    "tagged": ("eight:\n  about: !!python/object/apply:os.system [true]\n", 2, "tags"),
    "anchored": ("nine:\n  about: &a x\n", 2, "anchors"),
    "twice": ("ten:\n  about: x\n  about: y\n", 3, "only once"),
    "good_again": (GOOD, 2, "good"),
    "matches_nothing": (
        GOOD.replace("good", "twelve") + '  fails:\n    - {when: {opset: "> 90"}, stage: run, because: a typo}\n',
        8,
        "matches no cell",
    ),
    "matches_no_graph": (
        GOOD.replace("good", "thirteen") + '  graph:\n    - {when: {opset: "> 90"}, nodes: {Sin: 1}}\n',
        8,
        "this entry of graph matches no cell",
    ),
    "one_of_two": (
        GOOD.replace("good", "sound") + GOOD.replace("good", "unsound") + "  tag: R1\n",
        13,
        "did you mean 'tags'?",
    ),
}

MODULE = """
{name}:
  about: planted
  module: {module}
  inputs: {{x: "float32[batch, 3]"}}
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


class Raises(torch.nn.Module):
    def forward(self, x):
        raise RuntimeError("planted in forward")


class RaisesLate(torch.nn.Module):
    def forward(self, x):
        if x.shape[0] == 4:
            raise RuntimeError("planted at four")
        return torch.sin(x)


class NoTensor(torch.nn.Module):
    def forward(self, x):
        return "a text"


class Nothing(torch.nn.Module):
    def forward(self, x):
        return None


class Random(torch.nn.Module):
    def forward(self, x):
        return x + torch.rand_like(x)


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


class NotAModule:
    pass


def gives_a_list():
    return [1]
"""

# case: (module, error, a part of the message)
MODULES = {
    "missing_file": ("modlues.Raises", "MissingFile", "did you mean 'modules'?"),
    "missing_name": ("modules.Raisse", "MissingName", "did you mean 'Raises'?"),
    "does_not_parse": ("unparsed.Any", "SyntaxError", "unparsed.py:2"),
    "does_not_import": ("unimported.Any", "ModuleNotFoundError", "unimported.py:3"),
    "raises_in_init": ("modules.RaisesInInit", "RuntimeError", "planted in init (modules.py:9)"),
    "raises_in_forward": ("modules.Raises", "RuntimeError", "planted in forward (modules.py:14)"),
    "raises_at_four": ("modules.RaisesLate", "RuntimeError", "planted at four (modules.py:20)"),
    "no_tensor": ("modules.NoTensor", "NoTensor", "returns a str"),
    "nothing": ("modules.Nothing", "NoTensor", "returns nothing"),
    "is_random": ("modules.Random", "NotDeterministic", "random"),
    "changes_input": ("modules.ChangesInput", "ChangesInput", "in place"),
    "reads_a_global": ("modules.ReadsGlobal", "NotDeterministic", "changes"),
    "exits": ("modules.Exits", "SystemExit", "3"),
    "not_a_module": ("modules.NotAModule", "TypeError", "not a torch.nn.Module"),
    "a_list_of_one": ("modules.gives_a_list", "TypeError", "not a torch.nn.Module"),
}

# case: (expression, error, a part of the message)
EXPRESSIONS = {
    "does_not_compile": ("'torch.sin(x'", "SyntaxError", "not a Python expression"),
    "unknown_name": ("torch.sin(y)", "NameError", "there is no 'y'"),
    "unknown_function": ("torch.sinn(x)", "AttributeError", "sinn"),
    "wrong_shapes": ("x @ x", "RuntimeError", "cannot be multiplied"),
}

# case: (function that makes the values, error, a part of the message)
VALUES = {
    "hook_of_another_shape": ("hooks.flat", None, "hooks.flat returned"),
    "hook_of_another_dtype": ("hooks.double", None, "float64"),
    "hook_that_raises": ("hooks.broken", "ZeroDivisionError", "hooks.py:10"),
}
HOOKS = """
import numpy as np

def flat(shape, dims, rng):
    return np.zeros(int(np.prod(shape)), "float32")

def double(shape, dims, rng):
    return np.zeros(shape, "float64")

def broken(shape, dims, rng):
    return 1 / 0
"""


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    folder = tmp_path_factory.mktemp("bad")
    cases = folder / "bad"
    cases.mkdir()
    (cases / "a_good.yaml").write_text(GOOD, encoding="utf-8")
    for name, (text, _, _) in FILES.items():
        (cases / f"{name}.yaml").write_bytes(text.encode() if isinstance(text, str) else text)
    (cases / "modules.py").write_text(PYTHON.lstrip(), encoding="utf-8")
    (cases / "unparsed.py").write_text("import torch\ndef broken(:\n", encoding="utf-8")
    (cases / "unimported.py").write_text("import torch\n\nimport there_is_no_such_package\n", encoding="utf-8")
    (cases / "hooks.py").write_text(HOOKS.lstrip(), encoding="utf-8")
    texts = [MODULE.format(name=name, module=module) for name, (module, *_) in MODULES.items()]
    for name, (forward, *_) in EXPRESSIONS.items():
        texts.append(MODULE.format(name=name, module="m.x").replace("module: m.x", f"forward: {forward}"))
    for name, (hook, *_) in VALUES.items():
        text = MODULE.format(name=name, module="m.x").replace("module: m.x", "forward: torch.sin(x)")
        texts.append(text.replace('"float32[batch, 3]"', f'{{type: "float32[batch, 3]", values: {hook}}}'))
    (cases / "with_python.yaml").write_text("".join(texts), encoding="utf-8")
    return run_suite(folder, "--cases", "bad", "--cases", "nowhere", "--examples", "2")


def test_the_run_fails_without_ending_early(outcome: Outcome) -> None:
    assert outcome.code == 1
    assert "INTERNALERROR" not in outcome.text
    assert "errors during collection" not in outcome.text
    assert outcome.run["records"]


@pytest.mark.parametrize("name", FILES)
def test_a_file_with_a_mistake_says_where_and_what(outcome: Outcome, name: str) -> None:
    _, line, message = FILES[name]
    text = outcome.failure(f"test_case_file[bad/{name}]")
    (found,) = re.findall(rf"bad/{name}\.yaml:{line}:\d+: (.*)", text)
    assert message in found
    assert "Traceback" not in text


def test_a_folder_that_is_not_there_is_a_failing_test_of_its_own(outcome: Outcome) -> None:
    text = outcome.failure("test_case_file[nowhere]")
    assert "there is no such case file or folder" in text


def test_no_file_has_more_than_one_message_for_one_mistake(outcome: Outcome) -> None:
    found = {name: len(re.findall(rf"^bad/{name}\.yaml:\d+", outcome.text, re.M)) for name in FILES}
    assert found == dict.fromkeys(FILES, 1)


def test_the_good_case_keeps_all_its_cells(outcome: Outcome) -> None:
    good = {name: one["status"] for name, one in outcome.records.items() if one["case"] == "good"}
    assert len(good) == 10
    assert set(good.values()) == {"passed"}


def test_no_case_is_lost(outcome: Outcome) -> None:
    found = {record["case"] for record in outcome.records.values()}
    assert found == {"good", "sound", "twelve", "thirteen", *MODULES, *EXPRESSIONS, *VALUES}


@pytest.mark.parametrize("name", [*MODULES, *EXPRESSIONS, *VALUES])
def test_a_mistake_in_the_python_of_a_case_stops_it_at_declare(outcome: Outcome, name: str) -> None:
    _, *rest = {**MODULES, **EXPRESSIONS, **VALUES}[name]
    error, message = rest[-2:]
    record = outcome.records[f"accuracy[{name}-torchscript-op17-onnxruntime-fp32]"]
    assert (record["status"], record["stage"]) == ("failed", "declare")
    assert error in (record["error"], None)
    assert message in record["reason"]
    assert record["fault"] == "case"
    assert len(record["reason"].splitlines()) == 1


@pytest.mark.parametrize("name", [*MODULES, *EXPRESSIONS, *VALUES])
def test_such_a_mistake_is_told_with_the_line_of_the_case_and_no_traceback_of_ours(
    outcome: Outcome, name: str
) -> None:
    record = outcome.records[f"accuracy[{name}-torchscript-op17-onnxruntime-fp32]"]
    assert record["source"]["file"] == "bad/with_python.yaml"
    text = (outcome.folder / "bad/with_python.yaml").read_text().splitlines()
    assert text[record["source"]["line"] - 1] == f"{name}:"
    shown = outcome.failure(f"test_accuracy[{name}-")
    assert f"bad/with_python.yaml:{record['source']['line']}" in shown
    assert "Traceback" not in shown
    assert not re.search(r"conformance/(?!.*test_)\w+\.py", shown)


def test_the_whole_output_has_no_traceback(outcome: Outcome) -> None:
    assert "Traceback" not in outcome.text


def test_a_case_path_that_is_not_there_alone_is_not_a_success(tmp_path: Path) -> None:
    outcome = run_suite(tmp_path, "--cases", "nowhere")
    assert outcome.code == 1
    assert "nowhere:1:1: there is no such case file or folder" in outcome.text
    assert "Traceback" not in outcome.text
