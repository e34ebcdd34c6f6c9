"""The page of lowerings made wrong: that a mistake is found by the catalogue, and that none is in a sound copy."""

from __future__ import annotations

import dataclasses
import importlib.util
from pathlib import Path

import pytest

from evidence.lowerings.page import _found, _why
from evidence.lowerings.run import Answer, Planting, calling, plain, plants
from tests.plants.location.lowerings import edited

CATALOGUE = """
operators:
  about: Two operators.
  samples: {only: [trunc, frac], each: 1, grow: [sizes, values]}
  runtimes: [onnxruntime]
  specials: false
"""


def test_each_mistake_is_one_of_its_function_and_has_a_call() -> None:
    spec = importlib.util.find_spec("onnxscript")
    assert spec is not None and spec.origin is not None
    texts = {one.file: (Path(spec.origin).parents[1] / one.file).read_text(encoding="utf-8") for one in plants()}
    for one in plants():
        assert edited(texts[one.file], one.function, one.old, one.new) != texts[one.file]
        assert one.reaches and one.inputs
    assert len({(one.at, one.about) for one in plants()}) == len(plants())


@pytest.fixture(scope="module")
def catalogue(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("catalogue") / "operators.yaml"
    file.write_text(CATALOGUE, encoding="utf-8")
    return file


@pytest.mark.thorough
def test_a_mistake_is_found_by_the_cells_that_call_its_operator_and_a_sound_copy_passes(catalogue: Path) -> None:
    [wrong] = [one for one in plants() if one.at == "core.aten_trunc"]
    sound = dataclasses.replace(wrong, new=f"({wrong.old})")
    with Planting(calling([catalogue]), plain([catalogue])) as planting:
        found = planting.answer(wrong)
        with planting.edited_copy(sound) as (_, run):
            of_sound = planting.first_red(run, ["aten.trunc"])

    assert (found.sound, found.planted, found.calls) == ("right", "wrong", ["aten.trunc"])
    assert (found.cells, found.ran, found.named) == (1, 1, True)
    assert found.red is not None and found.red["case"] == "operators-trunc-0"
    assert of_sound == (1, 1, None)


def test_what_was_not_found_says_whether_any_cell_could_have() -> None:
    none = Answer("core.aten_add", "alpha is ignored", "right", "wrong", ["aten.add"], 0, 0, None, 1.0)
    assert "No cell" in _why(none) and "None of the 2 cells" in _why(dataclasses.replace(none, cells=2))
    red = {"case": "a", "error": "WrongValue", "fault": "exporter", "operator": None, "unexplained": True}
    found = dataclasses.replace(none, red=red, cells=2, ran=1)
    assert "| 1 of 2 | `a` | WrongValue | exporter | None |" in _found(found) and not found.named
