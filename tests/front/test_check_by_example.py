"""``conformance.check`` of examples in place of types, and of files; what its result and its errors say."""

import html.parser
import json
import re
import subprocess
import sys
import textwrap
import traceback
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper

import conformance
from tests.kit.runs import ROOT, run_command

QUICK = {
    "examples": {"shapes": 1, "values": 2}, "export": {"torchscript": [17]}, "runtimes": "onnxruntime",
    "specials": False,
}  # fmt: skip


NOWHERE = "onnxruntime-directml"
"""A runtime of Windows alone."""


def normal(*shape: int) -> torch.Tensor:
    """Normal values of both signs, the same in each session: of positive ones alone a range would be taken."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))


class Line(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.line = torch.nn.Linear(8, 3)

    def forward(self, x):
        return self.line(x)


class Table(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = torch.nn.Embedding(30, 4)

    def forward(self, ids, scale=None, shown=None):
        rows = self.table(ids)
        rows = rows if scale is None else rows * scale
        return rows if shown is None else torch.where(shown[..., None], rows, 0.0)


class Pair(torch.nn.Module):
    def forward(self, x, y):
        return x + 1, y * 2


class Nested(torch.nn.Module):
    def forward(self, pair, by_name):
        return pair[0] - pair[1] * by_name["weight"]


class Fixed(torch.nn.Module):
    """Runs at one size of the batch alone."""

    def forward(self, x):
        return x.reshape(2, 8).relu()


class Counts(torch.nn.Module):
    """Exported wrongly for all batches but that of the example, if it is of two."""

    def __init__(self, wrong: bool) -> None:
        super().__init__()
        self.wrong = wrong

    def forward(self, x):
        return x + (int(x.shape[0]) if self.wrong else x.shape[0])


class Choosy(torch.nn.Module):
    """Takes no other values than ones."""

    def forward(self, x):
        assert bool((x == 1).all()), "only ones"
        return x * 2


class Shown(html.parser.HTMLParser):
    """The text that a page shows, and the tags that it is made of."""

    def __init__(self, markup: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.text = ""
        self.feed(markup)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)

    def handle_data(self, data):
        self.text += data


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """Stores are made in the current folder."""
    monkeypatch.chdir(tmp_path)


def save(file: str, operator: str = "Relu") -> str:
    shape = ("batch", 3)
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in "xy"]
    graph = helper.make_graph([helper.make_node(operator, ["x"], ["y"])], "g", values[:1], values[1:])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), file)
    return file


def refused(error: type[Exception], *given, **keys) -> str:
    """The text of a refusal, of whose traceback one frame is the suite's."""
    with pytest.raises(error) as raised:
        conformance.check(*given, **{**QUICK, **keys})
    frames = traceback.extract_tb(raised.value.__traceback__)
    assert [frame.name for frame in frames if "/conformance/" in frame.filename] == ["check"]
    assert raised.value.__cause__ is None and raised.value.__suppress_context__
    return str(raised.value)


# ---- examples --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("module, given, inputs, dims", [
    (Line(), (normal(2, 8),), {"x": "float32[batch, 8]"}, {"batch": "1..6"}),
    (Line(), (np.arange(-8, 8, dtype=np.float32).reshape(2, 8),), {"x": "float32[batch, 8]"}, {"batch": "1..6"}),
    (Line().half(), (normal(3, 8).half(),), {"x": "float16[batch, 8]"}, {"batch": "1..7"}),
    (Pair(), (normal(2, 3), normal(2, 5)),
     {"x": "float32[batch, 3]", "y": "float32[batch, 5]"}, {"batch": "1..6"}),
    (Pair(), (normal(2, 3), normal(4, 3)),
     {"x": "float32[batch, 3]", "y": "float32[batch2, 3]"}, {"batch": "1..6", "batch2": "1..8"}),
    (Pair(), (torch.tensor(-1.0), normal(2)), {"x": "float32[]", "y": "float32[batch]"}, {"batch": "1..6"}),
    (Table(), (torch.tensor([[3, 9], [0, 4]]),),
     {"ids": {"type": "int64[batch, 2]", "values": {"integers": {"low": 0, "high": 29}}}}, {"batch": "1..6"}),
    (Table(), (torch.tensor([[3, 9], [0, 4]]), None, torch.tensor([[True, False], [True, True]])),
     {"ids": {"type": "int64[batch, 2]", "values": {"integers": {"low": 0, "high": 29}}},
      "shown": {"type": "bool[batch, 2]", "as": "shown"}}, {"batch": "1..6"}),
    (Nested(), ((normal(2, 3), normal(2, 3)), {"weight": normal(3)}),
     {"pair": {"tuple": ["float32[batch, 3]", "float32[batch, 3]"]}, "by_name": {"dict": {"weight": "float32[3]"}}},
     {"batch": "1..6"}),
    (Line(), (normal(8),), {"x": "float32[8]"}, {}),
    (Fixed(), (normal(2, 8),), {"x": "float32[2, 8]"}, {}),
], ids=["float", "numpy", "half", "shared", "apart", "0-d", "index", "bool", "nested", "one", "held"])  # fmt: skip
def test_types_come_from_examples_and_their_first_size_varies(module, given, inputs, dims):
    """And the text says so, as arguments that give the same result."""
    result = conformance.check(module, *given, **QUICK)
    assert result and result.not_isolated is None
    said = f"assumed of the examples: inputs={inputs!r}" + (f", dims={dims!r}" if dims else "; no size varies")
    assert said in repr(result), repr(result)
    again = conformance.check(module, inputs=inputs, dims=dims, **QUICK)
    assert again and [record.examples for record in again] == [record.examples for record in result]


@pytest.mark.parametrize("module, inputs", [
    (Line(), {"x": normal(2, 8)}), (Line(), {"pixels": normal(2, 8)}),
    (torch.nn.Linear(8, 3), {"x": np.ones((2, 8), np.float32)}),
    (Table(), {"shown": torch.tensor([[True]]), "ids": torch.tensor([[3]])}),
])  # fmt: skip
def test_examples_have_the_names_of_parameters_or_stand_in_their_order(module, inputs):
    result = conformance.check(module, inputs=inputs, **QUICK)
    assert result and all(f"'{name}': " in repr(result) for name in inputs), repr(result)


def test_examples_by_position_and_by_name_stand_beside_each_other():
    result = conformance.check(Table(), torch.tensor([[3]]), inputs={"shown": torch.tensor([[True]])}, **QUICK)
    assert result and "'shown': {'type': 'bool[batch, 1]', 'as': 'shown'}" in repr(result)


def test_a_defect_that_the_example_does_not_show_is_found_at_another_size():
    assert conformance.check(Counts(wrong=False), normal(2, 3), **QUICK)
    with pytest.raises(AssertionError, match="the TorchScript exporter keeps what it saw") as raised:
        conformance.check(Counts(wrong=True), normal(2, 3), **QUICK)
    assert "\nassumed of the examples: inputs={'x': 'float32[batch, 3]'}, dims={'batch': '1..6'}" in str(raised.value)
    result = raised.value.result
    assert not result and len(result) == 2 and "failed" in {record.status for record in result}
    assert repr(result) == str(raised.value) and repr(result).startswith("───") and len(repr(result)) < 3000


def test_dims_and_keys_go_before_what_examples_show():
    result = conformance.check(Line(), normal(2, 8), dims={"batch": "3..4"}, **QUICK)
    assert result and "dims={'batch': '3..4'}" in repr(result)
    with pytest.raises(AssertionError, match="PyTorch itself raises at x") as raised:
        conformance.check(Fixed(), normal(2, 8), dims={"batch": "3..4"}, **QUICK)
    assert "inputs={'x': 'float32[batch, 8]'}, dims={'batch': '3..4'}" in str(raised.value)


def test_a_module_that_stays_in_this_process_takes_examples_and_leaves_everything_as_it_was():
    class Local(Table):
        """With a closure, which cannot be pickled."""

        def __init__(self):
            super().__init__()
            self.double = lambda x: x * 2

        def forward(self, ids):
            return self.double(self.table(ids))

    module, ids = Local(), torch.tensor([[3, 9]])
    state, seeded = {name: value.clone() for name, value in module.state_dict().items()}, torch.get_rng_state()
    result = conformance.check(module, ids, **QUICK)
    assert result and "pickled" in str(result.not_isolated) and "'high': 29" in repr(result)
    assert module.training and all(torch.equal(value, state[name]) for name, value in module.state_dict().items())
    assert torch.equal(torch.get_rng_state(), seeded) and torch.equal(ids, torch.tensor([[3, 9]]))


# ---- wrong use -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error, module, given, keys, text", [
    (TypeError, Line(), (), {}, "an example of each input, or types: conformance.check(module, torch.randn(2, 8))"),
    (TypeError, "torch.nn.ReLU", (), {}, "nothing says what forward takes"),
    (TypeError, "torch.nn.ReLU", (torch.ones(2),), {}, "pass torch.nn.ReLU(...) in place of 'torch.nn.ReLU'"),
    (TypeError, torch.relu, (torch.ones(2),), {}, "call it in the forward of a module"),
    (TypeError, torch.ones(2), (Line(),), {}, "the module comes first: conformance.check(module, x)"),
    (TypeError, Line, (torch.ones(2, 8),), {}, "got the class Line; build it first: conformance.check(Line(...)"),
    (TypeError, Pair(), (torch.ones(2),), {}, "Pair.forward takes (x, y): missing a required argument: 'y'; give an "
     "example of each: conformance.check(module, x, y)"),
    (TypeError, Line(), (torch.ones(2, 8),) * 2, {}, "too many positional arguments"),
    (TypeError, Line(), (), {"inputs": [torch.ones(2, 8)]}, 'a mapping from names, not list, as in inputs={"x": x}'),
    (TypeError, Pair(), (torch.ones(2),), {"inputs": {"yy": torch.ones(2)}}, "takes no 'yy'; did you mean 'y'?"),
    (ValueError, Pair(), (), {"inputs": {"x": torch.ones(2), "y": "float32[2]"}}, "x is an example, and y is declar"),
    (ValueError, Line(), (torch.ones(2, 8, dtype=torch.complex64),), {}, "x is a complex tensor, which a case can"),
    (ValueError, Line(), (torch.ones(2, 8).bfloat16(),), {}, "x is of bfloat16, which a case of a module cannot say"),
    (ValueError, Line(), (torch.ones(2, 8, device="meta"),), {}, "x is a meta tensor"),
    (TypeError, Line(), (np.array([None]),), {}, "an example cannot be made a tensor: TypeError: can't convert"),
    (ValueError, Line(), (object(),), {}, "x is a object"),
    (ValueError, Line(), (torch.ones(2, 7),), {}, "(2x7 and 8x3); say types and values yourself, beginning with "
     "inputs={'x': {'type': 'float32[batch, 7]'"),
    (ValueError, Choosy(), (torch.ones(2, 7),), {}, "with inputs that are drawn it raises AssertionError: only ones"),
    (ValueError, Line(), (normal(2, 8),), {"dims": {"seq": "1..4"}}, "no input, range or condition uses the dim "
     "'seq'\n  assumed of the examples: inputs={'x': 'float32[batch, 8]'}"),
    (ValueError, Line(), (normal(2, 8),), {"dims": {"batch": "4..1"}}, "batch: '4..1': 4 is larger than 1"),
    (ValueError, Line(), (normal(2, 8),), {"dims": ["batch"]}, "dims has to be a mapping, not a list"),
    (ValueError, Line(), (normal(2, 8),), {"dim": {}}, "unknown key 'dim'; did you mean 'dims'"),
])  # fmt: skip
def test_wrong_use_is_a_sentence_that_says_what_to_pass(error, module, given, keys, text):
    said = refused(error, module, *given, **keys)
    assert text in said and len(said.splitlines()) <= 3, said


def test_a_refusal_leaves_no_folder_behind(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    refused(ValueError, Line(), normal(2, 8), dim={})
    assert not [*tmp_path.glob("conformance-check-*")]


# ---- programs --------------------------------------------------------------------------------------------------


@pytest.mark.thorough
def test_whole_numbers_of_a_program_are_declared_as_its_refusal_says():
    batch = torch.export.Dim("batch", min=1, max=8)
    program = torch.export.export(Table(), (torch.tensor([[3, 9], [0, 4]]),), dynamic_shapes={"ids": {0: batch}})
    keys = {name: QUICK[name] for name in ("examples", "runtimes", "specials")}
    with pytest.raises(ValueError, match=r"the program does not say which: give inputs, such as inputs=\{'ids'"):
        conformance.check(program, **keys)
    ids = {"values": {"integers": {"low": 0, "high": 29}}}
    (name,) = program.range_constraints
    ids["type"] = f"int64[{name}, 2]"
    assert conformance.check(program, inputs={"ids": ids}, **keys)
    with pytest.raises(TypeError, match="this ExportedProgram says itself what it takes; leave the examples out"):
        conformance.check(program, torch.tensor([[3, 9]]), **keys)


# ---- files -----------------------------------------------------------------------------------------------------


def test_a_file_runs_as_the_command_runs_it():
    result = conformance.check(save("net.onnx"), examples={"shapes": 0, "values": 1})
    assert result and {record.exporter for record in result} == {"onnx"}, repr(result)
    lines = repr(result).splitlines()
    assert lines[0].startswith("right: onnxruntime in fp32, fp16") and lines[-1] == "sizes: batch 1..8"
    told = run_command(Path.cwd(), "check", "net.onnx", "--examples", "0", "--output", "json=told.json")
    (model,) = json.loads(Path("told.json").read_text())["models"]
    assert {cell["id"]: cell["status"] for cell in model["records"]} == {one.id: one.status for one in result}
    assert told.code == 0 and lines[0] in told.text.splitlines()


def test_keys_of_a_case_go_before_what_a_file_says():
    keys = {"dims": {"batch": "2..3"}, "runtimes": "onnxruntime", "examples": {"shapes": 0, "values": 1}}
    result = conformance.check(Path(save("net.onnx")), name="mine", precisions={}, **keys)
    assert result and repr(result).endswith("sizes: batch 2..3")
    assert {record.id for record in result} == {"export[mine-onnx-op17]", "accuracy[mine-onnx-op17-onnxruntime-fp32]"}
    with pytest.raises(AssertionError, match="there is nothing to quantize") as raised:  # which was asked for
        conformance.check("net.onnx", precisions={"int8": {}}, **keys)
    assert not raised.value.result and {one.precision for one in raised.value.result} == {"fp32", "int8"}


@pytest.mark.parametrize("file, given, keys, text", [
    ("gone.onnx", (), {}, "gone.onnx cannot be read: No such file or directory"),
    ("junk.onnx", (), {}, "junk.onnx: the file is cut off, or is no ONNX model"),
    ("net.onnx", (torch.ones(2, 3),), {}, "net.onnx itself says what its inputs are, and takes no examples"),
    ("net.onnx", (), {"inputs": {"x": torch.ones(2, 3)}}, "takes no examples"),
    ("net.onnx", (), {"dim": {}}, "unknown key 'dim'; did you mean 'dims'?"),
    ("net.onnx", (), {"isolated": False}, "leave isolated=False out"),
    (Path(), (), {}, ". is a folder; name one of its files, or run: conformance check ."),
])  # fmt: skip
def test_files_that_cannot_be_checked_are_refused(file, given, keys, text):
    save("net.onnx")
    Path("junk.onnx").write_text("junk")
    with pytest.raises(ValueError) as raised:
        conformance.check(file, *given, **keys)
    assert text in str(raised.value) and "Traceback" not in str(raised.value)


# ---- results ---------------------------------------------------------------------------------------------------


def test_a_result_prints_as_what_a_person_reads_and_is_true_where_all_is_right(capsys):
    result = conformance.check(Line(), normal(2, 8), **QUICK)
    print(result)
    text = capsys.readouterr().out.rstrip("\n")
    assert text == repr(result) == str(result) and len(text.splitlines()) == 2
    assert re.match(r"right: Line: torchscript opset 17 in ONNX Runtime fp32, \d+ examples\n", text), text
    assert bool(result) and isinstance(result, list) and {record.status for record in result} == {"passed"}
    assert len(repr(result[:])) > 1000  # of the plain list


def test_a_notebook_shows_the_same_text_and_nothing_in_it_acts():
    class Hostile(torch.nn.Module):
        def forward(self, x):
            raise RuntimeError("<script>alert(1)</script> & <b>bold</b> \x1b[2J")

    with pytest.raises(AssertionError) as raised:
        conformance.check(Hostile(), inputs={"x": "float32[3]"}, **QUICK)
    result = raised.value.result
    shown = Shown(result._repr_html_())
    assert shown.tags == ["pre"] and shown.text == repr(result)
    assert "<script>" in shown.text and "\x1b" not in shown.text


def test_what_failed_as_declared_and_what_was_skipped_is_said():
    fails = {"stage": "export", "error": "RuntimeError", "because": "planted"}

    class Raises(torch.nn.Module):
        def forward(self, x):
            if torch.onnx.is_in_onnx_export():
                raise RuntimeError("planted")
            return x * 2

    result = conformance.check(Raises(), normal(2), **{**QUICK, "fails": [fails]})
    assert result and repr(result).startswith("failed as declared: export[Raises-torchscript-op17], accuracy["), (
        result
    )
    result = conformance.check(Line(), normal(2, 8), **{**QUICK, "runtimes": ["onnxruntime", NOWHERE]})
    assert repr(result).splitlines()[1].startswith(f"NOT RUN: {NOWHERE}, 1 cells skipped: "), result
    assert result and NOWHERE not in repr(result).splitlines()[0]
    with pytest.raises(AssertionError, match="nothing was compared"):
        conformance.check(Line(), normal(2, 8), **{**QUICK, "runtimes": NOWHERE, "needs": "no_such_package"})


CELL = """
import torch, conformance

class Own(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.line = torch.nn.Linear(8, 3)

    def forward(self, x):
        return self.line(x)

result = conformance.check(Own(), torch.randn(2, 8), export={"torchscript": [17]}, runtimes="onnxruntime",
                           specials=False, examples={"shapes": 0, "values": 1})
print(result)
"""


@pytest.mark.thorough
@pytest.mark.parametrize("place", ["script", "notebook"])
def test_modules_of_a_script_and_of_a_notebook_are_checked(tmp_path, place, monkeypatch):
    """A script needs no guard; the file of a notebook's cell is not there."""
    cell = CELL if place == "script" else f"exec(compile({CELL!r}, '<ipython-input-1>', 'exec'), globals())"
    (tmp_path / "script.py").write_text(textwrap.dedent(cell), encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    done = subprocess.run([sys.executable, "script.py"], capture_output=True, text=True, check=True, timeout=300)
    assert done.stdout.startswith("right: Own: torchscript opset 17 in ONNX Runtime fp32"), done.stdout + done.stderr
    assert done.stdout.count("right: ") == 1
