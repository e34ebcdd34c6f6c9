"""What the page of PyTorch's operators says of records."""

from __future__ import annotations

from typing import Any

import pytest

from conformance.results.records.death import ENDED
from evidence.operators import by_operator, outcomes


def record(check: str, status: str = "passed", **more: object) -> dict[str, Any]:
    said = {"case": "tensors-fft.rfft-3", "exporter": "dynamo", "check": check, "status": status}
    return {**said, "stage": None, "error": None, "reason": None, "examples": 2, **more}


@pytest.mark.parametrize(
    ("of_run", "outcome"),
    [
        ({}, "right"),
        ({"status": "failed", "stage": "compare", "error": "WrongValue"}, "wrong"),
        ({"status": "failed", "stage": "compare", "error": "Vacuous"}, "proves nothing"),
        ({"status": "failed", "stage": "export", "error": "ConversionError"}, "not exported"),
        ({"status": "failed", "stage": "load", "error": "Fail"}, "does not run"),
        ({"status": "failed", "stage": "export", "reason": f"{ENDED}: SIGSEGV"}, "the process ends"),
        ({"status": "skipped"}, "no verdict"),
    ],
)
def test_what_a_runtime_made_of_a_sample_decides(of_run: dict[str, Any], outcome: str) -> None:
    [one] = outcomes([record("export"), record("accuracy", **of_run)])

    assert (one.operator, one.sample, one.exporter, one.outcome) == ("fft.rfft", 3, "dynamo", outcome)


def test_a_model_that_cannot_be_exported_is_no_wrong_one() -> None:
    [one] = outcomes([record("export", "failed", stage="export", error="PassError"), record("accuracy", "skipped")])

    assert (one.outcome, one.error) == ("not exported", "PassError")


def test_the_worst_sample_stands_for_its_operator() -> None:
    wrong = record("accuracy", "failed", stage="compare", error="WrongShape", case="tensors-fft.rfft-9")

    [samples] = by_operator(outcomes([record("accuracy"), wrong]))["dynamo"].values()

    assert [one.outcome for one in samples] == ["wrong", "right"]
