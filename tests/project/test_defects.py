"""Every planted defect of ``evidence/defects/defects.yaml`` can still be written into the package."""

from collections import Counter
from pathlib import Path

import pytest

from evidence.defects.listed import Defect, DoesNotApply, read
from evidence.defects.page import page_of
from evidence.defects.reach import executed_with
from evidence.defects.run import Outcome

ROOT = Path(__file__).parent.parent.parent
DEFECTS = read()


def test_there_are_enough_and_each_has_an_id_of_its_own():
    counts = Counter(defect.id for defect in DEFECTS)
    assert not [id for id, count in counts.items() if count > 1]
    assert len(DEFECTS) >= 120


def test_each_applies_and_leaves_python_that_compiles():
    for defect in DEFECTS:
        sound = (ROOT / defect.path).read_text(encoding="utf-8")
        compile(defect.applied(sound), defect.path, "exec")
        assert defect.there != defect.instead, defect.id


def test_lines_after_the_first_are_indented_as_in_the_file():
    text = "def f():\n    if a:\n        b()\n        c()\n"
    defect = Defect("two-lines", "f.py", "verdict", "Two lines.", "b()\nc()", "c()")
    assert defect.applied(text) == "def f():\n    if a:\n        c()\n" and defect.lines(text) == range(3, 5)


@pytest.mark.parametrize("text", ["a()\na()\n", "b()\n"])
def test_text_that_is_there_twice_or_not_at_all_is_refused(text):
    with pytest.raises(DoesNotApply, match=r"the text [02] times"):
        Defect("a", "f.py", "verdict", "A.", "a()", "b()").applied(text)


PYTHON = """
LIMIT = 3
def f(a):
    if a > LIMIT:
        return max(
            a, 2
        )
    return a
"""


@pytest.mark.parametrize("lines, executed", [
    (range(6, 7), {5, 6, 7}),  # a part of a statement: all of it
    (range(4, 5), {4}),  # the head of a condition, and not what it leads to
    (range(2, 3), {4, 5, 6, 7, 8}),  # executed by every import: what the functions of the file execute
])  # fmt: skip
def test_a_test_meets_a_defect_by_the_statement_that_it_is_in(lines, executed):
    assert executed_with(PYTHON, lines) == executed


def test_the_page_counts_by_kind_and_tier_and_names_what_was_not_found():
    first, second, *_ = DEFECTS
    found = Outcome(first.id, "found", "tests/test_a.py::test_b", "smoke", "call", 0.25, 4, 9)
    page = page_of([found, Outcome(second.id, "survived", tried=3, met_by=3)], "Python 3.")
    assert "| all | 2 | 1 | 1 | 0 | 0 | 0.25 |" in page
    assert f"- `{second.id}` ({second.path}): {second.what}" in page and f"`{first.id}`" not in page
