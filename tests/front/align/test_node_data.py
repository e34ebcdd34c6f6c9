"""Node data for Model Explorer: each node by the name that its adapter for ONNX gives it, in its colour."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from conformance.front.cli import main
from conformance.front.commands.align.table import FIRST, OFF, RIGHT, AlignAnswer, FileNode, Row, node_data
from tests.diagnose.test_second_file import NET, WA, saved
from tests.kit.cases import case_of
from tests.kit.models import model_of
from tests.kit.networks import IMAGES, network


def colours(data: dict[str, Any]) -> dict[str, str]:
    """By node its colour; the data is what the page takes for a graph."""
    assert data.keys() == {"name", "results"} and json.loads(json.dumps(data, allow_nan=False)) == data
    for one in data["results"].values():
        assert one.keys() == {"value", "bgColor"} and isinstance(one["value"], float | str)
    return {name: one["bgColor"] for name, one in data["results"].items()}


def test_the_command_paints_a_file_whose_weight_is_wrong(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    saved(tmp_path, "net", NET)
    saved(tmp_path, "wrong", NET, wa=np.where(np.arange(WA.size).reshape(WA.shape) == 3, WA + 1, WA))
    model = onnx.load("wrong.onnx")
    model.graph.node[1].name = "activation"
    onnx.save(model, "wrong.onnx")
    assert main(["align", "net.onnx", "wrong.onnx", "--node-data", "painted.json"]) == 1
    found = colours(data := json.loads(Path("painted.json").read_text(encoding="utf-8")))
    assert found == {"<node_0>": FIRST, "activation": OFF, "<node_2>": OFF, "<node_3>": OFF}
    assert data["name"].startswith("error/allowed: net and wrong.onnx") and data["results"]["<node_0>"]["value"] > 1
    said = capsys.readouterr().out
    assert "wrote painted.json, which is shown by: model-explorer " in said
    assert said.endswith("/model.onnx --extensions=model_explorer_onnx --node_data_paths=painted.json\n")


def test_a_sound_file_is_painted_as_right_and_a_place_that_cannot_be_written_is_named(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    saved(tmp_path, "net", NET)
    assert main(["align", "net.onnx", "--node-data", "painted.json"]) == 0
    assert {*colours(json.loads(Path("painted.json").read_text())).values()} == {RIGHT}
    assert main(["align", "net.onnx", "--node-data", "no/painted.json"]) == 2
    assert "no/painted.json: No such file or directory" in capsys.readouterr().err


@pytest.mark.parametrize("exporter", ["torchscript", "dynamo"])
def test_the_nodes_of_an_exported_model_are_called_as_in_its_file(trial, exporter):
    answer = trial(network("Network", IMAGES, f"export: {{{exporter}: [18]}}"))
    found = colours(node_data(answer))
    names = {node.name for node in onnx.load(answer.model).graph.node}
    assert found.keys() <= names and len(found) >= 3 and {*found.values()} == {RIGHT}


def test_decibels_of_a_converted_model_are_those_of_its_own_nodes(trial):
    answer = trial(case_of("torch.tanh(x) * 2", "precisions: {fp16: {}}", "runtimes: onnxruntime"), precision="fp16")
    data = node_data(answer)
    assert {*colours(data).values()} == {RIGHT} and data["name"].startswith("dB: ")
    assert data["results"].keys() <= {node.name for node in onnx.load(answer.model).graph.node}
    assert all(one["value"] > 40 for one in data["results"].values())


def test_a_node_has_its_worst_output_and_what_was_not_compared_has_no_colour(tmp_path):
    text = "net (float[4] x) => (float[4] y) { a, b = Split <num_outputs = 2> (x) y = Concat <axis = 0> (a, b) }"
    onnx.save(model_of(text, opset=18), tmp_path / "net.onnx")
    off = {"a": ("0.5", 0.5, False), "b": ("shape", math.inf, True), "y": ("", -math.inf, False)}
    rows = [Row(FileNode("", None), "", [text], bad, parts, tensor=name) for name, (text, bad, parts) in off.items()]
    data = node_data(AlignAnswer("about", ["error/allowed"], rows, [], True, tmp_path / "net.onnx"))
    assert data["results"] == {"<node_0>": {"value": "shape", "bgColor": OFF}}
