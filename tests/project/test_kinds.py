"""Nobody is accused wrongly of the kinds of files and modules about which something untrue was said before."""

import pytest

from evidence.accusations.kinds import KINDS, MODULES, Said, everything, said_of


@pytest.mark.parametrize("cells, said", [
    ([("accuracy", "passed", None, None)], "right"), ([("export", "passed", None, None)], "nobody"),
    ([("accuracy", "failed", "WrongNaN", None)], "open"),
    ([("accuracy", "passed", None, None), ("export", "failed", "Overflow", "case")], "Overflow"),
])  # fmt: skip
def test_what_is_said_of_a_model(cells, said):
    names = ("check", "status", "error", "fault")
    assert said_of([dict(zip(names, cell, strict=True)) for cell in cells]) == said


@pytest.mark.parametrize("expects, said, fits", [
    ("right", "right", True), ("right", "nobody", False), ("nobody", "right", True), ("nobody", "WrongNaN", False),
    ("Overflow", "Overflow", True), ("Overflow", "right", False),
])  # fmt: skip
def test_what_was_expected(expects, said, fits):
    assert Said(1, "a file", expects, said).as_expected == fits


def test_every_kind_has_something_sound_and_most_something_planted():
    told = [(one.kind, one.expects) for one in KINDS] + [(kind, expects) for kind, _, expects, *_ in MODULES]
    sound = {kind for kind, expects in told if expects in ("right", "nobody")}
    assert len(told) >= 40 and sound >= {*range(1, 14), 17}
    planted = {kind for kind, expects in told if expects not in ("right", "nobody")}
    assert planted >= {1, 3, 4, 6, 8, 9, 10, 11, 12, 13}


@pytest.mark.thorough
def test_of_each_is_said_what_is_true():
    pytest.importorskip("openvino")
    assert [one for one in everything() if not one.as_expected] == []
