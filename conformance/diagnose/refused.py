"""At which operator an export stops, or which of them became a node that onnx.checker refuses."""

from __future__ import annotations

import linecache
import os
import re
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from conformance.case.files.declaration import Case
from conformance.case.files.python import EXPRESSION, raised_at
from conformance.diagnose.operators.captured_program import Unable
from conformance.diagnose.operators.refused_operator import Refused, next_stop, refused_model, stopped_export
from conformance.diagnose.own_code import accused, declared_own, own_code, raising, told_of
from conformance.judge.case_edits import flow, plain
from conformance.judge.conditioning import left_open
from conformance.judge.red_cell import RedExport
from conformance.models.cell_run import CellRun
from conformance.process.arrays import Array, Inputs
from conformance.process.errors import Stopped, attempt, causes, display_path, or_else, summarize, works
from conformance.process.worker import aside
from conformance.results.records.explanation import add, ask_for_nodes
from conformance.results.records.library_messages import ON_DATA

SECONDS = 60.0
"""How long an operator may be looked for. It is done in a process of its own, which is then ended."""


def describe_export(red: RedExport) -> None:
    """Add what the failure of an export says by itself, to be read in the verdict: code of the case's own that may be
    behind it, the line, and what to do."""
    run, stop = red.run, red.stop
    if stop.stage != "export":
        return
    if stop.fault == "exporter":
        place = raised_at(stop, run.cell.case.folder)
        own = [*run.cell.own_code]
        add(stop, {"warnings": run.warnings(), "own_code": own, "hints": advice(stop), "place": place})
        remedy = nodes_to_add(run, stop)
        if remedy is not None or lacks_shapes(stop):
            ask_for_nodes(stop, remedy)
    run.outcomes.note_failed_export(run.key, stop)


def explain_export(red: RedExport) -> None:
    """Find the operator at which an export stops, or the pass, or at least the line where no frame of the failure has
    it, or whose node the checker refuses. Code of the case's own for other operators is then not at fault."""
    run, stop = red.run, red.stop
    run.prepared.explained.add(run.key)
    if stop.stage == "check":
        _explain_refused_model(run, stop)
    if stop.stage != "export" or "place" not in stop.details:  # it is not the exporter that failed
        return
    own, place = [*run.cell.own_code, *raising(run, stop)], stop.details["place"]
    add(stop, {"own_code": own})
    found = _asked(run, lambda: _of_export(run))
    known_by_frame = (place or {}).get("own") and not found.get("operator")
    if found.get("unable") or (known_by_frame and not found.get("passes")):
        return
    others = {one.text for one in declared_own(run)} - {one.text for one in accused(declared_own(run), found)}
    add(stop, {"operator": found, "own_code": [name for name in own if name not in others]})


def _explain_refused_model(run: CellRun, stop: Stopped) -> None:
    """Add the operator whose node the checker refuses, and the code of the case's own that may be behind it."""
    if run.cell.exporter == "onnx":
        return
    known, name = run.prepared.refused, (run.cell.exporter, run.cell.opset)
    if name not in known:
        operator = _asked(run, lambda: refused_by_checker(run).told)
        known[name] = {"operator": operator, **told_of(accused(own_code(run), operator))}
    add(stop, known[name])


def refused_by_checker(run: CellRun) -> Refused:
    """Return the operator behind what the checker refuses of the model of a cell. Raises Unable."""
    fed = run.prepared.inputs()
    inputs, reference = arguments_of(run, fed), run.reference

    def moves(right: Sequence[Array]) -> Sequence[Array]:
        return left_open(reference, reference.operators(fed)[0], fed, right)[0]

    return refused_model(run.cell.exporter, lambda: run.export().model, inputs, fed, run.libraries(), moves)


def arguments_of(run: CellRun, inputs: Inputs) -> list[object]:
    """Return inputs as a captured program takes them."""
    run.reference.restore()
    positional, keywords = run.reference.arguments(inputs)
    return [*positional, *keywords.values()]


def _asked(run: CellRun, question: Any) -> dict[str, object]:
    """Return the answer to a question about the export, asked in another process, in the words of the case."""
    start = time.perf_counter()

    def answer() -> dict[str, object]:
        run.set_apart()
        told: dict[str, object] = question()
        return placed(run, told)

    found = attempt(lambda: aside.ask(answer, SECONDS))
    if isinstance(found, Unable):
        found = {"unable": found.why, **({"detail": str(found)} if str(found) else {})}
    elif isinstance(found, Exception):  # this only explains a failure, and must not be another
        found = {"unable": "raised", "detail": summarize(found)}
    run.record.seconds["locate"] = run.record.seconds.get("locate", 0.0) + time.perf_counter() - start
    return found


def _of_export(run: CellRun) -> dict[str, object]:
    stopped = stopped_export(run.cell.exporter, run.export)
    return stopped.told(lambda: works(run.export)) | next_stop(run.cell.exporter, run.export, stopped)


def placed(run: CellRun, told: dict[str, object]) -> dict[str, object]:
    """Return what is known of an operator without the path of a submodule that the module does not have, as exporters
    note some of their own; and of an expression with the place and the text that it has in the case file."""
    modules = dict(run.reference.module.named_modules())
    known = with_file({name: value for name, value in told.items() if name != "module" or value in modules})
    if "second" in known:
        known["second"] = placed(run, known["second"])
    return in_the_case_file(known, run.cell.case)


def with_file(told: dict[str, object]) -> dict[str, Any]:
    """Return the same with the path of the file whose line it names, where one module that was imported has it."""
    name, _, number = str(told.get("line")).rpartition(":")
    if told.get("place") == "call" or not (number.isdigit() and told.get("source")):
        return told
    files = {str(file) for module in [*sys.modules.values()] if (file := getattr(module, "__file__", None))}
    same = [file for file in files if file.endswith(f"{os.sep}{name}") or file == name]
    found = [file for file in same if linecache.getline(file, int(number)).strip() == told["source"]]
    return told | {"file": _shortest(Path(found[0]))} if len(found) == 1 else told


def _shortest(file: Path) -> str:
    """The path from the working directory, or from the folder that it was imported from."""
    shown = display_path(file)
    if not Path(shown).is_absolute():
        return shown
    below = (file.relative_to(root).as_posix() for root in map(Path, sys.path) if file.is_relative_to(root))
    return min(below, key=len, default=shown)


def in_the_case_file(told: dict[str, object], case: Case) -> dict[str, object]:
    """Return the same, where the module is an expression with the place and the text that it has in the case file."""
    if not str(told.get("line")).startswith(EXPRESSION):
        return told
    known = {name: value for name, value in told.items() if name != "call"}
    return {**known, "line": f"{display_path(case.file)}:{case.line}", "source": case.says.forward, "place": "file"}


_NO_SYMBOLIC = re.compile(r"UnsupportedOperator|Unsupported: ONNX export of operator|export of operator \S+ is not")
_NO_TRANSLATION = re.compile(r"No ONNX function found|No decompositions registered")


_NAMED = re.compile(r"unrecognized namespace (\w+)::(\w+)|No ONNX function found for <OpOverload\(op='(\w+)\.(\w+)'")
"""The forms in which an exporter names an operator for which it has no nodes."""
_OF_EXPORTERS = {"aten", "prim", "prims", "quantized", "quantized_decomposed", "torchvision"}
"""Namespaces of torch and torchvision: what is missing of them an exporter may be asked for."""


def nodes_to_add(run: CellRun, stop: Stopped) -> dict[str, object] | None:
    """Return the fields of ``Record.remedy`` for an export that lacks nodes for an operator of nobody's but the
    case's; None for any other."""
    found = _NAMED.search(f"{stop.reason}")
    space, name = filter(None, found.groups()) if found else ("", "")
    if not name or space in _OF_EXPORTERS or run.cell.exporter == "onnx":
        return None
    table = "symbolics" if run.cell.exporter == "torchscript" else "translations"
    said = plain(run.target)
    said[table] = {**said.get(table, {}), f"{space}::{name}": f"{table}.{name}"}
    given = or_else([("x", "")], lambda: _arguments(space, name))
    if table == "symbolics":
        head, body = ", ".join(["g", *(one for one, _ in given)]), f'g.op("NAME", {given[0][0]})'
    else:
        head, body = ", ".join(f"{one}{kind}" for one, kind in given), f"op.NAME({given[0][0]})"
    python = f"def {name}({head}):\n    return {body}  # your nodes"
    if table == "translations":
        python = f"from onnxscript import opset18 as op\n{python}"
    yaml = f"{run.cell.exporter}: {flow(said)}"
    return {"kind": "nodes", "lacks": f"{space}::{name}", "yaml": yaml, "python": python, "file": f"{table}.py"}


_SHAPELESS = re.compile(
    r"no fake impl registered for <CustomOpDef\((\w+)::|(\w+)::\S+ attempted to run this operator with Meta tensors"
)
"""The words of PyTorch for an operator of which nobody has said the shape; its text has what to register."""


def lacks_shapes(stop: Stopped) -> bool:
    """Return whether an export has stopped since an operator of nobody's but the case's tells no shape."""
    said = " ".join(map(str, causes(stop.__cause__))) if stop.__cause__ is not None else ""
    found = _SHAPELESS.search(f"{stop.reason} {said}")
    return found is not None and next(filter(None, found.groups())) not in _OF_EXPORTERS


def _arguments(space: str, name: str) -> list[tuple[str, str]]:
    """The arguments of an operator, each with what onnxscript wants to know of one that is no tensor."""
    import torch

    given = getattr(getattr(torch.ops, space), name).default._schema.arguments
    kinds = [str(argument.type) for argument in given]
    plain_ones = ("float", "int", "bool", "str")
    return [(one.name, f": {kind}" if kind in plain_ones else "") for one, kind in zip(given, kinds, strict=True)]


def advice(stop: Stopped) -> list[str]:
    """Return the hints for an export that has stopped; ``results.records.text`` has the words for them."""
    said = f"{stop.error}: {stop.reason}"
    known = {"branch": ON_DATA, "symbolic": _NO_SYMBOLIC, "translation": _NO_TRANSLATION}
    return [hint for hint, pattern in known.items() if pattern.search(said)]
