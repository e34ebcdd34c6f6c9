"""``conformance support``: the operators of a model, compared with what was measured of each."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import helper

from conformance.front.cli import main
from tests.kit.runs import run_command

NET = """
import torch
class Net(torch.nn.Module):
    def __init__(self, mode="reflect"):
        super().__init__()
        self.mode = mode
    def forward(self, x):
        y = torch.nn.functional.pad(x, (1, 1), mode=self.mode)
        y.add_(1)
        return torch.cond(y.sum() > 0, lambda part: part.sin(), lambda part: part.cos(), (y,))
class Deciding(torch.nn.Module):
    def forward(self, x):
        return x + 1 if x.sum() > 0 else x
"""
RIGHT = {"outcome": "right", "count": 2, "of": 2}
WRONG = {"outcome": "wrong", "count": 1, "of": 2, "operator": "pad.edge", "error": "WrongValue", "fault": "exporter"}
NOT_EXPORTED = {"outcome": "not exported", "count": 2, "of": 2, "operator": "planted", "error": "ConversionError"}


@pytest.fixture(autouse=True)
def inside(tmp_path, monkeypatch):
    """Each test in a folder of its own, on a wide terminal."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "119")


def table(folder: Path, **calls: dict[str, Any]) -> Path:
    """Write a table of these operators."""
    said = {"format": 1, "when": "2026-11-29", "versions": {"torch": "2.0.0"}}
    said |= {"opsets": {"torchscript": 17, "dynamo": 20}, "calls": {f"aten.{name}": of for name, of in calls.items()}}
    file = folder / "table.json"
    file.write_text(json.dumps(said), encoding="utf-8")
    return file


def program(folder: Path, *targets: str, version: int = 8, inside: tuple[str, ...] = ()) -> Path:
    """Write a saved program that calls these operators, as ``torch.export.save`` lays them out; a text that one is
    called with stands behind a bar. ``inside`` stand in a branch of the last one."""
    nodes = [node(*target.split("|")) for target in targets]
    if inside:
        branch = {"nodes": [node(*target.split("|")) for target in inside]}
        nodes[-1]["inputs"].append({"name": "", "arg": {"as_graph": {"name": "branch", "graph": branch}}})
    said = {"graph_module": {"graph": {"nodes": nodes}}, "schema_version": {"major": version, "minor": 0}}
    file = Path("net.pt2")
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("net/models/model.json", json.dumps(said | {"torch_version": "2.9.1"}))
    return file


def node(target: str, text: str | None = None) -> dict[str, Any]:
    given = [{"name": "self", "arg": {"as_tensor": {"name": "x"}}}]
    given += [{"name": "mode", "arg": {"as_string": text}}] if text else []
    frames = ("/home/net.py", 12, "forward"), ("/py/site-packages/torch/nn/functional.py", 9, "pad")
    trace = "".join(f'File "{file}", line {line}, in {name}\n' for file, line, name in frames)
    return {"target": target, "inputs": given, "metadata": {"stack_trace": trace}}


def support(*words: object) -> int:
    return main(["support", *map(str, words)])


def test_the_exporter_is_named_that_gets_the_operators_of_a_program_right(tmp_path, capsys):
    file = program(tmp_path, "torch.ops.aten.pad.default|edge", "torch.ops.aten.sin.default", "_operator.getitem")
    right = {"torchscript": RIGHT, "dynamo": RIGHT}
    known = table(tmp_path, **{"pad.default(edge)": {**right, "torchscript": WRONG}, "sin.default": right})

    assert support(file, "--table", known) == 0

    first, *lines = capsys.readouterr().out.splitlines()
    assert first == f"Export {file} with dynamo at opset 20. PyTorch's samples pass there of 2 of 2 operators."
    assert lines[0] == "TorchScript at opset 17: 1 wrong."
    assert lines[1:5] == [
        "  aten.pad.default(edge): 1 call, first at net.py:12",
        "    TorchScript: wrong, 1 of 2 samples (WrongValue, by the exporter)",
        "    dynamo: right",
        "  right: aten.sin.default",
    ]


def test_an_operator_that_was_called_with_another_text_is_not_the_measured_one(tmp_path, capsys):
    file = program(tmp_path, "torch.ops.aten.pad.default|reflect", "torch.ops.own.op.default")
    known = table(tmp_path, **{"pad.default(edge)": {"torchscript": WRONG, "dynamo": WRONG}})

    assert support(file, "--table", known) == 5

    out = capsys.readouterr().out
    assert f"None of the 2 operators of {file} was measured" in out
    assert "not measured: aten.pad.default(reflect), own.op.default" in out


def test_where_both_exporters_fail_the_lesser_evil_is_named(tmp_path, capsys):
    file = program(tmp_path, "torch.ops.aten.sin.default", "torch.ops.aten.cos.default")
    known = table(
        tmp_path,
        **{
            "sin.default": {"torchscript": WRONG, "dynamo": NOT_EXPORTED},
            "cos.default": {"torchscript": RIGHT, "dynamo": RIGHT},
        },
    )

    assert support(file, "--table", known) == 1

    out = capsys.readouterr().out
    assert f"No exporter passes PyTorch's samples of all operators of {file}." in out
    assert "Most with dynamo at opset 20: 1 of 2 operators." in out


def test_what_writes_to_its_argument_and_other_overloads_are_looked_up_and_branches_read(tmp_path, capsys):
    targets = ("torch.ops.aten.add_.Tensor", "torch.ops.aten.sum.default", "torch.ops.higher_order.cond")
    file = program(tmp_path, *targets, inside=("torch.ops.aten.log.default",))
    fails = {"torchscript": RIGHT, "dynamo": NOT_EXPORTED}
    known = table(tmp_path, **{"add.Tensor": fails, "sum.dim_IntList": fails, "log.default": fails})

    assert support(file, "--table", known, "--output", "json") == 0

    told = capsys.readouterr()
    said = json.loads(told.out)
    assert [one["called"]["name"] for one in said["operators"] if one["measured"]] == [
        "aten.add_.Tensor", "aten.sum.default", "aten.log.default",
    ]  # fmt: skip
    assert [one["overload"] for one in said["operators"]] == [None, "dim_IntList", None, None]
    assert said["best"] == [{"exporter": "torchscript", "opset": 17}] and said["exit_code"] == 0
    assert "not measured: cond" in told.err and "(measured: dim_IntList)" in told.err


def test_other_installed_versions_than_those_that_were_measured_are_told(tmp_path, capsys, monkeypatch):
    from conformance.results.records import environment

    file, known = (
        program(tmp_path, "torch.ops.aten.sin.default"),
        table(tmp_path, **{"sin.default": {"dynamo": RIGHT}}),
    )
    support(file, "--table", known)
    assert "installed is another version" in (out := capsys.readouterr().out) and "(measured: 2.0.0)" in out
    monkeypatch.setattr(environment, "versions", lambda: {"torch": "2.0.0"})

    support(file, "--table", known)

    assert "installed is another version" not in capsys.readouterr().out


def test_a_module_is_exported_for_its_operators(tmp_path):
    (tmp_path / "net.py").write_text(NET, encoding="utf-8")
    fails = {"torchscript": RIGHT, "dynamo": WRONG}
    known = table(tmp_path, **{"pad.default(reflect)": fails, "add.Tensor": fails, "cos.default": fails})
    words = ("--input", "x=float32[n, 4]", "--table", known, "--output", "json=told.json")

    done = run_command(tmp_path, "support", "./net.py:Net", *map(str, words))

    assert done.code == 0, done.text
    operators = json.loads((tmp_path / "told.json").read_text())["operators"]
    lines = {one["called"]["name"]: one["called"]["line"] for one in operators}
    assert lines["aten.pad.default(reflect)"] == "net.py:8" and lines["aten.add_.Tensor"] == "net.py:9"
    assert {one["called"]["name"] for one in operators if one["measured"]} >= {"aten.cos.default"}
    assert {"cond", "aten.sin.default"} <= {one["called"]["name"] for one in operators if not one["measured"]}


@pytest.mark.parametrize(
    ("module", "sentence"),
    [
        ("./net.py:Deciding", "torch.export does not take net.Deciding, so that its operators are not known: "),
        ("./net.py:Nat", "net.py has no 'Nat' (for net.Nat); did you mean 'Net'?"),
        ("./net.py", "./net.py: name a class or a function in the file"),
        ("./not.py:Net", "./not.py:Net: there is no file not.py"),
        ("torch.typename", "torch.typename cannot be built"),
        ("torch.get_default_dtype", "gave a dtype, not a torch.nn.Module"),
    ],
)
def test_what_is_no_module_and_cannot_be_exported_is_a_sentence(tmp_path, module, sentence):
    (tmp_path / "net.py").write_text(NET, encoding="utf-8")

    done = run_command(tmp_path, "support", module, *(["--input", "x=float32[n, 4]"] if "Dec" in module else []))

    assert done.code == 2 and sentence in done.text and "Traceback" not in done.text


def test_files_that_are_no_programs_and_of_other_versions_are_sentences(tmp_path, capsys):
    (tmp_path / "text.pt2").write_text("no archive")
    (tmp_path / "text.onnx").write_text("no model")
    (tmp_path / "text.json").write_text("{")
    with zipfile.ZipFile(tmp_path / "other.pt2", "w") as archive:
        archive.writestr("net/data/weights.json", "{}")
    sound = program(tmp_path, "torch.ops.aten.sin.default")
    later = {"format": 2}
    (tmp_path / "later.json").write_text(json.dumps(later))
    for words, sentence in [
        (["text.pt2"], "text.pt2 cannot be read as what torch.export.save writes: BadZipFile"),
        (["other.pt2"], "other.pt2 holds no program of torch.export"),
        (["none.pt2"], "none.pt2: No such file or directory"),
        (["text.onnx"], "text.onnx: "),
        (["none.onnx"], "none.onnx: No such file or directory"),
        (["net.pt2", "--with", "a=1"], "--with and --input are about a module; a file has its own"),
        (["net.pt2", "--table", str(tmp_path / "later.json")], "is a table of format 2, and 1 is read"),
        (["net.pt2", "--table", str(tmp_path / "text.json")], "is no JSON"),
        (["net.pt2", "--table", str(tmp_path / "none.json")], "none.json: cannot be read (No such file"),
        (["net.pt2", "--output", "junit"], "--output junit: there is no format 'junit'"),
    ]:
        assert support(tmp_path / words[0], *words[1:]) == 2
        assert sentence in capsys.readouterr().err
    program(tmp_path, "torch.ops.aten.sin.default", version=9)
    assert support(sound) == 2
    assert "is a program of version 9 (PyTorch 2.9.1), and version 8 is read" in capsys.readouterr().err


@pytest.mark.parametrize("said", [{}, {"graph_module": 3}, {"graph_module": {"graph": {"nodes": [1]}}}, [], None])
def test_a_damaged_program_is_a_sentence(tmp_path, capsys, said):
    file = Path("net.pt2")
    with zipfile.ZipFile(file, "w") as archive:
        version = {"schema_version": {"major": 8}} if isinstance(said, dict) and said else {}
        archive.writestr("net/models/model.json", json.dumps(said | version if isinstance(said, dict) else said))

    assert support(file) == 2

    assert f"{file} is a " in capsys.readouterr().err


def test_of_an_onnx_file_known_defects_of_its_operators_are_named(tmp_path, capsys, monkeypatch):
    from conformance.results.records import known

    versions = {"onnxruntime": "1.32.0"}
    monkeypatch.setattr(known, "_here", lambda: {"versions": versions, "cpu": {"instructions": []}})
    value = helper.make_tensor_value_info
    x, y = value("x", onnx.TensorProto.FLOAT, [3]), value("y", onnx.TensorProto.FLOAT, [3])
    nodes = [
        helper.make_node("MeanVarianceNormalization", ["x"], ["z"], axes=[0]),
        helper.make_node("Abs", ["z"], ["y"]),
    ]
    file = Path("net.onnx")
    onnx.save(helper.make_model(helper.make_graph(nodes, "g", [x], [y])), file)

    assert support(file) == 1

    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"1 of 2 operators of {file} have a known defect in what is installed."
    assert "known of MeanVarianceNormalization (onnxruntime, onnxruntime 1.32.0)" in lines[1]
    assert "no defect is known of Abs" in lines
    versions["onnxruntime"] = "1.99.0"
    assert support(file) == 0
