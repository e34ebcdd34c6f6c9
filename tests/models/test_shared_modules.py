"""Cases that build the same module share it in a process; a module that something has changed is shared by nobody."""

import numpy as np
import pytest
import torch

from conformance.case.files.case_file import load
from conformance.case.files.python import Folder
from conformance.case.plan.catalogue import plan
from conformance.case.plan.settings import Settings
from conformance.cells.red import explain_cell
from conformance.models.prepared import prepare
from conformance.process.worker.progress_note import Progress

PYTHON = """
import torch
class Scaled(torch.nn.Module):
    def __init__(self, width=4):
        super().__init__()
        self.linear = torch.nn.Linear(5, width)
        self.register_buffer("seen", torch.zeros(1))
    def forward(self, x):
        return self.linear(x) * 3
class Counting(Scaled):
    def forward(self, x):
        self.seen += 1
        return super().forward(x) + self.seen
class Remembering(Scaled):
    calls = 0
    def forward(self, x):
        self.calls += 1
        return super().forward(x)
class Normalised(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(5, 4)
        self.norm = torch.nn.BatchNorm1d(4)
    def forward(self, x):
        return self.norm(self.linear(x))
class Widened(Counting):
    made = []
    def double(self):
        self.made.append(float(self.seen))
        return super().double()
def doubled(module):
    with torch.no_grad():
        module.linear.weight *= 2
"""
HEAD = """
module: {module}
inputs: {{x: "float32[n, 5]"}}
dims: {{n: 1..3}}
"""


@pytest.fixture
def write(tmp_path):
    def write(**bodies: str) -> dict[str, object]:
        """The cases by name, of one file."""
        text = ""
        for name, more in bodies.items():
            module, _, rest = more.partition(";")
            lines = [
                *HEAD.format(module=module or "parts.Scaled").strip().splitlines(),
                *([] if "export:" in rest else ["export: {torchscript: [17]}"]),
                *filter(None, [rest.strip()]),
            ]
            text += f"{name}:\n" + "".join(f"  {line}\n" for line in ["about: planted", *lines])
        (tmp_path / "parts.py").write_text(PYTHON, encoding="utf-8")
        (tmp_path / "planted.yaml").write_text(text, encoding="utf-8")
        return {case.name: case for case in load(tmp_path / "planted.yaml")}

    return write


def prepared(case):
    with Folder.of(case.folder).active() as folder:
        return prepare(case, folder)


def shares(first, second) -> bool:
    """Whether two prepared cases compute with the same parameters, in memory."""
    mine, others = ([*kept.reference.module.parameters()] for kept in (first, second))
    return all(one is other for one, other in zip(mine, others, strict=True)) and bool(mine)


def test_cases_that_build_alike_share_their_module(write):
    cases = write(one="", other=";tags: [planted]")
    first, second = prepared(cases["one"]), prepared(cases["other"])
    assert shares(first, second) and second.reference.case.name == "other"
    assert second.reference.weights == first.reference.weights and second.maker is not first.maker


@pytest.mark.parametrize("other", [
    "parts.Counting", ";with: {width: 6}", ";seed: 7", ";prepare: parts.doubled", ";mode: train", ";script: true",
    ";weights: awake",
])  # fmt: skip
def test_cases_that_build_otherwise_do_not(write, other):
    cases = write(one="", other=other)
    assert not shares(prepared(cases["one"]), prepared(cases["other"]))


def test_a_case_that_was_edited_has_another_module(write):
    before, again = (prepared(write(one="")["one"]) for _ in range(2))
    assert shares(before, again) and not shares(before, prepared(write(one="parts.Counting")["one"]))


@pytest.mark.parametrize("order", [("fresh", "woken", "again"), ("woken", "again", "fresh")])
def test_woken_weights_are_those_of_cases_that_ask_for_them_whichever_comes_first(write, order):
    woken = "parts.Normalised;weights: awake"
    cases = write(fresh="parts.Normalised", woken=woken, again=woken)
    known = {name: prepared(cases[name]) for name in order}
    assert shares(known["woken"], known["again"]) and not shares(known["woken"], known["fresh"])
    state = {name: kept.reference.module.state_dict() for name, kept in known.items()}
    torch.manual_seed(0)
    own = torch.nn.Linear(5, 4)
    assert torch.equal(state["fresh"]["linear.weight"], own.weight)
    assert not torch.equal(state["woken"]["linear.weight"], own.weight)
    assert all(torch.equal(state["woken"][name], state["again"][name]) for name in state["woken"])
    assert not any(kept.reference.changed() for kept in known.values())


def test_disturbing_a_module_leaves_nothing_in_those_of_other_cases(write):
    cases = write(one="", other=";tags: [planted]")
    one, other = prepared(cases["one"]).reference, prepared(cases["other"]).reference
    own = one.copied()
    with torch.no_grad():
        for tensor in own.module.state_dict().values():
            tensor.zero_()
    assert own.sharing is not one.sharing is other.sharing and not one.changed() and not other.changed()


def test_what_one_case_does_to_the_module_is_undone_for_all_that_share_it(write):
    cases = write(one="", other=";tags: [planted]")
    first, _ = prepared(cases["one"]), prepared(cases["other"])
    weight = first.reference.module.linear.weight.detach().clone()
    with torch.no_grad():
        first.reference.module.linear.weight.add_(1)  # of the other's module too, which was opened before
    for case in cases.values():
        assert torch.equal(prepared(case).reference.module.linear.weight, weight), case.name


def test_what_a_module_keeps_outside_of_its_parameters_is_its_own_in_each_case(write):
    cases = write(one="parts.Remembering", other="parts.Remembering;tags: [planted]")
    first = prepared(cases["one"]).reference.module
    first(torch.zeros(2, 5))
    second = prepared(cases["other"]).reference.module
    assert second.calls == 0
    second(torch.zeros(2, 5))
    assert (first.calls, second.calls) == (1, 1)


def test_the_float64_form_is_made_when_it_is_asked_for_once_and_as_the_module_was_before_its_first_call(write):
    cases = write(one="parts.Widened", other="parts.Widened;tags: [planted]", third="parts.Widened;tags: [third]")
    inputs = {"x": np.ones((2, 5), "float32")}
    kept = [prepared(case) for case in cases.values()]
    made = type(kept[0].reference.module).made
    first, _ = (kept[0].reference(inputs) for _ in range(2))
    assert made == []
    for one in kept:
        (exact,) = one.reference.oracle(inputs)
        np.testing.assert_allclose(exact, first[0], rtol=1e-6)
    assert made == [0.0]


def test_an_export_that_changes_the_module_changes_no_other_cell(write, tmp_path):
    forced = "parts.Normalised;export: {torchscript: {opsets: [17], options: {training: train}}}"
    cases = write(calm="parts.Normalised", forced=forced)
    settings = Settings(store=tmp_path / "store")

    def cell(name, check):
        return next(cell for cell in plan(cases[name]) if cell.check == check and cell.precision == "fp32")

    def status(name, check):
        record = explain_cell(Progress(), cell(name, check), settings)
        return record.status, record.error

    assert status("calm", "accuracy") == ("passed", None)
    assert status("forced", "export") == ("failed", "ChangedModule")
    assert status("calm", "accuracy") == ("passed", None) and status("calm", "specials") == ("passed", None)


def test_the_inputs_of_each_case_are_its_own(tmp_path):
    text = """
defaults: {about: planted, module: parts.Pair, dims: {n: 1..3}, export: {torchscript: [17]}}
one:
  inputs: {a: "float32[n, 5]", b: "float32[n, 5]"}
other:
  inputs: {b: {type: "float32[n, 5]", as: b}, a: {type: "float32[n, 5]", as: a}}
"""
    python = "import torch\n\nclass Pair(torch.nn.Module):\n    def forward(self, a, b):\n        return a - 2 * b\n"
    (tmp_path / "parts.py").write_text(python, encoding="utf-8")
    (tmp_path / "planted.yaml").write_text(text, encoding="utf-8")
    cases = load(tmp_path / "planted.yaml")
    one, other = map(prepared, cases)
    assert one.reference.passing.in_graph() == ["a", "b"]
    assert other.reference.passing.passed({"a": 1, "b": 2}) == ((), {"a": 1, "b": 2})
    for case in cases:
        (cell,) = (cell for cell in plan(case) if cell.check == "accuracy" and cell.runtime == "onnxruntime")
        assert explain_cell(Progress(), cell, Settings(store=tmp_path / "store", examples=3)).status == "passed"
