"""Name the defects of outside packages that fit a record: by who is suspected, the operator, the kind of failure and
the version.

``known.csv`` lists them. A name that begins with ``findings/`` is a script of this project's repository, which shows
the defect by itself. All of it is only said: no verdict and no blame depends on it, and no text of a message is read.
"""

from __future__ import annotations

import csv
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

from packaging.specifiers import SpecifierSet

from conformance.process.errors import or_else
from conformance.results.records.environment import versions
from conformance.results.records.processor import cpu
from conformance.results.records.record import Record
from conformance.results.records.record_types import Environment
from conformance.results.records.subject import is_of_file
from conformance.runtimes.registry import EVALUATOR

FILE = Path(__file__).with_name("known.csv")
_BESIDE = frozenset({"Cast", "Constant", "Identity"})
"""Operators that stand beside another without making it a second one."""


class Known(NamedTuple):
    """A row of ``known.csv``; what is a set there is written with spaces between."""

    name: str
    who: frozenset[str]
    """Runtimes and exporters, as records call them."""
    package: str
    """Whose version decides, as the header of a run names it."""
    versions: SpecifierSet
    """From the oldest with which it was seen to the newest."""
    operators: frozenset[str]
    """ONNX's, or with ``aten.`` PyTorch's, which only an export has."""
    errors: frozenset[str]
    when: str
    """Empty, ``integer`` (the runtime computes whole numbers there), or ``lacks`` and an instruction set."""

    def version_in(self, environment: Environment) -> str | None:
        """Return the version of its package in an environment where it is to be seen; None elsewhere."""
        version = (environment.get("versions") or {}).get(self.package)
        if version is None or not or_else(False, lambda: self.versions.contains(version, prereleases=True)):
            return None  # a header may hold anything as a version
        kind, _, instruction = self.when.partition(" ")
        processor = environment.get("cpu")
        has = (processor.get("instructions") if isinstance(processor, dict) else None) or []
        return version if kind != "lacks" or (has and instruction not in has) else None


@cache
def table() -> tuple[Known, ...]:
    """Return all rows of ``known.csv``."""
    with FILE.open(encoding="utf-8", newline="") as file:
        return tuple(
            Known(
                row["known"], frozenset(row["who"].split()), row["package"], SpecifierSet(row["versions"]),
                frozenset(row["operators"].split()), frozenset(row["errors"].split()), row["when"],
            )
            for row in csv.DictReader(file)
        )  # fmt: skip


@cache
def _here() -> Environment:
    processor = cpu()
    return {
        "versions": versions(),
        "cpu": {"name": processor["name"], "instructions": processor["instructions"]},
    }


def fitting(record: Record, environment: Environment | None = None) -> list[str]:
    """Return what is known that fits a cell that is not green, such as ``findings/openvino-slope-of-a-row (openvino
    2026.4.1)``; nothing where no operator is named. ``environment`` is that of the run's header, by default this
    one."""
    errors = {record.error, record.doubted} - {None}
    if record.status == "passed" or not errors:
        return []
    suspects, named, nodes = _suspects(record), _operators(record), _nodes(record)
    found = [one for one in table() if one.who & suspects and one.errors & errors]
    found = [one for one in found if one.operators & named or (nodes and nodes <= one.operators)]
    if not found:
        return []
    where: Environment = {**(_here() if environment is None else environment)}
    if record.worker is not None:
        where["cpu"] = record.worker.get("cpu")
    seen = {one: one.version_in(where) for one in found if one.when != "integer" or _is_whole(record)}
    return [f"{one.name} ({one.package} {version})" for one, version in seen.items() if version]


def lines(record: Record, environment: Environment | None = None) -> list[str]:
    """Return ``fitting`` as lines of their own."""
    return [f"known: {name}" for name in fitting(record, environment)]


def by_package(environment: Environment | None = None) -> Mapping[str, list[str]]:
    """Return the names of what is known of the installed versions, by package and version."""
    where, found = _here() if environment is None else environment, dict[str, list[str]]()
    for one in table():
        version = one.version_in(where)
        if version is not None:
            found.setdefault(f"{one.package} {version}", []).append(one.name.removeprefix("findings/"))
    return found


def of_operators(names: Collection[str], who: Collection[str] | None = None) -> Iterator[tuple[Known, str]]:
    """Yield what is known of some operators in installed versions, each with the version of its package; ``who``
    limits it to these runtimes and exporters."""
    for one in table():
        version = one.version_in(_here()) if one.operators & {*names} else None
        if version is not None and (who is None or one.who & {*who}):
            yield one, version


def _suspects(record: Record) -> set[str]:
    """Return who may have failed: who is at fault, or as long as that is open everybody who differs."""
    if record.fault == "exporter":
        return set() if record.own_code else {record.exporter}
    says = {EVALUATOR} if is_of_file(record) else set()
    if record.fault == "reference":
        return says
    if record.fault is not None:
        return {str(record.runtime)} if record.fault == "runtime" else set()
    wrong = {witness["runtime"] for witness in record.witnesses if witness["answer"] in ("wrong", "otherwise")}
    return {record.exporter, str(record.runtime)} | says | wrong


def _operators(record: Record) -> set[str | None]:
    """Return what the first wrong operator is called, or the pass of an optimizer that is wrong."""
    located, node = record.operator or {}, record.parts_at
    if record.conclusion == "optimizer":
        return set(record.optimizer["passes"]) if record.optimizer is not None else set()
    return {located.get("operator"), located.get("within"), node["operator"] if node is not None else None}


def _nodes(record: Record) -> set[str]:
    """Return the operators of a model, of which one is the wrong one; none where a pass of an optimizer is."""
    nodes = None if record.graph is None or record.conclusion == "optimizer" else record.graph.get("nodes")
    return {*(nodes or {})} - _BESIDE


def _is_whole(record: Record) -> bool:
    """Return whether a cell is wrong in a whole number, or its runtime computes these."""
    got = None if record.worst is None else record.worst.get("got")
    computed = str((record.arithmetic or {}).get("arithmetic"))
    return (isinstance(got, int) and not isinstance(got, bool)) or computed.startswith(("i", "u"))
