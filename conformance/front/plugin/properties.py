"""The properties of tests, of which equal ones are kept once: pytest has every report at hand until a run ends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pytest

from conformance.results.records.location import places_of

if TYPE_CHECKING:
    from conformance.results.records.record import Record

_OF_ONE_CELL = ("command", "ratio", "bundle")
"""Properties of which hardly any two tests have the same."""

Property = tuple[str, object]


class Properties:
    """Puts one value in the place of equal ones. They come with every cell, and under xdist from other processes."""

    def __init__(self) -> None:
        self._known: dict[Property, Property] = {}
        self._called: dict[str, list[Property]] = {}
        """By the id of a test that has not ended, the properties that its call had."""

    def __call__(self, report: pytest.TestReport) -> None:
        """The report of a test's end has the same properties as that of its call, unless the end adds to them."""
        if not report.user_properties:
            return
        called = self._called.pop(report.nodeid, None)
        if report.user_properties == called:
            report.user_properties = called
            return
        report.user_properties = self.shared(report.user_properties)
        if report.when == "call":
            self._called[report.nodeid] = report.user_properties

    def shared(self, given: Sequence[Property]) -> list[Property]:
        """The same properties, at the places of equal ones that were given before."""
        return [
            one if one[0] in _OF_ONE_CELL or type(one[1]) not in (str, int) else self._known.setdefault(one, one)
            for one in given
        ]


def describe(record: Record) -> list[tuple[str, object]]:
    """List what JUnit files tell of a cell besides pytest's own."""
    names = ("case", "exporter", "opset", "runtime", "precision", "check", "status", "stage", "error", "fault",
             "examples", "command", "bundle")  # fmt: skip
    properties: list[tuple[str, object]] = [
        (name, value) for name in names if (value := getattr(record, name)) is not None
    ]
    case = (record.source.get("file"), record.source.get("line"))
    properties.append(("source", f"{case[0]}:{case[1]}"))
    place = next(iter(places_of(record)), case) if record.status == "failed" else case
    if place != case:
        properties.append(("place", f"{place[0]}:{place[1]}"))
    if record.worst is not None:
        properties.append(("ratio", record.worst["ratio"]))
    return properties
