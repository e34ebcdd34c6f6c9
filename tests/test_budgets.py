"""Budgets of time in a case: what holds, is broken or cannot be decided, and where it is not measured at all."""

from __future__ import annotations

import contextlib
import functools
import json
import time
from pathlib import Path
from typing import Any

import pytest

from conformance.checks import latency as budgets
from conformance.export import reference as pytorch
from conformance.latency import decide
from conformance.latency.measure import interleave
from conformance.runtimes import onnxruntime
from tests.support import PASSED, Outcome, problems_of, run_suite, say, verdict, write_case

DOUBLES = Path(__file__).parent / "doubles"
BODY = """
forward: torch.relu(x @ x.transpose(1, 2))
inputs: {x: "float32[batch, 16, 16]"}
dims: {batch: 1..16}
runtimes: onnxruntime
specials: false
export: {torchscript: [17]}
"""


TOO_SHORT = "latency: [{at_most: 1.1 x pytorch, seconds: 0.001}]"


@pytest.fixture(autouse=True)
def time_of_this_thread(monkeypatch):
    """Durations are the processor's time of this thread, which does all the work here: what else the host does is not
    in them. Whole pytest runs measure plain time, as users do."""
    measured = functools.partial(interleave, clock=time.thread_time_ns)
    for module in (budgets, decide):
        monkeypatch.setattr(module, "interleave", measured)


def undecided(done: Outcome) -> bool:
    """Whether a busy host kept a run from deciding on a budget, which is then no failure of anything."""
    errors = {(record["status"], record["error"]) for record in done.records.values()}
    told = [record["reason"] or "" for record in done.records.values() if record["status"] != "passed"]
    return (
        bool(told)
        and errors <= {("passed", None), ("skipped", None), ("failed", "Inconclusive")}
        and all("inconclusive: " in reason for reason in told)
    )


def budget(text: str) -> str:
    return say(BODY, f"latency: [{{{text}, seconds: 0.5}}]")


def run(bench, body: str):
    (cell,) = (cell for cell in bench.cells(body) if cell.check == "latency")
    return bench.run_cell(cell)


def decided(measure) -> Any:
    """The record of the first measurement that decides; a busy host may leave some open."""
    for _ in range(5):
        record = measure()
        if record.status != "skipped":
            return record
        assert record.reason.startswith("inconclusive: "), record.reason
    return record


def slow_down(monkeypatch, times: int) -> None:
    """By doing the work so many times; a sleep would let the cores and the other side's threads fall asleep too."""
    original = onnxruntime.open_optimized

    @contextlib.contextmanager
    def open_slow(model, libraries):
        with original(model, libraries) as session:
            quick = session.run
            session.run = lambda inputs: [quick(inputs) for _ in range(times)].pop()
            yield session

    monkeypatch.setattr(onnxruntime, "open_optimized", open_slow)


@pytest.mark.parametrize("at_most", ["50 x pytorch", "50 x onnx-reference", "10 s"])
def test_a_budget_with_room_holds_and_the_record_has_the_distribution(bench, at_most):
    record = run(bench, budget(f"at: {{batch: 4}}, at_most: {at_most}"))
    assert verdict(record) == PASSED, record.reason
    (found,) = record.latency["budgets"]
    assert found["verdict"] == "holds"
    assert found["high"] < found["limit"]
    assert record.latency["at"] == {"batch": 4}
    assert record.latency["own"]["median"] > 0
    assert len(record.latency["own"]["samples"]) >= 10
    assert (record.latency["other"] is None) == at_most.endswith(" s")
    assert record.latency["host"]["cores"] >= 1
    assert json.dumps(record.as_dict()["latency"])


@pytest.fixture(autouse=True)
def one_thread():
    """PyTorch's side without a pool of threads: on a busy host two of them may wait for one another a thousand times
    as long as they compute, and then every runtime is quick beside them."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def test_a_runtime_that_is_slowed_down_breaks_its_budget(bench, monkeypatch):
    body = say(BODY, "latency: [{at_most: 5 x pytorch, seconds: 3}]")
    assert verdict(decided(lambda: run(bench, body))) == PASSED
    slow_down(monkeypatch, 100)
    record = decided(lambda: run(bench, body))
    assert verdict(record) == ("failed", "latency", "TooSlow", "runtime")
    assert "x pytorch (99% within" in record.reason
    assert "at most 5" in record.reason
    assert record.latency["budgets"][0]["low"] > 5


def test_sides_that_are_in_each_other_s_way_are_not_judged(bench, monkeypatch):
    """PyTorch works a thousand times as long right after ONNX Runtime, as a pool of threads does on a busy host: all
    budgets beside it would hold."""
    caller, open_optimized = pytorch.Reference.caller, onnxruntime.open_optimized
    last = [""]

    def disturbed_caller(self, inputs):
        quick = caller(self, inputs)

        def run():
            times, last[0] = 1000 if last[0] == "onnxruntime" else 1, "pytorch"
            return [quick() for _ in range(times)].pop()

        return run

    @contextlib.contextmanager
    def open_disturbing(model, libraries):
        with open_optimized(model, libraries) as session:
            quick = session.run

            def run(inputs):
                last[0] = "onnxruntime"
                return quick(inputs)

            session.run = run
            yield session

    monkeypatch.setattr(pytorch.Reference, "caller", disturbed_caller)
    monkeypatch.setattr(onnxruntime, "open_optimized", open_disturbing)
    record = run(bench, say(BODY, "latency: [{at_most: 0.1 x pytorch, seconds: 2}]"))
    assert record.status == "skipped"
    assert "inconclusive: pytorch takes" in record.reason
    assert "as long in turn with the other side as alone" in record.reason
    assert record.latency["budgets"][0]["verdict"] == "inconclusive"


def test_a_time_that_is_too_long_is_found_too(bench, monkeypatch):
    slow_down(monkeypatch, 1000)
    record = run(bench, budget("at_most: 2 ms, percentile: 90"))
    assert verdict(record) == ("failed", "latency", "TooSlow", "runtime")
    assert record.reason.startswith("percentile 90 ")


def test_what_cannot_be_decided_is_skipped_and_never_passed(bench):
    """A millisecond is too short for any verdict."""
    record = run(bench, say(BODY, TOO_SHORT))
    assert record.status == "skipped"
    assert record.reason.startswith("inconclusive: ")
    assert record.latency["budgets"][0]["verdict"] == "inconclusive"


def test_a_declared_budget_that_is_broken_is_an_expected_failure(bench):
    declared = "fails: [{when: {check: latency}, stage: latency, error: TooSlow, because: it is asked too much}]"
    record = run(bench, say(budget("at_most: 0.0001 x pytorch"), declared))
    assert record.status == "xfailed"
    record = run(bench, say(budget("at_most: 500 x pytorch"), declared))
    assert record.status == "xpassed"


def test_throughput_is_measured_at_each_batch(bench):
    record = run(bench, budget("throughput: [1, 8]"))
    assert verdict(record) == PASSED
    assert [one["batch"] for one in record.latency["throughput"]] == [1, 8]
    assert all(one["per_second"] > 0 for one in record.latency["throughput"])
    assert record.latency["own"] is None


@pytest.mark.parametrize("text, error, words", [
    ("at: {batch: 99}, at_most: 9 x pytorch", "NoSuchSize", "batch=99 is not within the dims"),
    ("throughput: [99]", "NoSuchSize", "batch=99 is not within the dims"),
])  # fmt: skip
def test_a_size_that_the_case_does_not_have_stops_at_declare(bench, text, error, words):
    record = run(bench, budget(text))
    assert (record.status, record.stage, record.error, record.fault) == ("failed", "declare", error, "case")
    assert words in record.reason


def test_throughput_without_a_batch_is_the_cases_mistake(bench):
    body = BODY.replace("[batch, 16, 16]", "[2, batch, batch]").replace("specials", "examples: {shapes: 1}\nspecials")
    record = run(bench, say(body, "latency: [{throughput: [2]}]"))
    assert (record.stage, record.error, record.fault) == ("declare", "NoBatch", "case")


@pytest.mark.parametrize("entry, words", [
    ("{at_most: 1.2 y pytorch}", "is no budget"),
    ("{at_most: 1.2 x pytroch}", "did you mean 'pytorch'?"),
    ("{at_most: 5}", "no unit"),
    ("{at_most: 5 MS}", "did you mean 'ms'?"),
    ("{at_most: -1 x pytorch}", "above 0"),
    ("{}", "give at_most (a budget), throughput (batch sizes), or both"),
    ("{at_most: 2 x pytorch, percentile: 99}", "percentile is for a budget in seconds"),
    ("{at_most: 2 x pytorch, transfers: true}", "transfers is for tensorrt"),
    ("{at_most: 2 x tensorrt fp16}", "the case has no precision 'fp16'"),
    ("{at_most: 2 x pytorch, precision: int8}", "the case has no precision 'int8'"),
    ("{at_most: 2 x pytorch, at: {bacth: 2}}", "did you mean 'batch'?"),
    ("{at_most: 2 x pytorch, exporter: dynamo}", "dynamo is not one of the case's exporters"),
    ("{at_most: 2 x pytorch}, {at_most: 3 x pytorch}", "entry 1 is about the same"),
])  # fmt: skip
def test_a_budget_that_makes_no_sense_is_told_with_its_place(tmp_path, entry, words):
    text = "one:\n  about: x\n" + "".join(f"  {line}\n" for line in BODY.strip().splitlines())
    (problem,) = problems_of(tmp_path, f"{text}  latency: [{entry}]\n")
    assert words in problem.message
    assert problem.line == 9


def test_each_entry_is_a_cell_with_a_name_of_its_own(bench):
    entries = (
        "latency: [{at: {batch: 1}, at_most: 9 x pytorch}, {at: {batch: 2}, at_most: 9 x pytorch}, {throughput: 1}]"
    )
    cells = [cell for cell in bench.cells(say(BODY, entries)) if cell.check == "latency"]
    assert [cell.label.partition("fp32")[2] for cell in cells] == ["-batch1", "-batch2", "-throughput"]


# ---- as a user types it -------------------------------------------------------------------------------------

SUITE = budget("at: {batch: 4}, at_most: 50 x pytorch")


def test_m_latency_selects_the_budgets_and_pytest_benchmark_shows_and_stores_them(tmp_path):
    write_case(tmp_path / "cases", SUITE)
    done = run_suite(tmp_path, "-m", "latency", "--benchmark-json", "out.json")
    assert done.code == 0 or undecided(done), done.text
    assert list(done.records) == ["latency[planted-torchscript-op17-onnxruntime-fp32-batch4]"]
    assert "holds" in done.text or undecided(done)
    stored = json.loads((tmp_path / "out.json").read_text())
    assert [one["name"].partition(" (")[2] for one in stored["benchmarks"]] == ["", "other side: pytorch)"]
    assert all(one["stats"]["rounds"] >= 10 for one in stored["benchmarks"])


def test_beside_other_cells_nothing_is_measured_and_the_run_says_so(tmp_path):
    write_case(tmp_path / "cases", SUITE)
    done = run_suite(tmp_path, "-n", "2")
    assert done.code == 0, done.text
    record = done.records["latency[planted-torchscript-op17-onnxruntime-fp32-batch4]"]
    assert record["status"] == "skipped"
    assert "NOT MEASURED: 1 budgets of time: latency is measured only where nothing runs beside it" in done.text
    assert run_suite(tmp_path, "-n", "2", "--require", "latency").code == 1


def test_require_latency_fails_what_cannot_be_decided(tmp_path):
    write_case(tmp_path / "cases", say(BODY, TOO_SHORT))
    assert run_suite(tmp_path, "-m", "latency").code == 5  # all skipped: no success
    done = run_suite(tmp_path, "-m", "latency", "--require", "latency")
    assert done.code == 1
    (record,) = done.records.values()
    assert (record["status"], record["error"]) == ("failed", "Inconclusive")
    assert record["reason"].startswith("--require latency: inconclusive: ")


def test_int8_against_fp16_on_tensorrt_measured_by_its_own_events(tmp_path):
    body = say(
        BODY.replace("onnxruntime", "[onnxruntime, tensorrt]"),
        """
        precisions: {fp16: {}, int8: {}}
        tolerance: {int8: {sqnr: 10 dB, because: one product of small matrices}}
        latency:
          - {runtime: tensorrt, precision: int8, at_most: 100 x tensorrt fp16, seconds: 0.5}
          - {runtime: tensorrt, precision: fp16, at: {batch: 4}, at_most: 99 x pytorch, transfers: true, seconds: 1}
          - {runtime: tensorrt, throughput: [1, 4]}
        """,
    )
    write_case(tmp_path / "cases", body)
    done = run_suite(tmp_path, "-m", "latency", "--require", "tensorrt", PYTHONPATH=str(DOUBLES))
    assert done.code == 0 or undecided(done), done.text
    latencies = [record["latency"] for record in done.records.values()]
    assert len(latencies) == 3
    assert [one["own"] and one["own"]["clock"] for one in latencies] == ["device", "device", None] or {
        one["own"]["clock"] for one in latencies if one["own"]
    } == {"device"}
