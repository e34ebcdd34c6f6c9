"""Which record names the culprit of a plant, which names another, and which leaves it open.

Written before any result was looked at; every rule here is about fields of a record and none about a plant's name.

| culprit | the record that names it |
|---|---|
| exporter | fault ``exporter`` alone; wrong code of the case's own: ``own_code`` says which, or fault ``case`` |
| optimizer | fault ``runtime`` and conclusion ``optimizer`` |
| kernel | fault ``runtime``, and no conclusion ``optimizer`` |
| conversion | fault ``precision`` |
| reference | fault ``reference`` |
| case | fault ``case`` |
| host | fault ``harness`` with ``CannotWrite`` or ``OutOfMemory``, cause ``saturation``, or the cell is skipped |

A defect that passes, or whose cell is skipped for the want of something that has nothing to do with it, is *not
found*, and that is wrong. Without a fault it is open. Fault ``runtime`` without a conclusion, for an optimizer, is
open too: ONNX Runtime is rightly named, its part is not.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from tests.plants.plant import Culprit

Verdict = Literal["right", "wrong", "not found", "open"]

_HOST = ("CannotWrite", "OutOfMemory")
_OTHERS = {"exporter": "exporter", "precision": "conversion", "reference": "reference", "case": "case"}


def named(record: Mapping[str, Any]) -> str | None:
    """Who a record names, in the words of ``Culprit``, or the harness; None where it leaves that open.

    ``record`` is ``Record.as_dict()`` of one that failed or was skipped.
    """
    if record["status"] == "skipped" or (record.get("cause") or {}).get("name") == "saturation":
        return "host"
    fault = record["fault"]
    if fault == "harness":
        return "host" if record["error"] in _HOST else "harness"
    if fault == "runtime":
        return "optimizer" if record.get("conclusion") == "optimizer" else "kernel"
    return None if fault is None else _OTHERS[fault]


def verdict(culprit: Culprit, own_code: bool, record: Mapping[str, Any]) -> Verdict:
    """Say whether a record names the culprit of a plant; ``own_code``: the defect is in code of the case's own."""
    if record["status"] in ("passed", "xfailed") or (record["status"] == "skipped" and culprit != "host"):
        return "not found"
    who = named(record)
    if who is None or (culprit == "optimizer" and who == "kernel"):
        return "open"
    if own_code:
        return "right" if who == "case" or (who == "exporter" and record.get("own_code")) else "wrong"
    return "right" if who == culprit and not record.get("own_code") else "wrong"
