"""The matrix as data: cases down; exporter, runtime, precision and opset across; each sign with its records.

Signs and columns are those of the terminal's matrix, which this takes from ``conformance.records.matrix``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from conformance.records import matrix
from conformance.report.record_rows import STATUSES, Row

Key = tuple[str, matrix.Column]
"""case and column"""


def grid(rows: Sequence[Row]) -> dict[str, Any]:
    """``{groups, cases, cells, missing}`` of plain values.

    ``groups`` are ``{exporter, part, precision, opsets}``. ``cells`` has a list over all columns for each case; each
    item is null or ``[sign, number, ...]`` with the numbers of the cell's rows, the row that decides the sign first.
    ``missing`` are lines about runtimes of which nothing was run.
    """
    missing = matrix.not_run(rows)
    shown = [(number, row) for number, row in enumerate(rows) if row["runtime"] not in missing]
    own, beside = _by_key(shown)
    groups = matrix.groups(column for _, column in [*own, *beside])
    columns = [column for group in groups for column in group]
    cases = matrix.cases_of(row for _, row in shown)

    def cell(key: Key) -> list[Any] | None:
        return _cell(rows, own.get(key, []), beside.get(key, []))

    return {
        "groups": [_hover(group) for group in groups],
        "cases": cases,
        "cells": [[cell((case, column)) for column in columns] for case in cases],
        "missing": [
            f"{name} was not run: {count} cells skipped: {'; '.join(reasons)}"
            for name, (count, reasons) in missing.items()
        ],
    }


def _hover(group: list[matrix.Column]) -> dict[str, Any]:
    exporter, part, precision, _ = group[0]
    opsets = [column[3] for column in group]
    return {"exporter": exporter, "part": part, "precision": precision, "opsets": opsets}


def _by_key(shown: Sequence[tuple[int, Row]]) -> tuple[dict[Key, list[int]], dict[Key, list[int]]]:
    """Numbers of the rows that are a cell's own, and of those that stand beside it."""
    own: dict[Key, list[int]] = {}
    beside: dict[Key, list[int]] = {}
    for number, row in shown:
        if row["check"] != "fidelity":
            kind = own if row["check"] in ("accuracy", "export") else beside
            kind.setdefault((row["case"], matrix.column(row)), []).append(number)
    runtimes: dict[tuple[str, str, str, int], list[Key]] = {}
    for case, column in own:
        exporter, _, precision, opset = column
        runtimes.setdefault((case, exporter, precision, opset), []).append((case, column))
    for number, row in shown:
        if row["check"] == "fidelity":  # stands beside each runtime of its precision, or alone where there is none
            keys = runtimes.get((row["case"], row["exporter"], row["precision"], row["opset"]), [])
            for key in keys:
                beside.setdefault(key, []).append(number)
            if not keys:
                own.setdefault((row["case"], matrix.column(row)), []).append(number)
    return own, beside


def _cell(rows: Sequence[Row], own: list[int], beside: list[int]) -> list[Any] | None:
    if not own and not beside:
        return None

    def worst(numbers: list[int]) -> tuple[str, int | None]:
        if not numbers:
            return "passed", None
        number = min(numbers, key=lambda number: STATUSES.index(rows[number]["status"]))
        return rows[number]["status"], number

    first, second = worst(own), worst(beside)
    decides = second[1] if first[1] is None or (first[0] == "passed" != second[0]) else first[1]
    others = [number for number in [*own, *beside] if number != decides]
    return [matrix.sign(first[0], second[0]), decides, *others]
