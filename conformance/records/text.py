"""What a record reads like. All text about records is made here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_WHO = {
    "exporter": "the exporter",
    "runtime": "the runtime",
    "precision": "the conversion to this precision",
    "reference": "PyTorch itself",
    "case": "the case",
    "harness": "the harness",
}


def failure(record: Mapping[str, Any]) -> str:
    """Why a cell failed: what differs, the smallest example, stage and fault, where the case stands, how to
    see it again. ``record`` is ``Record.as_dict()``."""
    lines = [*_what(record), *_example(record)]
    fault = f"; at fault: {_WHO.get(str(record['fault']), record['fault'])}" if record["fault"] else ""
    lines.append(f"stage {record['stage']}{fault}")
    lines += [f"  {line}" for line in record["details"]]
    return "\n".join([*lines, *_place(record)])


def repetition(record: Mapping[str, Any], first: str) -> str:
    """In place of ``failure`` where a cell stopped as the cell ``first`` did before its own work began."""
    return "\n".join([f"{record['reason']}", f"stage {record['stage']}, as in {first}", *_place(record)])


def _place(record: Mapping[str, Any]) -> list[str]:
    lines = [f"{record['source']['file']}:{record['source']['line']}: case {record['case']}"]
    if record["command"]:
        lines.append(f"reproduce: {record['command']}")
    if record.get("bundle"):
        lines.append(f"without PyTorch: conformance replay {record['bundle']} --runtime {record['runtime']}")
    return lines


def _what(record: Mapping[str, Any]) -> list[str]:
    head = f"{record['reason']}" if record["stage"] != "compare" else f"{record['error']}: {record['reason']}"
    if record["status"] == "xpassed":
        return [f"unexpectedly passed: {record['reason']}"]
    worst = record["worst"]
    if record["stage"] != "compare" or worst is None or record["error"] not in ("WrongValue", "WrongNaN", "WrongInf"):
        return [head]
    index = ", ".join(map(str, worst["index"]))
    ratio = worst["ratio"] if isinstance(worst["ratio"], str) else f"{worst['ratio']:.3g}"
    return [
        head,
        f"output {worst['output']}[{index}]: got {_number(worst['got'])}, wanted {_number(worst['wanted'])} "
        f"({ratio} times what is allowed)",
    ]


def _example(record: Mapping[str, Any]) -> list[str]:
    draw = record["draw"]
    if draw is None:
        return []
    dims = ", ".join(f"{name}={size}" for name, size in draw["dims"].items()) or "fixed shapes"
    which = "example that was running" if record["signal"] else "smallest example"
    return [f"{which}: {dims}; {draw['regime']} values, seed {draw['seed']}"]


def _number(value: Any) -> str:
    return f"{value:.9g}" if isinstance(value, float) else str(value)
