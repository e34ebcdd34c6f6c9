"""Draw texts: words that the model itself names, other forms of these, and texts that are hard to get right."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING

from conformance.runtimes.onnxgraph.reads import all_nodes, plain

if TYPE_CHECKING:
    from onnx import ModelProto

HARD = ("", " ", "a", "Ab c", "a,b,,c", "ÄÖ é", "日本語", "x" * 40)
"""Texts that differ in length, case, spaces and the bytes that UTF-8 needs for a letter."""
NUMERALS = ("0", "-2.5", "1e3", "+7", "12345", "-0.001")
WHOLE_NUMERALS = ("0", "1", "7", "100")
"""The same for whole numbers, of which each type holds these."""
FLOATS = frozenset((1, 10, 11, 16))
"""The numbers of the types of floats in ``onnx.TensorProto``."""
_MOST = 256
"""Words of a model that are used."""


def words_of(model: ModelProto) -> list[str]:
    """Return the texts that stand in attributes and constants of a model, each once, as categories and stop words
    do."""
    found: dict[str, None] = {}
    for node in all_nodes(model):
        for attribute in node.attribute:
            if node.domain in ("", "ai.onnx") and attribute.name not in _OF_DATA:
                continue
            value = plain(attribute)
            for word in value if isinstance(value, (list, tuple)) else [value]:
                if isinstance(word, (str, bytes)):
                    found.setdefault(_text(word))
            if attribute.HasField("t"):
                found |= dict.fromkeys(map(_text, attribute.t.string_data))
    for tensor in model.graph.initializer:
        found |= dict.fromkeys(map(_text, tensor.string_data))
    return list(found)[:_MOST]


_OF_DATA = frozenset(("delimiter", "pattern", "pool_strings", "stopwords", "value", "value_string", "value_strings"))
"""Attributes of ONNX's own operators whose texts are data, and not the name of a mode."""


def _text(word: str | bytes) -> str:
    return word if isinstance(word, str) else word.decode("utf-8", "replace")


def vocabulary(words: Sequence[str], *, plain: bool = False) -> list[str]:
    """Return the texts that elements are drawn of, the least first. Those that are ``plain`` are single words without
    accents: ONNX's evaluator takes these off in StringNormalizer, leaves out texts that are empty, and stop words
    inside of a text, of which ONNX says nothing."""
    hard = [one for one in HARD if one.isascii() and len(one.split()) == 1] if plain else HARD
    forms = (form for word in words for form in (word, word, word.upper(), word.lower(), f"{word}x"))
    pairs = [] if plain else [f"{one} {other}" for one, other in itertools.pairwise(words)]
    return [*hard, *forms, *pairs]
