"""The benchmark of known culprits: what counts as named, and that plants are defects, those in PyTorch too."""

import sys
from collections.abc import Iterator
from typing import Any

import pytest

from conformance.results.records.findings import key_of
from conformance.results.records.record import Record
from evidence.culprits import run as runs
from evidence.culprits.run import Outcome, part
from evidence.culprits.score import verdict
from tests.kit.cases import say
from tests.plants import edits
from tests.plants import sound as of
from tests.plants.culprits import reference
from tests.plants.plant import CULPRITS, Plant, Written
from tests.plants.planted import cell_of, walk
from tests.plants.planting import exported, kernel, optimizer, refusing


def record(fault: str | None, **more: Any) -> dict[str, Any]:
    fields = {"status": "failed", "stage": "compare", "error": "WrongValue", "conclusion": None, "reason": "planted"}
    return {**fields, "witnesses": [], "own_code": [], "cause": None, "fault": fault, **more}


OPTIMIZER = record("runtime", conclusion="optimizer")
NAMES = {
    "exporter": record("exporter"), "optimizer": OPTIMIZER, "kernel": record("runtime"),
    "conversion": record("precision"), "reference": record("reference"), "case": record("case"),
    "host": record("harness", error="CannotWrite"),
}  # fmt: skip


@pytest.mark.parametrize("culprit", CULPRITS)
def test_the_record_that_names_the_culprit_is_right_and_any_other_is_wrong(culprit):
    found = {who: verdict(culprit, False, NAMES[who]) for who in CULPRITS}
    others = dict.fromkeys(CULPRITS, "wrong")
    if culprit == "optimizer":  # ONNX Runtime is named, only not which part of it
        others["kernel"] = "open"
    assert found == {**others, culprit: "right"}


@pytest.mark.parametrize("culprit", CULPRITS)
def test_no_fault_is_open_no_failure_is_not_found_and_a_mistake_of_the_harness_is_wrong(culprit):
    assert verdict(culprit, False, record("harness", error="KeyError")) == "wrong"
    assert verdict(culprit, False, record(None, conclusion="nobody")) == "open"
    assert verdict(culprit, False, record(None, status="passed")) == "not found"


def test_a_wrong_symbolic_of_the_cases_own_has_to_be_named_as_such():
    assert verdict("exporter", True, record("exporter", own_code=["beside.symbolic for aten::sub"])) == "right"
    assert verdict("exporter", True, record("exporter")) == "wrong"
    assert verdict("exporter", True, record("case")) == "right"


def test_every_plant_is_one_cell_of_a_case_that_can_be_read(tmp_path):
    for number, (_, plant) in enumerate(runs.plants()):
        for written in {plant.case, plant.twin} - {None}:
            assert written is not None
            folder = tmp_path / f"{number}-{written is plant.case}"
            assert cell_of(plant, written, folder).check == plant.check


HALF = edits.behind("Sin", edits.times(0.5))
OWN = [
    Plant("half of an export", "exporter", of.SIN, exported(HALF)),
    Plant("half by a kernel", "kernel", of.SIN, kernel(HALF)),
    Plant("half by an optimizer", "optimizer", of.SIN, optimizer(HALF)),
    Plant("half, and someone else is named", "conversion", of.SIN, kernel(HALF)),
    Plant("nowhere to be planted", "exporter", of.SIN, exported(edits.left_out("Conv"))),
    Plant("planted and harmless", "kernel", of.SIN, kernel(edits.behind("Sin", edits.times(1)))),
    Plant("not implemented", "kernel", of.SIN, refusing("Sin", "NotImplemented", "planted")),
    Plant("too few outputs", "case", Written(f"{of.SIN.body}\noutputs: [a, b]"), sound=of.SIN),
]


def plants() -> Iterator[Plant]:
    """This module is a table, which workers import."""
    yield from OWN


@pytest.fixture(scope="module")
def outcomes() -> list[Outcome]:
    return list(part(0, 1, 1, tables=[sys.modules[__name__]]))


def test_plants_are_run_and_scored(outcomes):
    found = {(outcome.culprit, outcome.name): (outcome.verdict, outcome.counts) for outcome in outcomes}
    assert found == {
        ("exporter", "half of an export"): ("right", True), ("kernel", "half by a kernel"): ("right", True),
        ("optimizer", "half by an optimizer"): ("right", True),
        ("conversion", "half, and someone else is named"): ("wrong", True),
        ("exporter", "nowhere to be planted"): ("not found", False),
        ("kernel", "planted and harmless"): ("not found", True), ("kernel", "not implemented"): ("right", True),
        ("case", "too few outputs"): ("right", True),
    }  # fmt: skip


def test_of_a_converted_model_the_optimizer_is_named():
    (outcome,) = part(0, 1, 1, "optimizer: an activation lost in a converted model, fp16")
    assert (outcome.record["fault"], outcome.record["conclusion"]) == ("runtime", "optimizer")


VECTOR = "inputs: {x: 'float32[batch, 16]'}\ndims: {batch: 1..4}"


@pytest.mark.parametrize("name, operator", [
    ("an error function one part in a thousand off", "aten.erf"),
    ("a softmax with a sum in half precision", "aten._softmax"),
])  # fmt: skip
def test_the_operator_that_is_wrong_in_pytorch_makes_one_finding_of_all_cases(name, operator):
    (plant,) = (plant for plant in reference.plants() if plant.name == name)
    (seen,) = walk("tests.plants.culprits.reference", [plant], True)
    assert seen.record["fault"] == "reference" and seen.record["operator"]["operator"] == operator
    assert key_of(Record.from_dict(seen.record))[2:4] == ("operator", operator)


@pytest.mark.parametrize("forward", [
    "torch.floor(x / 0.1)",
    "(x * x).sum(1) - x.sum(1) ** 2 / 16",
    "x.exp() / (1 + x.exp())",
    "F.glu(x)",  # below float32's normal numbers, its sigmoid is zero by one form and not by another
])  # fmt: skip
def test_rounding_and_overflow_are_no_wrong_reference(bench, forward):
    """On every regime: jumps at ties, cancellation of offsets, exponentials beyond float32."""
    record = bench.run(say(f"forward: {forward}", VECTOR))
    assert record.fault != "reference" and record.error != "WrongReference"
