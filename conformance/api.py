"""``conformance.check``: one case in a test of one's own, in a notebook, or anywhere else in Python."""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import os
import pickle
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from conformance.case.built import Exported, Here, Pickled, module_of_program
from conformance.case.case_file import cases_of
from conformance.case.declaration import Case
from conformance.case.document import Document
from conformance.checks.runner import Runner
from conformance.draft.exported_program import case_of_program
from conformance.errors import attempt, import_torch
from conformance.plan.catalogue import plan
from conformance.plan.cell import Cell
from conformance.plan.settings import Settings
from conformance.records import finding_block
from conformance.records.findings import findings
from conformance.records.record import Record
from conformance.worker.isolation import Death, Worker
from conformance.worker.warm import new_worker

WIDTH = 100
"""Columns of the text of an AssertionError."""
TIMEOUT = 600.0
"""Seconds that a cell may take, as in the suite."""
GIVEN = "given.module"
"""What the case calls a module that is built already."""
STORE = ".conformance"
"""Where models of a module are kept that is given by its name."""


class Records(list[Record]):
    """The records of all cells."""

    not_isolated: str | None = None
    """Why the cells ran in this process, which a crash of a runtime would have ended; None if they had their own."""


def check(
    module: Any, *, inputs: dict[str, Any] | None = None, name: str | None = None, isolated: bool = True, **case: Any
) -> Records:
    """Export a module, run it in every runtime of the case, and compare, as the suite does with a case file.

    ``module`` is a ``torch.nn.Module``, which stays as it is, or a name such as ``"torch.nn.GroupNorm"``. All else
    are keys of a case (``docs/case-reference.md``): ``inputs={"x": "float32[batch, 5]"}``, ``dims={"batch":
    "1..64"}``, and so on; ``with`` is written ``**{"with": {...}}``. Files that a case names lie beside that of the
    caller. ``name`` is the case's, by default the class of the module.

    Of a ``torch.onnx.ONNXProgram`` the model is run as it is, and compared with the program that it was exported of;
    a ``torch.export.ExportedProgram`` is exported first. Inputs and dims are theirs where they are not given.

    Cells run in a process of their own if the module can be pickled, and unpickled there; or else in this one, and so
    where ``isolated`` is False. ``not_isolated`` of the records says which.

    Raises AssertionError with the text of the suite where a cell fails, or where none could be run; TypeError for
    what is no module; ValueError for what no case may say, and where PyTorch is not installed; of an ExportedProgram
    what its export raises.
    """
    __tracebackhide__ = True
    import_torch("conformance.check needs")
    file, line = _caller()
    # nobody knows what made a module that is built, so that its models are not kept
    home = Path(STORE) if isinstance(module, str) else Path(tempfile.mkdtemp(prefix="conformance-check-"))
    program, of_program = _program(module, home, file.absolute().parent)
    built = (
        None if isinstance(module, str) else Here(_module(module) if program is None else module_of_program(program))
    )
    said = {"about": "conformance.check", **of_program, **case, "module": GIVEN if built else module}
    if inputs is not None:
        said["inputs"] = inputs
    cases = _cases(name or _name_of(module), said, file, line)
    given, worker, why_not = _isolated(built, home, program) if isolated else (built, None, "isolated=False")
    cells = [cell for one in cases for cell in plan(dataclasses.replace(one, built=given))]
    records = Records(_run(cells, Settings(store=home / "models"), worker))
    records.not_isolated = why_not
    told = list(_failures(records))
    if built and not any(record.bundle for record in records):
        shutil.rmtree(home, ignore_errors=True)
    if told:
        raise AssertionError("\n\n".join([*told, *([f"run in this process: {why_not}"] if why_not else [])]))
    return records


def _caller() -> tuple[Path, int]:
    """File and line of the call of ``check``."""
    frame = sys._getframe(2)
    return Path(frame.f_code.co_filename), frame.f_lineno


def _program(given: Any, home: Path, folder: Path) -> tuple[Any, dict[str, Any]]:
    """Return the exported program that is to be compared with its model, and the keys of its case; else None."""
    import torch

    if isinstance(given, torch.export.ExportedProgram):
        given = torch.onnx.export(given, dynamo=True, verbose=False)
    if not isinstance(given, torch.onnx.ONNXProgram):
        return None, {}
    if given.exported_program is None:
        raise TypeError("this ONNXProgram does not know the program that it was exported of; check its file instead")
    file = home / "given.onnx"
    given.save(file)
    outputs = [output.name for output in given.model_proto.graph.output]
    export = {"onnx": {"file": os.path.relpath(file, folder)}}
    return given.exported_program, {**case_of_program(given.exported_program), "outputs": outputs, "export": export}


def _module(given: Any) -> Any:
    import torch

    if not isinstance(given, torch.nn.Module):
        what = (
            f"the class {given.__name__}; build it first" if isinstance(given, type) else f"a {type(given).__name__}"
        )
        raise TypeError(f"conformance.check takes a torch.nn.Module, or the name of one, and got {what}")
    return given


def _name_of(module: Any) -> str:
    name = module.rpartition(".")[2] if isinstance(module, str) else type(module).__name__
    return re.sub(r"\W", "_", name) or "module"


def _cases(name: str, said: dict[str, Any], file: Path, line: int) -> list[Case]:
    """The case, or one for each combination of ``vary``; ValueError with all that is wrong."""
    place = file.absolute() if file.is_file() else Path.cwd() / "notebook"
    cases, problems = cases_of(name, said, Document(place, {}, {(name,): (line, 1)}))
    if problems:
        raise ValueError("\n".join(["conformance.check:", *(f"  {problem.message}" for problem in problems)]))
    return cases


# ---- where cells run -----------------------------------------------------------------------------------------

_WORKER: list[Worker] = []


def _worker() -> Worker:
    """The worker of this process, started with the first call and ended with the process."""
    if not _WORKER:
        worker = new_worker()
        worker.__enter__()
        atexit.register(worker.close)
        _WORKER.append(worker)
    return _WORKER[0]


def _isolated(
    built: Here | None, home: Path, program: Any = None
) -> tuple[Here | Pickled | Exported | None, Worker | None, str | None]:
    """Return what the cells get for the module, the worker that runs them, and why there is none."""
    if built is None:
        return None, _worker(), None
    pickled: Pickled | Exported = Pickled(home / "module.pickle", tuple(sys.path))
    if program is not None:
        pickled = Exported(home / "program.pt2")
    saved = attempt(lambda: _save(built, program, pickled.file))
    if isinstance(saved, Exception):
        return built, None, f"the module cannot be pickled ({type(saved).__name__}: {saved})"
    answer = _worker().call(_trouble, pickled, timeout=TIMEOUT)
    trouble = answer.how if isinstance(answer, Death) else answer
    if trouble is not None:
        return built, None, f"the module cannot be unpickled in another process ({trouble})"
    return pickled, _worker(), None


def _save(built: Here, program: Any, file: Path) -> None:
    import torch

    if program is None:
        file.write_bytes(pickle.dumps(built.original))
    else:
        torch.export.save(program, file)


def _trouble(progress: object, pickled: Pickled | Exported) -> str | None:
    """Say why the module cannot be made of the file in this process; None if it can."""
    module = attempt(pickled.module)
    return f"{type(module).__name__}: {module}" if isinstance(module, Exception) else None


def _run(cells: Sequence[Cell], settings: Settings, worker: Worker | None) -> Iterator[Record]:
    with contextlib.nullcontext() if worker is not None else _threads():
        yield from Runner(settings, TIMEOUT, worker).each(cells)


@contextlib.contextmanager
def _threads() -> Iterator[None]:
    """Put the number of PyTorch's threads back, of which cells have one."""
    import torch

    count = torch.get_num_threads()
    try:
        yield
    finally:
        torch.set_num_threads(count)


# ---- what came out -------------------------------------------------------------------------------------------


def _failures(records: Sequence[Record]) -> Iterator[str]:
    """Each cause once, as a run of the suite has it, with the cells that fail for it."""
    found = findings(record.as_dict() for record in records)
    for number, finding in enumerate(found, 1):
        yield "\n".join(finding_block.lines(finding_block.describe(finding, kept=False), number, len(found), WIDTH))
    held = any(record.status == "xfailed" or (record.status == "passed" and record.examples) for record in records)
    if not found and not held:
        reasons = dict.fromkeys(f"{record.id}: {record.reason or record.status}" for record in records)
        yield "\n".join(["nothing was compared:", *reasons])
