"""Dimensions: the small integer expressions of a case file, ranges, and tensor types.

``float32[batch, 2*groups]`` is ONNX's textual shape syntax with NumPy's dtype names. Expressions are
read with Python's own parser and limited to integer arithmetic, so nothing in a shape can run code.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from types import CodeType

from conformance.case.files.limits import SIZE, TEXT
from conformance.process.errors import did_you_mean, shown

DTYPES = (
    "float64", "float32", "float16", "int64", "int32", "int16", "int8", "uint8", "bool",
)  # fmt: skip
OF_FILES = (
    "uint16", "uint32", "uint64", "bfloat16", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz",
    "float8_e8m0fnu", "float4_e2m1fn", "int4", "uint4", "int2", "uint2", "string",
)  # fmt: skip
"""The dtypes that inputs of an ONNX file may have besides, as NumPy and ml_dtypes call them."""
_LARGEST = {
    "float16": 65504.0, "float32": 3.4028234663852886e38, "float64": 1.7976931348623157e308, "bfloat16": 3.38e38,
    "float8_e4m3fn": 448.0, "float8_e4m3fnuz": 240.0, "float8_e5m2": 57344.0, "float8_e5m2fnuz": 57344.0,
    "float8_e8m0fnu": 1.7e38, "float4_e2m1fn": 6.0,
}  # fmt: skip


@cache
def carrier_of(dtype: str) -> str:
    """Return the dtype of NumPy that holds each value of a dtype; itself where NumPy has it."""
    if dtype == "string":
        return "str"
    if dtype == "bfloat16" or dtype.startswith(("float8", "float4")):
        return "float32"
    return {"int4": "int8", "int2": "int8", "uint4": "uint8", "uint2": "uint8"}.get(dtype, dtype)


Sizes = Mapping[str, int]

_ALLOWED = (
    ast.Expression, ast.BinOp, ast.UnaryOp, ast.Compare, ast.BoolOp, ast.Call, ast.Name, ast.Load,
    ast.Constant, ast.Add, ast.Sub, ast.Mult, ast.FloorDiv, ast.Mod, ast.USub, ast.And, ast.Or,
    ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.Eq, ast.NotEq,
)  # fmt: skip
_FUNCTIONS = {"min": min, "max": max}


@dataclass(frozen=True)
class Expression:
    """An integer expression over dims: ``n``, ``2*groups``, ``n - 1``, ``min(h, w)``, ``k <= n``."""

    text: str
    names: frozenset[str]

    @classmethod
    def parse(cls, text: object) -> Expression:
        """Raise ValueError, with a message for the author of the case, on anything but such an expression."""
        if isinstance(text, (bool, float)) or not isinstance(text, (str, int)):
            raise ValueError(f"{shown(text)} is not a size")
        text = " ".join(str(text).split())
        if len(text) > TEXT:  # how deep a nesting Python parses depends on its version
            raise ValueError(f"{shown(text)} is longer than the {TEXT} characters of an expression over dims")
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # Python warns of what looks like another mistake, as in 1or 2
                tree = ast.parse(text, mode="eval")
                names = frozenset(_names(tree, text))
                compile(tree, "<dims>", "eval")
        except (SyntaxError, MemoryError, RecursionError):
            raise ValueError(f"{shown(text)} is not an expression over dims, such as n, 2*n or n - 1") from None
        expression = cls(text, names)
        if not names and abs(expression({})) > SIZE:
            raise ValueError(f"{shown(text)}: {shown(expression({}))} is not a size; the largest is {SIZE}")
        return expression

    @property
    def constant(self) -> int | None:
        """The value of an expression without names, else None."""
        return None if self.names else self({})

    def __call__(self, sizes: Sizes) -> int:
        """The value at ``sizes``; raises ValueError where it cannot be computed, as in a division by 0."""
        if self.text in sizes:  # nearly all expressions are a name alone
            return sizes[self.text]
        known = {name: sizes[name] for name in self.names if name in sizes}  # of the thousands that there may be
        try:
            return int(eval(_compiled(self.text), {"__builtins__": {}}, {**_FUNCTIONS, **known}))
        except ZeroDivisionError as error:
            raise ValueError(f"'{self.text}' at {dict(sizes)}: {error}") from None

    def __str__(self) -> str:
        return self.text


def _names(tree: ast.AST, text: str) -> Iterator[str]:
    """The dims that a parsed expression names; ValueError where it is more than integer arithmetic over dims."""
    functions: set[ast.AST] = set()
    for node in ast.walk(tree):  # a call comes before the name that it calls
        if isinstance(node, ast.Call):
            named = isinstance(node.func, ast.Name) and node.func.id in _FUNCTIONS
            if not named or node.keywords or not node.args:
                raise ValueError(f"{shown(text)}: only min(...) and max(...) can be called")
            if len(node.args) < 2:
                raise ValueError(f"{shown(text)}: min and max are of two sizes or more")
            functions.add(node.func)
        elif isinstance(node, ast.Constant):
            if type(node.value) is not int or abs(node.value) > SIZE:
                written = shown(ast.get_source_segment(text, node) or text).strip("'")
                raise ValueError(f"{shown(text)}: {written} is not a size, a whole number of at most {SIZE}")
        elif isinstance(node, ast.Name):
            if node in functions:
                continue
            if node.id in _FUNCTIONS:
                raise ValueError(f"{shown(text)}: {node.id} is a function, and no dim")
            yield node.id
        elif not isinstance(node, _ALLOWED):
            what = type(node).__name__
            raise ValueError(f"{shown(text)}: only + - * // % min max and comparisons are known, not {what}")


@cache
def _compiled(text: str) -> CodeType:
    """Kept apart from Expression, so that expressions can be pickled to a worker."""
    return compile(text, "<dims>", "eval")


@dataclass(frozen=True)
class Range:
    """Values of one dim: ``low..high`` with both ends, in steps; ends may name other dims (``1..n``)."""

    low: Expression
    high: Expression
    step: int = 1

    @classmethod
    def parse(cls, text: object) -> Range:
        """Read ``4``, ``1..64``, ``32..256 step 32`` or ``1..n``; raise ValueError."""
        if isinstance(text, list):
            raise ValueError("a list is not a range; write its ends as in 1..8")
        first, dots, rest = str(text).partition("..")
        if isinstance(text, float) or not dots:
            exact = Expression.parse(text)
            if exact.constant is not None and exact.constant < 0:
                raise ValueError(f"'{text}': a size cannot be negative; a range is written as 1..8")
            return cls(exact, exact)
        last, _, step = rest.partition(" step ")
        if "step" in rest and not re.fullmatch(r"\s*[0-9]{1,10}\s*", step):
            raise ValueError(f"{shown(text)}: a step is a number, as in 32..256 step 32")
        parsed = cls(Expression.parse(first), Expression.parse(last), int(step or 1))
        if parsed.step < 1:
            raise ValueError(f"'{text}': the step must be at least 1")
        low, high = parsed.low.constant, parsed.high.constant
        if low is not None and low < 0:
            raise ValueError(f"'{text}': a size cannot be negative")
        if low is not None and high is not None and low > high:
            raise ValueError(f"'{text}': {low} is larger than {high}; a range is low..high, both included")
        return parsed

    @property
    def names(self) -> frozenset[str]:
        return self.low.names | self.high.names

    @property
    def fixed(self) -> bool:
        return self.low == self.high

    def values(self, sizes: Sizes) -> range:
        """All values, given the sizes of the dims that the ends name; empty where low > high.

        Raises ValueError where an end is no size there.
        """
        low, high = self.low(sizes), self.high(sizes)
        for end, expression in ((low, self.low), (high, self.high)):
            if abs(end) > SIZE:
                raise ValueError(f"'{expression}' is not a size at {dict(sizes)}")
        return range(low, high + 1, self.step)

    def __str__(self) -> str:
        if self.fixed:
            return str(self.low)
        return f"{self.low}..{self.high}" + (f" step {self.step}" if self.step > 1 else "")


@dataclass(frozen=True)
class TensorType:
    """``float32[batch, 5]``; ``float32[]`` is 0-d."""

    dtype: str
    shape: tuple[Expression, ...]

    @classmethod
    def parse(cls, text: str) -> TensorType:
        """Raise ValueError with the nearest dtype where it is unknown."""
        if len(str(text)) > TEXT:
            raise ValueError(f"{shown(text)} is longer than the {TEXT} characters of a tensor type")
        match = re.fullmatch(r"\s*(\w+)\s*\[(.*)\]\s*", str(text))
        if match is None:
            how = "write it as float32[batch, 5], or float32[] for 0-d"
            raise ValueError(f"{shown(text)} is not a tensor type; {how}")
        if match[1] not in (*DTYPES, *OF_FILES):
            raise ValueError(f"unknown dtype {shown(match[1])}{_instead(match[1])}")
        inner = match[2].strip()
        shape = tuple(Expression.parse(part) for part in (_split(inner) if inner else []))
        for size in shape:
            if size.constant is not None and size.constant < 0:
                raise ValueError(f"'{size}' is not a size; a size that varies has a name, as in float32[batch, 5]")
        return cls(match[1], shape)

    @property
    def names(self) -> frozenset[str]:
        return frozenset().union(*(size.names for size in self.shape))

    @property
    def is_float(self) -> bool:
        return self.dtype.startswith(("float", "bfloat"))

    @property
    def is_text(self) -> bool:
        return self.dtype == "string"

    @property
    def carrier(self) -> str:
        """The dtype of NumPy in which arrays of the type are held."""
        return carrier_of(self.dtype)

    @property
    def limits(self) -> tuple[float, float]:
        """The least and the largest number of the dtype, which is not that of texts."""
        if self.is_float:
            return -_LARGEST[self.dtype], _LARGEST[self.dtype]
        if self.dtype == "bool":
            return 0, 1
        bits = int(self.dtype.lstrip("uint"))
        return (0, 2**bits - 1) if self.dtype.startswith("u") else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)

    def at(self, sizes: Sizes) -> tuple[int, ...]:
        """The concrete shape; raises ValueError where a size comes out negative or too large."""
        shape = tuple(size(sizes) for size in self.shape)
        for size, expression in zip(shape, self.shape, strict=True):
            if not 0 <= size <= SIZE:
                raise ValueError(f"'{expression}' is {shown(size)} at {dict(sizes)}")
        return shape

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"


def _instead(dtype: str) -> str:
    """Advise what to do where there is no such dtype."""
    if dtype.startswith("complex"):
        return ": ONNX has no complex tensors; give the real and the imaginary part, and put them together in forward"
    if dtype.startswith(("quint", "qint")):
        return ": quantized tensors are no inputs of graphs; give float32, and quantize in forward"
    return did_you_mean(dtype, DTYPES)


def _split(text: str) -> list[str]:
    """Split at the commas that are outside parentheses: ``min(a, b), 3``."""
    parts, depth, start = [], 0, 0
    for position, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if character == "," and depth == 0:
            parts.append(text[start:position])
            start = position + 1
    return [*parts, text[start:]]


@dataclass(frozen=True)
class Dims:
    """The dims of a case in an order in which each comes after those that its ends name."""

    ranges: Mapping[str, Range]
    where: tuple[Expression, ...] = ()

    @classmethod
    def build(cls, ranges: Mapping[str, Range], where: Sequence[Expression] = ()) -> Dims:
        """Raise ValueError for ends that name each other in a circle."""
        ordered: dict[str, Range] = {}
        while len(ordered) < len(ranges):
            ready = [name for name, r in ranges.items() if name not in ordered and r.names <= ordered.keys()]
            if not ready:
                circle = ", ".join(sorted(set(ranges) - set(ordered)))
                raise ValueError(f"dims whose ranges need each other: {circle}")
            ordered.update((name, ranges[name]) for name in ready)
        return cls(ordered, tuple(where))

    def allow(self, sizes: Sizes) -> bool:
        """Return whether ``sizes`` lies in every range and satisfies every condition."""
        return all(sizes[name] in r.values(sizes) for name, r in self.ranges.items()) and all(
            condition(sizes) for condition in self.where
        )

    def fixing(self, sizes: Sizes) -> Dims:
        """The same dims with some of them held at one value."""
        held = {name: Range.parse(size) for name, size in sizes.items() if name in self.ranges}
        return Dims.build({**self.ranges, **held}, self.where)

    def fit(self, wish: Sizes) -> dict[str, int] | None:
        """The sizes nearest to ``wish``, one dim after the other; None where the conditions then fail.

        A dim that is not wished for gets its lowest value.
        """
        sizes: dict[str, int] = {}
        for name, r in self.ranges.items():
            values = r.values(sizes)
            if not values:
                return None
            want = wish.get(name, values[0])
            sizes[name] = min((values[0], values[-1], *_around(values, want)), key=lambda v: abs(v - want))
        return sizes if all(condition(sizes) for condition in self.where) else None


def _around(values: range, want: int) -> tuple[int, ...]:
    """The members of ``values`` just below and just above ``want``."""
    index = (want - values[0]) // values.step
    return tuple(values[i] for i in (index, index + 1) if 0 <= i < len(values))
