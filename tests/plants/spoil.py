"""Thousands of ways to spoil a case file."""

from __future__ import annotations

import copy
import json
import random
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from conformance.case.files.document import read_document
from tests.plants.casefiles import NUMBERS, RAW, SEEDS, SHAPES, SIZES, TEXTS, write_beside

Spoil = Callable[[random.Random], "str | bytes"]
_MARK = "@@the place@@"


def _quoted(text: str) -> str:
    return '"' + text.replace('"', '\\"').replace("\n", "\\n") + '"'


def _snippet(rng: random.Random) -> str:
    """A value as YAML."""
    kind = rng.randrange(5)
    if kind == 0:
        return rng.choice(NUMBERS)
    if kind == 1:
        return _quoted(rng.choice(SIZES))
    if kind == 2:
        return _quoted(rng.choice(TEXTS))
    if kind == 3:
        return rng.choice(SHAPES)
    return _quoted(rng.choice(NUMBERS))


def _paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The ways to everything inside a value."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in inside:
        yield (*path, key)
        yield from _paths(inner, (*path, key))


def _at(tree: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        tree = tree[key]
    return tree


def _flow(value: Any) -> str:
    """The value as YAML in one line; JSON is YAML, but for keys that are numbers."""
    if isinstance(value, dict):
        entries = ((key if isinstance(key, int) else _flow(key), inner) for key, inner in value.items())
        return "{" + ", ".join(f"{key}: {_flow(inner)}" for key, inner in entries) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_flow, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def _file(tree: Mapping[str, Any], snippet: str = "") -> str:
    """A case file with each key of each case on a line of its own."""
    lines = []
    for name, said in tree.items():
        lines.append(f"{name}:" if isinstance(said, dict) and said else f"{name}: {_flow(said)}")
        if isinstance(said, dict):
            lines += [f"  {key}: {_flow(value)}" for key, value in said.items()]
    return "\n".join(lines).replace(json.dumps(_MARK), snippet) + "\n"


class Spoiler:
    """Spoils one of the seeds in one of many ways."""

    def __init__(self, folder: Path) -> None:
        """``folder`` is where seeds are written to, to be read."""
        self._trees: list[dict[str, Any]] = []
        write_beside(folder)
        for name, text in SEEDS.items():
            file = folder / f"{name}.yaml"
            file.write_text(text, encoding="utf-8")
            self._trees.append(read_document(file).values)
        self.ways: dict[str, Spoil] = {
            "another value": self._another_value, "another value at the top of a case": self._another_key,
            "a key is taken out": self._deleted, "a key is there twice": self._repeated,
            "two parts change places": self._swapped, "a part is put into another": self._moved,
            "a key has another name": self._renamed, "a part is in a list or mapping": self._wrapped,
            "an anchor and its alias": self._aliased, "a line is taken out, repeated or moved": self._lines,
            "characters are taken out, repeated or moved": self._characters, "something is inserted": self._inserted,
            "random bytes": self._bytes, "cut off": self._cut, "another indentation": self._indented,
        }  # fmt: skip

    def __call__(self, rng: random.Random) -> tuple[str, bytes]:
        """The way in which a file was spoiled, and the file."""
        way = rng.choice(list(self.ways))
        spoiled = self.ways[way](rng)
        return way, spoiled if isinstance(spoiled, bytes) else spoiled.encode("utf-8", "surrogatepass")

    def _tree(self, rng: random.Random) -> tuple[dict[str, Any], list[tuple[Any, ...]]]:
        tree = copy.deepcopy(rng.choice(self._trees))
        return tree, [path for path in _paths(tree) if len(path) > 1]

    def _another_value(self, rng: random.Random) -> str:
        tree, paths = self._tree(rng)
        *path, key = rng.choice(paths)
        _at(tree, tuple(path))[key] = _MARK
        return _file(tree, _snippet(rng))

    def _another_key(self, rng: random.Random) -> str:
        tree, paths = self._tree(rng)
        *path, key = rng.choice([path for path in paths if len(path) == 2])
        _at(tree, tuple(path))[key] = _MARK
        return _file(tree, _snippet(rng))

    def _deleted(self, rng: random.Random) -> str:
        tree, paths = self._tree(rng)
        *path, key = rng.choice(paths)
        del _at(tree, tuple(path))[key]
        return _file(tree)

    def _repeated(self, rng: random.Random) -> str:
        tree, paths = self._tree(rng)
        *path, key = rng.choice(paths)
        around = _at(tree, tuple(path))
        if isinstance(around, list):
            around.insert(rng.randrange(len(around)), around[key])
            return _file(tree)
        text = _file(tree)
        said = f"{key}: {_flow(around[key])}"
        said = said if said in text else f"{json.dumps(key)}: {_flow(around[key])}"
        return text.replace(said, f"{said}\n  {said}" if len(path) == 1 else f"{said}, {said}", 1)

    def _swapped(self, rng: random.Random) -> str:
        tree, paths = self._tree(rng)
        (*one, a), (*other, b) = rng.choice(paths), rng.choice(paths)
        if one[: len(other) + 1] == [*other, b] or other[: len(one) + 1] == [*one, a]:
            return _file(tree)
        first, second = _at(tree, tuple(one)), _at(tree, tuple(other))
        first[a], second[b] = second[b], first[a]
        return _file(tree)

    def _moved(self, rng: random.Random) -> str:
        tree, paths = self._tree(rng)
        source, others = self._tree(rng)
        *path, key = rng.choice(paths)
        _at(tree, tuple(path))[key] = _at(source, rng.choice(others))
        return _file(tree)

    def _renamed(self, rng: random.Random) -> str:
        tree, paths = self._tree(rng)
        *path, key = rng.choice([path for path in paths if isinstance(_at(tree, path[:-1]), dict)])
        around = _at(tree, tuple(path))
        names = [*TEXTS, *SIZES, "min", "max", "nan", "__builtins__", *map(str, range(3)), *(p[-1] for p in paths)]
        around[rng.choice(names)] = around.pop(key)
        return _file(tree)

    def _wrapped(self, rng: random.Random) -> str:
        tree, paths = self._tree(rng)
        *path, key = rng.choice(paths)
        around = _at(tree, tuple(path))
        times = rng.choice([1, 1, 1, 2, 30])
        for _ in range(times):
            around[key] = [around[key]] if rng.random() < 0.5 else {rng.choice(["a", "python", "type"]): around[key]}
        return _file(tree)

    def _aliased(self, rng: random.Random) -> str:
        """Also the file that doubles itself: each alias is two of the one before it."""
        if rng.random() < 0.3:
            return "a0: &a0 {about: x}\n" + "".join(f"a{i + 1}: &a{i + 1} [*a{i}, *a{i}]\n" for i in range(60))
        tree, paths = self._tree(rng)
        *path, key = rng.choice(paths)
        value = _at(tree, tuple(path))[key]
        _at(tree, tuple(path))[key] = _MARK
        text = _file(tree, f"&a {_flow(value)}")
        return text + f"other: {rng.choice(['*a', '{<<: *a}', '{about: *a}', '[*a, *b]'])}\n"

    # ---- the text -----------------------------------------------------------------------------------------

    def _text(self, rng: random.Random) -> str:
        return rng.choice(list(SEEDS.values()))

    def _lines(self, rng: random.Random) -> str:
        return "\n".join(_disordered(self._text(rng).split("\n"), rng))

    def _characters(self, rng: random.Random) -> str:
        characters = list(self._text(rng))
        for _ in range(rng.randint(1, 4)):
            characters = _disordered(characters, rng)
        return "".join(characters)

    def _inserted(self, rng: random.Random) -> str:
        text = self._text(rng)
        values = [found.end() for found in re.finditer(": ", text)]  # there tags and anchors mean something
        place = rng.choice(values) if rng.random() < 0.5 else rng.randrange(len(text))
        return text[:place] + rng.choice(RAW) + " " * rng.randrange(2) + text[place:]

    def _indented(self, rng: random.Random) -> str:
        lines = self._text(rng).split("\n")
        place = rng.randrange(len(lines))
        lines[place] = rng.choice([" " * rng.randrange(9), "\t", " \t", "\u3000"]) + lines[place].lstrip()
        return "\n".join(lines)

    def _bytes(self, rng: random.Random) -> bytes:
        if rng.random() < 0.1:
            return rng.randbytes(rng.randint(0, 200))
        data = bytearray(self._text(rng).encode())
        for _ in range(rng.randint(1, 6)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        return bytes(data)

    def _cut(self, rng: random.Random) -> bytes:
        data = self._text(rng).encode()
        return data[: rng.randrange(len(data))]


def _disordered(items: list[str], rng: random.Random) -> list[str]:
    """One of the items is taken out, repeated elsewhere, or changes places with another."""
    items = list(items)
    i, j, kind = rng.randrange(len(items)), rng.randrange(len(items)), rng.randrange(3)
    if kind == 0 and len(items) > 1:
        items.pop(i)
    elif kind == 1:
        items.insert(j, items[i])
    else:
        items[i], items[j] = items[j], items[i]
    return items
