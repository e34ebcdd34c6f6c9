"""The shipped cases as a whole: every row of the collection they come from, every precision or the reason why not."""

from pathlib import Path

from conformance.case.case_file import case_files, load
from conformance.case.words import base_of

CASES = [case for file in case_files([Path(__file__).parent.parent / "cases"]) for case in load(file)]
ROWS = [*(f"R{n}" for n in range(1, 17) if n != 4), *(f"G{n}" for n in range(1, 10)), *(f"P{n}" for n in range(1, 6))]


def test_every_row_has_a_case():
    assert [row for row in ROWS if not any(row in case.says.tags for case in CASES)] == []


def test_every_case_has_fp16_or_says_why_not():
    assert [case.name for case in CASES if "fp16" not in {base_of(name) for name in case.says.precisions}] == []


def test_int8_is_not_only_for_the_cases_about_precision():
    topics = {case.folder.name for case in CASES if "int8" in case.says.precisions}
    assert topics >= {"vision", "swin", "deform_conv", "numerics", "graph"}
