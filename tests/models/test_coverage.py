"""What of a module shows in its outputs: calls that are not seen are told, and too many of them make a case red."""

import dataclasses
import math
import sys

import numpy as np
import pytest
import torch

from conformance.cells import coverage as asked
from conformance.diagnose import hidden
from conformance.models.coverage import operator_calls
from conformance.models.coverage.composite_calls import parts_of_composites
from conformance.models.coverage.disturb import Disturbed
from conformance.models.coverage.measure_coverage import CoverageTrial, Covered, Zeroed, measure
from conformance.models.coverage.operator_calls import recording
from conformance.models.kept.dependency_files import files
from conformance.models.prepared import _kept
from conformance.results.records import text
from conformance.results.records.coverage_totals import least
from tests.kit.cases import PASSED, details, say, verdict, with_symbolic

CASE = say(
    "module: beside.Net", 'inputs: {x: "float32[batch, 4]"}', "dims: {batch: 1..4}",
    "runtimes: [onnx-reference, onnxruntime]", "specials: false", "export: {torchscript: [16, 17]}",
)  # fmt: skip
BLOCK = """
    import torch
    class Net(torch.nn.Module):
        def __init__(self, scale=1.0e-9):
            super().__init__()
            self.inner, self.outer = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)
            self.scale = torch.nn.Parameter(torch.full((4,), scale))
        def forward(self, x):
            inner = torch.tanh(self.inner(x))
            return self.outer(x) + self.scale * torch.sin(inner)
"""


def cells_of(bench, body=CASE, python=BLOCK):
    return [cell for cell in bench.cells(body, python) if cell.check == "accuracy"]


# ---- red or not ----------------------------------------------------------------------------------------------
def test_a_branch_that_does_not_reach_the_output_makes_one_cell_of_its_case_red(bench):
    records = {cell.id: bench.run_cell(cell) for cell in cells_of(bench)}
    assert all(record.coverage["of"] == 6 and record.coverage["seen"] == 2 for record in records.values())
    red = [record for record in records.values() if record.status != "passed"]
    assert [verdict(record) for record in red] == [("failed", "compare", "Hollow", "case")]
    assert "op16-onnxruntime" in red[0].id and "2 of 6 operator calls" in red[0].reason
    (first, *_) = red[0].coverage["blind"]
    assert (first["module"], first["op"], first["count"]) == ("inner", "aten.addmm", 1)
    assert first["at"].endswith("beside.py:9")
    shown = text.failure(red[0])
    assert "not seen: inner at " in shown and "aten.addmm" in shown and "weights: awake" in shown
    assert "smallest example" not in shown  # it is about no example


def test_weights_are_not_advised_of_a_module_that_has_none(bench):
    body = of_forward("x + 1e-9 * torch.sin(torch.tanh(x * 3))")
    records = [bench.run_cell(cell) for cell in cells_of(bench, body)]
    (red,) = (record for record in records if record.error == "Hollow")
    shown = text.failure(red)
    assert "awake" not in shown and "give the case inputs with which they show" in shown


def of_forward(forward, *more):
    return say(CASE, *more).replace("module: beside.Net", f"forward: {forward}")


VARIES = """
    import torch
    class Net(torch.nn.Module):
        times = 0
        def forward(self, x):
            Net.times += 1
            return x + x if Net.times % 2 else 2 * x
"""
ONE_ZERO = "outputs: [kept, {name: zero, vacuous: it is zero}]"


@pytest.mark.parametrize("body, python, coverage", [
    pytest.param(say(CASE, "with: {scale: 1.0}"), BLOCK, {"seen": 6, "of": 6, "blind": []}, id="a branch that shows"),
    pytest.param(say(CASE, "weights: awake"), BLOCK, {"seen": 6, "of": 6, "blind": []}, id="weights that are awake"),
    pytest.param(of_forward("(x * 2, x.sin() * 0)", ONE_ZERO), "", {"seen": 1, "of": 1, "blind": []},
                 id="an output that may be vacuous"),
    pytest.param(CASE, VARIES, {"seen": 0, "of": 0, "blind": [], "unknown": "varies"}, id="other calls each time"),
    pytest.param(of_forward("x.t()"), "", {"seen": 0, "of": 0, "blind": []}, id="no call that can be disturbed"),
])  # fmt: skip
def test_a_module_of_which_all_shows_that_counts_is_green_and_says_so(bench, body, python, coverage):
    record = bench.run_cell(cells_of(bench, body, python)[1])
    assert verdict(record) == PASSED and {name: record.coverage.get(name) for name in coverage} == coverage


CONSTANT = of_forward("torch.ones_like(x) * 2.0", "vacuous: it is constant")


@pytest.mark.parametrize("body, errors", [
    pytest.param(say(CASE, "hollow: its branch begins closed"), [None] * 4, id="it says why"),
    pytest.param(say(CASE, "hollow: its branch begins closed", "with: {scale: 1.0}"), [None, "NotHollow", None, None],
                 id="it says why without need"),
    pytest.param(CONSTANT, [None] * 4, id="it passes whatever comes out"),
])  # fmt: skip
def test_a_case_may_say_why_it_is_hollow_or_vacuous_if_it_is(bench, body, errors):
    records = [bench.run_cell(cell) for cell in cells_of(bench, body, BLOCK if "beside" in body else "")]
    assert [record.error for record in records] == errors
    assert [record.status for record in records] == ["failed" if error else "passed" for error in errors]


@pytest.mark.own_store  # where the whole answer is not kept
def test_a_sample_of_the_calls_does_not_say_that_nearly_all_show(bench, monkeypatch):
    monkeypatch.setattr(asked, "runs_within", lambda run: 8)
    body = say(CASE, "hollow: its branch begins closed", "with: {scale: 1.0}")
    record = bench.run_cell(cells_of(bench, body, BLOCK)[1])
    assert verdict(record) == PASSED and record.coverage == {"seen": 3, "of": 3, "blind": [], "calls": 6}


def test_a_cell_that_is_declared_to_fail_does_not_answer_for_its_case(bench):
    fails = """
        fails:
          - {when: {runtime: onnxruntime, opset: 16}, stage: compare, because: it is said so}
    """
    answering = [cell.id for cell in cells_of(bench, say(CASE, fails)) if asked.answers(cell)]
    assert len(answering) == 1 and "op17-onnxruntime" in answering[0]


# ---- which calls count ---------------------------------------------------------------------------------------
@pytest.mark.parametrize("forward, calls", [
    ("x.relu_().mul(2) if False else x.clone().relu_()", ["aten.relu_"]),
    ("torch.nn.functional.dropout(x, training=False) * 2", ["aten.mul"]), ("(x * x).view(-1).t()", ["aten.mul"]),
    ("x + torch.arange(4.0)", ["aten.add"]), ("torch.zeros_like(x) + x", ["aten.add"]),
    ("x.gather(1, torch.topk(x, 2, dim=1).indices)", ["aten.gather"]),
    ("(torch._assert_async((x.abs().sum() >= 0)), x * 2)[1]", ["aten.mul"]),
    ("(x > 0).flip(0).long()", []),
])  # fmt: skip
def test_calls_that_compute_no_values_of_an_output_do_not_count(forward, calls):
    assert [site.op for site in run_of(forward).sites] == calls


def run_of(forward):
    """The recorded run of an expression over ``x``."""
    module = module_of(forward)
    with recording(module) as run:
        module(torch.ones(3, 4))
    return run


def module_of(forward):
    scope = {"torch": torch}
    exec(f"def forward(self, x):\n    return {forward}", scope)
    return type("Net", (torch.nn.Module,), {"forward": scope["forward"]})()


def covered(forward, x, allowed=1e-5):
    """What is seen of an expression at one input by an absolute tolerance."""
    module = module_of(forward)

    def run():
        return [module(torch.from_numpy(x.copy())).numpy()]

    (wanted,) = run()
    trial = CoverageTrial(
        run, [wanted], lambda got: not np.allclose(got[0], wanted, rtol=0, atol=allowed, equal_nan=True)
    )
    return measure(module, [trial], lambda run: 1000)


VALUES = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)


@pytest.mark.parametrize("forward", [
    "x.clone().mul_(2).relu_()",  # what an in-place operator has written is disturbed
    "x.clone().t()[0].mul_(2).sum()",
    "torch.softmax(x * 3, 1)",
    "torch.nn.functional.layer_norm(x * 3, (4,))",  # takes a factor and a shift out again, and no noise
    "torch.softmax(x + torch.where(x > 0, 0.0, -float('inf')), 1)",  # of zeros and infinities there is no tenth
    "torch.nn.functional.batch_norm(x, x.mean(0), x.var(0))",
    "torch.complex(x, x).abs()",
    "torch.where(x.sum(0) > 0.1, x, 0.0)",  # a tenth of what only decides may rightly change nothing
    "torch.cond(x.sum() != 0, lambda y: y * 2, lambda y: y * 3, (x,))",
])  # fmt: skip
def test_sound_calls_are_all_seen(forward):
    found = covered(forward, VALUES)
    assert found.seen and found.blind == ()


def test_what_a_tenth_changes_less_than_is_allowed_is_not_seen():
    found = covered("x + 1e-3 * torch.sin(x)", VALUES, allowed=5e-4)
    assert {site.op for site in found.blind} == {"aten.sin", "aten.mul"}
    assert {site.op for site in found.seen} == {"aten.add"}


def test_a_loop_that_a_wrong_value_keeps_from_ending_is_seen():
    class Net(torch.nn.Module):
        def forward(self, x):
            while float(x.abs().max()) < 100:
                x = x * 2
            return x

    module, x = Net(), torch.from_numpy(VALUES)
    trial = CoverageTrial(lambda: [module(x).numpy()], [module(x).numpy()], lambda got: True)
    found = measure(module, [trial], lambda run: 1000)
    assert len(found.seen) == found.calls and not found.blind


def test_another_comparison_on_the_same_draw_takes_the_runs_that_were_made():
    module, x = module_of("torch.sqrt(x) * 2"), torch.from_numpy(np.abs(VALUES))
    wanted = module(x).numpy()
    runs = []

    def run():
        runs.append(module(x).numpy())
        return [runs[-1]]

    def seen(notices, zeroed):
        return measure(
            module, [CoverageTrial(run, [wanted], lambda got: notices, zeroed=zeroed)], lambda run: 100, ()
        ).seen

    zeroed = Zeroed()
    assert len(seen(True, zeroed)) == 2
    made = len(runs)
    assert seen(False, zeroed) == seen(False, Zeroed()) == ()
    # and one each in which it is seen what Python called, since nothing showed
    assert len(runs) == 2 * made + 2, "those of the last one alone"


def filters(*shape):
    """The filters of a convolution as an expression."""
    return f"torch.linspace(-1, 1, {math.prod(shape)}).reshape{shape}"


PRODUCTS = (
    f"torch.conv2d(torch.relu_(torch.conv2d(x, {filters(16, 3, 3, 3)})), {filters(16, 16, 3, 3)}).relu_().mul_(2)"
    ".movedim(1, -1).reshape(-1, 16)"
)


def test_costly_calls_before_the_disturbed_one_are_not_computed_again_and_change_nothing(monkeypatch):
    module, x = module_of(f"torch.zeros(1152, 16).addmm_({PRODUCTS}, torch.eye(16))"), torch.rand(2, 3, 28, 28)

    def run():
        return [module(x).numpy()]

    monkeypatch.setattr(operator_calls, "COSTLY", 1)
    with recording(module) as with_products:
        (wanted,) = run()
    assert [with_products.ops[index] for index in with_products.products] == ["aten.convolution"] * 2
    without = dataclasses.replace(with_products, products={})
    for index in with_products.sites.values():
        given = []
        for recorded in (with_products, without):
            with Disturbed(recorded, index, "noise") as mode:
                given += run()
            assert not mode.off_course
        assert np.array_equal(*given) and not np.array_equal(given[0], wanted), with_products.ops[index]


def test_a_large_module_is_asked_about_in_part():
    forward = "x" + " * 1.1" * 40
    module = module_of(forward)
    x = torch.from_numpy(VALUES)
    trial = CoverageTrial(lambda: [module(x).numpy()], [module(x).numpy()], lambda got: True)
    found = measure(module, [trial], lambda run: 25)
    assert (len(found.seen), found.calls) == (10, 40)


# ---- what cannot be said -------------------------------------------------------------------------------------
def test_a_case_with_another_tolerance_is_asked_anew_and_an_unchanged_one_is_not(bench, monkeypatch):
    cells = cells_of(bench)
    first = bench.run_cell(cells[0])
    _kept.clear()  # as in another process
    monkeypatch.setattr(asked, "measure", lambda *_: pytest.fail("measured again"))
    assert bench.run_cell(cells[1]).coverage == first.coverage
    monkeypatch.setattr(asked, "measure", lambda *_: Covered((), (), 0))
    loose = "tolerance: {fp32: {atol: 0.5, because: another one}}"
    assert bench.run_cell(cells_of(bench, say(CASE, loose))[1]).coverage["of"] == 0
    _kept.clear()
    assert bench.run_cell(cells[1], suite="under another version of torch").coverage["of"] == 0


def test_weights_come_from_a_file_beside_the_case(bench, tmp_path):
    (cell, *_) = cells_of(bench, say(CASE, "weights: own.pt"))
    state = {
        "inner.weight": torch.eye(4), "inner.bias": torch.zeros(4), "outer.weight": torch.eye(4),
        "outer.bias": torch.ones(4), "scale": torch.ones(4),
    }  # fmt: skip
    torch.save(state, cell.case.folder / "own.pt")
    record = bench.run_cell(cell)
    assert verdict(record) == PASSED and record.coverage["seen"] == 6
    assert cell.case.folder.resolve() / "own.pt" in files(cell.case)  # editing it exports again


@pytest.mark.parametrize("name, content, error", [
    ("own.pt", None, "MissingFile"), ("own.pt", b"no weights", "WrongWeights"),
    ("own.safetensors", b"", "MissingPackage"),
])  # fmt: skip
def test_a_file_without_the_weights_is_the_fault_of_the_case(bench, monkeypatch, name, content, error):
    for package in ("safetensors", "safetensors.torch"):
        monkeypatch.setitem(sys.modules, package, None)  # as where it is not installed
    (cell, *_) = cells_of(bench, say(CASE, f"weights: {name}"))
    if content is not None:
        (cell.case.folder / name).write_bytes(content)
    assert verdict(bench.run_cell(cell)) == ("failed", "declare", error, "case")


def test_a_converted_model_is_asked_by_zeroing_alone_and_answers_for_nothing(bench):
    body = say(CASE, "precisions: {fp16: {}}").replace("[16, 17]", "[17]")
    (cell,) = [cell for cell in cells_of(bench, body) if cell.converted and cell.runtime == "onnxruntime"]
    record = bench.run_cell(cell)
    assert verdict(record) == PASSED and not asked.answers(cell)
    assert record.coverage["of"] == 6 and record.coverage["seen"] == 2


# ---- submodules that no output shows -------------------------------------------------------------------------
CLOSED = """
    import torch
    class Block(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = torch.nn.Linear(4, 4)
        def forward(self, x):
            return torch.sigmoid(self.inner(x))
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.block, self.outer = Block(), torch.nn.Linear(4, 4)
            self.scale = torch.nn.Parameter(torch.full((4,), 1.0e-9))
        def forward(self, x):
            return self.outer(x) + self.scale * self.block(x)
    def symbolic(g, x):
        return g.op("Tanh", x)
"""
WHY = "hollow: its block begins closed"


FOLDED = (
    CLOSED.replace(
        "self.inner = torch.nn.Linear(4, 4)",
        "self.inner = Sequential(torch.nn.Conv1d(4, 4, 1), torch.nn.BatchNorm1d(4))",
    )
    .replace("self.inner(x)", "self.inner(x[:, :, None])[:, :, 0]")
    .replace("import torch\n", "import torch\n    from torch.nn import Sequential\n", 1)
)


def closed(bench, *more, python=CLOSED):
    body = CASE.replace("export: {torchscript: [16, 17]}", "")
    return [bench.run_cell(cell) for cell in cells_of(bench, say(body, *more), python)]


def test_a_submodule_that_no_output_shows_is_compared_itself(bench):
    records = closed(bench, WHY, "export: {torchscript: [17], dynamo: [20]}")
    assert [verdict(record) for record in records] == [PASSED] * 4
    for record in records:
        states = {state["module"]: state["tensor"] for state in record.coverage["hidden"]}
        assert states == {"block": "agrees", "block.inner": "agrees"}


def test_a_submodule_that_is_folded_into_another_is_not_called_right(bench):
    (record, *_) = closed(bench, WHY, "export: {torchscript: [17]}", python=FOLDED)
    states = {state["module"]: state["tensor"] for state in record.coverage["hidden"]}
    assert states == {"block": "agrees", "block.inner": "agrees", "block.inner.0": None, "block.inner.1": "agrees"}


def test_what_is_wrong_in_it_is_the_exporters_fault_though_outputs_agree(bench):
    records = closed(bench, WHY, with_symbolic("aten::sigmoid"))
    assert [verdict(record) for record in records] == [("failed", "compare", "WrongInside", "exporter")] * 2
    assert "block" in records[0].reason and "Tanh" in records[0].reason
    assert [(record.bundle, record.no_bundle) for record in records] == [(None, "inside")] * 2
    told = "no bundle could be left: a replay compares outputs, which show nothing of this"
    assert any(line.startswith(told) for line in details(records[0]))
    assert {state["module"]: state["tensor"] for state in records[0].coverage["hidden"]} == {
        "block": "differs", "block.inner": "agrees"
    }  # fmt: skip


@pytest.mark.own_store
def test_what_a_hidden_submodule_returns_is_compared_once_for_an_unchanged_model(bench, monkeypatch):
    first = closed(bench, WHY, with_symbolic("aten::sigmoid"))
    _kept.clear()  # as in another process
    monkeypatch.setattr(hidden, "follow", lambda *_: pytest.fail("compared again"))
    assert [r.coverage["hidden"] for r in closed(bench, WHY, with_symbolic("aten::sigmoid"))] == [
        record.coverage["hidden"] for record in first
    ]  # fmt: skip
    _kept.clear()
    assert closed(bench, WHY)[0].coverage["hidden"][0]["tensor"] is None, "another model was not compared"


def test_a_case_that_declares_its_tolerance_is_told_alone(bench):
    loose = "tolerance: {fp32: {atol: 0.001, because: sigmoid is a table}}"
    records = closed(bench, WHY, with_symbolic("aten::sigmoid"), loose)
    assert {record.status for record in records} == {"passed"}
    assert records[0].coverage["hidden"][0]["tensor"] == "differs"


@pytest.mark.own_store
def test_a_comparison_that_cannot_be_made_fails_nothing(bench, monkeypatch):
    monkeypatch.setattr(hidden, "follow", lambda *_: 1 / 0)
    (record, *_) = closed(bench, WHY, "export: {torchscript: [17]}")
    assert verdict(record) == PASSED and [state["tensor"] for state in record.coverage["hidden"]] == [None, None]
    assert "ZeroDivisionError" in record.coverage["hidden"][0]["why"]


def test_a_red_hollow_says_which_submodules_were_compared_themselves(bench):
    (red,) = [record for record in closed(bench, "export: {torchscript: [17]}") if record.status == "failed"]
    assert red.error == "Hollow"
    assert "no output shows anything of block; what it returns in the graph agrees" in text.failure(red)


NARROW = say(
    'inputs: {x: {type: "float32[batch, 4]", values: {uniform: {low: 0.1, high: 1}}}}', "dims: {batch: 1..4}",
    "specials: false", "runtimes: onnxruntime", "export: {torchscript: 17}", "hollow: a test",
)  # fmt: skip


@pytest.mark.parametrize("forward, beyond", [
    ("torch.where(x > 5, x.sin(), x * 2)", ["aten.sin", "aten.where"]),
    ("torch.clamp(x, max=6.0) * 2", ["aten.clamp"]),  # which does nothing there, and would not be missed
    ("F.relu(x) * 2", ["aten.relu"]),
    ("torch.where(x > 0.5, x.sin(), x * 2)", None),
    ("torch.clamp(x, max=0.5) * 2", None),
    ("x * 1.0 + x", None),  # does nothing anywhere
    ("torch.where(x > 5, x.sin(), x * 2) + torch.log(1.01 - x)", None),  # which takes nothing there
])  # fmt: skip
def test_what_shows_only_beyond_the_declared_values_is_named(bench, forward, beyond):
    cell = bench.cell(say(f'forward: "{forward}"', NARROW))
    told = bench.run_cell(cell).coverage
    found = told.get("beyond")
    assert (found and [entry["op"] for entry in found]) == beyond, told


def test_a_hollow_case_says_what_values_would_show_more(bench):
    body = say("forward: torch.where(x > 5, torch.tanh(x.sin()), x)", NARROW).replace("hollow: a test", "")
    (red,) = (bench.run_cell(cell) for cell in bench.cells(body) if cell.check == "accuracy")
    assert red.error == "Hollow"
    (line,) = (line for line in details(red) if "beyond" in line)
    assert "raise `high`" in line and line.endswith(": aten.sin, aten.tanh, aten.where")
    (told,) = (line for line in least([red]) if "aten.tanh" in line)
    assert told.startswith("  planted: aten.sin at ")


OWN_CALLS = "(x - y).abs() <= 0.5 + 1e-5 * y.abs()"


@pytest.mark.parametrize("forward, left", [
    pytest.param("torch.isclose(x, y, atol=0.5)", [], id="one call, whose result is no float"),
    pytest.param(OWN_CALLS, ["sub", "abs", "abs", "mul", "add"], id="the same in calls of its own"),
    pytest.param("torch.cosine_similarity(x, y, 1) * 1e-9 + x[:, 0]", ["sum", "mul", "add"], id="its last call"),
    pytest.param("torch.trapezoid(x)", None, id="what exporters take apart"),
])  # fmt: skip
def test_an_operator_that_exporters_translate_as_a_whole_is_one_call(forward, left):
    class Net(torch.nn.Module):
        def forward(self, x, y):
            return eval(forward)

    net, given = Net(), (torch.rand(2, 4), torch.rand(2, 4))
    with recording(net) as run:
        net(*given)
    parts = parts_of_composites(lambda: net(*given), run)
    ops = [site.op.partition(".")[2] for site in run.sites if site not in parts]
    assert ops == left if left is not None else len(ops) > 1 and not parts


@pytest.mark.thorough
@pytest.mark.parametrize("forward, error", [("torch.isclose(x, y, atol=0.5)", None), (OWN_CALLS, "Hollow")])
def test_a_module_of_one_such_call_is_not_hollow(bench, forward, error):
    body = say(f'forward: "{forward}"', 'inputs: {x: "float32[batch, 4]", y: "float32[batch, 4]"}',
               "dims: {batch: 1..4}", "specials: false", "runtimes: onnxruntime", "export: {dynamo: 20}")  # fmt: skip
    cell = bench.cell(body)
    assert bench.run_cell(cell).error == error
