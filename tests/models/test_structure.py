"""Inputs that are lists, tuples, mappings, objects and constants."""

import textwrap

import onnx
import pytest

from conformance.case.files.case_file import load
from conformance.case.files.python import Folder
from conformance.case.plan.catalogue import plan
from conformance.models.kept.inventory import said
from conformance.models.reference.module_reference import ModuleReference
from tests.kit.cases import PASSED, load_case, problems_of, say, verdict, with_symbolic
from tests.kit.modules import net_of

NESTED = """
    module: beside.Net
    inputs:
      images: ["float32[3, h, w]", "float32[3, h2, w]"]
      past: {layers: 2, of: {key: "float32[batch, 4, p]", value: "float32[batch, 4, p]"}}
      pair: {tuple: ["float32[batch, 4]", {type: "int64[batch]", values: {integers: {low: 0, high: 3}}}]}
      mask: null
      use_cache: {constant: true}
      scale: {constant: 0.5}
      kind: {constant: torch.float32}
      holder: {new: beside.Holder, with: {a: "float32[batch, 2]"}}
    dims: {batch: 1..3, p: 1..4, h: 2..4, h2: 2..4, w: 2..3}
    runtimes: [onnxruntime]
"""
NET = """
    import dataclasses
    import torch
    @dataclasses.dataclass
    class Holder:
        a: torch.Tensor
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.line = torch.nn.Linear(4, 2)
        def forward(self, images, past, pair, holder, mask=None, use_cache=False, scale=1.0, kind=None):
            assert isinstance(images, list) and isinstance(pair, tuple) and kind is torch.float32
            x = sum(image.sum() for image in images)
            keys = sum((layer["key"] * layer["value"]).sum(-1) for layer in past)
            y = self.line(pair[0] + torch.sin(keys)) * scale
            if use_cache and mask is None:
                y = y + x * 0.1
            return y + holder.a, pair[1] + 1
"""
FLAT = [
    "images.0", "images.1", "past.0.key", "past.0.value", "past.1.key", "past.1.value", "pair.0", "pair.1",
    "holder.a",
]  # fmt: skip


def test_every_kind_of_input_passes_in_both_exporters_under_the_names_of_its_paths(bench):
    cells = [cell for cell in bench.cells(NESTED, NET) if cell.check in ("export", "accuracy")]
    assert {cell.exporter for cell in cells} == {"torchscript", "dynamo"}
    assert list(cells[0].case.says.inputs) == FLAT
    records = [bench.run_cell(cell) for cell in cells]
    assert {verdict(record) for record in records} == {PASSED}
    assert all(one.coverage["seen"] == one.coverage["of"] for one in records if one.check == "accuracy")
    graphs = [onnx.load(model).graph for model in bench.store.glob("*/model.onnx")]
    named = [[value.name for value in graph.input] for graph in graphs]
    assert [names for names in named if "holder.a" in names] == [FLAT, FLAT]


@pytest.mark.parametrize("forward, inputs", [
    ("self, x, h", "{h: {tuple: [T]}, x: T}"), ("self, x, *, h", "{x: T, h: [T]}"),
    ("self, x, *more", "{x: T, a: T, b: [T]}"), ("self, x, **words", "{x: T, h: {dict: {type: T}, as: h}}"),
])  # fmt: skip
def test_arguments_go_where_they_are_meant(bench, forward, inputs):
    names = [word.strip(" *").partition("=")[0] for word in forward.split(",")[1:] if word.strip() != "*"]
    python = f"""
        import torch
        def flat(value):
            inner = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else None
            return [value] if inner is None else [leaf for part in inner for leaf in flat(part)]
        class Net(torch.nn.Module):
            def forward({forward}):
                assert isinstance(x, torch.Tensor)
                return sum(10 ** place * leaf for place, leaf in enumerate(flat([{", ".join(names)}])))
    """
    tensors = inputs.replace("T", '"float32[3]"')
    body = say(f"module: beside.Net\ninputs: {tensors}\nspecials: false\nruntimes: onnxruntime")
    assert verdict(bench.run(body, python)) == PASSED


def test_a_module_stays_what_it_is_but_for_its_forward(bench):
    case = next(iter(bench.cells(NESTED, NET))).case
    folder = Folder.of(case.folder)
    with folder.active():
        module = ModuleReference(case, folder).module
        assert type(module).__name__ == "Net" and list(module.state_dict()) == ["line.weight", "line.bias"]
        assert [name for name, _ in module.named_modules()] == ["", "line"]


def test_another_constant_is_another_model(tmp_path):
    one, other = (load_case(tmp_path, NESTED.replace("0.5", scale), NET) for scale in ("0.5", "0.25"))
    assert said(one, "export") != said(other, "export")
    assert {cell.id for cell in plan(one)} == {cell.id for cell in plan(other)}


def test_null_takes_a_default_away_and_is_none_elsewhere(tmp_path):
    text = """
        defaults: {about: x, module: beside.Net, inputs: {a: "float32[3]", b: "float32[3]"}}
        one: {inputs: {a: null, c: null}}
    """
    file = tmp_path / "cases.yaml"
    file.write_text(textwrap.dedent(text), encoding="utf-8")
    (case,) = load(file)
    assert list(case.says.inputs) == ["b"]
    assert case.says.call == [{"name": "b", "is": {"tensor": "b"}}, {"name": "c", "is": {"constant": None}}]


@pytest.mark.parametrize("inputs, text", [
    ("{x: {constant: 1, list: []}}", "inputs: x: give one of constant and list"),
    ('{x: {layers: 0, of: "float32[3]"}}', "inputs: x: write {layers: 2, of: ...}"),
    ("{x: {list: 5}}", "inputs: x: list: 5 is no list of inputs"),
    ('{x: {tuple: ["float32[3]"], with: {}}}', "inputs: x: 'with' cannot stand beside tuple"),
    ("{x: {new: Cache}}", "inputs: x: new: 'Cache' is no name such as modules.Cache"),
    ('{x: ["float33[3]"]}', "float33"),
    ('{x: [{typ: "float32[3]"}]}', "unknown key 'typ'; did you mean 'type'"),
    ('{a: ["float32[3]"], a_0: "float32[3]"}', "are both called a_0 in Python"),
    ("{x: {values: {uniform: {low: 0, high: 1}}}}", "the key 'type' is missing"),
])  # fmt: skip
def test_what_is_no_input_is_one_sentence(tmp_path, inputs, text):
    (problem,) = problems_of(tmp_path, f"one: {{about: x, module: beside.Net, inputs: {inputs}}}")
    assert text in problem.message


@pytest.mark.parametrize("change, error, text", [
    ("holder: {new: beside.Holdr", "MissingName", "beside.py has no 'Holdr'"),
    ('extra: ["float32[3]"]\n      holder: {new: beside.Holder', "TypeError", "extra is too many"),
])  # fmt: skip
def test_what_cannot_be_called_is_the_cases_fault(bench, change, error, text):
    record = bench.run(NESTED.replace("holder: {new: beside.Holder", change), NET, check="export")
    assert verdict(record) == ("failed", "declare", error, "case") and text in record.reason


def test_a_scripted_module_takes_tensors_alone(bench):
    python = """
        import torch
        def scripted():
            return torch.jit.script(torch.nn.ReLU())
    """
    record = bench.run('module: beside.scripted\ninputs: {x: ["float32[3]"]}', python, check="export")
    assert verdict(record) == ("failed", "declare", "Scripted", "case")


BOTH = "runtimes: onnxruntime\nspecials: false\n"
ODD = """
    import dataclasses
    import torch
    @dataclasses.dataclass
    class Answer:
        logits: torch.Tensor
        rows: int
        past: list
        note: str = "no tensor"
    class Answers(torch.nn.Module):
        def forward(self, x):
            return Answer(torch.sin(x), x.shape[0], [{"key": torch.cos(x)}])
    class Sizes(torch.nn.Module):
        def forward(self, x):
            return torch.sin(x), None, x.shape[0] * 2
    class InPlace(torch.nn.Module):
        def forward(self, x, y):
            x.mul_(2)
            return torch.sin(x) + y
    class Unused(torch.nn.Module):
        def forward(self, x, y):
            return torch.sin(x)
    class First(torch.nn.Module):
        def forward(self, x):
            return torch.sin(x[0])
    class Baked(torch.nn.Module):
        def forward(self, x, y):
            return torch.sin(x) * float(y.sum())
    class Complex(torch.nn.Module):
        def forward(self, x):
            return torch.fft.fft(x)
    def symbolic(g, x):
        return g.op("Cos", x)
"""
ONE = f'inputs: {{x: "float32[batch, 4]"}}\ndims: {{batch: 1..3}}\n{BOTH}'
LISTED = f'inputs: {{x: ["float32[batch, 4]", "float32[batch, 4]"]}}\ndims: {{batch: 1..3}}\n{BOTH}'
TWO = f'inputs: {{x: "float32[batch, 4]", y: "float32[batch, 4]"}}\ndims: {{batch: 1..3}}\n{BOTH}'


@pytest.mark.parametrize("exporters, body", [
    ("torchscript dynamo", say("module: beside.Answers\nreturns: [logits, rows, past.0.key]", ONE)),
    ("torchscript", say("module: beside.Sizes", ONE)),
    ("torchscript dynamo", say("module: beside.Sizes\nreturns: [2, 0]", ONE)),
    ("torchscript dynamo", say("module: beside.InPlace\nclones: true", TWO)),
    ("torchscript", say("module: beside.Unused\nunused: [y]", TWO)),
])  # fmt: skip
def test_what_forward_changes_leaves_and_returns_passes(bench, exporters, body):
    opsets = {"torchscript": 17, "dynamo": 20}
    export = ", ".join(f"{name}: [{opsets[name]}]" for name in exporters.split())
    cells = bench.cells(say(body, f"export: {{{export}}}"), ODD)
    assert {verdict(bench.run_cell(cell, examples=4)) for cell in cells} == {PASSED}


def test_outputs_are_called_as_the_paths_of_what_is_returned(bench):
    body = say("module: beside.Answers\nreturns: [logits, rows, past.0.key]", with_symbolic("aten::sin"), ONE)
    record = bench.run(body, ODD)
    assert verdict(record) == ("failed", "compare", "WrongValue", "case")
    assert record.outputs == ["logits", "rows", "past.0.key"]
    assert bench.run(say("module: beside.Sizes\nreturns: [2, 0]", ONE), ODD).outputs == ["output_2", "output_0"]


SIZED = 'inputs: {x: "float32[n, 4]", y: "float32[2, 3]"}\ndims: {n: 1..4}'


@pytest.mark.parametrize("body, error, message", [
    (say("module: beside.Answers", ONE), "NoTensor", "forward returns a Answer where tensors are expected; returns:"),
    (say("module: beside.Answers\nreturns: [loss]", ONE), "LookupError",
     "returns: loss: there is no loss in a Answer, which has logits, rows, past, note"),
    (say("module: beside.InPlace", TWO), "ChangesInput", "clones: true hands it a clone"),
    (say("module: beside.InPlace\nunused: [y]\nclones: true", TWO), "UsedInput", "forward does use y"),
    (say("module: beside.Complex", ONE), "NoTensor", "return torch.view_as_real of them"),
    (say("module: beside.Unused", TWO), "UnusedInput", "no value drawn for y changes an output, and"),
    (say('forward: "x + y.shape[0]"', SIZED), "UnusedInput", "no value drawn for y changes an output"),
    (say("module: beside.First", LISTED), "UnusedInput", "unused: [x.1] says so"),
])  # fmt: skip
def test_what_cannot_be_is_told_with_what_to_do(bench, body, error, message):
    record = bench.run(body, ODD, check="export")
    stage = "check" if error == "UnusedInput" else "declare"
    assert verdict(record) == ("failed", stage, error, "case") and message in record.reason


@pytest.mark.parametrize("y", ['"float32[4]"', '{type: "float32[4]", values: {choice: [2]}}'])
def test_an_input_that_the_graph_lost_is_laid_to_the_exporter_where_forward_may_use_it(bench, y):
    """Of an input that has one value only nothing shows whether it is used."""
    two = f'inputs: {{x: "float32[4]", y: {y}}}'
    record = bench.run(say("module: beside.Baked", two), ODD, check="export")
    assert verdict(record) == ("failed", "check", "WrongInputs", "exporter")
    assert "lost the inputs ['y'], declared" in record.reason


@pytest.mark.parametrize("declared, message", [
    ("clones: [z]", "there is no input 'z'"), ("unused: [z]", "there is no input 'z'"),
    ("returns: [a b]", "no path into what forward returns"),
    ("clones: true\n  script: true\n  export: {torchscript: [17]}", "need a forward in Python"),
    ('inputs: {x: "complex64[4]"}', "give the real and the imaginary part"),
])  # fmt: skip
def test_mistakes_in_these_keys_are_reported_in_the_case_file(tmp_path, declared, message):
    inputs = "" if "inputs:" in declared else '  inputs: {x: "float32[4]"}\n'
    (problem,) = problems_of(tmp_path, f"a:\n  about: x\n  forward: torch.sin(x)\n{inputs}  {declared}\n")
    assert message in str(problem)


CALLING = (
    net_of('{"sum": self.line(x[0] + x[1])}', line="Linear(4, 2)")
    + """
def unit(net):
    weight = net.line.weight.data
    weight.div_(net([torch.ones(3, 4), torch.zeros(3, 4)])["sum"].abs().max())
"""
)


@pytest.mark.parametrize("weights", ["", "weights: awake"])
def test_prepare_is_given_the_module_as_its_class_has_it(bench, weights):
    """It takes lists and returns a mapping, though the exporters see a module of tensors."""
    body = """
        module: beside.Net
        prepare: beside.unit
        inputs: {x: ["float32[batch, 4]", "float32[batch, 4]"]}
        returns: [sum]
        dims: {batch: 1..3}
        specials: false
    """
    assert verdict(bench.run(say(textwrap.dedent(body), weights), CALLING)) == PASSED
