"""Spoils case files in thousands of ways: each still loads, or is refused with a sentence at a place in the file."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from conformance import HOME
from conformance.case.files import sampled
from conformance.case.samples.told import OfOperator, ToldOfOperators
from tests.kit.cases import problems_of
from tests.plants import fuzz
from tests.plants.casefiles import SEEDS, write_beside

EACH = 250
"""Spoiled files in each part."""


@pytest.fixture(autouse=True)
def _told_at_once(monkeypatch):
    """PyTorch is asked for no sample: that takes a process and seconds for each spoiled file."""
    said = {"forward": "torch.abs(x0)", "inputs": {"x0": {"type": "float32[n2]"}}, "dims": {"n2": "1..4"}}
    told = ToldOfOperators(["abs"], [OfOperator("abs", 0, said)])
    monkeypatch.setattr(sampled, "ask", lambda *asked: told)


def properties_in(schema: Any) -> Iterator[str]:
    """The keys that a schema knows, wherever in it."""
    if isinstance(schema, dict):
        yield from schema.get("properties", ())
    for inner in schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ():
        yield from properties_in(inner)


def test_the_sound_files_load_and_use_every_key_of_the_schema(tmp_path):
    schema = json.loads((HOME / "case.schema.json").read_text(encoding="utf-8"))
    known, used = set(properties_in(schema)) - {"defaults"}, set[str]()
    write_beside(tmp_path)
    for name, text in SEEDS.items():
        file = tmp_path / f"{name}.yaml"
        file.write_text(text, encoding="utf-8")
        assert fuzz.planned(file) == []
        used |= set(re.findall(r"[\w-]+(?=:)", text))
    assert len(known) > 80 and known - used == set()


@pytest.mark.parametrize("part", [0, *(pytest.param(part, marks=pytest.mark.thorough) for part in range(1, 8))])
def test_a_spoiled_file_loads_or_is_refused_with_a_sentence_at_a_place_in_it(tmp_path, part):
    loaded = refused = 0
    for way, data, outcome, seconds in fuzz.spoiled(EACH, f"tests {part}", tmp_path):
        if isinstance(outcome, Exception):
            pytest.fail(f"{way}: {type(outcome).__name__}: {outcome} escaped for\n{data!r}")
        faults = [(problem.message, fuzz.fault(problem, data)) for problem in outcome]
        assert [(message, fault) for message, fault in faults if fault] == []
        assert seconds < 10 * fuzz.SLOWEST, f"{way} took {seconds:.1f} s:\n{data!r}"
        loaded, refused = loaded + (not outcome), refused + bool(outcome)
    assert loaded > EACH // 20 and refused > EACH // 2


@pytest.mark.parametrize("opening, closing", [("[", "]"), ("{a: ", "}"), ("- ", ""), ("(", ")"), ("? ", "")])
def test_deep_nesting_is_refused_and_not_a_crash(tmp_path, opening, closing):
    value = opening * 3_000 + "1" + closing * 3_000
    assert problems_of(tmp_path, f"deep:\n  about: {value}\n")
    assert problems_of(tmp_path, f"deep:\n  about: x\n  forward: x\n  inputs: {{x: 'float32[{value}]'}}\n")
