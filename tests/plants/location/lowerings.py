"""Mistakes in what the exporters lower operators with: onnxscript's and torch.onnx's own files, edited as they are
imported. The list is ``lowerings.yaml``; a file is imported as if the edited text were on the disk."""

from __future__ import annotations

import ast
import functools
import importlib.abc
import importlib.machinery
import linecache
import sys
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import CodeType
from typing import Any

from ruamel.yaml import YAML

FILE = Path(__file__).with_name("lowerings.yaml")
_TORCHLIB, _SYMBOLICS = "onnxscript.function_libs.torch_lib.ops", "torch.onnx._internal.torchscript_exporter"
_RULES, _TORCH = "onnxscript.rewriter.rules.common", "torch.onnx._internal.exporter._torchlib.ops"
MODULES = {
    **{name: f"{_TORCHLIB}.{name}" for name in ("core", "nn", "special", "linalg")},
    "tnn": f"{_TORCH}.nn",
    **{f"s{opset}": f"{_SYMBOLICS}.symbolic_opset{opset}" for opset in range(9, 19)},
    "helper": f"{_SYMBOLICS}.symbolic_helper",
    "relus": f"{_RULES}._fuse_relus_clips",
    "minmax": f"{_RULES}._min_max_to_clip",
    "basic": f"{_RULES}._basic_rules",
    "batchnorm": f"{_RULES}._fuse_batchnorm",
    "padding": f"{_RULES}._fuse_pad_into_conv",
    "slices": f"{_RULES}._collapse_slices",
}
"""By the short name that the list has."""

SIZES = {"rows": "8", "sequence": "4, 8", "image": "4, 8, 8"}
BLOCKS = {
    "rows": (9, """
        y = torch.tanh(self.one(self.norm(x))) * 0.5
        y = y.reshape(-1, 2, 4).transpose(1, 2).reshape(-1, 8)
        return torch.add(x, self.two(y))
    """),
    "sequence": (10, """
        y = self.norm(x)
        weights = torch.softmax(self.one(y) @ self.two(y).transpose(1, 2) * 0.35, -1)
        return torch.add(x, torch.tanh(weights @ self.three(y)))
    """),
    "image": (6, """
        y = torch.relu(self.images(self.conv(x)))
        return torch.add(x, torch.sigmoid(self.point(y)) * y)
    """),
}  # fmt: skip
"""By the size of the tensors: calls of a block, and its lines."""
MODULE = """
import torch
import torch.nn.functional as F


class Parts(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.images = torch.nn.LayerNorm(8), torch.nn.BatchNorm2d(4)
        self.one, self.two, self.three = (torch.nn.Linear(8, 8) for _ in range(3))
        self.conv, self.point = torch.nn.Conv2d(4, 4, 3, padding=1), torch.nn.Conv2d(4, 4, 1)
        torch.nn.init.uniform_(self.images.running_var, 0.5, 2)
        torch.nn.init.normal_(self.images.running_mean)


class Block(Parts):
    def forward(self, x):
{block}


class Planted(Parts):
    def __init__(self):
        super().__init__()
        self.w, self.b = torch.nn.Parameter(torch.randn(8, 8)), torch.nn.Parameter(torch.randn(8))
        self.wide, self.narrow = torch.nn.Conv2d(4, 4, 3, padding=2, dilation=2), torch.nn.Conv2d(4, 4, 3)
        self.images = torch.nn.BatchNorm2d(4, eps=0.1)
        torch.nn.init.uniform_(self.images.running_var, 0.05, 0.5)
        self.register_buffer("mask", torch.ones(4, 4).tril(-1).bool())
        self.register_buffer("low", torch.tensor([-0.5]))
        self.register_buffer("high", torch.tensor([0.5]))
        self.before = torch.nn.ModuleList(Block() for _ in range({before}))
        self.after = torch.nn.ModuleList(Block() for _ in range({after}))

    def part(self, x):
{lines}

    def forward(self, x):
        for block in self.before:
            x = block(x)
        y = self.part(x)
        for block in self.after:
            y = block(y)
        return y
"""


@dataclass(frozen=True)
class Lowering:
    """One mistake, or two at once."""

    what: str
    kind: str
    by: str
    """The exporter."""
    edits: Sequence[tuple[str, str, str]]
    """Of each edit the function, as in ``core.aten_add``, the text there and the text instead."""
    lines: str
    called: str
    """The names by which the operator may be called."""
    then: str = ""
    """The operator of the second mistake."""
    passed: str = ""
    """The rule or pass that is wrong; empty for a lowering."""
    change: str = ""
    """A pattern of the change that may be proposed; empty where none may be."""
    network: str = ""
    through: bool = True
    """Whether sound blocks come after the operator too, for which its result has to be as its input is."""
    of: str = "rows"
    opset: int = 0

    @property
    def name(self) -> str:
        return f"{self.by}, {self.kind}: {self.what}"

    @property
    def size(self) -> str:
        return self.network.partition(" ")[0] or self.of

    @property
    def calls(self) -> int:
        """Return how many calls stand around the operator."""
        return int(self.network.partition(" ")[2] or 0)

    @functools.cached_property
    def python(self) -> str:
        each, block = BLOCKS[self.size]
        count = -(-self.calls // each)
        after = count // 2 if self.through else 0
        parts = {
            "block": textwrap.indent(textwrap.dedent(block).strip("\n"), " " * 8).rstrip(),
            "lines": textwrap.indent(self.lines.strip(), " " * 8),
            "before": count - after,
            "after": after,
        }
        return MODULE.format(**parts)

    def line(self, mark: str = "# here") -> int:
        """Return the number of the line of ``python`` that ends in a mark."""
        return next(n for n, line in enumerate(self.python.splitlines(), 1) if line.endswith(mark))

    @property
    def body(self) -> str:
        """The entry of the case file."""
        opset = self.opset or {"dynamo": 18, "torchscript": 17}[self.by]
        return "\n".join([
            "module: beside.Planted",
            f'inputs: {{x: "float32[batch, {SIZES[self.size]}]"}}',
            "dims: {batch: 2..6}",
            "examples: {shapes: 2, values: 1}",
            "runtimes: onnxruntime",
            f"export: {{{self.by}: {{opsets: [{opset}]}}}}",
        ])  # fmt: skip


@functools.cache
def lowerings() -> list[Lowering]:
    """Return the whole list."""
    read = YAML(typ="safe").load(FILE.read_text(encoding="utf-8"))
    return [Lowering(**{**entry, "edits": [tuple(edit) for edit in entry["edits"]]}) for entry in read]


def edited(text: str, function: str, there: str, instead: str) -> str:
    """Return the text of a file with an edit in what it defines by that name. Raises ValueError where the text to
    replace is not there once."""
    lines = text.splitlines(keepends=True)
    found = [(first, last) for first, last in _spans(text).get(function, ()) if there in "".join(lines[first:last])]
    if len(found) != 1 or "".join(lines[found[0][0] : found[0][1]]).count(there) != 1:
        raise ValueError(f"{function} has {there!r} not once")
    ((first, last),) = found
    body = "".join(lines[first:last]).replace(there, instead)
    return "".join(lines[:first]) + body + "".join(lines[last:])


@functools.lru_cache(maxsize=len(MODULES))
def _spans(text: str) -> dict[str, list[tuple[int, int]]]:
    """Return the lines of each function and class of a file, decorators included, by its name."""
    found: dict[str, list[tuple[int, int]]] = {}
    for one in ast.walk(ast.parse(text)):
        if isinstance(one, ast.FunctionDef | ast.ClassDef):
            first = min(part.lineno for part in (one, *one.decorator_list)) - 1
            found.setdefault(one.name, []).append((first, one.end_lineno or first))
    return found


def plant(lowering: Lowering) -> None:
    """Have this process import the edited files. Raises RuntimeError where one has been imported."""
    edits: dict[str, list[tuple[str, str, str]]] = {}
    for place, there, instead in lowering.edits:
        short, _, function = place.rpartition(".")
        edits.setdefault(MODULES[short], []).append((function, there, instead))
    early = [name for name in edits if name in sys.modules]
    if early:
        raise RuntimeError(f"imported before it was edited: {', '.join(early)}")
    sys.meta_path.insert(0, _Finder(edits))


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, edits: dict[str, list[tuple[str, str, str]]]) -> None:
        self._edits = edits

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        if name not in self._edits:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        assert spec is not None and spec.origin is not None
        text = Path(spec.origin).read_text(encoding="utf-8")
        for edit in self._edits[name]:
            text = edited(text, *edit)
        spec.loader = _Loader(name, spec.origin, text)
        return spec


class _Loader(importlib.machinery.SourceFileLoader):
    """Loads a text as what the file says; ``linecache``, by which onnxscript reads functions, has it too."""

    def __init__(self, name: str, path: str, text: str) -> None:
        super().__init__(name, path)
        self._text = text

    def get_code(self, fullname: str) -> CodeType:
        lines = self._text.splitlines(keepends=True)
        linecache.cache[self.path] = (len(self._text), None, lines, self.path)
        code: CodeType = compile(self._text, self.path, "exec", dont_inherit=True)
        return code

    def get_source(self, fullname: str) -> str:
        return self._text
