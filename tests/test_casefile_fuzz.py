"""Spoils case files in thousands of ways: each still loads, or is refused with a sentence at a place in the file."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks import fuzz
from benchmarks.casefiles import SEEDS, write_beside
from benchmarks.spoil import Spoiler
from conformance import HOME
from conformance.case.document import read_document
from conformance.case.file import load
from conformance.plan.catalogue import Selection, read_suite
from tests.support import problems_of

CASES = Path(__file__).parents[1] / "cases"
PARTS = 8
EACH = 250
"""Spoiled files in each part, 2,000 in all. ``python -m benchmarks fuzz`` tries 20,000."""

Key = tuple[str, str]


def keys_of(schema: Any, name: str = "") -> Iterator[Key]:
    """The keys that a schema knows, each with the definition that it is in."""
    if isinstance(schema, dict):
        yield from ((name, key) for key in schema.get("properties", ()) if key != "defaults")
        for key, inner in schema.items():
            if key not in ("additionalProperties", "$defs"):
                yield from keys_of(inner, name)
    elif isinstance(schema, list):
        for inner in schema:
            yield from keys_of(inner, name)


def used_in(value: Any, schema: Any, top: Any, name: str) -> Iterator[Key]:
    """The keys of the schema that a value uses, whichever of several schemas it was meant for."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        schema = top["$defs"][name]
    for choice in schema.get("anyOf", ()):
        yield from used_in(value, choice, top, name)
    if isinstance(value, dict):
        for key, inner in value.items():
            if key in schema.get("properties", ()):
                yield name, key
                yield from used_in(inner, schema["properties"][key], top, name)
            for others in (schema.get("additionalProperties"), *schema.get("patternProperties", {}).values()):
                if isinstance(others, dict) and key not in schema.get("properties", ()):
                    yield from used_in(inner, others, top, name)
    for inner in value if isinstance(value, list) and "items" in schema else ():
        yield from used_in(inner, schema["items"], top, name)


def test_the_sound_files_load_and_use_every_key_of_the_schema(tmp_path: Path) -> None:
    schema = json.loads((HOME / "case.schema.json").read_text(encoding="utf-8"))
    case = schema["additionalProperties"]
    known = set(keys_of(case, "case"))
    for name, definition in schema["$defs"].items():
        known |= set(keys_of(definition, name))
    used: set[Key] = set()
    write_beside(tmp_path)
    for name, text in SEEDS.items():
        file = tmp_path / f"{name}.yaml"
        file.write_text(text, encoding="utf-8")
        assert fuzz.planned(file) == []
        for said in read_document(file).values.values():
            used |= set(used_in(said, case, schema, "case"))
    assert len(known) > 100
    assert known - used == set()


@pytest.mark.parametrize("part", range(PARTS))
def test_a_spoiled_file_loads_or_is_refused_with_a_sentence_at_a_place_in_it(tmp_path: Path, part: int) -> None:
    loaded = refused = 0
    for way, data, outcome, seconds in fuzz.spoiled(EACH, f"tests {part}", tmp_path):
        if isinstance(outcome, Exception):
            pytest.fail(f"{way}: {type(outcome).__name__}: {outcome} escaped for\n{data!r}")
        faults = [(problem.message, fuzz.fault(problem, data)) for problem in outcome]
        assert [(message, fault) for message, fault in faults if fault] == []
        assert seconds < 10 * fuzz.SLOWEST, f"{way} took {seconds:.1f} s:\n{data!r}"
        loaded, refused = loaded + (not outcome), refused + bool(outcome)
    assert loaded > EACH // 20
    assert refused > EACH // 2


def test_every_way_of_spoiling_refuses_some_files_and_the_seed_decides_them(tmp_path: Path) -> None:
    spoiler = Spoiler(tmp_path)
    for way, spoil in spoiler.ways.items():
        assert spoil(random.Random(3)) == spoil(random.Random(3))
        files = {spoil(random.Random(n)) for n in range(40)}
        assert len(files) > 20 or way == "an anchor and its alias"


def test_a_spoiled_file_harms_no_other(tmp_path: Path) -> None:
    """Forty spoiled files lie between two sound ones, which keep their cells; each has an entry of its own."""
    spoiler, rng = Spoiler(tmp_path), random.Random(5)
    folder = tmp_path / "cases"
    folder.mkdir()
    sound = 'about: sound\n  forward: torch.sin(x)\n  inputs: {x: "float32[3]"}\n'
    for name in ("a_first", "z_last"):
        (folder / f"{name}.yaml").write_text(f"{name}:\n  {sound}", encoding="utf-8")
    for number in range(40):
        (folder / f"spoiled{number:02}.yaml").write_bytes(spoiler(rng)[1])
    cells, files = read_suite([folder], Selection())
    assert len(files) == 42
    assert {"a_first", "z_last"} <= {cell.case.name for cell in cells}
    assert sum(error is not None for error in files.values()) > 20


def test_random_bytes_alone_are_refused(tmp_path: Path) -> None:
    rng = random.Random(0)
    for _ in range(100):
        assert problems_of(tmp_path, rng.randbytes(rng.randint(1, 200)))


@pytest.mark.parametrize("opening, closing", [("[", "]"), ("{a: ", "}"), ("- ", ""), ("(", ")"), ("? ", "")])
def test_deep_nesting_is_refused_and_not_a_crash(tmp_path: Path, opening: str, closing: str) -> None:
    value = opening * 3_000 + "1" + closing * 3_000
    assert problems_of(tmp_path, f"deep:\n  about: {value}\n")
    assert problems_of(tmp_path, f"deep:\n  about: x\n  forward: x\n  inputs: {{x: 'float32[{value}]'}}\n")


def test_the_catalogue_itself_loads(tmp_path: Path) -> None:
    files = sorted(CASES.rglob("*.yaml"))
    assert files
    for file in files:
        assert load(file)
