"""Witnesses that crash, hang or are not there, and OpenVINO as a witness whose word counts for values only."""

import gc
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from conformance.diagnose.nodes import blame, other_runtime
from conformance.process.worker import aside
from conformance.results.records import text
from conformance.runtimes import onnxreference, onnxruntime, openvino, registry
from tests.kit.cases import PASSED, case_of, details, say, verdict
from tests.kit.models import model_of
from tests.kit.planting import planted, wrapping
from tests.kit.runtimes import Alter
from tests.plants.edits import behind, times
from tests.plants.plant import Planted
from tests.plants.planting import kernel

pytestmark = pytest.mark.own_store

BODY = 'forward: torch.sin(x)\ninputs: {x: "float32[batch, 3]"}\ndims: {batch: 1..4}'
UNOPTIMIZED, REFERENCE, OPENVINO = "onnxruntime-unoptimized", "onnx-reference", "openvino"
HAS_OPENVINO = openvino.absence() is None
with_openvino = pytest.mark.skipif(not HAS_OPENVINO, reason="openvino is not installed")


def by(error: float) -> Alter:
    return lambda inputs, outputs: [array + array.dtype.type(error) for array in outputs]


def off(inputs, outputs):  # with a name, by which it gets to a worker
    return by(1e-2)(inputs, outputs)


def crash(inputs, outputs):
    os.kill(os.getpid(), signal.SIGSEGV)


def hang(inputs, outputs):
    time.sleep(1000)


def answers(record: Any) -> dict[str, str]:
    return {witness["runtime"]: witness["answer"] for witness in record.witnesses}


OPENERS = ((onnxruntime, "open_unoptimized"), (onnxreference, "open_model"), (openvino, "open_model"))


def break_all(break_opener: Any, *others: Alter | None, optimized: Alter = off) -> None:
    """ONNX Runtime is wrong; without its optimizer, the evaluator and OpenVINO do what ``others`` say."""
    break_opener(onnxruntime, "open_optimized", optimized)
    for place, alter in zip(OPENERS, others, strict=True):
        if alter is not None:
            break_opener(*place, alter)


# ---- witnesses that crash or hang ----------------------------------------------------------------------------------
@pytest.mark.parametrize("fails, how", [(crash, "SIGSEGV"), (hang, "timeout after 1 s")])
def test_of_a_witness_that_crashes_or_hangs_only_the_answer_is_lost(bench, break_opener, monkeypatch, fails, how):
    for module, name in ((other_runtime, "SECONDS"), (blame, "WALK_SECONDS")):
        monkeypatch.setattr(module, name, 1.0)
    break_all(break_opener, off, fails, off)
    record = bench.run(BODY)
    assert (record.status, record.stage, record.error) == ("failed", "compare", "WrongValue")
    assert answers(record)[REFERENCE] == "lost"
    assert f"the ONNX specification's evaluator: no answer, it ended with {how}" in details(record)


def test_a_model_that_only_crashes_elsewhere_is_not_accused(bench, break_opener):
    break_all(break_opener, crash, crash, crash)
    assert bench.run(BODY).fault is None


@with_openvino
def test_a_mistake_in_what_asks_is_no_failure_of_the_cell(bench, break_opener):
    def mistaken(*_: Any) -> str:
        raise KeyError("planted")

    break_all(break_opener, off, off, None)
    with wrapping(openvino, "no_witness", mistaken)(Planted()):
        record = bench.run(BODY)
    assert verdict(record)[:3] == ("failed", "compare", "WrongValue") and answers(record)[OPENVINO] == "lost"


# ---- questions in a process of their own ---------------------------------------------------------------------------
class Own(Exception):
    """Raised by a question."""


def raises() -> None:
    raise Own("planted")


def test_a_question_gives_back_what_it_returns_or_raises():
    assert np.array_equal(aside.ask(lambda: np.arange(1 << 20), 30), np.arange(1 << 20))
    with pytest.raises(Own, match="planted"):
        aside.ask(raises, 30)


@pytest.mark.parametrize("end, said", [
    (lambda: os._exit(3), "exit 3"), (lambda: os.kill(os.getpid(), signal.SIGSEGV), "SIGSEGV"),
])  # fmt: skip
def test_a_question_without_an_answer_says_how_its_process_ended(end, said):
    with pytest.raises(aside.Lost, match=f"^{said}$"):
        aside.ask(end, 30)


def test_a_question_leaves_nothing_running():
    def leaves() -> int:
        pid = os.fork()
        if not pid:
            time.sleep(1000)
        return pid

    pid = aside.ask(leaves, 30)
    for _ in range(100):
        status = Path(f"/proc/{pid}/stat")
        if not status.exists() or "Z" in status.read_text().split()[2]:
            return
        time.sleep(0.05)
    raise AssertionError("it still runs")


_SLOW: list[float] = []
"""Seconds that the next forks take before they do anything."""
os.register_at_fork(after_in_child=lambda: [time.sleep(seconds) for seconds in _SLOW])


def test_a_question_whose_time_is_over_before_it_is_begun_ends_too():
    _SLOW.append(60.0)
    start = time.monotonic()
    try:
        with pytest.raises(aside.Lost, match=r"^timeout after 0\.1 s$"):
            aside.ask(lambda: 1, 0.1)
    finally:
        _SLOW.clear()
    assert time.monotonic() - start < 30


class Waits:
    """An object in a circle whose end waits for a thread, as that of a compiled model does."""

    def __init__(self) -> None:
        self.itself, self.made_by = self, os.getpid()

    def __del__(self) -> None:
        if os.getpid() != self.made_by:
            time.sleep(1000)


def test_no_object_from_before_ends_in_the_process_of_a_question():
    Waits()
    assert aside.ask(lambda: gc.collect() >= 0, 20)


# ---- OpenVINO ------------------------------------------------------------------------------------------------------
CONVERTED = case_of(
    "torch.nn.functional.linear(x, torch.eye(4, 6)).relu()",
    "specials: false",
    "precisions: {fp16: {}, int8: {}}",
    "export: {torchscript: [17]}",
    dims="batch: 1..8",
    x="[batch, 6]",
)
"""Without two weights side by side, whose products 8-bit kernels of processors without VNNI would saturate."""


@with_openvino
@pytest.mark.parametrize("precision", ["fp32", "fp16", "int8"])
def test_openvino_runs_the_cells_that_name_it(bench, precision):
    record = bench.run(say(CONVERTED, "runtimes: openvino"), runtime="openvino", precision=precision)
    assert verdict(record) == PASSED and record.examples >= 8 and record.arithmetic["provider"] == "OpenVINO CPU"
    assert record.arithmetic["storage"] == {"fp32": "float32", "fp16": "float16", "int8": "int8"}[precision]
    assert ("int8" in record.arithmetic["arithmetic"]) is (precision == "int8")
    assert record.changed == []  # its telemetry would leave a thread and a process


@with_openvino
def test_kernels_that_do_not_compute_what_a_converted_model_means_are_named(bench):
    with planted(kernel(behind("DequantizeLinear", times(1.2)))):
        record = bench.run(say(CONVERTED, "runtimes: onnxruntime"), check="fidelity", precision="int8")
    assert verdict(record) == ("failed", "compare", "LowFidelity", "runtime")
    assert record.conclusion == "meaning" and answers(record)[OPENVINO] in ("agrees", "nearer")


@with_openvino
def test_openvino_takes_scalars_transposed_arrays_booleans_and_empty_ones(tmp_path):
    values = "(bool[a, 1] c, float[a, b] x, float w) => (float[a, b] y, bool[a, 1] n)"
    model = saved(tmp_path, f"{values} {{ y = Where (c, x, w) n = Not (c) }}")
    with openvino.open_model(model, ()) as session:
        for rows in (2, 3, 0):
            x = np.arange(4 * rows, dtype=np.float32).reshape(4, rows).T
            c = np.arange(rows).reshape(rows, 1) % 2 == 0
            y, n = session.run({"x": x, "w": np.array(7, np.float32), "c": c})
            assert np.array_equal(y, np.where(c, x, np.float32(7))) and np.array_equal(n, ~c)
            assert (y.dtype, n.dtype) == (np.float32, np.bool_)


def test_witnesses_that_are_wrong_with_outputs_of_their_own_accuse_no_exporter(bench, break_opener):
    break_all(break_opener, by(0.5), by(1e-2), by(-0.3), optimized=by(0.5))
    record = bench.run(BODY, runtime="onnx-reference")
    assert verdict(record) == ("failed", "compare", "WrongValue", None)
    assert answers(record)[UNOPTIMIZED] == "otherwise" and record.conclusion == "differ"
    told = text.failure(record)
    assert "is wrong too, with other outputs" in told and "they contradict each other" in told


def test_witnesses_of_the_same_wrong_dtype_agree_on_that_whatever_their_values(bench, break_opener):
    def wider(error):
        return lambda inputs, outputs: [outputs[0].astype(np.float64) + error]

    break_all(break_opener, wider(0.1), wider(0.2), None, optimized=wider(0.3))
    assert verdict(bench.run(BODY)) == ("failed", "compare", "WrongDtype", "exporter")


@with_openvino
def test_openvinos_dtypes_are_no_testimony(bench, break_opener):
    def wider(inputs, outputs):
        return [outputs[0].astype(np.float64)]

    for module, name in ((onnxruntime, "open_optimized"), *OPENERS[:2]):
        break_opener(module, name, wider)
    record = bench.run(BODY)
    assert verdict(record) == ("failed", "compare", "WrongDtype", "exporter")
    assert answers(record)[OPENVINO] == "abstains"


def saved(tmp_path: Path, graph: str, **constants: Any) -> Path:
    onnx.save(model_of(f"planted {graph}", **constants), tmp_path / "model.onnx")
    return tmp_path / "model.onnx"


INTEGERS = {"x": np.array([1, 2, 3])}
FLOATS = {"x": np.ones(3, np.float32), "z": np.zeros(3, np.float32)}


@pytest.mark.parametrize("operator, dtype, by, inputs, doubtful", [
    ("Mod", 7, np.array([3]), INTEGERS, False), ("Mod", 7, np.array([3, 0, 1]), INTEGERS, True),
    ("Mod", 7, None, {**INTEGERS, "z": np.zeros(3, np.int64)}, True), ("Div", 1, None, FLOATS, False),
    ("Add", 11, None, {name: array.astype("f8") for name, array in FLOATS.items()}, True),
    ("Add", 7, None, {"x": np.array([1 << 40, 1, 1]), "z": np.ones(3, np.int64)}, True),
])  # fmt: skip
def test_where_openvino_computes_otherwise_than_the_model_says_it_is_no_witness(
    tmp_path, operator, dtype, by, inputs, doubtful
):
    kind = {1: "float[3]", 7: "int64[3]", 11: "double[3]"}[dtype]
    given = f"({kind} x, {kind} z)" if by is None else f"({kind} x)"
    constants = {} if by is None else {"z": by}
    model = saved(tmp_path, f"{given} => ({kind} y) {{ y = {operator} (x, z) }}", **constants)
    assert (openvino.no_witness(model, inputs) is not None) is doubtful


@pytest.mark.parametrize("ask", [openvino.no_witness, onnxreference.no_witness])
@pytest.mark.parametrize("limits, value, doubtful", [
    ("z", np.inf, True), ("z", 1.0, False), ("zz", np.inf, False),
])  # fmt: skip
def test_a_clip_that_lacks_a_limit_and_meets_infinity_shows_nothing(tmp_path, ask, limits, value, doubtful):
    """ONNX says that the limit is the largest number then, as ONNX Runtime has it."""
    call = f"Clip ({', '.join(['x', *limits])})"
    model = saved(tmp_path, f"(float[3] x) => (float[3] y) {{ y = {call} }}", z=np.zeros((), np.float32))
    inputs = {"x": np.array([value, 1, 1], np.float32)}
    assert (ask(model, inputs) is not None) is doubtful


# ---- where OpenVINO is not there -----------------------------------------------------------------------------------
def test_a_host_without_openvino_is_asked_nothing_of_it(bench, break_opener, monkeypatch):
    monkeypatch.setitem(sys.modules, "openvino", None)
    assert OPENVINO not in [runtime.name for runtime in registry.second_opinions("onnxruntime")]
    break_all(break_opener, off, off, None)
    record = bench.run(BODY)
    assert verdict(record) == ("failed", "compare", "WrongValue", "exporter") and OPENVINO not in answers(record)


# ---- what a witness is allowed -------------------------------------------------------------------------------------
OFFSET = """
def draw(dims, rng):
    return {"x": (4096 + rng.integers(-8, 8, (dims["batch"], 8)) / 8).astype("float32")}
"""
CENTRED = case_of(
    "x - x.mean(-1, keepdim=True)", "draw: beside.draw", "specials: false", dims="batch: 1..4", x="[batch, 8]"
)


@pytest.mark.parametrize("error, fault", [(3e-4, "runtime"), (0.5, "exporter")])
def test_a_witness_is_allowed_what_the_conditioning_of_the_inputs_allows_the_suspect(
    bench, break_opener, error, fault
):
    """PyTorch's float32 is exact on these values, so that only the conditioning excuses the rounding of 4096."""
    break_all(break_opener, by(0.5), by(error), by(0.5), optimized=by(0.5))
    record = bench.run(CENTRED, OFFSET)
    assert verdict(record) == ("failed", "compare", "WrongValue", fault)


@with_openvino
def test_a_witness_is_asked_under_its_own_environment_and_leaves_that_of_the_process(
    monkeypatch, break_opener, tmp_path
):
    name, value = registry.named("openvino").witness_environment[0]
    monkeypatch.delenv(name, raising=False)
    for module, opener in OPENERS:
        break_opener(module, opener, lambda *_: [np.array(os.environ.get(name) == value)])
    model = saved(tmp_path, "(float[3] x) => (float[3] y) { y = Identity (x) }")
    asked = {one: other_runtime.ask(one, model, (), {"x": FLOATS["x"]}) for one in (OPENVINO, UNOPTIMIZED)}
    assert {one: [bool(array) for array in told.outputs or ()] for one, told in asked.items()} == {
        OPENVINO: [True], UNOPTIMIZED: [False],
    }  # fmt: skip
    assert name not in os.environ


def test_the_same_question_is_asked_once_and_another_runtime_option_or_input_anew(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(other_runtime, "answered", lambda question: asked.append(1) or question())
    onnx.save(model_of("g (float[3] x) => (float[3] y) { y = Sin (x) }", 17), tmp_path / "net.onnx")
    x, z = np.float32([1, 2, 3]), np.float32([1, 2, 4])

    def ask(values, runtime=UNOPTIMIZED, config=None):
        return other_runtime.ask(runtime, tmp_path / "net.onnx", [], {"x": values}, config).outputs[0]

    first = ask(x)
    first[:] = 7  # which is the caller's own
    assert np.allclose(ask(x), np.sin(x)) and len(asked) == 1
    ask(z), ask(x, REFERENCE), ask(x, "onnxruntime"), ask(x, "onnxruntime", {"session.set_denormal_as_zero": "1"})
    assert len(asked) == 5
    onnx.save(model_of("g (float[3] x) => (float[3] y) { y = Cos (x) }", 17), tmp_path / "net.onnx")
    assert np.allclose(ask(x), np.cos(x)) and len(asked) == 6


def test_an_answer_that_was_lost_is_asked_for_again(tmp_path, monkeypatch):
    onnx.save(model_of("g (float[3] x) => (float[3] y) { y = Sin (x) }", 17), tmp_path / "net.onnx")
    monkeypatch.setattr(other_runtime, "answered", lambda question: other_runtime.Asked(None, "lost", "SIGSEGV"))
    x = {"x": np.float32([1, 2, 3])}
    assert other_runtime.ask(UNOPTIMIZED, tmp_path / "net.onnx", [], x).answer == "lost"
    monkeypatch.undo()
    assert other_runtime.ask(UNOPTIMIZED, tmp_path / "net.onnx", [], x).answer == "runs"
