"""Text made harmless, whatever a case, a path or an exception says."""

from __future__ import annotations

import pytest

from conformance.report.clean import cleaned, one_line, visible


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("plain äöü ✓ 漢字", "plain äöü ✓ 漢字"),
        ("a\tb\nc", "a\tb\nc"),
        ("\x1b[31m", "␛[31m"),
        ("a\x00b\x7f", "a␀b␡"),
        ("a\r\nb", "a␍\nb"),
        ("\u202eexe", "<U+202E>exe"),
        ("\ud800", "<U+D800>"),
        ("\x9b31m", "<U+009B>31m"),
        ("a\u061cb\u00adc", "a<U+061C>b<U+00AD>c"),
        ("\U000e0041", "<U+E0041>"),
    ],
)
def test_what_acts_is_written_out(text: str, seen: str) -> None:
    assert visible(text) == seen


def test_one_line_is_one_line_and_no_longer_than_that() -> None:
    assert one_line(" a\n b\t\tc ") == "a b c"
    assert one_line("abcdef", 4) == "abc…"
    assert one_line(None) == ""


def test_cleaned_data_is_plain_and_exact() -> None:
    value = {"a\x00": [float("inf"), float("nan"), 2**60, 2**50, True, None, "\x1b", (1, 2)]}
    assert cleaned(value) == {"a␀": ["inf", "nan", str(2**60), 2**50, True, None, "␛", [1, 2]]}
