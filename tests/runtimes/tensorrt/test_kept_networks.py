"""What an earlier run computed of a network: taken again and compared again, and by no other version or code."""

import resource

import pytest

from conformance.models.kept.answers import KeptAnswers
from conformance.runtimes.tensorrt.build import parse
from conformance.runtimes.tensorrt.network.evaluation import NetworkEvaluator
from conformance.runtimes.tensorrt.network.network_session import NetworkSession
from conformance.runtimes.tensorrt.rtx import absence
from tests.kit.calls import count_calls
from tests.kit.cases import PASSED, say, verdict
from tests.runtimes.tensorrt.support import LINEAR, PRECISIONS, PYTHON
from tests.runtimes.tensorrt.test_meaning import CHECK, SELU

pytestmark = pytest.mark.skipif(absence() is not None, reason=f"{absence()}")
SOUND = SELU.replace("F.selu(x * 2)", "F.leaky_relu(x * 2, 0.2)")
LOOSE = "tolerance: {fp32: {rtol: 0.1, atol: 0.1, because: a trial}}"
DECLARED = "fails: [{when: {runtime: tensorrt-rtx}, stage: compare, error: WrongValue, because: a trial}]"


def counted(bench, body, python="", precision="fp32", **more):
    """The record of a run that keeps answers in the folder of the bench, and how often TensorRT parsed a model
    (``parse``) and a network was computed (``run``)."""
    cell = bench.cell(body, python, **CHECK, precision=precision)
    with count_calls(parse, NetworkEvaluator.run) as counts:
        record = bench.run_cell(cell, **{"examples": 4, "answers": bench.folder / "answers", **more})
    return record, counts


@pytest.mark.parametrize("precision", ["fp32", "fp16", "int8"])
def test_a_second_run_parses_nothing_and_says_the_same(bench, precision):
    body = say(LINEAR, PRECISIONS)
    first, counts = counted(bench, body, PYTHON, precision)
    assert verdict(first) == PASSED and counts["parse"] and counts["run"] >= 4, first.reason
    second, counts = counted(bench, body, PYTHON, precision)
    assert not counts
    for name in ("status", "examples", "worst", "draw", "histogram", "arithmetic", "ill_conditioned"):
        assert getattr(second, name) == getattr(first, name), name


def test_more_examples_are_computed_and_kept(bench):
    counted(bench, SOUND)
    record, counts = counted(bench, SOUND, examples=9)
    assert verdict(record) == PASSED and 0 < counts["run"] < record.examples
    assert not counted(bench, SOUND, examples=9)[1]


def processor_seconds():
    return resource.getrusage(resource.RUSAGE_SELF).ru_utime


def test_examples_for_which_the_time_did_not_last_are_left_out_again(bench, monkeypatch):
    """Else each run from the store would compute others, until none is left."""
    quick = NetworkSession.run

    def slow(*asked):
        # A fifth of the budget on any processor. A clock of ``time`` would be taken for one that the case reads.
        end = processor_seconds() + 0.3
        while processor_seconds() < end:
            pass
        return quick(*asked)

    monkeypatch.setattr(NetworkSession, "run", slow)
    first, counts = counted(bench, SOUND, budget=1.5)
    assert verdict(first) == PASSED and counts["run"] < 7, first.reason
    second, counts = counted(bench, SOUND, budget=1.5)
    assert not counts and second.left_out == first.left_out is not None and second.examples == first.examples


@pytest.mark.parametrize("changed", ["the version", "the code"])
def test_what_another_version_or_other_code_computed_is_computed_anew(bench, monkeypatch, changed):
    counted(bench, SOUND)
    if changed == "the version":
        monkeypatch.setattr("tensorrt_rtx.__version__", "9.9")
    record, counts = counted(bench, SOUND, suite="other code" if changed == "the code" else "")
    assert verdict(record) == PASSED and counts["parse"] and counts["run"] >= 4


def test_another_tolerance_judges_what_is_kept(bench):
    """A network that is red by it is parsed again, and explained."""
    loose, counts = counted(bench, say(SELU, LOOSE))
    assert verdict(loose) == PASSED and counts["run"]
    assert not counted(bench, say(SELU, LOOSE.replace("0.1", "0.2")))[1]
    strict, counts = counted(bench, SELU)
    assert verdict(strict) == ("failed", "compare", "WrongValue", "runtime") and counts["parse"]
    assert (strict.parts_at["how"], strict.parts_at["operator"]) == ("parsed", "Selu")


def test_kept_values_that_are_wrong_accuse_nobody(bench, monkeypatch):
    assert verdict(counted(bench, SOUND)[0]) == PASSED
    kept = KeptAnswers.outputs
    monkeypatch.setattr(KeptAnswers, "outputs", lambda *asked: [one + 1 for one in kept(*asked) or ()] or None)
    record, counts = counted(bench, SOUND)
    assert verdict(record) == PASSED and counts["parse"] and counts["run"]


def test_a_declared_failure_is_compared_again(bench):
    first, counts = counted(bench, say(SELU, DECLARED))
    assert first.status == "xfailed" and counts["run"]
    second, counts = counted(bench, say(SELU, DECLARED))
    assert (second.status, second.error, second.worst) == ("xfailed", "WrongValue", first.worst) and not counts


def test_a_model_that_is_refused_is_not_parsed_again(bench, monkeypatch):
    body = SELU.replace("F.selu(x * 2) + 1", "torch.linalg.det(x[:, :, None] * x[:, None])")
    first, _ = counted(bench, body)
    second, counts = counted(bench, body)
    assert not counts and first.status == "skipped" and (second.status, second.reason) == ("skipped", first.reason)
    monkeypatch.setattr("tensorrt_rtx.__version__", "9.9")
    assert counted(bench, body)[1]["parse"]
