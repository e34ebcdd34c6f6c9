"""Make the inputs of an ONNX file by the rules of the operators that read them, and texts of words that it names."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from conformance.case.draw.operator_values import GROWING, KEYS, NUMBERS, PARTS, RULES, WHOLE_NUMBERS, WIDE
from conformance.case.draw.sites import NoValues, Rule, Site
from conformance.process.arrays import Array
from conformance.process.errors import attempt, or_else
from conformance.runtimes.inferred import inferred
from conformance.runtimes.onnxgraph.mapped import read_graph
from conformance.runtimes.onnxgraph.purposes import Use, uses
from conformance.runtimes.onnxgraph.reads import OWN, all_nodes, copy_of, held, inside, nodes, opset_of, plain

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto, TensorProto

_FEW = 256
"""Up to how many values a constant may decide on what an input has to be."""
_LEAST, _MOST = -10, 10
"""The range of whole numbers that are computed with: as far as sums and products of 8 bits stay within these."""


class GraphValues:
    """The values of the inputs of one model for which its operators have rules."""

    def __init__(self, file: Path, other: Path | None = None) -> None:
        """``other`` is the file that is run in its place, whose words are drawn too."""
        self._file, self._other = file, other
        self._shapes: dict[tuple[tuple[str, tuple[int, ...]], ...], dict[str, tuple[int, ...]]] = {}

    @cached_property
    def _model(self) -> ModelProto:
        return read_graph(self._file)

    @cached_property
    def _uses(self) -> dict[str, list[Use]]:
        return uses(self._model)

    @cached_property
    def _constants(self) -> dict[str, TensorProto]:
        return {tensor.name: tensor for tensor in self._model.graph.initializer} | held(nodes(self._model.graph))

    def rules(self, name: str, kind: str) -> list[tuple[Use, Rule]]:
        """Return the rules that the values of an input have to keep, by who reads it; ``kind`` is that of its
        dtype."""
        return [(use, rule) for use in self._uses.get(name, ()) if (rule := _rule_of(use, kind)) is not None]

    def vocabulary(self, name: str) -> list[str]:
        """Return the texts that an input is drawn of, by what reads it."""
        nodes_of = [use.node for use in self._uses.get(name, ()) if use.node.domain in OWN]
        kinds = {attribute.i for node in nodes_of if node.op_type == "Cast" for attribute in node.attribute}
        if kinds:
            return list(NUMERALS if kinds <= FLOATS else WHOLE_NUMERALS)
        words = words_of(self._model)
        if self._other is not None:
            words = [*dict.fromkeys([*words, *or_else([], partial(_words_in, self._other))])]
        return vocabulary(words, plain=any(node.op_type == "StringNormalizer" for node in nodes_of))

    def are_numbers(self, name: str) -> bool:
        """Return whether whole numbers are computed with, and any will do."""
        found = self._uses.get(name, [])
        return bool(found) and all(
            use.node.domain in OWN and use.place in NUMBERS.get(use.node.op_type, ()) for use in found
        )

    def wide_range(self, name: str, dtype: np.dtype[np.generic]) -> tuple[int, int] | None:
        """Return the ends of a range in which whole numbers may be as large as their type holds: all that is computed
        of them is numbers, too, up to where they become floats, or what is left of a division, and no size, axis or
        index. None where that is not so, and for types in which that leaves little.

        Products have room in it, so that nothing wraps around: ONNX does not say what an operator gives beyond its
        type. ONNX Runtime wraps around, and OpenVINO saturates (``findings/openvino-sums-of-bytes-saturate.sh``).
        """
        if dtype.kind not in "iu" or dtype.itemsize < 4 or (computed := self._computed_of(name)) is None:
            return None
        most = 2**31 - 1 if dtype.itemsize == 8 or not computed & GROWING else 2**15 - 1
        return 0 if dtype.kind == "u" else -most, most

    def _computed_of(self, name: str) -> set[str] | None:
        """Return the operators that compute with an input and with what is made of it; None where one of them reads
        something else than numbers of any size."""
        readers: dict[str, list[NodeProto]] = {}
        for node in nodes(self._model.graph):
            if next(inside(node), None) is not None:  # what a body makes of a value is not followed
                return None
            for each in node.input:
                readers.setdefault(each, []).append(node)
        left, seen, computed = [name], set[str](), set[str]()
        while left:
            seen.add(each := left.pop())
            for node in readers.get(each, ()):
                places = WIDE.get(node.op_type, ()) if node.domain in OWN else ()
                if any(read == each and place not in places for place, read in enumerate(node.input)):
                    return None
                computed.add(node.op_type)
                ends = node.op_type == "Mod" or (node.op_type == "Cast" and _to_float(node))
                if not ends:
                    left += (output for output in node.output if output not in seen)
        return computed if self.are_numbers(name) else None

    def make(self, name: str, shape: tuple[int, ...], kind: str, known: Mapping[str, Array],
             shapes: Mapping[str, tuple[int, ...]], rng: np.random.Generator, seed: int) -> Array | None:  # fmt: skip
        """Return values for an input that keep the rules of who reads it; None where there are none to keep.

        Raises NoValues where no values do at this shape.
        ``known`` are the inputs that were made before, ``shapes`` those of all inputs.
        """
        made: Array | None = None
        for use, rule in self.rules(name, kind):
            sizes, values = partial(self._shape_of, use, shapes), partial(self._value_of, use, known)
            site = Site(use.node, shape, rng, seed, sizes, values, opset_of(self._model))
            found = attempt(partial(rule, site))
            if isinstance(found, NoValues):
                raise found
            if found is None or isinstance(found, Exception) or found.size != site.count:
                continue
            found = np.asarray(found).reshape(shape)
            made = found if made is None else _stricter(made, found)
        return made

    def _shape_of(self, use: Use, shapes: Mapping[str, tuple[int, ...]], place: int) -> tuple[int, ...] | None:
        name = use.node.input[place] if place < len(use.node.input) else ""
        if not name or not use.scope.top:
            return None
        if name in shapes:
            return shapes[name]
        if name in self._constants:
            return tuple(self._constants[name].dims)
        return self._inferred(shapes).get(name)

    def _value_of(self, use: Use, known: Mapping[str, Array], place: int) -> Array | None:
        from onnx import numpy_helper

        name = use.node.input[place] if place < len(use.node.input) else ""
        if not name or not use.scope.top:
            return None
        if name in known:
            return known[name]
        constant = self._constants.get(name)
        if constant is None or np.prod(constant.dims) > _FEW:
            return None
        return numpy_helper.to_array(constant)

    def _inferred(self, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
        """Return the shapes of tensors inside of the model at these shapes of its inputs, as far as ONNX infers
        them."""
        place = tuple(shapes.items())
        if place not in self._shapes:
            self._shapes = {place: or_else({}, lambda: dict(_sizes_inside(self._model, shapes)))}
        return self._shapes[place]


def _sizes_inside(model: ModelProto, shapes: Mapping[str, tuple[int, ...]]) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield the tensors of a model whose shape is known where the inputs have these shapes."""
    copy = copy_of(model)
    for value in copy.graph.input:
        if value.name in shapes and value.type.HasField("tensor_type"):
            del value.type.tensor_type.shape.dim[:]
            for size in shapes[value.name]:
                value.type.tensor_type.shape.dim.add().dim_value = size
    del copy.graph.value_info[:]
    for value in inferred(copy).graph.value_info:
        dims = value.type.tensor_type.shape.dim
        if value.type.tensor_type.HasField("shape") and all(dim.HasField("dim_value") for dim in dims):
            yield value.name, tuple(dim.dim_value for dim in dims)


def _words_in(file: Path) -> list[str]:
    return words_of(read_graph(file))


def _rule_of(use: Use, kind: str) -> Rule | None:
    if use.node.domain == "ai.onnx.ml" and kind in "iu" and use.place == 0:
        return KEYS.get(use.node.op_type)
    if use.node.domain not in OWN:
        return None
    name, place = use.node.op_type, use.place
    rule = RULES.get(name, {}).get(place)
    if rule is None and kind in "iu":
        rule = WHOLE_NUMBERS.get(name, {}).get(place)
    return PARTS.get(name) if use.part and rule is not None else rule


def _stricter(one: Array, other: Array) -> Array:
    """Return of two values for the same element the one that is nearer to zero, which is more likely to keep the
    rules of both."""
    return np.where(np.abs(one) <= np.abs(other), one, other)


def _to_float(node: NodeProto) -> bool:
    from onnx import TensorProto

    floats = (TensorProto.FLOAT, TensorProto.DOUBLE)
    return any(attribute.name == "to" and attribute.i in floats for attribute in node.attribute)


def range_of_numbers(dtype: np.dtype[np.generic]) -> tuple[int, int]:
    """Return the ends of the range of whole numbers that are computed with."""
    return (0, _MOST - _LEAST) if dtype.kind == "u" else (_LEAST, _MOST)


HARD = ("", " ", "a", "Ab c", "a,b,,c", "ÄÖ é", "日本語", "x" * 40)
"""Texts that differ in length, case, spaces and the bytes that UTF-8 needs for a letter."""
NUMERALS = ("0", "-2.5", "1e3", "+7", "12345", "-0.001")
WHOLE_NUMERALS = ("0", "1", "7", "100")
"""The same for whole numbers, of which each type holds these."""
FLOATS = frozenset((1, 10, 11, 16))
"""The numbers of the types of floats in ``onnx.TensorProto``."""
_WORDS = 256
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
    return list(found)[:_WORDS]


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
