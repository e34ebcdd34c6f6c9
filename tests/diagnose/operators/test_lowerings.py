"""Mistakes planted in the exporters' own files: they are put where they say, and what is said of them is scored."""

import importlib
import importlib.util
import inspect
import sys
from pathlib import Path
from typing import Any

import pytest

from evidence.location import lowered
from tests.plants.location import lowerings

TEXT = "def one(x):\n    return x + 1\n\n\n@staticmethod\ndef other(x):\n    return x + 1\n"


def test_an_edit_is_in_one_function_and_once():
    assert lowerings.edited(TEXT, "other", "x + 1", "x") == TEXT.replace("x + 1", "x").replace("x\n", "x + 1\n", 1)
    assert "@classmethod" in lowerings.edited(TEXT, "other", "@staticmethod", "@classmethod")
    for function, there in (("one", "x + 2"), ("one", "x"), ("none", "x + 1"), ("one", "@staticmethod")):
        with pytest.raises(ValueError, match="not once"):
            lowerings.edited(TEXT, function, there, "")


def test_an_edited_file_is_imported_as_if_it_lay_on_the_disk(tmp_path, monkeypatch):
    (tmp_path / "with_mistakes.py").write_text(TEXT.replace("@staticmethod\n", ""), encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(lowerings.MODULES, "mine", "with_mistakes")
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    plant = lowerings.Lowering("a sum", "values", "dynamo", [("mine.one", "x + 1", "x - 1")], "", "")
    lowerings.plant(plant)
    module = importlib.import_module("with_mistakes")
    monkeypatch.delitem(sys.modules, "with_mistakes", raising=False)
    assert (module.one(1), module.other(1)) == (0, 2)
    assert "x - 1" in inspect.getsource(module.one) and "x + 1" in inspect.getsource(module.other)
    monkeypatch.setitem(sys.modules, "with_mistakes", module)
    with pytest.raises(RuntimeError, match="imported before it was edited: with_mistakes"):
        lowerings.plant(plant)


def test_each_module_of_the_list_marks_where_its_operators_are_called():
    read = lowerings.lowerings()
    assert len({one.name for one in read}) == len(read) and sum(not one.then for one in read) >= 120
    for one in read:
        lines = one.python.splitlines()
        compile(one.python, one.name, "exec")
        assert "# here" in lines[one.line() - 1]
        assert bool(one.then) == any(line.endswith("# then") for line in lines)


@pytest.mark.thorough
def test_each_edit_of_the_list_applies_to_the_installed_files():
    read: dict[str, str] = {}
    for one in lowerings.lowerings():
        for place, *edit in one.edits:
            short, _, function = place.rpartition(".")
            name = lowerings.MODULES[short]
            spec = importlib.util.find_spec(name)
            assert spec is not None and spec.origin is not None
            text = read.setdefault(name, Path(spec.origin).read_text(encoding="utf-8"))
            assert lowerings.edited(text, function, *edit) != text


def _said(name: str, status: str = "failed", **told: Any) -> lowered.Result:
    record = {"status": status, "fault": "exporter", "operator": told or None, "seconds": {}}
    return lowered.Result(name, "", "accuracy", record, "planted.yaml:1", 1.0)


def test_what_a_record_names_is_scored():
    name = "torchscript, two: log1p adds nothing, and triu is tril"
    plant = next(one for one in lowerings.lowerings() if one.name == name)
    here, then = (f"beside.py:{plant.line(mark)}" for mark in ("# here", "# then"))
    second = {"operator": "aten.triu", "line": then}
    right = _said(name, operator="aten.log1p", line=here, second=second)
    assert right.operator and right.placed and right.second and not right.wrong and not right.proposed_wrongly
    for other in (
        _said(name, operator="aten.abs", line=here),
        _said(name, operator="aten.log1p", line=then),
    ):
        assert other.wrong and not other.second
    nothing = _said(name, unable="nothing")
    assert nothing.counts and not (nothing.operator or nothing.placed or nothing.wrong)
    assert not _said(name, "passed").counts
    assert _said(name, operator="aten.log1p", line=here, change="Neg instead of Abs").proposed_wrongly


@pytest.mark.own_store
@pytest.mark.thorough
def test_a_mistake_in_a_symbolic_is_planted_and_its_twin_is_sound(tmp_path):
    (result,) = lowered.collect(tmp_path, "torchscript", text="rrelu takes its lower limit")
    assert result.counts and result.operator and result.placed and not result.wrong
    assert not [*lowered.collect(tmp_path, "torchscript", text="rrelu takes its lower limit")]
