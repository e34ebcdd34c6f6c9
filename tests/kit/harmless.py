"""What text has to be like that anybody may look at, and hostile text and wrong values to try it with."""

import copy
import unicodedata
from collections.abc import Iterator
from typing import Any

from hypothesis import strategies as st

FORGED = "999 cells: 999 passed"
"""A line that only the suite may write; after a line break in hostile text."""

PARTS = (
    "\n", "\r", "\r\n", "\t", "\x1b[2J", "\x1b]0;title\x07", "\x9b31m", "\x00", "\x08", "\x0b", "\x0c", "\x85",
    "\u2028", "\u2029", "\u202e", "\u2066", "\u200b", "\u200f", "\ufeff", "\ud800", "\udc80", "::error::x",
    "::stop-commands::x", "\n::error::x", "\r::error::x", "\n\u3000 ::add-mask::x", "##[error]x", "##vso[task.x]y",
    "##teamcity[x]", "{0}", "{x.y}", "%s", "[red]", "$(id)", "`", "'", '"', " ", f"\n{FORGED}", f"\r{FORGED}",
)  # fmt: skip

ANY = st.lists(st.sampled_from(PARTS) | st.text(max_size=6) | st.characters(), max_size=8).map("".join)
"""Text of which much acts on a terminal or on a CI service."""


def assert_harmless(text: str) -> None:
    """No character acts, and no line is a command to a CI service."""
    for line in text.split("\n"):
        for character in line.replace("\t", ""):
            kind = unicodedata.category(character)
            assert kind not in ("Cc", "Cs", "Zl", "Zp"), f"U+{ord(character):04X} in {line!r}"
            assert unicodedata.bidirectional(character) not in (
                "LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI",
            ), f"U+{ord(character):04X} in {line!r}"  # fmt: skip
        assert not line.lstrip().startswith("::"), line
        assert not any(mark in line for mark in ("##[", "##vso[", "##teamcity[")), line


def assert_ours(text: str) -> None:
    """Harmless, and every line is where the suite put it: none was begun by a line break in hostile text."""
    assert_harmless(text)
    assert not any(line.startswith(FORGED) for line in text.split("\n")), text


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where a value lies in nested data."""
    if path:
        yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, item in items:
        yield from places(item, (*path, name))


def changed(value: Any, path: tuple[Any, ...], to: Any) -> Any:
    """The data with another value at one place; ``Ellipsis`` takes the value out."""
    new = copy.deepcopy(value)
    inner = new
    for name in path[:-1]:
        inner = inner[name]
    if to is ...:
        del inner[path[-1]]
    else:
        inner[path[-1]] = to
    return new
