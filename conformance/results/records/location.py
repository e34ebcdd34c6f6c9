"""The first operator that parts, in words: the line of Python, the node, and what it computes instead."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # pytest's plugin imports this in every session
    from conformance.results.records.record import Record
    from conformance.results.records.record_types import OperatorFields, Parting, Place

_STAGES = {
    "translation": "",
    "optimizer": "the exporter's own passes over the graph changed it: before them it is right",
    "capture": "the program that the exporter captured is not what the module computes here",
}
_UNABLE = {
    "torch": "this torch has no {detail}",
    "instruments": "the exporter did not go the way that is watched",
    "changed": "exporting again gives another graph",
    "program": "the captured program has no {detail}",
    "inputs": "the graph has other inputs than the module",
    "outputs": "an output of the captured program is no tensor",
    "exporter": "nothing is known of how this exporter works",
    "decomposition": "the captured program is right, and wrong once its operators are decomposed",
    "capture": "the captured program is not what the module computes here",
    "again": "the captured program is not what the module computes here, and cannot be captured here: {detail}",
    "nothing": "no operator by itself explains the failure",
    "whole": "the checker refuses the model as a whole, and no node by itself",
    "vanished": "the failure vanishes where the graph is computed node by node",
    "interpreted": "the captured program cannot be run operator by operator: {detail}",
    "raised": "{detail}",
}
_HEADS = {
    "raises": "the exporter stops at",
    "crashes": "the process ends at",
    "refused": "the checker refuses what becomes of",
}
"""What is said before the place, where no values are compared."""
_SIGNS = {
    "operator.floordiv": "//", "operator.add": "+", "operator.sub": "-", "operator.mul": "*", "operator.mod": "%",
    "operator.truediv": "/", "operator.pow": "**", "aten.add": "+", "aten.sub": "-", "aten.mul": "*", "aten.div": "/",
    "aten.remainder": "%", "aten.pow": "**", "aten.floor_divide": "//", "aten.eq": "==", "aten.ne": "!=",
    "aten.lt": "<", "aten.le": "<=", "aten.gt": ">", "aten.ge": ">=",
}  # fmt: skip
"""How an operator of two numbers is written in Python."""
_AMONG = 4
"""Nodes that are named where any of them may be the one."""
_UNTIED = 4
"""Operators that are named where any of them may be the one."""
_PLACE = re.compile(r"(?P<file>[^:]+\.\w+):(?P<line>\d+)")


def places_of(record: Record) -> Iterator[tuple[str, int]]:
    """Yield the file and line of each place that a record names: of what is wrong first, and of the case last."""
    if record.place is not None and record.place.get("own"):
        yield from _lines(record.place)
    operator, node = record.operator or {}, record.parts_at
    for told in (operator, operator.get("second") or {}):
        match = _PLACE.fullmatch(told.get("line") or "")
        if match is not None and told.get("place") != "call":
            yield told.get("file") or match["file"], int(match["line"])
    match = None if node is None else _PLACE.fullmatch(node.get("line") or "")
    if match is not None:
        yield match["file"], int(match["line"])
    yield from _lines(record.source)


def _lines(place: Place) -> Iterator[tuple[str, int]]:
    file, line = place.get("file"), place.get("line")
    if file and line:
        yield file, line


def located(told: OperatorFields | None) -> Iterator[str]:
    """Yield the first wrong operator, or why it is not known."""
    if not told:
        return
    if told.get("unable"):
        yield f"the first wrong operator is not known: {describe_unable(told)}"
        return
    if told.get("place") == "node":
        yield "the checker refuses a node, and which operator became it is not known"
    elif told.get("operator") or told.get("line"):  # else a pass alone is known
        yield f"{_HEADS.get(str(told.get('how')), 'first wrong operator at')} {place_of(told)}{_called(told)}"
    yield from _node(told)
    yield from values_of(told)
    if told.get("inside"):
        yield f"  inside of the branch that is taken at {told['inside']}"
    if told.get("untied"):
        others = list(told["untied"])[-_UNTIED:]
        yield f"  or at what comes just before it, whose values the graph does not have: {', '.join(others)}"
    stage = _STAGES.get(told.get("stage") or "")
    if stage:
        without = f", and without {' and '.join(told['passes'])} it stays right" if told.get("passes") else ""
        yield f"  {stage}{without}"
    second = told.get("second")
    if second:
        yield f"with that put right, {_second(second)}"


def describe_unable(told: Parting) -> str:
    """Say why no operator is named."""
    unable = str(told["unable"])
    why = _UNABLE.get(unable, unable).replace("{detail}", told.get("detail") or "")
    return why.rstrip(": ")


def _second(told: Parting) -> str:
    """Return what is still wrong where the operator that was named first is put right."""
    if told.get("unable"):
        return "the outputs are still wrong, which no other operator by itself explains"
    if told.get("place") == "node":
        return f"the checker refuses the node {told.get('node')} ({told.get('type')}) as well"
    head = _HEADS.get(told.get("how") or "")
    if head:
        return f"{head} {place_of(told)}{_called(told)} as well"
    node = f"; node {told['node']} ({told.get('type')})" if told.get("node") is not None else ""
    passes = f"; made so by {' and '.join(told['passes'])}" if told.get("passes") else ""
    when = ", with other inputs" if told.get("other_inputs") else ""
    return f"{place_of(told)}{_called(told)} is wrong as well{when}: {'; '.join(values_of(told))}{node}{passes}"


def place_of(told: Parting) -> str:
    """The line with its text, or else which call it is, in which module."""
    where = told.get("line") or (f"the module {told['module']}" if told.get("module") else None)
    if told.get("place") == "call":
        number, count = told.get("call") or (1, 1)
        call = f"call {number} of {count}" if count > 1 else "the call"
        where = f"{call} of {told.get('operator')}" + (f", in {where}" if where else "")
    where = where or "an unknown line"
    return f"{where}  {told['source']}" if told.get("source") else where


def _called(told: Parting) -> str:
    return f"  ({told['operator']})" if told.get("operator") and told.get("place") != "call" else ""


def _node(told: Parting) -> Iterator[str]:
    if told.get("node") is None:
        return
    kind = f", of {told['dtype']}{' sizes' if told.get('sizes') else ''}" if told.get("dtype") else ""
    within = f", of {told['within']}, to which it is decomposed" if told.get("within") else ""
    gone = ", which the exporter's optimizer has merged into others" if told.get("removed") else ""
    rules = f", made by the exporter's optimizer ({told['rules']})" if told.get("rules") else ""
    yield f"node {told['node']} ({told.get('type')}){kind}{within}{gone}{rules}"
    among = list(told.get("among") or ())
    if told.get("breaks"):
        yield f"  its inputs break the operator's rules: {told['breaks']}"
    if told.get("change"):
        only = ", though not the outputs" if told.get("second") else ""
        yield f"  a change that makes it right{only}: {told['change']}"
    elif among and not told.get("breaks"):
        more = f" and {len(among) - _AMONG} before them" if len(among) > _AMONG else ""
        yield f"  or another of the {len(among)} nodes that compute it: {', '.join(among[-_AMONG:])}{more}"


def values_of(told: Parting) -> Iterator[str]:
    """Yield what the graph has where PyTorch has something else."""
    how = told.get("how")
    got, wanted = number(told.get("got")), number(told.get("wanted"))
    if how in _HEADS:
        if told.get("detail"):
            yield f"for what is computed of it: got the {told['detail']} {got}, wanted {wanted}"
        return
    if how == "stops":
        yield f"its inputs agree; it cannot be computed: {told.get('detail')}"
    elif how in ("shape", "dtype"):
        yield f"its inputs agree; got the {how} {got}, wanted {wanted}"
    elif how == "constant":
        yield f"captured with {got}, which here is {wanted}"
    elif how == "export":
        yield "the module itself goes another way here while it is exported"
    elif how == "path":
        yield "captured where the module goes another way here"
    elif how == "number or path":
        yield f"captured with {got} for one input and left out for the other, as x * 1 and x + 0 are"
    else:
        yield f"its inputs agree; {_expression(told)}got {got}, wanted {wanted}{_share(told)}"


def _expression(told: Parting) -> str:
    """``-3 // 2: ``, or the place of the first element that differs."""
    arguments = [number(value) for value in told.get("arguments") or ()]
    at = f"at [{', '.join(map(str, told['index']))}]: " if told.get("index") else ""
    if not arguments:
        return at
    name = str(told.get("within") or told["operator"])
    sign = _SIGNS.get(name)
    written = f"{arguments[0]} {sign} {arguments[1]}" if sign and len(arguments) == 2 else None
    written = written or f"{name.rpartition('.')[2]}({', '.join(arguments)})"
    return f"{at}{written}: " if not at else f"{at}{written} "


def number(value: object) -> str:
    """A number as it is shown, with the digits that tell float32 values apart."""
    return f"{value:.9g}" if isinstance(value, float) else str(value)


def _share(told: Parting) -> str:
    count, size = told.get("differ") or (0, 0)
    return f" ({count} of {size} elements differ)" if size > 1 else ""
