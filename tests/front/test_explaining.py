"""Verdicts come first; then each cause is explained once, for as long as ``--explain`` says."""

import json
from types import SimpleNamespace

import pytest

from conformance.front.plugin.explaining import Explaining
from conformance.results.records.causes import (
    by_likeness,
    explained,
    has_same_evidence,
    is_same_error,
    seconds_left,
)
from conformance.results.records.explanation import share
from conformance.results.records.record import Record
from tests.kit.runs import run_command, run_pytest

MODULES = """
import os, signal
import torch

class Flipped(torch.nn.Module):
    def forward(self, x):
        return torch.sin(x) * 3 + torch.cos(x)

def flipped(g, x):
    return g.op("Neg", g.op("Sin", x))

class Unexported(torch.nn.Module):
    def forward(self, x):
        return torch.special.bessel_j0(x)
"""
CASES = """
defaults: {inputs: {x: "float32[batch]"}, dims: {batch: 1..8}}
flipped:
  about: the symbolic has the wrong sign
  module: mods.Flipped
  export:
    torchscript:
      opsets: [17, 18]
      symbolics: {"aten::sin": {function: mods.flipped, without: another graph}}
unexported:
  about: the exporter knows no such operator
  module: mods.Unexported
  export: {torchscript: {opsets: [17, 18]}}
"""


def run(folder, *options, **more):
    (folder / "cases").mkdir()
    (folder / "cases/mods.py").write_text(MODULES)
    (folder / "cases/all.yaml").write_text(CASES)
    return run_pytest(folder, "--pyargs", "conformance", *options, **more)


def red(outcome):
    return {name: record for name, record in outcome.records.items() if record["status"] == "failed"}


def errors(outcome):
    return {name: (one["status"], one["stage"], one["error"]) for name, one in outcome.records.items()}


@pytest.fixture(scope="module")
def by_default(tmp_path_factory):
    return run(tmp_path_factory.mktemp("explaining"), "--junit-xml", "junit.xml")


def test_each_cause_is_explained_once_and_its_other_cells_share_that(by_default):
    wrong = {name: one for name, one in red(by_default).items() if name.startswith("accuracy[flipped")}
    assert len(wrong) == 4 and {one["fault"] for one in wrong.values()} == {"case"}
    first = [one for one in wrong.values() if one["explained_with"] is None]
    assert len(first) == 1 and first[0]["witnesses"] and first[0]["bundle"]
    assert {one["explained_with"] for one in wrong.values()} == {None, first[0]["id"]}
    assert {one["operator"]["operator"] for one in wrong.values()} == {"aten.sin"}


def test_cells_that_stop_with_the_same_words_are_one_cause(by_default):
    stopped = [one for one in red(by_default).values() if one["case"] == "unexported" and one["check"] == "export"]
    assert len(stopped) == 2 and sum(one["explained_with"] is None for one in stopped) == 1
    assert not any(one["unexplained"] for one in stopped)


def test_the_junit_file_has_the_explanations(by_default):
    text = (by_default.folder / "junit.xml").read_text()
    assert "aten.sin" in text and '<property name="fault" value="case"' in text


def test_the_terminal_shows_findings_first_and_their_cells_with_vv(by_default):
    text = by_default.text
    (wrong,) = {
        one["explained_with"] or one["id"] for one in red(by_default).values() if "accuracy[flipped" in one["id"]
    }
    assert text.index("1 of ") < text.index("= conformance =") < text.index("\nFAILED ")
    assert text.count("aten.sin is exported as") == 2 and "FAILURES" not in text and f"{wrong}\n" not in text
    id = flipped(by_default)
    assert f"conformance explain {id}" in text and f".conformance/failing/{id}/smallest/repro.py" in text


def flipped(outcome):
    """The id of the finding about the wrong symbolic, by the folder of its example."""
    folders = (outcome.folder / ".conformance/failing").iterdir()
    return next(path.name for path in folders if path.is_symlink() and "flipped" in path.resolve().name)


def test_a_finding_is_explained_by_its_id(by_default):
    told = run_command(by_default.folder, "explain", flipped(by_default))
    assert told.text.count("at fault: the case") == len([one for one in red(by_default) if "[flipped" in one])
    assert "conformance findings lists what is red" in run_command(by_default.folder, "explain", "0badf00d").text


INTERRUPTED = """
import os, signal, sys, threading
import pytest

def interrupt():
    frame = sys._current_frames()[threading.main_thread().ident]
    while frame is not None and frame.f_code.co_name != "_explained":
        frame = frame.f_back
    if frame is None:
        interrupt_later()
    else:
        os.kill(os.getpid(), signal.SIGINT)

def interrupt_later():
    timer = threading.Timer(0.01, interrupt)
    timer.daemon = True
    timer.start()

@pytest.hookimpl(wrapper=True)
def pytest_runtestloop(session):
    result = yield
    signal.signal(signal.SIGINT, signal.default_int_handler)  # which may be ignored
    interrupt_later()
    return result
"""


def test_ctrl_c_while_explaining_leaves_every_verdict(tmp_path, by_default):
    stopped = run(tmp_path, "-vv", plugin=INTERRUPTED, own_process=True)
    assert stopped.code == 1 and "red cells are not explained (Ctrl-C)" in stopped.text, stopped.text[-3000:]
    assert errors(stopped) == errors(by_default)
    assert all(f"{name} ____" in stopped.text for name in red(stopped))


def test_without_explanations_the_verdicts_and_the_exit_code_are_the_same(tmp_path, by_default):
    bare = run(tmp_path, "--explain", "none")
    assert bare.code == by_default.code == 1
    assert errors(bare) == errors(by_default)
    assert all(one["unexplained"] for one in red(bare).values() if one["stage"] == "compare")
    assert "not explained (--explain none)" in bare.text


def test_a_run_that_was_killed_while_it_explained_is_read_with_what_it_had(by_default, tmp_path):
    from conformance.results.records.run_file import read_run

    lines = (by_default.folder / "reports/latest/records.jsonl").read_text().splitlines()
    names = [json.loads(line)["id"] for line in lines[1:]]
    assert len(names) == len({*names})
    first = json.loads(lines[1])
    killed = [*lines[:1], json.dumps({**first, "unexplained": True, "fault": None}), *lines[1:]]
    (tmp_path / "records.jsonl").write_text("\n".join(killed) + "\n")
    assert [one.id for one in read_run(tmp_path)[1]] == names


@pytest.mark.parametrize("given, said", [("soon", "none, all, or a time"), ("0s", "none, all, or a time")])
def test_a_time_that_is_none_is_refused(tmp_path, given, said):
    refused = run(tmp_path, "--explain", given)
    assert refused.code == 4 and said in refused.text


# ---- records alone -------------------------------------------------------------------------------------------


def record(**fields):
    base = {"id": "a", "case": "net", "exporter": "torchscript", "opset": 17, "runtime": "onnxruntime",
            "precision": "fp32", "check": "accuracy", "source": {"file": None, "line": None}, "status": "failed",
            "stage": "compare", "error": "WrongValue", "unexplained": True}  # fmt: skip
    return Record(**{**base, **fields})


@pytest.mark.parametrize("other, alike", [
    ({"opset": 18}, True), ({"runtime": "onnx-reference"}, True), ({"exporter": "dynamo"}, False),
    ({"case": "other"}, False), ({"precision": "fp16"}, False), ({"check": "specials"}, True),
    ({"check": "fidelity"}, False), ({"error": "WrongNaN"}, True), ({"error": "WrongShape"}, False),
    ({"unexplained": False}, False), ({"status": "xfailed"}, False),
])  # fmt: skip
@pytest.mark.smoke
def test_cells_that_may_have_one_cause_are_of_one_case_exporter_and_precision(other, alike):
    groups = by_likeness([record(), record(id="b", **other)])
    assert ([len(group) for group in groups] == [2]) is alike


@pytest.mark.parametrize("worst, same", [
    ({}, True), ({"got": 2.02}, True), ({"got": 1.9}, False), ({"index": [1]}, False), ({"output": 1}, False),
    ({"got": float("nan")}, False),
])  # fmt: skip
@pytest.mark.smoke
def test_one_error_is_the_same_wrong_value_at_the_same_element(worst, same):
    base = {"output": 0, "index": [0], "got": 2.0, "wanted": 1.5, "ratio": 9.0}
    assert is_same_error(record(worst=base), record(worst={**base, **worst})) is same
    assert not is_same_error(record(worst=base), record(worst=base, status="passed"))


MANY = {"MatMul": 2, "Softmax": 1, "Constant": 3}


@pytest.mark.parametrize("fault, other, same", [
    ("exporter", {"opset": 18}, True), ("exporter", {"graph": {"nodes": {**MANY, "Constant": 1}}}, True),
    ("exporter", {"opset": 23, "graph": {"nodes": {"Attention": 1}}}, False), (None, {"runtime": "openvino"}, True),
    ("exporter", {"runtime": "onnx-reference"}, True), ("runtime", {"check": "specials"}, True),
    ("runtime", {"runtime": "openvino"}, False),
])  # fmt: skip
@pytest.mark.smoke
def test_an_explanation_holds_for_cells_of_the_same_evidence_alone(fault, other, same):
    """At opset 23 attention is one node, which a runtime may compute wrongly though the exporter is right."""
    explained_one = record(fault=fault, graph={"opset": 17, "nodes": MANY})
    assert (
        has_same_evidence(explained_one, record(id="b", **{"graph": {"opset": 17, "nodes": MANY}, **other})) is same
    )


@pytest.mark.smoke
def test_an_explanation_is_taken_only_of_a_cell_that_fails_alike_again():
    first = record(examples=3, seconds={"run": 1.0})
    again = record(fault="exporter", unexplained=False, examples=0, seconds={"run": 2.0})
    taken = explained(first, again)
    assert (taken.fault, taken.examples, taken.unexplained) == ("exporter", 3, False)
    assert taken.seconds == {"run": 1.0, "explain": 2.0}
    assert explained(first, record(status="passed", stage=None, error=None)) is first
    share(taken, [other := record(id="b")])
    assert (other.fault, other.explained_with, other.unexplained) == ("exporter", "a", False)


def took(id, seconds, explaining=None, **other):
    more = {} if explaining is None else {"explain": explaining}
    return record(id=id, case=id, seconds={"run": seconds, **more}, unexplained=explaining is None, **other)


def test_the_cheapest_cause_is_explained_first_and_what_the_rest_takes_is_told():
    slow, quick = took("slow", 9.0), took("quick", 0.5)
    assert [group[0].id for group in by_likeness([slow, quick])] == ["quick", "slow"]
    assert seconds_left([slow, quick]) is None  # nothing was measured
    assert seconds_left([slow, quick, took("done", 1.0, 6.0)]) == pytest.approx(6 * 9.5)
    assert seconds_left([took("done", 1.0, 6.0)]) is None


def test_the_summary_says_what_the_rest_would_take():
    red = {one.id: one for one in (took("done", 1.0, 6.0), took("slow", 60.0), took("quick", 10.0))}
    explaining = Explaining(SimpleNamespace(options=SimpleNamespace(config=None)), None, None)
    explaining.red, explaining._why_left = red, "120 s were over"
    said = (
        "2 red cells are not explained (120 s were over): about 7 min more with --explain all, or conformance explain"
    )
    assert [*explaining.notes()] == [f"{said} CELL"]
