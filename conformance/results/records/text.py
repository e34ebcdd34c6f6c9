"""Describe a record in words. All text about records is made here, in ``details``, ``testimony`` and
``location``.

Fields hold what cases, models and exceptions say. What ``failure`` and ``repetition`` give is harmless to show;
whoever shows ``details`` makes them so.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from conformance.results.records.details import builds_again as builds_again
from conformance.results.records.details import details as details
from conformance.results.records.details import draws_not_run as draws_not_run
from conformance.results.records.details import number
from conformance.results.records.findings import Key
from conformance.results.records.location import located as located
from conformance.results.records.record import Record
from conformance.results.records.record_types import Worst
from conformance.results.records.sanitize import block, command_line, literal, one_line
from conformance.results.records.spent import own_seconds
from conformance.results.records.subject import at_fault as at_fault
from conformance.results.records.subject import is_file_alone, is_of_file, right_one
from conformance.results.records.testimony import SHOWN_BEST


def failure(record: Record) -> str:
    """Say why a cell failed: what differs, the smallest example, stage and fault, where the case stands, how to
    see it again."""
    lines = [*_what(record), *_example(record)]
    fault = at_fault(record)
    lines.append(f"stage {record.stage}{f'; at fault: {fault}' if fault else ''}")
    lines += [f"  {line}" for line in details(record)]
    return _shown([*lines, *_place(record)])


def verdict(record: Record) -> str:
    """The status of a cell, its id and the seconds that it took, on one line."""
    words = {"xfailed": "failed as declared", "failed": "FAILED", "xpassed": "PASSED though declared to fail"}
    seconds = own_seconds(record)
    return literal(f"{words.get(record.status, record.status)}  {record.id}  {seconds:.2f} s")


def not_run(runtime: str, count: int, reasons: Sequence[str]) -> str:
    """The line about a runtime of which every cell was skipped."""
    return f"NOT RUN: {runtime}, {count} cells skipped: {'; '.join(reasons)}"


def name_of_finding(key: Key) -> str:
    """Return who is at fault, what of it, and for what kind of difference."""
    which = key.which if key.by != "code" else ""
    of = one_line(key.of, _REPEATED)
    component = {
        "exporter": f"the exporter {which}", "runtime": which, "optimizer": f"{which}'s optimizer",
        "precision": f"the conversion to {which}", "reference": "PyTorch itself", "case": "the case",
        "preparation": "the preparation of the inputs",
        "harness": "the harness", "declaration": "a declared failure", "open": f"fault open {which}",
    }.get(key.component, key.component)  # fmt: skip
    about = {
        "pass": f"pass {of}", "code": f"the case's own {of}", "operator": f"operator {of}", "case": f"in {of}",
        "entry": f"in {of}", "line": f"at {of}", "branch": f"the branch at {of}",
    }.get(key.by, of)  # fmt: skip
    return f"{component.strip()}, {about}: {'other values' if key.kind == 'values' else key.kind}"


def found(findings: int, cells: int) -> str:
    """The line about how many findings the red cells of a run come to."""
    red = "1 red cell" if cells == 1 else f"{cells} red cells"
    return f"{red}: 1 finding" if findings == 1 else f"{red}: {findings} findings"


def doing(note: Mapping[str, Any], seconds: float) -> str:
    """Return what a cell is doing after so many seconds, by the last note of its worker."""
    dims = ", ".join(f"{name}={size}" for name, size in (note.get("draw") or {}).get("dims", {}).items())
    of = f" of {note['of']}" if note.get("of") else ""
    examples = f", {note['examples']}{of} examples" if note.get("examples") else ""
    long = f", which takes about {note['expect']} s" if note.get("expect", 0) >= _LONG else ""
    return f"{note.get('stage', 'starting')}{f' at {dims}' if dims else ''}{long}{examples}, {seconds:.0f} s"


_LONG = 5
"""Seconds from which on it is said how long a stage may take."""


def repetition(record: Record, first: str) -> str:
    """In place of ``failure``, on one line, where a cell stopped as ``first`` did, before its own work began."""
    place = f"{record.source['file']}:{record.source['line']}"
    said = f"{place}: {record.error} at stage {record.stage}, as in {first}: {record.reason}"
    return one_line(said, _REPEATED)


_REPEATED = 240
"""Characters of a failure that was told in full before."""


def _shown(lines: Sequence[str]) -> str:
    """The lines as one text. What has a line break in it, as the reason of an exception may, goes on indented."""
    return "\n".join(map(block, lines))


def _place(record: Record) -> list[str]:
    place = f"{record.source['file']}:{record.source['line']}: case {record.case}"
    lines = [str(record.source["file"]) if is_file_alone(record) else place]
    if record.command:
        lines.append(f"reproduce: {record.command}")
    align = align_of(record)
    if align is not None:
        lines.append(f"operator by operator: {align}")
    replay = replay_of(record)
    how = "again, from its bundle" if is_of_file(record) else "without PyTorch"
    return [*lines, *([f"{how}: {replay}"] if replay else [])]


def align_of(record: Record) -> str | None:
    """The command that looks for the layer of a wrong output on the failing example; None where the operator is known
    already, or no PyTorch stands beside the model, or the command could not make the example."""
    draw = record.draw
    if is_file_alone(record) and not record.shipped and record.precision == "fp32":
        wrong = record.stage == "compare" and record.fault in ("runtime", None) and record.check == "accuracy"
        words = ["conformance", "align", str(record.source["file"]), "--runtime", str(record.runtime)]
        return command_line(words) if wrong else None
    unknown = record.stage == "compare" and record.fault in _LAYERED and not record.operator
    if not unknown or not draw or draw.get("flags") or record.exporter == "onnx":
        return None
    words = [
        "conformance", "align", record.case, "--exporter", record.exporter, "--opset", str(record.opset),
    ]  # fmt: skip
    words += ["--precision", record.precision] if record.precision != "fp32" else []
    given = shlex.split(record.command or "")
    words += [word for place, word in enumerate(given) if "--cases" in given[max(0, place - 1) : place + 1]]
    if draw["dims"]:
        words += ["--at", ",".join(f"{name}={size}" for name, size in draw["dims"].items())]
    words += ["--values", draw["regime"]] if draw["regime"] != "plain" else []
    return command_line([*words, "--seed", str(draw["seed"])])


_LAYERED = ("exporter", "precision", None)
"""At fault for what a graph computes node by node; a runtime's own mistake need not show that way."""


def replay_of(record: Record) -> str | None:
    """The command that replays the bundle of a record's failing example; None where it left none."""
    if not record.bundle:
        return None
    libraries = bool(record.bundle_libraries)
    return replay_command(str(record.bundle), str(record.runtime), libraries=libraries)


def replay_command(bundle: str, runtime: str, *words: str, libraries: bool) -> str:
    """Return what replays a bundle, for a shell; ``libraries`` is whether the bundle's own code may run."""
    folder = f"./{bundle}" if bundle.startswith("-") else bundle
    allowed = ["--allow-libraries"] if libraries else []
    return command_line(["conformance", "replay", folder, "--runtime", runtime, *allowed, *words])


def _what(record: Record) -> list[str]:
    head = f"{record.reason}" if record.stage != "compare" else f"{record.error}: {record.reason}"
    if record.status == "xpassed":
        return [f"unexpectedly passed: {record.reason}"]
    worst = record.worst
    if record.stage != "compare" or worst is None or record.error not in _OF_ELEMENTS:
        return [head]
    return [head, element(record, worst)]


_OF_ELEMENTS = ("IllConditioned", "WrongIndex", "WrongReference", "WrongValue", "WrongNaN", "WrongInf")
"""The errors that are about one element, the worst."""


def element(record: Record, worst: Worst) -> str:
    """The worst element: what a runtime has there, and what is right."""
    index = ", ".join(map(str, worst["index"] or ()))
    place = f"{output_named(record, worst['output'])}[{index}]"
    ratio = worst["ratio"] if isinstance(worst["ratio"], str) else f"{worst['ratio']:.3g}"
    values = worst.get("looked_up")
    if values is not None:
        there = f"where {values['in']} has {number(values['got'])}"
        wanted = f"where it has {number(values['wanted'])}"
        return (
            f"{place}: got index {worst['got']}, {there}; wanted index {worst['wanted']}, {wanted} "
            f"({ratio} times what is allowed)"
        )
    if record.error == "WrongIndex":
        return f"{place}: got index {worst['got']}, wanted index {worst['wanted']}"
    if record.error == "IllConditioned":
        exact = record.conditioning and record.conditioning.get("float64")
        right = right_one(record)
        also = "" if exact is None else f"; {right} in float64 has {number(exact)}"
        return f"{place}: got {number(worst['got'])}, {right} in float32 has {number(worst['wanted'])}{also}"
    return f"{place}: got {number(worst['got'])}, wanted {number(worst['wanted'])} ({ratio} times what is allowed)"


def output_named(record: Record, number: object) -> str:
    """Return what sentences call an output of a record: by the name that its case gives it, or else by its number."""
    names = record.outputs
    return f"output {names[number] if isinstance(number, int) and 0 <= number < len(names) else number}"


def _example(record: Record) -> list[str]:
    draw = record.draw
    if draw is None:
        return []
    dims = ", ".join(f"{name}={size}" for name, size in draw["dims"].items()) or "fixed shapes"
    which = "example that was running" if record.signal else "smallest example"
    if record.error == "LowFidelity" and record.fidelity:
        which = SHOWN_BEST
    flags = f", masks {draw['flags']}" if draw.get("flags") else ""
    return [f"{which}: {dims}; {draw['regime']} values{flags}, seed {draw['seed']}"]
