"""All that a case depends on: each key of its declaration, and the files beside it that these name, with what of a
cell it matters to. The model store, ``--reuse`` and ``--changed-since`` all read this list."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Literal, TypeAlias, get_args

from conformance.case.files.declaration import Case
from conformance.case.files.export_keys import Dynamo, ExportTo, TorchScript
from conformance.case.files.made import is_made
from conformance.results.records.words import Exporter

Matter: TypeAlias = Literal["export", "conversion", "verdict", "words"]
"""The first step of a cell that a key matters to; all later steps depend on it as well.

``export`` is part of an exported model's key in the store. ``conversion`` is part of a converted model's key, its
calibration data by the arrays that were read. ``--changed-since`` looks at ``verdict`` and at the two
before it. ``words`` stand in the record alone, which ``--reuse`` copies as a whole.
"""

KEYS: Mapping[str, Matter] = {
    "about": "words",
    "tags": "words",
    "forward": "export",
    "module": "export",
    "onnx": "export",
    "samples": "words",  # what a case says of one stands under other keys
    "submodule": "export",
    "given": "verdict",  # an export depends on the values of this case alone: ``Case.arguments``
    "vary": "verdict",
    "script": "export",
    "mode": "export",
    "seed": "export",
    "weights": "export",
    "prepare": "export",
    "inputs": "export",
    "call": "export",
    "clones": "export",
    "unused": "verdict",
    "returns": "export",
    "outputs": "export",
    "dims": "export",
    "where": "export",
    "draw": "export",
    "trace": "export",
    "export": "export",  # what is said of one exporter matters to its models alone
    "runtimes": "verdict",
    "tensorrt": "verdict",
    "onnxruntime": "verdict",
    "libraries": "verdict",
    "graph": "verdict",
    "precisions": "conversion",
    "tolerance": "verdict",
    "specials": "verdict",
    "vacuous": "verdict",
    "hollow": "verdict",
    "fails": "verdict",
    "latency": "verdict",
    "examples": "verdict",
    "recorded": "verdict",
    "metric": "verdict",
    "preprocess": "verdict",
    "steps": "verdict",
    "needs": "verdict",
    "depends": "export",
}
"""By the name of each field of a ``Declaration``."""
_IN_ORDER = "registers"
"""The key of functions that register operators: where two register the same operator, their order decides."""


def said(case: Case, until: Matter) -> dict[str, object]:
    """Return what the case says by key, as far as it matters to ``until`` or what comes before; not of its
    exporters."""
    includes = {key for key, matter in KEYS.items() if _reaches(matter, until) and key != "export"}
    return case.says.model_dump(mode="json", include=includes, fallback=str)


def said_of(case: Case, exporter: Exporter) -> dict[str, object]:
    """Return what the case says of the models of one exporter, whatever their opset."""
    return case.says.export.exporters[exporter].model_dump(mode="json", exclude={"opsets"}, fallback=str)


def texts(case: Case, exporter: Exporter) -> dict[str, str]:
    """Return what the case says, as far as it matters to the verdicts of an exporter's cells: by name, a text that
    changes with it."""
    found = {f"the case's {key}": repr(value) for key, value in said(case, "verdict").items()}
    found["the case's with"] = repr(sorted(case.arguments.items(), key=str))
    for key, value in said_of(case, exporter).items():
        if isinstance(value, Mapping) and key in ("symbolics", "registers", "translations"):
            found |= {f"{key} of {operator}": repr(entry) for operator, entry in value.items()}
            if key == _IN_ORDER and len(value) > 1:
                found[f"the order of {key}"] = repr(list(value))
        else:
            found[f"{exporter}'s {key}"] = repr(value)
    return found


@dataclass(frozen=True)
class Named:
    """A mention of something beside the case file: ``file.function``, the name of a file, or a pattern of names."""

    key: str
    text: str
    pattern: bool = False

    @property
    def matter(self) -> Matter:
        return KEYS[self.key.partition(".")[0]]


def named(case: Case, until: Matter = "words", exporter: Exporter | Literal["none"] | None = None) -> Iterator[Named]:
    """All that the case names beside its file as far as it matters to ``until``, for one exporter, for none of them
    or for all."""
    return (mention for mention in _named(case, exporter) if _reaches(mention.matter, until))


def _named(case: Case, exporter: Exporter | Literal["none"] | None) -> Iterator[Named]:
    says = case.says
    for key in ("module", "prepare", "draw"):
        if text := getattr(says, key):
            yield Named(key, text)
    if says.weights not in (None, "awake"):
        yield Named("weights", str(says.weights))
    known = {"torch", "F", "math", *(given.as_ or name.replace(".", "_") for name, given in says.inputs.items())}
    for text in _in_expression(says.forward):
        if text.partition(".")[0] not in known:
            yield Named("forward", text)
    for text in _in_arguments([case.arguments, says.call]):
        yield Named("module.with", text)
    for name, given in says.inputs.items():
        if given.values is not None and given.values.python:
            yield Named(f"inputs.{name}.values", given.values.python)
    for name, target in says.export.exporters.items():
        for text in _own_code(target) if exporter in (None, name) else ():
            yield Named(f"export.{name}", text)
    for text in says.libraries:
        yield Named("libraries", text)
    for text in says.tensorrt.plugins:
        yield Named("tensorrt.plugins", text)
    for precision, settings in says.precisions.items():
        if settings.calibration.data is not None:
            yield Named(f"precisions.{precision}.calibration.data", settings.calibration.data)
    if says.metric is not None:
        yield from (Named("metric", text) for text in (says.metric.of, says.metric.data))
    if says.preprocess is not None:
        texts = (says.preprocess.pytorch, says.preprocess.deployed, says.preprocess.data)
        yield from (Named("preprocess", text) for text in texts if text)
    for text in says.depends:
        yield Named("depends", text, pattern=True)


def _own_code(target: ExportTo) -> Iterator[str]:
    yield from target.functions
    if isinstance(target, TorchScript):
        yield from (entry.function for entry in (*target.symbolics.values(), *target.registers.values()))
    elif isinstance(target, Dynamo):
        yield from target.translations.values()


def _in_arguments(value: object) -> Iterator[str]:
    """The classes and files of objects that are made (``case.files.made``)."""
    if isinstance(value, Mapping):
        yield from (str(value[key]) for key in ("new", "file", "of") if is_made(value) and key in value)
        yield from _in_arguments(list(value.values()))
    elif isinstance(value, list):
        for item in value:
            yield from _in_arguments(item)


@cache
def _in_expression(forward: str | None) -> tuple[str, ...]:
    """Return what an expression may take from Python files beside the case, as ``file.name``; more do no harm."""
    try:
        tree = ast.parse(forward or "")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ()
    return tuple(dict.fromkeys(".".join(chain[:2]) for chain in _names(tree)))


def _names(tree: ast.AST) -> Iterator[tuple[str, ...]]:
    """The dotted names that a piece of code uses, each at its full length."""
    inside: set[ast.AST] = set()
    for node in ast.walk(tree):  # outer nodes first: ``a.b.c`` before its part ``a.b``
        if node in inside:
            continue
        attributes: list[str] = []
        while isinstance(node, ast.Attribute):
            attributes.append(node.attr)
            node = node.value
            inside.add(node)
        if isinstance(node, ast.Name):
            yield (node.id, *reversed(attributes))


def _reaches(matter: Matter, until: Matter) -> bool:
    order = get_args(Matter)
    return order.index(matter) <= order.index(until)
