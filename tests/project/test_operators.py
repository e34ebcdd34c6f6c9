"""What the page of PyTorch's operators says of records."""

from __future__ import annotations

import json
from typing import Any

import pytest

from conformance.process.errors import UserError
from conformance.results.records.death import ENDED
from conformance.results.records.operator_table import FILE, read_table
from evidence.operators import DATA, by_operator, of_samples, outcomes
from evidence.operators.table import as_data, lines_of, shipped


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


def table_of(calls: dict[tuple[str, int], list[str]], **by_sample: str) -> dict[str, Any]:
    """The shipped table of samples that dynamo made so much of, in the order of ``calls``."""
    said = {key: {"dynamo": {"outcome": outcome}} for key, outcome in zip(calls, by_sample.values(), strict=True)}
    table: dict[str, Any] = shipped(as_data(said, calls, {"format": 1}))["calls"]
    return {call: of["dynamo"] for call, of in table.items()}


def test_the_table_of_the_package_has_the_worst_of_the_samples_that_call_one_operator_alone() -> None:
    calls = {("pad.edge", 0): ["aten.pad.default"], ("pad.edge", 4): ["aten.pad.default"], ("two", 0): ["a.b", "a.c"]}

    table = table_of(calls, first="right", second="wrong", third="wrong")

    assert table == {"aten.pad.default": {"outcome": "wrong", "count": 1, "of": 2, "operator": "pad.edge"}}


def test_a_sample_of_another_operator_accuses_no_operator_that_has_its_own() -> None:
    calls = {
        ("masked.prod", 0): ["aten.to.dtype"], ("to", 3): ["aten.to.dtype"], ("norm.fro", 0): ["aten.linalg_norm.x"],
    }  # fmt: skip

    table = table_of(calls, masked="does not run", own="right", other="wrong")

    assert table["aten.to.dtype"]["outcome"] == "right" and table["aten.to.dtype"]["of"] == 1
    assert table["aten.linalg_norm.x"]["operator"] == "norm.fro"


def test_a_sample_at_which_a_process_ends_is_in_no_data_and_proves_nothing_right() -> None:
    ended = record("accuracy", "failed", stage="export", reason=f"{ENDED}: SIGSEGV")
    vacuous = record("accuracy", "failed", stage="compare", error="Vacuous", case="tensors-sin-0")
    found = of_samples(outcomes([ended, vacuous]))

    data = as_data(found, {("fft.rfft", 3): ["aten.fft"], ("sin", 0): ["aten.sin.default"]}, {"format": 1})

    assert list(data["operators"]) == ["sin"] and shipped(data)["calls"] == {}


def test_an_operator_that_the_installed_pytorch_lacks_is_a_sentence() -> None:
    found = of_samples(outcomes([record("accuracy")]))

    with pytest.raises(UserError, match=r"the run has fft.rfft, of which the installed PyTorch has no sample"):
        as_data(found, {("sin", 0): ["aten.sin.default"]}, {})


def test_the_package_has_the_table_of_the_data_that_is_shown() -> None:
    data = json.loads(DATA.read_text(encoding="utf-8"))

    assert lines_of(shipped(data)) == FILE.read_text(encoding="utf-8")
    assert len(read_table().calls) > 400
