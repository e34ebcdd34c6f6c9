"""What the page of PyTorch's operators says of records."""

from __future__ import annotations

import json
from typing import Any

import pytest

from conformance.process.errors import UserError
from conformance.results.records.death import ENDED
from conformance.results.records.operator_table import FILE, read_table
from conformance.results.records.run_file import LINES
from evidence import operators
from evidence.operators import DATA, by_operator, of_samples, outcomes, ulp, wrong_table
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


WRONG = {"status": "failed", "stage": "compare", "error": "WrongValue", "unexplained": False}


@pytest.mark.parametrize(
    ("said", "fault", "place"),
    [
        ({"fault": "exporter", "operator": {"operator": "aten.any"}}, "exporter", "aten.any"),
        (
            {"fault": "exporter", "operator": {"operator": "aten.elu", "within": "aten.where"}},
            "exporter",
            "aten.where",
        ),
        ({"fault": "runtime", "parts_at": {"operator": "Elu"}}, "runtime", "Elu"),
        ({"fault": "runtime", "optimizer": {"passes": ["One", "Two"]}}, "runtime", "One, Two"),
        ({"fault": "reference"}, "PyTorch", None),
        ({"fault": None, "parts_at": {"operator": "Exp"}}, "open", "Exp"),
        ({"fault": None, "unexplained": True}, None, None),
    ],
)
def test_a_wrong_operator_is_somebodys(said: dict[str, Any], fault: str | None, place: str | None) -> None:
    worst = {"got": 1.0, "wanted": 1.0 + 2**-22, "ratio": 2.5}

    [one] = outcomes([record("accuracy", **{**WRONG, "worst": worst, **said})])

    assert (one.outcome, one.fault, one.place, one.ratio, one.ulp) == ("wrong", fault, place, 2.5, 2)


def test_what_is_not_wrong_is_nobodys() -> None:
    vacuous = {**WRONG, "error": "Vacuous", "fault": "case"}

    assert [one.fault for one in outcomes([record("accuracy"), record("accuracy", case="t-sin-0", **vacuous)])] == [
        None, None,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("got", "wanted", "steps"),
    [
        (0.0, -0.0, 0), (1.0, 1.0, 0), (-(2.0**-149), 2.0**-149, 2), (1.0, -1.0, 2 * 0x3F800000),
        ("nan", 1.0, None), (True, 1.0, None), (None, None, None),
    ],
)  # fmt: skip
def test_an_error_is_counted_in_units_in_the_last_place(got: object, wanted: object, steps: int | None) -> None:
    assert ulp(got, wanted) == steps


def test_the_page_lists_what_is_wrong_by_fault_with_the_worst_sample_of_each() -> None:
    small, large = ({**WRONG, "fault": "runtime", "worst": {"ratio": ratio}} for ratio in (2.0, "inf"))
    records = [
        record("accuracy", **small), record("accuracy", case="tensors-fft.rfft-4", **large),
        record("accuracy", case="tensors-any-0", **{**WRONG, "fault": "exporter"}),
        record("accuracy", case="tensors-sin-0"),
    ]  # fmt: skip

    _, _, *lines = wrong_table(by_operator(outcomes(records))["dynamo"]).splitlines()

    assert lines == [
        "| exporter | `any` | WrongValue |  |  |  |",
        "| runtime | `fft.rfft` | WrongValue |  | inf |  |",
    ]


def test_wrong_cells_are_asked_about_once_and_again_with_other_code(tmp_path: Any, monkeypatch: Any) -> None:
    asked: list[list[str]] = []

    def run(report: Any, *arguments: str) -> float:
        cells = [word.partition("::test_")[2] for word in arguments if "::" in word]
        asked.append(cells)
        report.mkdir(parents=True)
        told = [record("accuracy", id=cell, **{**WRONG, "unexplained": cell == "late"}) for cell in cells]
        (report / LINES).write_text("".join(f"{json.dumps(line)}\n" for line in (header, *told)), encoding="utf-8")
        return 1.0

    monkeypatch.setattr(operators, "_run", run)
    header = {"environment": {"code": "a", "versions": {}}}
    records = [record("accuracy", id=name, **WRONG) for name in ("early", "late")] + [record("accuracy", id="right")]
    for _ in range(2):
        known, _, _ = operators._explained(header, records, tmp_path)
        assert list(known) == ["early"]
    header = {"environment": {"code": "b", "versions": {}}}
    operators._explained(header, records, tmp_path)
    assert asked == [["early", "late"], ["late"], ["early", "late"]]


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
