"""Find what a capture froze: the first call in which two captures of one module differ, at other sizes or values."""

from __future__ import annotations

from typing import Any

from conformance.align.operators.captured_program import Operator, Program, array


def frozen(first: Program, second: Program) -> dict[str, Any] | None:
    """The first operator that is another one, or is called with another constant, in the second program."""
    for ours, theirs in zip(first.operators, second.operators, strict=False):
        if ours.operator != theirs.operator:
            return _told(ours) | {"how": "path", "got": ours.operator, "wanted": theirs.operator}
        for got, wanted in zip(ours.constants, theirs.constants, strict=False):
            if got != wanted:
                return _told(ours) | {"how": "constant", "got": _plain(got), "wanted": _plain(wanted)}
        for mine, other in zip(ours.inputs, theirs.inputs, strict=False):
            left, right = array(first.start.get(mine)), array(second.start.get(other))
            if left is not None and right is not None and (left.shape != right.shape or (left != right).any()):
                return _told(ours) | {"how": "constant", **_elements(left, right)}
    shorter, longer = sorted((first.operators, second.operators), key=len)
    if len(shorter) == len(longer):
        return None
    return _told(longer[len(shorter)]) | {"how": "path"}


def _told(operator: Operator) -> dict[str, Any]:
    told = {
        "operator": operator.operator,
        "line": operator.line,
        "source": operator.source,
        "module": operator.module,
    }
    return {name: value for name, value in told.items() if value}


def _plain(value: Any) -> Any:
    return value if isinstance(value, bool | int | float | str) or value is None else str(value)


def _elements(left: Any, right: Any) -> dict[str, Any]:
    if left.shape != right.shape:
        return {"got": list(left.shape), "wanted": list(right.shape)}
    at = tuple(int(axis[0]) for axis in (left != right).nonzero()) if left.ndim else ()
    return {"got": left[at].item(), "wanted": right[at].item(), "index": list(at)}
