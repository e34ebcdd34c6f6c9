"""What is said of a file: no PyTorch, module or exporter stands beside it, and beside a bare one no case."""

import itertools
import re
from typing import Any, get_args

import numpy as np
import pytest

from conformance.front.cli import main
from conformance.results.records import subject, testimony, text
from conformance.results.records.finding_block import describe
from conformance.results.records.findings import findings
from conformance.results.records.record import FLOAT64, Record
from conformance.results.records.words import Fault
from conformance.runtimes import registry
from tests.kit.models import model_of

FOREIGN = re.compile(r"pytorch|\btorch|\bmodules?\b|\bforward\b|exporter|\bexported\b|the case\b", re.I)
BASE: dict[str, Any] = {
    "id": "accuracy[net-onnx-op17-onnxruntime-fp32]", "case": "net-onnx", "exporter": "onnx", "opset": 17,
    "runtime": "onnxruntime", "precision": "fp32", "check": "accuracy", "status": "failed", "stage": "compare",
    "source": {"file": "net.onnx", "line": 1}, "error": "WrongValue", "reason": "output 0: 6 of 18 values differ",
    "meaning": "net.onnx", "draw": {"dims": {"n": 3}, "regime": "plain", "seed": 7, "index": 0},
    "worst": {"output": 0, "index": [0, 0], "got": -0.37, "wanted": 0.102, "error": 0.472, "ratio": 211000.0},
    "bundle": ".conformance/failing/net",
}  # fmt: skip
ANSWERS = ("agrees", "nearer", "strays", "wrong", "otherwise", "runs", "same", "stops", "abstains", "lost")
WITNESSES = [{"runtime": name, "answer": answer} for name, answer in itertools.product(
    (FLOAT64, *(runtime.name for runtime in registry.RUNTIMES)), ANSWERS)]  # fmt: skip
FIELDS: list[dict[str, Any]] = [
    *({"fault": fault} for fault in (*get_args(Fault), None)),
    *({"fault": fault, "stage": stage} for fault in ("exporter", "case") for stage in ("declare", "check", "load")),
    {"witnesses": WITNESSES},
    {"witnesses": WITNESSES, "error": "IllConditioned", "conditioning": {"own": 0.5, "sizes": [], "float64": 0.5}},
    {"witnesses": [{"runtime": "onnxruntime", "answer": "stops", "error": "Fail", "model": "exported"}]},
    *({"conclusion": name} for name in testimony._CONCLUSIONS),
    {"loss": {"export": 10.0, "conversion": 20.0, "optimizer": 30.0, "runtime": 40.0}},
    *({"hints": [name]} for name in ("conditioning", "exclude", "memory", "rounding", "slow", "specials", "vacuous")),
    {"beyond": [{"regime": "large"}], "precision": "fp16"},
    {"beyond": [{"node": "a", "operator": "Add", "gives": "NaN", "of": [1.0]}], "error": "WrongNaN"},
    {"warnings": [{"name": "shape inference", "error": "Fail", "text": "no", "agree": ["onnxruntime"]}]},
    *({"parts_at": {"operator": "Add", "how": how, "by": "openvino"}}
      for how in ("parts", "open", "alike", "breaks", "refused", "stops", "invalid")),
    {"remedy": {"kind": "values", "yaml": "inputs: {}"}}, {"left_open": ["cast", "ties", "overlap", "order"]},
    {"smallest": {"nodes": 1, "of": 3, "bundle": "b", "operators": ["Add"], "repro": "r.py", "issue": "i.md"}},
]  # fmt: skip


def sentences(fields: dict[str, Any]) -> str:
    """All that is said of a record: in full, in a block, and in who is at fault."""
    record = Record(**{**BASE, **fields})
    block = describe(findings([record])[0], kept=False)
    rows = (line for _, lines in block.rows for line in lines)
    return "\n".join([text.failure(record), text.at_fault(record), block.who, block.what, *rows])


@pytest.mark.smoke
@pytest.mark.parametrize("fields", FIELDS, ids=lambda fields: ", ".join(fields))
def test_no_sentence_about_a_bare_file_speaks_of_what_is_not_there(fields):
    assert FOREIGN.findall(sentences(fields)) == []


def test_the_same_sentences_about_a_module_speak_of_pytorch():
    other = {"exporter": "dynamo", "meaning": None, "source": {"file": "cases/net.yaml", "line": 3}}
    said = "\n".join(sentences(fields | other) for fields in FIELDS)
    for words in ("agrees with PyTorch", "nearer to PyTorch", "PyTorch in float64 agrees", "the case needs a change",
                  "the exported fp32 model against PyTorch", "at fault: the exporter"):  # fmt: skip
        assert words in said


def test_of_two_files_the_one_that_says_what_is_right_is_named():
    witnesses = [{"runtime": "openvino", "answer": answer} for answer in ("agrees", "nearer")]
    said = sentences({"witnesses": witnesses, "shipped": "b.onnx", "meaning": "a{0}.onnx", "fault": "exporter"})
    assert "agrees with a{0}.onnx" in said and "at fault: b.onnx" in said and "b.onnx is wrong" in said


def test_a_file_beside_its_module_is_compared_with_pytorch():
    record = Record(**{**BASE, "shipped": "b.onnx", "meaning": None, "fault": "exporter"})
    assert subject.right_one(record) == "PyTorch" and subject.at_fault(record) == "b.onnx"


SINE = "net (float[n, 3] x) => (float[n, 3] y) { y = Sin(x) }"
LOUD = "net (float[n, 3] x) => (float[n, 3] y) { a = Mul(x, up) b = Mul(a, up) y = Mul(b, down) }"
UP = {"up": np.float32([2000]), "down": np.float32([2.5e-7])}


@pytest.mark.thorough
def test_a_run_of_bare_files_that_are_wrong_says_nothing_of_pytorch(tmp_path, monkeypatch, capsys):
    """Two files of which the second computes something else, and one that overflows in fp16."""
    monkeypatch.chdir(tmp_path)
    for name, model in {
        "a": model_of(SINE),
        "b": model_of(SINE.replace("Sin", "Cos")),
        "c": model_of(LOUD, **UP),
    }.items():
        (tmp_path / f"{name}.onnx").write_bytes(model.SerializeToString())
    for words in (["a.onnx", "b.onnx", "--precision", "fp32"], ["c.onnx", "--precision", "fp16"]):
        code = main(["check", *words, "--examples", "2", "--output", "junit=out.xml"])
        told = capsys.readouterr().out + (tmp_path / "out.xml").read_text(encoding="utf-8")
        assert code == 1 and FOREIGN.findall(told.replace("how it was exported is not checked", "")) == []
