"""The fields of a record that say why a cell failed, as plain values that are the same on every run and host.

Left out are figures of arrays (they differ in the last digits between processors), counts of trials (a better search
needs fewer), seconds, seeds, and files that a run writes.
"""

from __future__ import annotations

import re
import sysconfig
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks.common import ROOT

Fields = dict[str, Any]
"""Values by name; a part of a field is named with a dot, as in ``operator.node``. Empty ones are left out."""

PLAIN = ("status", "stage", "error", "fault", "conclusion", "own_code", "hints", "signal", "precision")
PARTS: Mapping[str, tuple[str, ...]] = {
    "cause": ("name", "shown_by"),
    "parts_at": ("node", "operator", "line", "how", "by", "why"),
    "optimizer": ("of", "level", "changed", "passes", "alone", "helpers", "removed", "added", "more"),
    "operator": (
        "operator", "within", "line", "source", "module", "stage", "node", "type", "tensor", "dtype", "sizes",
        "among", "how", "change", "breaks", "others", "removed", "rules", "passes", "inside", "untied", "unable",
        "detail",
    ),
    "smallest": ("nodes", "calls", "of", "operators", "passes", "own_code", "why_not", "detail"),
    "remedy": ("kind", "yaml", "python", "file", "parameters", "lacks"),
    "vacuous": ("output", "passes", "fact"),
    "draw": ("dims", "regime"),
}  # fmt: skip
"""By field of a record, the parts that are kept."""
QUIET = 100.0
"""Decibels above which a loss is that of rounding, which differs between kernels."""
CALLERS = ("evidence/", "tests/plants/")
"""Where a cell is called from: the line that is named where no frame is the module's."""


def fields_of(record: Mapping[str, Any], folder: Path, more: Mapping[str, Any] | None = None) -> Fields:
    """Return the fields of ``Record.as_dict()`` that are kept, and ``more``; ``folder`` is where the row ran."""
    found: Fields = {name: record[name] for name in PLAIN}
    for name, parts in PARTS.items():
        told = record[name] or {}
        found |= {f"{name}.{part}": told.get(part) for part in parts}
    second = (record["operator"] or {}).get("second") or {}
    found["operator.second"] = {part: second[part] for part in PARTS["operator"] if part in second}
    if record["smallest"]:
        found["smallest.script"] = "repro" in record["smallest"]
    found["remedy.yaml"] = _without_measured(record["remedy"] or {})
    found["witnesses"] = [_answer(witness) for witness in record["witnesses"]]
    found["beyond"] = [_vanishing(entry) for entry in record["beyond"]]
    found |= {f"loss.{stage}": _rounded(value) for stage, value in (record["loss"] or {}).items()}
    found |= more or {}
    clean = Normaliser(folder)
    kept = {name: clean(value) for name, value in found.items() if value not in (None, [], {}, "")}
    if str(kept.get("operator.line")).startswith(CALLERS):
        del kept["operator.line"]
    return kept


def _answer(witness: Mapping[str, Any]) -> str:
    said = [witness[name] for name in ("runtime", "answer", "error", "reason", "model") if witness.get(name)]
    return " ".join(map(str, said))


def _vanishing(entry: Mapping[str, Any]) -> str:
    names = "regime", "node", "operator", "gives", "of", "vanished"
    return " ".join(str(entry[name]) for name in names if entry.get(name))


def _rounded(loss: float | str) -> str:
    """Return a loss to ten decibels, or its name where it has one."""
    try:
        value = float(loss)
    except ValueError:
        return str(loss)
    if value == float("-inf"):
        return "all lost"
    return "no more than rounding" if value >= QUIET else f"about {round(value / 10) * 10} dB"


def _without_measured(remedy: Mapping[str, Any]) -> str | None:
    """Return the YAML of a remedy. A tolerance that covers what was measured is told without its figures."""
    text: str | None = remedy.get("yaml")
    if text is None or remedy["kind"] != "tolerance to declare":
        return text
    return re.sub(r"\b\d[\d.]*(e[+-]?\d+)?\b", "#", text)


class Normaliser:
    """Takes out of texts what differs from run to run: folders, addresses and hashes."""

    def __init__(self, folder: Path) -> None:
        packages = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
        places: list[tuple[str, str]] = [
            *((text, "<folder>") for text in _spellings(folder)),
            *((text, "<packages>") for place in packages for text in _spellings(Path(place))),
            *((f"{text}/", "") for text in _spellings(ROOT)),
        ]
        self._places = sorted(dict(places).items(), key=lambda place: -len(place[0]))
        temporary = "|".join(re.escape(text) for text in _spellings(Path(tempfile.gettempdir())))
        self._patterns = [
            (re.compile(rf"({temporary})/[\w.-]+"), "<temporary>"),
            (re.compile(r"\b0x[0-9a-f]{4,}\b"), "<address>"),
            (re.compile(r"(?<![\w.])(?=[0-9a-f]*[a-f])(?=[0-9a-f]*[0-9])[0-9a-f]{12,}\b"), "<hash>"),
        ]

    def __call__(self, value: Any) -> Any:
        """Return the value with all texts in it normalised."""
        if isinstance(value, Mapping):
            return {str(self(name)): self(item) for name, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [self(item) for item in value]
        return self._text(value) if isinstance(value, str) else value

    def _text(self, text: str) -> str:
        for place, name in self._places:
            text = text.replace(place, name)
        for pattern, name in self._patterns:
            text = pattern.sub(name, text)
        return text


def _spellings(folder: Path) -> Iterator[str]:
    """Yield a folder as it is named, and as it is named without links."""
    yield from _unique((str(folder.absolute()), str(folder.resolve())))


def _unique(texts: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(texts))
