"""Damages case files in a thousand ways: each still loads or is refused with a place inside the file."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from conformance.case.file import load
from conformance.errors import CaseFileError
from tests.support import problems_of

CASES = Path(__file__).parents[1] / "cases"

SEED_TEXT = """
defaults:
  export: {torchscript: {opsets: [17]}, dynamo: {opsets: [20]}}

first:
  about: >-
    A text that is folded
    over lines.
  forward: torch.asinh(x) + y
  inputs:
    x: float32[batch, 2*n]
    y: {type: "float32[batch, 1]", values: {uniform: {low: -3, high: 3.5}}}
    i: {type: "int64[k]", values: {integers: {low: 0, high: n - 1}}, as: index}
  dims: {batch: 1..64, n: 2..32 step 2, k: 1..n}
  where: [k <= n, batch != 3]
  vary: {stride: [1, 2], kind: {wide: [1, 2], none: null}}
  tolerance:
    fp32: {rtol: 1.0e-4, because: "it is long", outputs: {1: {atol: 1.0e-8}}}
  fails:
    - when: {exporter: dynamo, opset: "< 21", at: {batch: 2..4}, with: {stride: 2}}
      stage: run
      error: RuntimeError
      because: planted
  graph:
    nodes: {Asinh: 1}
    only: true

second:
  about: has a module
  module: modules.Second
  with: {size: 3, kind: "torch.int32"}
  inputs: {x: "float32[3, batch]"}
  dims: {batch: 0..8}
  specials: false
"""

INSERTIONS = (
    "!!python/object/apply:os.system [x] ", "!tag ", "&a ", "*a", "<<: *a", "? ", "- ", "{", "}", "[", "]", ": ",
    "\t", "'", '"', "|", ">", "%YAML 1.1\n", "---\n", "...\n", "@", "`", "#", "\\", "\0", "\ufeff", "\u2028", "ü",
    "null", "~", "true", "on", "1e400", "-.inf", ".nan", "0x1F", "1_000", "2001-01-01", "12:30:45", "!!binary x",
    "!!set {a}", "!!omap [a: 1]", "{a: b, c: float32[batch, 3]}", "x: float32[[", "9" * 5000, "[" * 300, "{a: " * 300,
)  # fmt: skip

Damage = Callable[[str, random.Random], str | bytes]


def lines(change: Callable[[list[str], int, int], object]) -> Damage:
    def damage(text: str, rng: random.Random) -> str:
        found = text.split("\n")
        change(found, rng.randrange(len(found)), rng.randrange(len(found)))
        return "\n".join(found)

    return damage


def characters(change: Callable[[list[str], int, int], object]) -> Damage:
    def damage(text: str, rng: random.Random) -> str:
        found = list(text)
        for _ in range(rng.randint(1, 4)):
            change(found, rng.randrange(len(found)), rng.randrange(len(found)))
        return "".join(found)

    return damage


def swap(items: list[str], i: int, j: int) -> None:
    items[i], items[j] = items[j], items[i]


def indent(items: list[str], i: int, j: int) -> None:
    items[i] = " " * (j % 7) + items[i].lstrip()


def another_type(text: str, rng: random.Random) -> str:
    """One value becomes a value of another type."""
    found = text.split("\n")
    places = [i for i, line in enumerate(found) if ": " in line]
    i = rng.choice(places)
    value = rng.choice(["1", "-1", "1.5", "true", "null", "[]", "{}", "[1, a]", "{a: 1}", '""', '"x"', "[[[]]]"])
    found[i] = found[i].split(": ")[0] + ": " + value
    return "\n".join(found)


def insertion(text: str, rng: random.Random) -> str:
    place = rng.randrange(len(text))
    return text[:place] + rng.choice(INSERTIONS) + text[place:]


def value_insertion(text: str, rng: random.Random) -> str:
    """Right after a colon, where tags, anchors and odd scalars mean something to YAML."""
    places = [i + 2 for i in range(len(text)) if text.startswith(": ", i)]
    place = rng.choice(places)
    return text[:place] + rng.choice(INSERTIONS) + " " + text[place:]


def unquoted(text: str, rng: random.Random) -> str:
    quotes = [i for i, character in enumerate(text) if character == '"']
    place = rng.choice(quotes)
    return text[:place] + text[place + 1 :]


def random_bytes(text: str, rng: random.Random) -> bytes:
    data = bytearray(text.encode())
    for _ in range(rng.randint(1, 6)):
        data[rng.randrange(len(data))] = rng.randrange(256)
    return bytes(data)


def cut_off(text: str, rng: random.Random) -> bytes:
    return text.encode()[: rng.randrange(len(text))]


DAMAGES: dict[str, Damage] = {
    "a line is deleted": lines(lambda found, i, j: found.pop(i)),
    "a line is repeated": lines(lambda found, i, j: found.insert(j, found[i])),
    "two lines are swapped": lines(swap),
    "a line is indented otherwise": lines(indent),
    "characters are deleted": characters(lambda found, i, j: found.pop(min(i, len(found) - 1))),
    "characters are repeated": characters(lambda found, i, j: found.insert(j, found[i])),
    "characters are swapped": characters(swap),
    "a value has another type": another_type,
    "something is inserted": insertion,
    "something is inserted before a value": value_insertion,
    "a quote is missing": unquoted,
    "random bytes": random_bytes,
    "the file is cut off": cut_off,
}
EACH = 90


def test_the_undamaged_text_loads(tmp_path: Path) -> None:
    file = tmp_path / "sound.yaml"
    file.write_text(SEED_TEXT, encoding="utf-8")
    assert len(load(file)) == 5


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_loads_or_is_refused_with_a_place_in_it(tmp_path: Path, damage: str) -> None:
    rng = random.Random(f"conformance {damage}")
    refused = 0
    for _ in range(EACH):
        text = DAMAGES[damage](SEED_TEXT, rng)
        data = text if isinstance(text, bytes) else text.encode()
        file = tmp_path / "damaged.yaml"
        file.write_bytes(data)
        try:
            load(file)
        except CaseFileError as error:
            refused += 1
            assert error.problems
            count = len(data.splitlines()) + 1  # the end of the file counts as a line
            for problem in error.problems:
                assert 1 <= problem.line <= count, f"{problem} in\n{data!r}"
                assert problem.column >= 1
                assert problem.message.strip()
                assert "\n" not in problem.message
        except Exception as error:
            pytest.fail(f"{type(error).__name__}: {error} escaped for\n{data!r}")
    assert refused > EACH // 10


def test_random_bytes_alone_are_refused(tmp_path: Path) -> None:
    rng = random.Random(0)
    for _ in range(100):
        assert problems_of(tmp_path, rng.randbytes(rng.randint(1, 200)))


@pytest.mark.parametrize("opening, closing", [("[", "]"), ("{a: ", "}"), ("- ", ""), ("(", ")")])
def test_deep_nesting_is_refused_and_not_a_crash(tmp_path: Path, opening: str, closing: str) -> None:
    value = opening * 3_000 + "1" + closing * 3_000
    assert problems_of(tmp_path, f"deep:\n  about: {value}\n")
    assert problems_of(tmp_path, f"deep:\n  about: x\n  forward: x\n  inputs: {{x: 'float32[{value}]'}}\n")


def test_the_catalogue_itself_loads(tmp_path: Path) -> None:
    files = sorted(CASES.rglob("*.yaml"))
    assert files
    for file in files:
        assert load(file)
