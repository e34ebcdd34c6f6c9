"""The benchmark of sound modules counts right: what is red, what somebody looked at, and what is out of date."""

from typing import Any

import pytest

from benchmarks.common import ENDED, Row
from evidence.accusations.looked_at import Entry, judge
from evidence.accusations.page import rows_of
from evidence.accusations.run import Outcome, Red, Study
from evidence.converted.study import result_of

ROWS = {"false": "false accusations", "unknown": "reds that nobody has looked at"}


def red(module: str = "ReLU_0", **differs: Any) -> Red:
    said = {"exporter": "dynamo", "runtime": "onnxruntime", "check": "accuracy", "stage": "compare"}
    return Red(module, **{**said, "error": "WrongValue", "fault": "runtime", "reason": "", "seeds": [1], **differs})


def entry(*modules: str, verdict: Any = "real", **differs: Any) -> Entry:
    said = {"errors": ("WrongValue",), "fault": "runtime", "shown": "NumPy says so"}
    return Entry(modules or ("ReLU_0",), verdict=verdict, **{**said, **differs})


def seen(*reds: Red) -> Study:
    """A run of 400 modules, of which the first few have these reds."""
    names = dict.fromkeys([*(one.module for one in reds), *(f"Module_{number}" for number in range(400))])
    outcomes = [
        Outcome(name, name, 1.0, {"dynamo": 5}, {"dynamo": 40}, reds=[one for one in reds if one.module == name])
        for name in list(names)[:400]
    ]
    return Study("usual", outcomes, {"Odd_0": "is random"}, 1.0, whole=True)


def met(study: Study, *entries: Entry) -> dict[str, Row]:
    by_name = {row.what: row for row in rows_of(study, entries)}
    return {short: by_name[name] for short, name in ROWS.items()}


def test_reds_meet_their_targets_where_all_were_looked_at_and_are_real():
    def measured(*entries: Entry, reds: tuple[Red, ...] = (red(),)) -> tuple[str, str]:
        rows = met(seen(*reds), *entries)
        assert [rows[short].met for short in ("false", "unknown")] == [
            rows[short].measured == "0" for short in ("false", "unknown")
        ]
        return rows["false"].measured, rows["unknown"].measured

    assert measured(reds=()) == measured(entry()) == ("0", "0")
    assert measured(entry(), reds=(red(), red("GELU_1"))) == ("0", "1")
    assert measured(entry(verdict="false")) == ("1", "0")


@pytest.mark.parametrize("differs", [
    {"fault": "exporter"}, {"fault": None}, {"error": "WrongNaN"}, {"exporter": "torchscript"},
    {"check": "specials"}, {"runtime": "onnx-reference"}, {"reason": "output 1"},
])  # fmt: skip
def test_another_error_or_another_blame_is_another_red(differs):
    said = {"exporter": "dynamo", "runtime": "onnxruntime", "check": "accuracy", "reason": "output 0"}
    exact = entry(**said)
    assert not judge([red(reason="output 0: 3 of 4")], [exact], whole=True).of("not looked at")
    assert not judge([red()], [entry(errors=("WrongInf", "WrongValue"))], whole=True).of("not looked at")
    other = red(**{"reason": "output 0: 3 of 4", **differs})
    assert judge([other], [exact], whole=True).of("not looked at") == [other]


def record(**says: Any) -> dict[str, Any]:
    usual = {"id": "one", "status": "failed", "check": "accuracy", "error": "WrongValue", "reason": "", "cause": None}
    return {**usual, **says}


@pytest.mark.parametrize("result, records", [
    ("right", []), ("accused", [record()]), ("accused", [record(check="fidelity", error="InvalidArgument")]),
    ("right", [record(id="uncounted")]), ("a setting named", [record(cause={"name": "setting"})]),
    ("accused", [record(cause={"name": "setting"}), record()]),
    ("loses too much", [record(check="fidelity", error="LowFidelity"), record(cause={"name": "setting"})]),
    ("saturates", [record(cause={"name": "saturation"}), record(cause={"name": "setting"})]),
    ("accused", [record(cause={"name": "saturation"}), record()]),
    ("ends a runtime's process", [record(reason=f"x {ENDED} y"), record(cause={"name": "saturation"})]),
])  # fmt: skip
def test_a_red_of_a_converted_file_is_an_accusation_but_for_a_setting_and_a_loss(result, records):
    assert (
        result_of({"records": records, "uncounted": ["uncounted"], "verified": {"onnxruntime": ["int8"]}}) == result
    )
    assert records or result_of({"records": [], "uncounted": [], "verified": {}}) == "not verified"
