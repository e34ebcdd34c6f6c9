"""The page of wrong answers has each wrong row of the operators, and reproductions that stand alone and are wrong."""

from __future__ import annotations

import re

import pytest

from conformance.process.errors import UserError
from evidence.wrong_answers import PAGE, entries, run, wrong_rows

LINES = 15
"""The most that a reproduction has."""


def test_each_wrong_operator_has_an_entry_or_a_reason_why_not() -> None:
    answers, not_ready = entries()
    said = [(exporter, name) for one in answers for exporter, names in one.of.items() for name in names]
    wrong = wrong_rows()
    assert len(said) == len({*said}) and not {name for _, name in said} & not_ready.keys()
    assert {row for row in wrong if row[1] not in not_ready} == {*said}
    assert not_ready.keys() <= {operator for _, operator in wrong}


def test_reproductions_are_short_need_nothing_of_this_package_and_stand_on_the_page() -> None:
    page = PAGE.read_text(encoding="utf-8")
    scripts = [script for one in entries()[0] for _, script in one.scripts()]
    assert all(len(script.splitlines()) <= LINES and "conformance" not in script for script in scripts)
    assert re.findall(r"^```python\n(.*?)\n```", page, re.M | re.S) == scripts
    for said in re.findall(r"^```text\n(.*?)\n```", page, re.M | re.S):
        expected, seen = said.splitlines()
        assert expected.removeprefix("expected:") != seen.removeprefix("seen:")


def test_a_reproduction_of_what_is_right_by_now_is_refused() -> None:
    assert run("print('expected: 1')\nprint('seen: 2')") == "expected: 1\nseen: 2"
    with pytest.raises(UserError, match="nothing is wrong any more, expected: 1"):
        run("print('expected: 1')\nprint('seen: 1')")
    with pytest.raises(UserError, match="a reproduction stops: ZeroDivisionError"):
        run("1 / 0")
