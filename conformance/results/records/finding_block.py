"""Describe a finding in one block: who is wrong, what is wrong, where, with which effect, and what to do next.

The same block stands in the terminal, in Markdown, on the page, and in what ``conformance.check``, ``conformance
check`` and ``conformance findings`` print. It is made of the record of one cell, which was explained, and of the
names of the other cells of its cause.
"""

from __future__ import annotations

import dataclasses
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from conformance.results.records import earlier
from conformance.results.records.details import details
from conformance.results.records.findings import KEPT, VALUES, Finding, Key, shows_less
from conformance.results.records.known import fitting
from conformance.results.records.location import place_of, values_of
from conformance.results.records.record import FLOAT64, Record
from conformance.results.records.record_types import OperatorFields
from conformance.results.records.sanitize import one_line, rule, visible
from conformance.results.records.short_values import short_array, short_value, times_allowed
from conformance.results.records.subject import is_file_alone, is_of_file, is_of_own_code, is_shipped, right_one
from conformance.results.records.terms import explaining
from conformance.results.records.testimony import (
    advice,
    conclusion,
    guilty_passes,
    proves_nothing_by_stopping,
    saturates,
    title,
    trade,
)
from conformance.results.records.text import align_of, element, output_named, replay_of
from conformance.results.records.words import base_of

LABEL = 12
"""Characters of the column of labels."""
MOST_CELLS = 4
"""Lines about cells in a block; ``conformance explain`` lists all."""
_CHECKS = {"specials": "NaN and infinities", "fidelity": "cost of the precision"}
_EXPORTERS = {"torchscript": "the TorchScript exporter", "dynamo": "the dynamo exporter"}
_OWN_SAYING = ("case", "preparation", "harness", "declaration", "reference")
"""Components of which everything that the record says belongs into the block: it is what to do."""


@dataclass(frozen=True)
class Block:
    """A finding in words. Texts hold what cases, models and exceptions say; ``lines`` makes them harmless."""

    id: str
    who: str
    """The party that is wrong, without a full stop: ``the TorchScript exporter is wrong``."""
    what: str
    """The sentence that an upstream maintainer would write."""
    rows: tuple[tuple[str, tuple[str, ...]], ...]
    """All else that is known, by a label, in the order in which it is needed."""


def describe(finding: Finding, since: str | None = None, *, kept: bool = True) -> Block:
    """Describe a finding by the first of its cells that was explained; ``since`` is the earliest run of those
    that are known in which it is red. ``kept`` says that commands find it in a run file."""
    explained = [one for one in finding.cells if not (one.unexplained or one.explained_with)]
    record = min(explained or finding.cells, key=shows_less)
    to = "  (for whoever wrote that code)" if record.own_code else "  (ready to send upstream)"
    what, issue = _what(record, finding.key), (record.smallest or {}).get("issue")
    rows = (
        ("where", _where(record)),
        ("effect", _effect(record, what)),
        ("input", _input(record)),
        ("evidence", _evidence(record)),
        ("known", tuple(fitting(record, finding.environment))),
        ("to do", _to_do(record, finding.key)),
        ("since", (since,) if since else ()),
        ("cells", _cells(finding.cells)),
        ("reproduce", _reproduce(record)),
        ("report", (f"{issue}{to}",) if issue else ()),
        ("more", _more(finding) if kept else ()),
    )
    who = _who(record, finding.key, both=len(finding.named("exporter")) > 1)
    return Block(finding.id, who, what, tuple(row for row in rows if row[1]))


def shortened(block: Block) -> Block:
    """Return the block with what tells it from others: where, the effect, the first cells, and how to see all."""
    rows = tuple((label, texts[:1]) for label, texts in block.rows if label in _SHORT)
    return dataclasses.replace(block, rows=rows)


_SHORT = ("where", "effect", "cells", "more")


def lines(block: Block, number: int, count: int, width: int, stream: Any = None) -> Iterator[str]:
    """Yield the block for a terminal of ``width`` columns. Paths and commands are not broken, so that they can be
    copied. ``stream`` is where they go, by default ``sys.stdout``. A term of the field is explained where
    it is used first."""
    explained = explaining(number == 1)
    head = f" {number} of {count}: {one_line(block.who)} "
    yield from [head.center(width, rule(stream))] if len(head) < width else textwrap.wrap(head.strip(), width)
    yield from textwrap.wrap(one_line(explained(block.what)), width) or [""]
    yield ""
    for label, texts in block.rows:
        margin = f"  {label:<{LABEL - 2}} "
        for text in texts:
            told = text if label in _NOT_BROKEN else explained(text)
            for line in _wrapped(label, visible(told), max(width - LABEL - 1, 20)):
                yield margin + line
                margin = " " * (LABEL + 1)


def _wrapped(label: str, text: str, width: int) -> list[str]:
    kept = text.splitlines()
    if label in _NOT_BROKEN:
        return kept
    return [
        part
        for line in (kept if label == "to do" else map(one_line, kept))
        for part in textwrap.wrap(line, width, break_long_words=False, break_on_hyphens=False) or [""]
    ]


_NOT_BROKEN = ("where", "reproduce", "report", "more")


def markdown(block: Block) -> Iterator[str]:
    """Yield the block as Markdown without a heading, every text in code, where it does nothing."""
    for label, texts in block.rows:
        for number, text in enumerate(texts):
            yield f"{label if not number else '':<{LABEL}} {one_line(text)}".rstrip()


# ---- who and what --------------------------------------------------------------------------------------------


def _who(record: Record, key: Key, *, both: bool) -> str:
    runtime = title(record.runtime or "onnxruntime")  # which computes what a converted model means
    if record.conclusion == "setting":
        return f"a setting of {runtime} trades accuracy for speed"
    if saturates(record):
        return f"{runtime}'s 8-bit kernels saturate on this processor"
    if record.conclusion == "unsaid":
        return "ONNX does not say what is right, and nobody is to blame"
    exporter = _EXPORTERS.get(record.exporter, record.exporter)
    if is_shipped(record, key.component):
        return f"{record.shipped} {'loses too much' if record.error == 'LowFidelity' else 'is wrong'}"
    if is_of_file(record) and key.component in _OF_A_FILE:
        return _OF_A_FILE[key.component]
    if record.compiled and key.component in ("runtime", "case", "precision"):
        makes = f"the conversion to {base_of(record.precision)} makes what {runtime} does not take"
        return makes if key.component == "precision" else f"{runtime} does not take the model"
    if key.component == "exporter" and (record.operator or {}).get("how") in KEPT:
        return f"{'an exporter' if both else exporter} keeps what it saw for one example"
    if key.by == "code":
        own = ", ".join(record.own_code)
        return f"the case's own {own}{'' if is_of_own_code(record) else ', or the exporter,'} is wrong"
    wrong = "both exporters are wrong" if both else f"{exporter} is wrong"
    change = "the process that runs the case ends" if record.signal else "the case needs a change"
    stops = "neither exporter exports the module" if both else f"{exporter} does not export the module"
    words = {
        "exporter": stops if record.stage == "export" else wrong,
        "runtime": f"{f'the parser of {runtime}' if record.check == 'meaning' else runtime} is wrong",
        "optimizer": f"{runtime}'s optimizer is wrong",
        "precision": f"the conversion to {base_of(record.precision)} costs too much",
        "reference": "PyTorch itself is wrong",
        "case": "the file needs a change" if is_file_alone(record) else change,
        "preparation": "the deployed preparation of the inputs is wrong",
        "harness": "a mistake in this suite",
        "declaration": "a declared failure does not happen any more",
    }
    unknown = "nobody was asked yet who is wrong" if record.unexplained else "it is open who is wrong"
    return words.get(key.component, unknown)


_OF_A_FILE = {
    "exporter": "the file is wrong",
    "reference": "ONNX's evaluator is wrong, or the file leaves it open",
}


def _what(record: Record, key: Key) -> str:
    located, node = record.operator or {}, record.parts_at
    of_graph = key.component in ("exporter", "open") or key.by == "code"
    if of_graph and located.get("operator") and not located.get("unable"):
        return _of_operator(record, located)
    if key.component == "optimizer" and record.optimizer is not None and record.optimizer["passes"]:
        return f"{' and '.join(record.optimizer['passes'])} changes what the model computes"
    does = {"parsed": "becomes layers of another meaning", "parts": "computes other values than its inputs ask for"}
    if node and key.component == "runtime" and node["operator"] and node["how"] in does:
        return f"{node['operator']} {does[node['how']]}"
    if node and node["how"] == "unsaid":
        return f"{node['operator']}: {node.get('why')}"
    if node and node["how"] == "differs":
        return f"{node['operator']} {node.get('node')}: {node.get('why')}"
    if node and node["how"] == "refused":
        return f"{node['operator']} is refused: {node.get('why')}"
    if record.error and record.remedy is not None and record.remedy.get("lacks"):
        return f"nothing says what the case's own operator {record.remedy.get('lacks')} becomes in ONNX"
    if record.conclusion == "setting":
        return trade(record)[0]
    said = _reason(record)
    return said.partition("\n")[0] if key.component in _OWN_SAYING else said


def _of_operator(record: Record, located: OperatorFields) -> str:
    """Say what the exporter makes of an operator."""
    name, kind, how = located["operator"], located.get("type"), located.get("how")
    made = f"{name} is exported as {kind}" if kind else f"{name} is exported"
    passes = f" by the exporter's {' and '.join(located['passes'])}" if located.get("passes") else ""
    said = {
        "raises": f"the exporter stops at {name}",
        "crashes": f"the exporter's process ends at {name}",
        "refused": f"{made}, which onnx.checker refuses",
        "constant": f"an argument of {name} is exported as the value that it had for the example",
        "path": f"the export keeps one way of a branch, or one length of a loop, at {name}",
        "number or path": f"the export keeps a number, a branch or a loop as the example had it, at {name}",
        "stops": f"{made}, which cannot be computed",
        "shape": f"{made} with another shape",
        "dtype": f"{made} with another dtype",
        "export": f"{name} computes something else while it is exported",
    }.get(str(how))
    if said is not None:
        return said if how not in ("raises", "crashes", "refused") else f"{said}: {_reason(record)}"
    lacks = earlier.lacks(located)
    if lacks is not None:
        return f"{made} without {lacks}{passes}"
    return f"{made}{passes}, which computes other values"


def _reason(record: Record) -> str:
    reason = str(record.reason or record.error)
    return f"{record.error}: {reason}" if record.stage == "compare" and record.error else reason


# ---- rows ----------------------------------------------------------------------------------------------------


def _where(record: Record) -> tuple[str, ...]:
    located, node = record.operator or {}, record.parts_at
    own, source = record.place or {}, record.source
    lines = []
    if own.get("own") and own.get("file"):
        lines.append(f"{own['file']}:{own['line']}" + ("  (the case's own code)" if record.own_code else ""))
    if located and not located.get("unable"):
        name, _, number = str(located.get("line")).rpartition(":")
        if located.get("file") and name:
            located = {**located, "line": f"{located['file']}:{number}"}
        lines.append(place_of(located))
    elif node and node["operator"]:
        line = f"{node['line']}  " if node.get("line") else ""
        lines.append(f"{line}node {node.get('node') or ''} ({node['operator']})")
    if source.get("file") and (not lines or (node and node["how"] in ("differs", "loses"))):
        in_case = f":{source['line']}  case {record.case}"
        against = f"{record.shipped}, compared with " if is_file_alone(record) and record.shipped else ""
        lines.append(f"{against}{source['file']}{'' if is_file_alone(record) else in_case}")
    return tuple(lines)


def _effect(record: Record, what: str) -> tuple[str, ...]:
    if record.status != "failed":
        return ()
    worst = record.worst
    if record.stage != "compare" or not worst or "index" not in worst:
        stopped = f"stops at {record.stage}" + (f" with {record.error}" if record.error else "")
        told = stopped if record.stage != "compare" else (record.reason or "").partition("\n")[0]
        return (told,) if told and told not in what else ()
    if record.error not in VALUES or worst.get("looked_up"):
        off = worst.get("looked_up") or float(worst["ratio"]) > 1  # else it is of another example
        return (element(record, worst),) if off else ()
    place = f"{output_named(record, worst['output'])}[{', '.join(map(str, worst['index'] or ()))}]"
    differ = earlier.differ(record.reason, worst)
    share = f"{differ[0]} of {differ[1]} values wrong, " if differ else ""
    values = f"{short_value(worst['got'])}, expected {short_value(worst['wanted'])}"
    return (f"{place} is {values} ({share}{times_allowed(worst['ratio'])})",)


def _input(record: Record) -> tuple[str, ...]:
    draw = record.draw
    if not draw:
        return ()
    sizes = ", ".join(f"{name}={size}" for name, size in draw["dims"].items())
    inputs = record.inputs
    values = [f"{name} = {short_array(text)}" for name, text in inputs.items()]
    if not values:
        values = [f"{draw['regime']} values, seed {draw['seed']}"]
    which = "the example that was running" if record.signal else "smallest found" if inputs else ""
    return (", ".join([*([sizes] if sizes else []), *values]) + (f" ({which})" if which else ""),)


def _evidence(record: Record) -> tuple[str, ...]:
    located, node = record.operator or {}, record.parts_at
    change = located.get("change")
    said = str(node.get("why")) if node and node["how"] in ("differs", "unsaid") else None  # in the first sentence
    told = [
        *_witnesses(record),
        *(text for text in (conclusion(record) if not change else ()) if not said or said not in text),
        *guilty_passes(record.optimizer, record),
        *([f"a change that makes it right: {change}"] if change else []),
        *([_TENSORS_ONLY] if located.get("how") in KEPT and record.exporter == "torchscript" else []),
        *(values_of(located) if located.get("how") == "value" and not change else ()),
        *(str(one.get("text")) for one in record.explained if one.get("text")),
        *(f"{text.partition(';')[0]}, and an exported model keeps no state" for text in _warned(record, "state")),
        *(f"the exporter warned: {one_line(text, 150)}" for text in (_warned(record, "export") if located else ())),
        *(text for name in ("steps", "calibration") for text in _warned(record, name)),
    ]
    if record.unexplained:
        told.append("not looked into yet: --explain all, or conformance explain")
    return tuple(told)


_TENSORS_ONLY = "a trace records tensors only: int(), float(), .item() and if on a tensor keep the example's value"


def _warned(record: Record, name: str) -> list[str]:
    return [str(one.get("text")) for one in record.warnings if one.get("name") == name][-2:]


def _witnesses(record: Record) -> Iterator[str]:
    by_answer: dict[str, list[str]] = {}
    for witness in record.witnesses:
        if witness["runtime"] != FLOAT64 and not witness.get("config") and not witness.get("model"):
            name, answer = witness["runtime"], witness["answer"]
            if answer != "stops" or not proves_nothing_by_stopping(name):
                by_answer.setdefault(answer, []).append(title(name, brief=True))
    said = {
        "agrees": "right in {}", "nearer": "nearer to {right} in {}", "wrong": "wrong in {} too",
        "otherwise": "other wrong values in {}", "stops": "it stops in {} too",
        "runs": "{} runs it, with wrong values",
        "strays": "{} gives the values of {right}, which the nodes do not say", "lost": "{} crashed or hung",
    }  # fmt: skip
    for answer, titles in by_answer.items():
        if answer in said:
            yield said[answer].format(_listed(titles), right=right_one(record))


def _listed(names: Sequence[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]]) if len(names) > 1 else names[0]


def _to_do(record: Record, key: Key) -> tuple[str, ...]:
    """Return what the record says for whoever has to change the case, or the suite."""
    taken = record.compiled.get("taken") if record.compiled is not None else ()
    if taken:
        return (f"it takes {', '.join(taken)}, which was tried",)
    if record.conclusion == "setting":
        return trade(record)[1:]
    if saturates(record):
        return tuple(advice(record.cause))
    if key.component not in _OWN_SAYING or key.by == "code":
        return ()
    known = {f"{name} = {value}" for name, value in record.inputs.items()}
    told = (line for line in details(record) if line not in known and not line.startswith("warning: "))
    return (*(record.reason or "").splitlines()[1:], *told)


def _cells(cells: Sequence[Record]) -> tuple[str, ...]:
    """Return one line for each case and exporter: its opsets, runtimes with precisions, and checks."""
    groups: dict[tuple[str, str], list[Record]] = {}
    for cell in cells:
        source = cell.source
        place = f" ({source['file']}:{source['line']})" if source["file"] and not is_file_alone(cell) else ""
        groups.setdefault((f"{cell.case}{place}", cell.exporter), []).append(cell)
    told = [_group(case, exporter, group) for (case, exporter), group in groups.items()]
    more = len(told) - MOST_CELLS
    return (*told[:MOST_CELLS], *([f"and {more} more groups of cells"] if more > 0 else []))


def _group(case: str, exporter: str, cells: Sequence[Record]) -> str:
    opsets = ", ".join(map(str, sorted({cell.opset for cell in cells})))
    on_runtimes = (cell for cell in cells if cell.runtime is not None)
    ran = dict.fromkeys(f"{title(str(cell.runtime), brief=True)} {cell.precision}" for cell in on_runtimes)
    checks = dict.fromkeys(_CHECKS.get(cell.check, cell.check) for cell in cells)
    runs = f": {', '.join(ran)}" if ran else ""
    return f"{case}, {exporter}, opset {opsets}{runs} ({', '.join(checks)})"


def _more(finding: Finding) -> tuple[str, ...]:
    """Return the commands that go on from here."""
    lines = [f"conformance explain {finding.id}  (all that is known)"]
    if all(cell.unexplained for cell in finding.cells):
        return tuple(lines)
    if finding.key.component in ("exporter", "runtime", "optimizer", "precision", "open") or finding.key.by == "code":
        lines.append(f"conformance findings --fix {finding.id}  (changes with which it passes)")
        lines.append(f"conformance findings --expect {finding.id}  (declare it, until it is fixed)")
    return tuple(lines)


def _reproduce(record: Record) -> tuple[str, ...]:
    script = (record.smallest or {}).get("repro")
    if script:
        return (f"python {script}  (needs no part of this suite)",)
    commands = (replay_of(record) or record.command, align_of(record))
    return tuple(command for command in commands if command)
