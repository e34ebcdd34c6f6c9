"""The benchmark of sound modules counts right: what is red, what somebody looked at, and what is out of date."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from benchmarks.accusations import looked_at
from benchmarks.accusations.looked_at import Entry, judge, read
from benchmarks.accusations.page import rows_of, text_of
from benchmarks.accusations.run import Outcome, Red, Study, run_cases
from benchmarks.common import Row
from conformance import runtimes
from conformance.case.file import load
from tests.support import Bench, altered, write_case

ROWS = {
    "modules": "sound modules",
    "false": "false accusations",
    "unknown": "reds that nobody has looked at",
    "gone": "what was looked at and is not red on this processor",
}


def red(module: str = "ReLU_0", **differs: Any) -> Red:
    said = {"exporter": "dynamo", "runtime": "onnxruntime", "check": "accuracy", "stage": "compare"}
    return Red(module, **{**said, "error": "WrongValue", "fault": "runtime", "reason": "", "seeds": [1], **differs})


def entry(*modules: str, verdict: Any = "real", **differs: Any) -> Entry:
    said = {"errors": ("WrongValue",), "fault": "runtime", "shown": "NumPy says so"}
    return Entry(modules or ("ReLU_0",), verdict=verdict, **{**said, **differs})


def seen(*reds: Red, modules: int = 400, whole: bool = True) -> Study:
    """A run of so many modules, of which the first few have these reds."""
    names = dict.fromkeys([*(one.module for one in reds), *(f"Module_{number}" for number in range(modules))])
    outcomes = [
        Outcome(name, name, 1.0, {"dynamo": 5}, {"dynamo": 40}, reds=[one for one in reds if one.module == name])
        for name in list(names)[:modules]
    ]
    return Study(outcomes, {"Odd_0": "is random"}, 10, 1.0, whole)


def met(study: Study, *entries: Entry) -> dict[str, Row]:
    by_name = {row.what: row for row in rows_of(study, entries)}
    return {short: by_name[name] for short, name in ROWS.items()}


def test_a_run_without_reds_meets_every_target() -> None:
    assert {short: row.met for short, row in met(seen()).items()} == {**dict.fromkeys(ROWS, True), "gone": None}


def test_too_few_modules_are_not_enough_unless_a_part_was_asked_for() -> None:
    assert met(seen(modules=399))["modules"].met is False
    assert met(seen(modules=40, whole=False))["modules"].met is None


def test_a_red_that_is_real_is_no_accusation() -> None:
    rows = met(seen(red()), entry())
    assert {name: row.met for name, row in rows.items() if row.target} == dict.fromkeys(
        ("modules", "false", "unknown"), True
    )
    assert [rows[one].measured for one in ("false", "unknown", "gone")] == ["0", "0", "0"]


def test_a_red_that_nobody_has_looked_at_is_not_met() -> None:
    rows = met(seen(red(), red("GELU_1")), entry())
    assert (rows["unknown"].met, rows["unknown"].measured) == (False, "1")
    assert "GELU_1 WrongValue" in rows["unknown"].compared_with
    assert rows["false"].met is True


def test_a_false_accusation_is_not_met() -> None:
    rows = met(seen(red()), entry(verdict="false"))
    assert (rows["false"].met, rows["false"].measured) == (False, "1")
    assert rows["unknown"].met is True


@pytest.mark.parametrize(
    "differs",
    [
        {"fault": "exporter"}, {"fault": None}, {"error": "WrongNaN"}, {"exporter": "torchscript"},
        {"check": "specials"}, {"runtime": "onnx-reference"}, {"reason": "output 1"},
    ],
)  # fmt: skip
def test_another_error_or_another_blame_is_another_red(differs: dict[str, Any]) -> None:
    said = {"exporter": "dynamo", "runtime": "onnxruntime", "check": "accuracy", "reason": "output 0"}
    exact = entry(**said)
    assert not judge([red(reason="output 0: 3 of 4")], [exact], whole=True).of("not looked at")
    assert not judge([red()], [entry(errors=("WrongInf", "WrongValue"))], whole=True).of("not looked at")
    other = red(**{"reason": "output 0: 3 of 4", **differs})
    assert judge([other], [exact], whole=True).of("not looked at") == [other]


def test_what_does_not_occur_here_is_told_of_a_whole_run() -> None:
    old = entry("ReLU_0", "ReLU_7", "GELU_*")
    rows = met(seen(red()), old)
    assert (rows["gone"].measured, rows["gone"].compared_with) == ("1", "ReLU_7, GELU_*")
    assert met(seen(red(), whole=False), old)["gone"].measured == "0"


def test_page_shows_every_red_with_its_verdict() -> None:
    page = text_of(seen(red(), red("GELU_1"), red("ELU_2")), [entry(), entry("ELU_*", verdict="false")], "here")
    assert re.search(r"^\| dynamo \| 400 \| 2,000 \| 16,000 \| 3 \| 1 \| 1 \| 1 \|$", page, re.MULTILINE)
    assert "| `ReLU_0` | WrongValue | runtime | 1 | real | NumPy says so |" in page
    assert "| `ELU_*` | WrongValue | runtime | 1 | false | NumPy says so |" in page
    assert "- `GELU_1`, dynamo, onnxruntime, accuracy: WrongValue, blames the runtime, in 1 seeds." in page


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{modules: a, error: E, fault: null, verdict: maybe, shown: x}", "verdict is real or false"),
        ("{modules: a, error: E, fault: null, verdict: real, shown: ' '}", "shown says what was seen"),
        ("{modules: a, error: E, verdict: real, shown: x}", r"missing \['fault'\]"),
        ("{modules: a, error: E, fault: null, verdict: real, shown: x, runtimes: y}", r"unknown \['runtimes'\]"),
    ],
)
def test_an_entry_that_does_not_say_what_was_seen_is_refused(tmp_path: Path, text: str, says: str) -> None:
    file = tmp_path / "looked_at.yaml"
    file.write_text(f"- {text}\n", encoding="utf-8")
    with pytest.raises(ValueError, match=says):
        read(file)


def test_the_table_that_is_kept_can_be_read() -> None:
    for known in looked_at.read():
        assert known.modules and known.verdict in looked_at.VERDICTS


SOUND = """
forward: torch.tanh(x) * 2
inputs: {x: "float32[batch, 5]"}
dims: {batch: 1..4}
export: {torchscript: [17]}
examples: {shapes: 0, values: 10, boundary: 2}
"""


def test_a_sound_module_has_no_red_and_every_seed_draws_anew(bench: Bench) -> None:
    cases = load(write_case(bench.folder / "sound", SOUND))
    (outcome,) = run_cases(cases, [1, 2], None, bench.store)
    assert not outcome.reds
    assert outcome.cells == {"torchscript": 9}, "the export once, and two checks of two runtimes for each seed"
    assert outcome.examples["torchscript"] >= 4 * 2 * 10


def test_a_planted_false_accusation_is_counted(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A runtime whose outputs are spoiled on their way to the comparison accuses a module that is sound."""
    original = runtimes.opener

    def opener(name: str, *given: Any) -> Any:
        opened = original(name, *given)
        return (
            altered(opened, lambda inputs, outputs: [one + 0.5 for one in outputs])
            if name == "onnxruntime"
            else opened
        )

    monkeypatch.setattr("conformance.checks.accuracy.opener", opener)
    cases = load(write_case(bench.folder / "accused", SOUND))
    (outcome,) = run_cases(cases, [1, 2, 3], None, bench.store)
    assert {(one.runtime, one.check, one.stage) for one in outcome.reds} >= {("onnxruntime", "accuracy", "compare")}
    assert all(one.seeds == [1, 2] for one in outcome.reds), "what is red in the same way twice is left out"
    study = Study([outcome], {}, 3, 1.0, whole=False)
    assert met(study)["unknown"].met is False
    known = [entry("planted", errors=(f"{one.error}",), fault=one.fault, verdict="false") for one in outcome.reds]
    rows = met(study, *known)
    assert (rows["unknown"].met, rows["false"].met) == (True, False)
