"""Witnesses that crash, hang or are not there, and OpenVINO as a witness whose word counts for values only."""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import os
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from conformance.errors import Unavailable
from conformance.records import text
from conformance.records.record import Witness
from conformance.runtimes import onnxreference, onnxruntime, openvino, registry
from conformance.verdict import asking
from conformance.verdict.blame import decide
from conformance.worker import aside
from conformance.worker.isolation import Worker
from conformance.worker.progress import Progress
from tests.support import PASSED, Alter, Bench, details, run_suite, say, verdict, write_case

BODY = 'forward: torch.sin(x)\ninputs: {x: "float32[batch, 3]"}\ndims: {batch: 1..4}'
UNOPTIMIZED, REFERENCE, OPENVINO = "onnxruntime-unoptimized", "onnx-reference", "openvino"
HAS_OPENVINO = openvino.absence() is None
with_openvino = pytest.mark.skipif(not HAS_OPENVINO, reason="openvino is not installed")


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path, tmp_path / "store")


def off(inputs, outputs):
    return [array + array.dtype.type(1e-2) for array in outputs]


def crash(inputs, outputs):
    os.kill(os.getpid(), signal.SIGSEGV)


def hang(inputs, outputs):
    time.sleep(1000)


def answers(record: Any) -> dict[str, str]:
    return {witness["runtime"]: witness["answer"] for witness in record.witnesses}


# ---- witnesses that crash or hang ----------------------------------------------------------------------------------


@pytest.mark.parametrize("fails, how", [(crash, "SIGSEGV"), (hang, "timeout after 1 s")])
def test_of_a_witness_that_crashes_or_hangs_only_the_answer_is_lost(bench, break_opener, monkeypatch, fails, how):
    monkeypatch.setattr(asking, "SECONDS", 1.0)
    break_opener(onnxruntime, "open_optimized", off)
    break_opener(onnxruntime, "open_unoptimized", off)
    break_opener(openvino, "open_model", off)
    assert verdict(bench.run(BODY)) == ("failed", "compare", "WrongValue", "runtime")  # by the evaluator's answer
    break_opener(onnxreference, "open_model", fails)
    record = bench.run(BODY)
    assert (record.status, record.stage, record.error) == ("failed", "compare", "WrongValue")
    assert answers(record)[REFERENCE] == "lost"
    assert f"the ONNX specification's evaluator: no answer, it ended with {how}" in details(record)


def test_what_a_witness_imports_is_imported_once_and_only_where_that_does_no_harm(bench, break_opener, monkeypatch):
    imported = []
    entries = dict(registry._BY_NAME)
    entries[OPENVINO] = dataclasses.replace(entries[OPENVINO], imports=f"{__name__}:note_import")
    monkeypatch.setattr(registry, "_BY_NAME", entries)
    monkeypatch.setitem(globals(), "note_import", lambda: imported.append(os.getpid()))
    for module, name in ((onnxruntime, "open_optimized"), (onnxruntime, "open_unoptimized")):
        break_opener(module, name, off)
    for module in (onnxreference, openvino):
        break_opener(module, "open_model", off)
    assert answers(bench.run(BODY))[OPENVINO] == "wrong"
    assert set(imported) == {os.getpid()}
    imported.clear()
    break_opener(openvino, "open_model", crash)
    assert answers(bench.run(BODY))[OPENVINO] == "lost"
    assert imported == []


def test_a_model_that_only_crashes_elsewhere_is_not_accused(bench, break_opener):
    break_opener(onnxruntime, "open_optimized", off)
    for module, name in ((onnxruntime, "open_unoptimized"), (onnxreference, "open_model"), (openvino, "open_model")):
        break_opener(module, name, crash)
    assert bench.run(BODY).fault is None


def test_a_mistake_in_what_asks_is_no_failure_of_the_cell(bench, break_opener, monkeypatch):
    def mistaken(*_: Any) -> str:
        raise KeyError("planted")

    break_opener(onnxruntime, "open_optimized", off)
    break_opener(onnxruntime, "open_unoptimized", off)
    break_opener(onnxreference, "open_model", off)
    monkeypatch.setattr(openvino, "no_witness", mistaken)
    record = bench.run(BODY)
    assert verdict(record)[:3] == ("failed", "compare", "WrongValue")
    if HAS_OPENVINO:
        assert answers(record)[OPENVINO] == "lost"


# ---- questions in a process of their own ---------------------------------------------------------------------------


class Own(Exception):
    """Raised by a question."""


def raises() -> None:
    raise Own("planted")


def test_a_question_gives_back_what_it_returns_or_raises():
    assert np.array_equal(aside.ask(lambda: np.arange(1 << 20), 30), np.arange(1 << 20))
    with pytest.raises(Own, match="planted"):
        aside.ask(raises, 30)
    with pytest.raises(RuntimeError, match="function"):
        aside.ask(lambda: lambda: None, 30)


@pytest.mark.parametrize("end, how", [
    (lambda: os.kill(os.getpid(), signal.SIGKILL), "SIGKILL"), (lambda: os._exit(3), "exit 3"),
    (lambda: time.sleep(1000), "timeout after 0.5 s"),
])  # fmt: skip
def test_a_question_without_an_answer_says_how_its_process_ended(end, how):
    with pytest.raises(aside.Lost, match=f"^{how}$"):
        aside.ask(end, 0.5)


def test_a_question_leaves_nothing_running():
    def leaves() -> int:
        pid = os.fork()
        if not pid:
            time.sleep(1000)
        return pid

    pid = aside.ask(leaves, 30)
    for _ in range(100):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return
        if "Z" in Path(f"/proc/{pid}/stat").read_text().split()[2]:
            return
        time.sleep(0.05)
    raise AssertionError("it still runs")


class Waits:
    """An object whose end waits for a thread, as that of a compiled model does."""

    def __init__(self) -> None:
        self.itself, self.made_by = self, os.getpid()

    def __del__(self) -> None:
        if os.getpid() != self.made_by:
            time.sleep(1000)


def test_no_object_from_before_ends_in_the_process_of_a_question():
    Waits()
    assert aside.ask(lambda: gc.collect() >= 0, 20)


def asks_and_crashes(progress: Progress) -> str:
    try:
        aside.ask(lambda: os.kill(os.getpid(), signal.SIGSEGV), 30)
    except aside.Lost as how:
        return str(how)
    return "answered"


def test_a_question_can_be_asked_in_a_worker():
    with Worker() as worker:
        assert worker.call(asks_and_crashes, timeout=60) == "SIGSEGV"
        assert worker.left == ()


# ---- OpenVINO ------------------------------------------------------------------------------------------------------


@with_openvino
@pytest.mark.parametrize("precision", ["fp32", "fp16", "int8"])
def test_openvino_runs_the_cells_that_name_it(bench, precision):
    body = """
    forward: torch.nn.functional.linear(x, torch.linspace(-1, 1, 24).reshape(4, 6)).relu()
    inputs: {x: "float32[batch, 6]"}
    dims: {batch: 1..8}
    specials: false
    runtimes: [openvino]
    precisions: {fp16: {}, int8: {}}
    export: {torchscript: [17]}
    """
    (cell,) = (cell for cell in bench.cells(body) if (cell.check, cell.precision) == ("accuracy", precision))
    record = bench.run_cell(cell, examples=8)
    assert verdict(record) == PASSED
    assert record.examples >= 8
    assert record.arithmetic["provider"] == "OpenVINO CPU"
    assert record.arithmetic["storage"] == {"fp32": "float32", "fp16": "float16", "int8": "int8"}[precision]
    assert ("int8" in record.arithmetic["arithmetic"]) is (precision == "int8")
    assert record.changed == []  # its telemetry would leave a thread and a process


@with_openvino
def test_openvino_takes_scalars_transposed_arrays_booleans_and_empty_ones(tmp_path):
    graph = helper.make_graph(
        [helper.make_node("Where", ["c", "x", "w"], ["y"]), helper.make_node("Not", ["c"], ["n"])], "planted",
        [helper.make_tensor_value_info("c", 9, ["a", 1]), helper.make_tensor_value_info("x", 1, ["a", "b"]),
         helper.make_tensor_value_info("w", 1, [])],
        [helper.make_tensor_value_info("y", 1, ["a", "b"]), helper.make_tensor_value_info("n", 9, ["a", 1])],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, tmp_path / "model.onnx")
    with openvino.open_model(tmp_path / "model.onnx", ()) as session:
        for rows in (2, 3, 0):
            x = np.arange(4 * rows, dtype=np.float32).reshape(4, rows).T
            c = np.arange(rows).reshape(rows, 1) % 2 == 0
            y, n = session.run({"x": x, "w": np.array(7, np.float32), "c": c})
            assert np.array_equal(y, np.where(c, x, np.float32(7))) and np.array_equal(n, ~c)
            assert (y.dtype, n.dtype) == (np.float32, np.bool_)


@with_openvino
def test_a_wrong_answer_of_openvino_is_its_own_fault(bench, break_opener):
    break_opener(openvino, "open_model", off)
    record = bench.run(say(BODY, "runtimes: [openvino]"), runtime="openvino")
    assert verdict(record) == ("failed", "compare", "WrongValue", "runtime")


def test_witnesses_that_are_wrong_with_outputs_of_their_own_accuse_no_exporter(bench, break_opener):
    def by(much):
        return lambda inputs, outputs: [array + array.dtype.type(much) for array in outputs]

    for module, opener, much in (
        (onnxreference, "open_model", 1e-2), (openvino, "open_model", -0.3), (onnxruntime, "open_optimized", 0.5),
        (onnxruntime, "open_unoptimized", 0.5),
    ):  # fmt: skip
        break_opener(module, opener, by(much))
    record = bench.run(BODY, runtime="onnx-reference")
    assert verdict(record) == ("failed", "compare", "WrongValue", None)
    assert answers(record)[UNOPTIMIZED] == "otherwise" and record.conclusion == "differ"
    told = text.failure(record.as_dict())
    assert "is wrong too, with other outputs" in told and "they contradict each other" in told


@with_openvino
def test_openvino_clears_a_model_on_which_the_evaluator_has_no_say(bench, break_opener):
    break_opener(onnxruntime, "open_optimized", off)
    break_opener(onnxruntime, "open_unoptimized", off)
    record = bench.run(BODY.replace("torch.sin(x)", "x.log_softmax(-1)"))
    assert verdict(record) == ("failed", "compare", "WrongValue", "runtime")
    assert answers(record)[REFERENCE] == "abstains"
    assert answers(record)[OPENVINO] == "agrees"


@with_openvino
def test_openvino_speaks_against_a_wrong_model_on_which_the_evaluator_has_no_say(bench):
    record = bench.run(BODY.replace("torch.sin(x)", "x.log_softmax(-1) + int(x.shape[0])"))
    assert verdict(record) == ("failed", "compare", "WrongValue", "exporter")


def test_openvinos_word_counts_for_values_only():
    def said(stage: str, **answers: str) -> tuple[str | None, str | None]:
        names = {"a": UNOPTIMIZED, "b": REFERENCE, "c": OPENVINO}
        return decide([Witness(names[name], answer) for name, answer in answers.items()], "onnxruntime", stage, False)

    assert said("compare", a="wrong", b="abstains", c="agrees") == ("runtime", None)
    assert said("compare", a="wrong", b="abstains", c="wrong") == ("exporter", None)
    assert said("compare", a="wrong", b="wrong", c="agrees") == (None, "open")
    assert said("load", a="stops", b="abstains", c="agrees") == (None, "nobody")
    assert said("load", a="stops", b="abstains", c="stops") == (None, "nobody")
    assert said("run", a="stops", b="stops", c="agrees") == ("exporter", None)
    assert said("compare", a="wrong", b="lost", c="lost") == (None, "nobody")


@with_openvino
def test_openvinos_dtypes_are_no_testimony(bench, break_opener):
    def wider(inputs, outputs):
        return [outputs[0].astype(np.float64)]

    for module, name in ((onnxruntime, "open_optimized"), (onnxruntime, "open_unoptimized")):
        break_opener(module, name, wider)
    break_opener(onnxreference, "open_model", wider)
    record = bench.run(BODY)
    assert verdict(record) == ("failed", "compare", "WrongDtype", "exporter")
    assert answers(record)[OPENVINO] == "abstains"


def saved(tmp_path: Path, node: Any, dtype: int, constants: Any = ()) -> Path:
    names = [name for name in node.input if name not in {constant.name for constant in constants}]
    graph = helper.make_graph(
        [node], "planted", [helper.make_tensor_value_info(name, dtype, [3]) for name in names],
        [helper.make_tensor_value_info("y", dtype, [3])], list(constants),
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, tmp_path / "model.onnx")
    return tmp_path / "model.onnx"


INTEGERS = {"x": np.array([1, 2, 3])}
FLOATS = {"x": np.ones(3, np.float32), "z": np.zeros(3, np.float32)}


@pytest.mark.parametrize("operator, dtype, by, inputs, doubtful", [
    ("Mod", 7, np.array([3]), INTEGERS, False), ("Mod", 7, np.array([3, 0, 1]), INTEGERS, True),
    ("Mod", 7, None, {**INTEGERS, "z": np.zeros(3, np.int64)}, True), ("Div", 7, np.array([0]), INTEGERS, True),
    ("Div", 1, None, FLOATS, False), ("Add", 1, None, FLOATS, False),
    ("Add", 11, None, {name: array.astype("f8") for name, array in FLOATS.items()}, True),
    ("Add", 7, None, {"x": np.array([1 << 40, 1, 1]), "z": np.ones(3, np.int64)}, True),
    ("Add", 7, None, {"x": np.array([1 << 20, 1, 1]), "z": np.ones(3, np.int64)}, False),
])  # fmt: skip
def test_where_openvino_computes_otherwise_than_the_model_says_it_is_no_witness(
    tmp_path, operator, dtype, by, inputs, doubtful
):
    constants = [] if by is None else [numpy_helper.from_array(by, "z")]
    model = saved(tmp_path, helper.make_node(operator, ["x", "z"], ["y"]), dtype, constants)
    assert (openvino.no_witness(model, inputs) is not None) is doubtful


@pytest.mark.parametrize("ask", [openvino.no_witness, onnxreference.no_witness])
@pytest.mark.parametrize("limits, value, doubtful", [
    ("z", np.inf, True), ("z", 1.0, False), ("zz", np.inf, False), ("", np.inf, True),
])  # fmt: skip
def test_a_clip_that_lacks_a_limit_and_meets_infinity_shows_nothing(tmp_path, ask, limits, value, doubtful):
    """ONNX says that the limit is the largest number then, as ONNX Runtime has it."""
    zero = numpy_helper.from_array(np.zeros((), np.float32), "z")
    node = helper.make_node("Clip", ["x", *limits], ["y"])
    model = saved(tmp_path, node, 1, [zero] if limits else ())
    inputs = {"x": np.array([value, 1, 1], np.float32)}
    assert (ask(model, inputs) is not None) is doubtful


def test_what_only_a_clip_without_a_limit_makes_of_infinity_is_laid_to_no_runtime(bench):
    body = "forward: torch.clamp_min(x, 0) / 2\ninputs: {x: 'float32[3]'}\nruntimes: onnxruntime"
    record = bench.run(body, check="specials")
    assert (record.status, record.error, record.fault) == ("failed", "WrongInf", None)


def test_openvino_loads_no_custom_operators(tmp_path):
    with pytest.raises(Unavailable):
        openvino.OpenVinoSession(tmp_path / "model.onnx", ["library.so"])


# ---- where OpenVINO is not there -----------------------------------------------------------------------------------


def test_a_host_without_openvino_is_asked_nothing_of_it(bench, break_opener, monkeypatch):
    monkeypatch.setattr(openvino, "absence", lambda: "openvino is not installed")
    assert OPENVINO not in [runtime.name for runtime in registry.second_opinions("onnxruntime")]
    for name in ("open_optimized", "open_unoptimized"):
        break_opener(onnxruntime, name, off)
    break_opener(onnxreference, "open_model", off)
    record = bench.run(BODY)
    assert verdict(record) == ("failed", "compare", "WrongValue", "exporter")
    assert OPENVINO not in answers(record)


HIDDEN = """
import importlib.util

find = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == "openvino" else find(name, *rest)
"""


@pytest.mark.parametrize("required", [False, True])
def test_cells_that_name_openvino_are_skipped_with_the_reason_or_fail_where_it_is_required(tmp_path, required):
    write_case(tmp_path / "cases", say(BODY, "runtimes: [openvino]\nspecials: false\nexport: {torchscript: [17]}"))
    (tmp_path / "conftest.py").write_text(HIDDEN, encoding="utf-8")
    done = run_suite(tmp_path, "-k", "accuracy", *(["--require", "openvino"] if required else []))
    (record,) = (record for record in done.records.values() if record["check"] == "accuracy")
    assert record["status"] == ("failed" if required else "skipped"), done.text
    assert "openvino is not installed" in record["reason"]
    if not required:
        assert "NOT RUN: openvino, 1 cells skipped: openvino is not installed" in done.text


# ---- what a witness is allowed -------------------------------------------------------------------------------------

OFFSET = """
def draw(dims, rng):
    return {"x": (4096 + rng.integers(-8, 8, (dims["batch"], 8)) / 8).astype("float32")}
"""
CENTRED = """
forward: x - x.mean(-1, keepdim=True)
inputs: {x: "float32[batch, 8]"}
dims: {batch: 1..4}
draw: beside.draw
specials: false
"""


def by(error: float) -> Alter:
    return lambda inputs, outputs: [array + np.float32(error) for array in outputs]


@pytest.mark.parametrize("error, fault", [(3e-4, "runtime"), (0.5, "exporter")])
def test_a_witness_is_allowed_what_the_conditioning_of_the_inputs_allows_the_suspect(
    bench, break_opener, error, fault
):
    """PyTorch's float32 is exact on these values, so that only the conditioning excuses the rounding of 4096."""
    for name in ("open_optimized", "open_unoptimized"):
        break_opener(onnxruntime, name, by(0.5))
    break_opener(onnxreference, "open_model", by(error))
    break_opener(openvino, "open_model", by(0.5))
    record = bench.run(CENTRED, OFFSET)
    assert verdict(record) == ("failed", "compare", "WrongValue", fault)


def test_on_these_values_the_error_of_the_witness_is_more_than_is_allowed_without_the_conditioning(
    bench, break_opener, monkeypatch
):
    from conformance.checks import verify

    monkeypatch.setattr(verify, "moved_by_rounding", lambda reference, inputs, exact: [0.0] * len(exact))
    break_opener(onnxruntime, "open_optimized", by(3e-4))
    assert bench.run(CENTRED, OFFSET).error == "WrongValue"


def test_a_witness_is_asked_under_its_own_environment_and_leaves_that_of_the_process(monkeypatch, tmp_path):
    name, value = registry.named("openvino").witness_environment[0]
    monkeypatch.delenv(name, raising=False)

    class Session:
        def run(self, inputs):
            return [np.array(os.environ.get(name) == value)]

    monkeypatch.setattr(asking, "opener", lambda *_, **__: lambda *_: contextlib.nullcontext(Session()))
    onnx.save(helper.make_model(helper.make_graph([], "empty", [], [])), tmp_path / "empty.onnx")
    asked = {
        runtime: asking.ask(runtime, tmp_path / "empty.onnx", (), {})
        for runtime in ("openvino", "onnxruntime-literal")
    }
    assert {runtime: [bool(array) for array in told.outputs or ()] for runtime, told in asked.items()} == {
        "openvino": [True],
        "onnxruntime-literal": [False],
    }
    assert name not in os.environ
