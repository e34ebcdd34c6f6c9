"""Budgets of time in a case: what holds, is broken or cannot be decided, and where it is not measured at all."""

import contextlib
import gc
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from conformance.judge.latency.measure_latency import interleave
from tests.kit import clock
from tests.kit.cases import PASSED, QUICK, case_of, problems_of, say, verdict, write_case
from tests.kit.runs import run_suite
from tests.kit.runtimes import wrong_runtime

DOUBLES = Path(__file__).parent.parent / "doubles"
BODY = case_of("beside.product(x)", QUICK, dims="batch: 1..16", x="[batch, 16, 16]")
PYTHON = """
import torch
from tests.kit.clock import tick
def product(x):
    tick("pytorch", 1e-3)
    return torch.relu(x @ x.transpose(1, 2))
"""
TOO_SHORT = "latency: [{at_most: 1.1 x pytorch, seconds: 0.001}]"


@pytest.fixture(autouse=True)
def host(monkeypatch) -> Iterator[clock.Host]:
    """A host by whose clock PyTorch takes a millisecond, so that verdicts do not depend on how busy this one is."""
    found = clock.Host(clock.quiet(np.random.default_rng(0)))
    monkeypatch.setitem(interleave.__kwdefaults__, "clock", found.clock)
    clock.CURRENT.append(found)
    gc.freeze()  # each measurement collects garbage first, which would take longer than the simulation
    yield found
    gc.unfreeze()
    clock.CURRENT.remove(found)


def taking(seconds: float, *names: str) -> contextlib.AbstractContextManager[None]:
    """Have a call of each of these runtimes take that long by the host's clock: ONNX Runtime by default."""
    names = names or ("onnxruntime",)
    return wrong_runtime(lambda inputs, outputs: clock.tick("+".join(names), seconds, outputs), *names)


def budget(text: str) -> str:
    return say(BODY, f"latency: [{{{text}, seconds: 0.5}}]")


def run(bench, body: str, seconds: float = 1e-3):
    """The record of the only budget of a case, where ONNX Runtime and ONNX's evaluator take that long."""
    cell = bench.cell(body, PYTHON, check="latency")
    with taking(seconds, "onnxruntime", "onnx-reference"):
        return bench.run_cell(cell)


@pytest.mark.parametrize("at_most", [
    "50 x pytorch", "10 s",
    *(pytest.param(one, marks=pytest.mark.thorough) for one in ("50 x onnx-reference", "50 x onnxruntime fp16")),
])  # fmt: skip
def test_a_budget_with_room_holds_and_the_record_has_the_distribution(bench, at_most):
    record = run(bench, say(budget(f"at: {{batch: 4}}, at_most: {at_most}"), "precisions: {fp16: {}}"))
    assert verdict(record) == PASSED, record.reason
    (found,) = record.latency["budgets"]
    assert found["verdict"] == "holds" and found["high"] < found["limit"]
    assert record.latency["at"] == {"batch": 4} and record.latency["own"]["median"] == pytest.approx(1e-3, rel=0.02)
    assert len(record.latency["own"]["samples"]) >= 10
    other = record.latency["other"]
    assert (other and other["name"].removesuffix(" fp32")) == (at_most[5:] if " x " in at_most else None)


def test_a_runtime_that_is_slowed_down_breaks_its_budget(bench):
    body = budget("at_most: 5 x pytorch")
    assert verdict(run(bench, body, 2e-3)) == PASSED
    record = run(bench, body, 10e-3)
    assert verdict(record) == ("failed", "latency", "TooSlow", "runtime")
    assert "x pytorch (99% within" in record.reason and "at most 5" in record.reason
    assert record.latency["budgets"][0]["low"] > 5
    record = run(bench, budget("at_most: 2 ms, percentile: 90"), 10e-3)
    assert verdict(record) == ("failed", "latency", "TooSlow", "runtime")
    assert record.reason.startswith("percentile 90 ")


def test_sides_that_are_in_each_other_s_way_are_not_judged(bench, host):
    """PyTorch works twenty times as long right after ONNX Runtime, as a pool of threads does on a busy host: all
    budgets beside it would hold."""
    host.second_costs["pytorch"] = 20.0
    record = run(bench, say(BODY, "latency: [{at_most: 0.5 x pytorch, seconds: 3}]"))
    assert record.status == "skipped" and "inconclusive: pytorch takes" in record.reason
    assert "as long in turn with the other side as alone" in record.reason
    assert record.latency["budgets"][0]["verdict"] == "inconclusive"


def test_what_cannot_be_decided_is_skipped_and_never_passed(bench):
    """A millisecond is too short for any verdict."""
    record = run(bench, say(BODY, TOO_SHORT))
    assert record.status == "skipped" and record.reason.startswith("inconclusive: ")
    assert record.latency["budgets"][0]["verdict"] == "inconclusive"


def test_a_declared_budget_that_is_broken_is_an_expected_failure(bench):
    declared = "fails: [{when: {check: latency}, stage: latency, error: TooSlow, because: it is asked too much}]"
    body = say(budget("at_most: 5 x pytorch"), declared)
    assert [run(bench, body, seconds).status for seconds in (10e-3, 1e-3)] == ["xfailed", "xpassed"]


def test_throughput_is_measured_at_each_batch(bench):
    record = run(bench, budget("throughput: [1, 8]"))
    assert verdict(record) == PASSED
    rates = {one["batch"]: one["per_second"] for one in record.latency["throughput"]}
    assert rates == {1: pytest.approx(1000, rel=0.02), 8: pytest.approx(8000, rel=0.02)}
    assert record.latency["own"] is None


@pytest.mark.parametrize("body, error, words", [
    (budget("at: {batch: 99}, at_most: 9 x pytorch"), "NoSuchSize", "batch=99 is not within the dims"),
    (budget("throughput: [99]"), "NoSuchSize", "batch=99 is not within the dims"),
    (budget("throughput: [2]").replace("[batch, 16, 16]", "[2, batch, batch]"), "NoBatch", "first of every input"),
])  # fmt: skip
def test_a_size_that_the_case_does_not_have_stops_at_declare(bench, body, error, words):
    record = run(bench, body)
    assert verdict(record) == ("failed", "declare", error, "case") and words in record.reason


@pytest.mark.parametrize("entry, words", [
    ("{at_most: 1.2 x pytroch}", "did you mean 'pytorch'?"),
    ("{}", "give at_most (a budget), throughput (batch sizes), or both"),
    ("{at_most: 2 x pytorch, percentile: 99}", "percentile is for a budget in seconds"),
    ("{at_most: 2 x pytorch, transfers: true}", "transfers is for tensorrt"),
    ("{at_most: 2 x tensorrt fp16}", "the case has no precision 'fp16'"),
    ("{at_most: 2 x pytorch, at: {bacth: 2}}", "did you mean 'batch'?"),
    ("{at_most: 2 x pytorch, exporter: dynamo}", "dynamo is not one of the case's exporters"),
    ("{at_most: 2 x pytorch}, {at_most: 3 x pytorch}", "entry 1 is about the same"),
])  # fmt: skip
def test_a_budget_that_makes_no_sense_is_told_with_its_place(tmp_path, entry, words):
    text = "one:\n  about: x\n" + "".join(f"  {line}\n" for line in BODY.strip().splitlines())
    (problem,) = problems_of(tmp_path, f"{text}  latency: [{entry}]\n")
    assert words in problem.message and problem.line == 9


SUITE = budget("at: {batch: 4}, at_most: 50 x pytorch")


def test_m_latency_selects_the_budgets_and_pytest_benchmark_shows_and_stores_them(tmp_path):
    write_case(tmp_path / "cases", SUITE, PYTHON)
    with taking(1e-3):
        done = run_suite(tmp_path, "-m", "latency", "--isolation", "none", "--benchmark-json", "out.json")
    assert done.code == 0, done.text
    assert list(done.records) == ["latency[planted-torchscript-op17-onnxruntime-fp32-batch4]"]
    assert "holds" in done.text
    stored = json.loads((tmp_path / "out.json").read_text())
    assert [one["name"].partition(" (")[2] for one in stored["benchmarks"]] == ["", "other side: pytorch)"]
    assert all(one["stats"]["rounds"] >= 10 for one in stored["benchmarks"])


@pytest.mark.parametrize("arguments, code, status", [
    ((), 5, "skipped"), pytest.param(("--require", "latency"), 1, "failed", marks=pytest.mark.thorough),
])  # fmt: skip
def test_beside_other_cells_nothing_is_measured_and_the_run_says_so(tmp_path, arguments, code, status):
    write_case(tmp_path / "cases", SUITE, PYTHON)
    done = run_suite(tmp_path, "-m", "latency", "-n", "1", *arguments)
    (record,) = done.records.values()
    assert (record["status"], done.code) == (status, code) and "run it without -n" in record["reason"], done.text
    told = "NOT MEASURED: 1 budgets of time: latency is measured only where nothing runs beside it"
    assert (told in done.text) == (status == "skipped")


def test_require_latency_fails_what_cannot_be_decided(tmp_path):
    write_case(tmp_path / "cases", say(BODY, TOO_SHORT), PYTHON)
    with taking(1e-3):
        assert run_suite(tmp_path, "-m", "latency", "--isolation", "none").code == 5  # all skipped: no success
        done = run_suite(tmp_path, "-m", "latency", "--isolation", "none", "--require", "latency")
    assert done.code == 1
    (record,) = done.records.values()
    assert (record["status"], record["error"]) == ("failed", "Inconclusive")
    assert record["reason"].startswith("--require latency: inconclusive: ")


def test_int8_against_fp16_on_tensorrt_is_measured_by_its_own_events(tmp_path):
    """By the plain time of this host, so that it may stay open who is quicker, and nothing else."""
    body = say(
        BODY.replace("onnxruntime", "[onnxruntime, tensorrt]"),
        """
        precisions: {fp16: {}, int8: {}}
        tolerance: {int8: {sqnr: 10 dB, because: one product of small matrices}}
        latency:
          - {runtime: tensorrt, precision: int8, at_most: 100 x tensorrt fp16, seconds: 0.2}
          - {runtime: tensorrt, precision: fp16, at: {batch: 4}, at_most: 99 x pytorch, transfers: true, seconds: 0.2}
        """,
    )
    write_case(tmp_path / "cases", body, PYTHON)
    done = run_suite(tmp_path, "-m", "latency", "--require", "tensorrt", PYTHONPATH=str(DOUBLES))
    relation, transfers = done.records.values()
    for record in (relation, transfers):
        assert record["status"] == "passed" or "inconclusive: " in record["reason"], record["reason"]
    sides = [record["latency"][side] for record in (relation, transfers) for side in ("own", "other")]
    assert [(side["name"], side["clock"]) for side in sides] == [
        ("tensorrt int8", "device"), ("tensorrt fp16", "device"), ("tensorrt fp16", "device"), ("pytorch", "host"),
    ]  # fmt: skip
