"""``conformance.check``: one case in a test of one's own, in a notebook, or anywhere else in Python."""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import html
import os
import pickle
import re
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from conformance.case.files.built import Built, ExportedProgramModule, Here, Pickled, module_of_program
from conformance.case.files.case_file import cases_of
from conformance.case.files.declaration import Case
from conformance.case.files.document import Document
from conformance.case.plan.catalogue import plan
from conformance.case.plan.settings import Settings
from conformance.cells.check_models import verified
from conformance.cells.runner import Runner
from conformance.extras.draft.example_inputs import (
    are_examples,
    assumed,
    case_of_program,
    draft_example,
    example_call,
    keys_of,
)
from conformance.front.commands import TIMEOUT, ask
from conformance.front.commands.check import check_file
from conformance.front.commands.progress_lines import ProgressLines
from conformance.process.disk import DEFAULT_STORE
from conformance.process.disk.model_files import SUFFIX
from conformance.process.errors import UserError, UserTypeError, attempt, import_torch
from conformance.process.worker.isolation import Death, Worker
from conformance.process.worker.warm import new_worker
from conformance.results.records import finding_block, known, text
from conformance.results.records.findings import findings
from conformance.results.records.record import Record
from conformance.results.records.sanitize import visible
from conformance.results.records.testimony import title

WIDTH = 100
"""Columns of the text of an AssertionError."""
Inputs = Mapping[str, object] | None
"""By the names of inputs their types, or tensors."""
GIVEN = "given.module"
"""What the case calls a module that is built already."""


class Result(list[Record]):
    """The records of all cells. It prints as the text that a person reads, and is true if all is right."""

    def __init__(
        self, records: Iterable[Record], told: Iterable[str], *, right: bool, not_isolated: str | None = None
    ) -> None:
        super().__init__(records)
        self.not_isolated = not_isolated
        """Why the cells ran in this process, which a crash of a runtime would have ended; None if they had their
        own."""
        self._told, self._right = visible("\n".join(told)).rstrip(), right

    def __bool__(self) -> bool:
        return self._right

    def __repr__(self) -> str:
        return self._told

    def _repr_html_(self) -> str:
        """Return the text for a notebook."""
        return f"<pre>{html.escape(self._told)}</pre>"


class Failure(AssertionError):
    """A cell fails, or nothing was compared. The text is that of ``result``."""

    def __init__(self, result: Result) -> None:
        super().__init__(repr(result))
        self.result = result


def check(
    module: object,
    *examples: object,
    inputs: Mapping[str, object] | None = None,
    name: str | None = None,
    isolated: bool = True,
    **case: object,
) -> Result:
    """Export a module, run it in every runtime of the case, and compare, as the suite does with a case file.

    ``module`` is a ``torch.nn.Module``, which stays as it is, or a name such as ``"torch.nn.GroupNorm"``. Its inputs
    are declared, ``inputs={"x": "float32[batch, 5]"}, dims={"batch": "1..64"}``, or shown by ``examples``, as in
    ``check(module, torch.randn(2, 5))``, or by their names, ``inputs={"x": tensor}``: types are those of the tensors,
    the first size varies, and values are drawn from the range that they show. The result says what was assumed. All
    else are keys of a case (``docs/case-reference.md``); ``with`` is written ``**{"with": {...}}``. Files that a case
    names lie beside that of the caller. ``name`` is the case's, by default the class of the module.

    Of a ``torch.onnx.ONNXProgram`` the model is run as it is, and compared with the program that it was exported of;
    a ``torch.export.ExportedProgram`` is exported first. Inputs and dims are theirs where they are not given. An ONNX
    file, by its path, is checked as ``conformance check`` does it; keys of a case go before.

    Cells run in a process of their own if the module can be pickled, and unpickled there; or else in this one, and so
    where ``isolated`` is False. ``not_isolated`` of the result says which.

    Raises AssertionError with the text of the suite where a cell fails, or where none could be run, whose ``result``
    has all records; TypeError for what is no module, and examples that forward does not take; ValueError for what no
    case may say, for a file that cannot be checked, and where PyTorch is not installed; of an ExportedProgram what
    its export raises.
    """
    __tracebackhide__ = True
    place = _caller()
    try:
        if isinstance(module, os.PathLike) or (isinstance(module, str) and _is_file(module)):
            result = _check_file(Path(module), examples, inputs, name, isolated, case)
        else:
            result = _check_module(module, examples, inputs, name, isolated, case, *place)
    except UserError as error:
        raise error.with_traceback(None) from None
    if not result:
        raise Failure(result)
    return result


def _is_file(text: str) -> bool:
    """Return whether a text is the path of a file rather than the name of a module."""
    return text.lower().endswith(SUFFIX) or os.sep in text


def _check_file(
    file: Path, examples: tuple[object, ...], inputs: Inputs, name: str | None, isolated: bool,
    case: dict[str, object],
) -> Result:  # fmt: skip
    if file.is_dir():
        raise UserError(f"{file} is a folder; name one of its files, or run: conformance check {file}")
    if not isolated:
        raise UserError(f"{file}: files always run in a process of their own; leave isolated=False out")
    if examples or (inputs is not None and are_examples(inputs)):
        how = 'leave them out; dims={"batch": "1..8"} gives sizes'
        raise UserTypeError(f"{file} itself says what its inputs are, and takes no examples: {how}")
    notes: list[object] = []
    checked, lines = check_file(file, name, case if inputs is None else {**case, "inputs": inputs}, notes.append)
    failures = list(_failures(checked.counted()))
    return Result(checked.records, [*failures, *lines, *map(str, notes)], right=not failures)


def _check_module(
    module: object, examples: tuple[object, ...], inputs: Inputs, name: str | None, isolated: bool,
    case: dict[str, object], file: Path, line: int,
) -> Result:  # fmt: skip
    import_torch("conformance.check needs")
    call = None
    if examples or (inputs is not None and are_examples(inputs)):
        call = example_call(_module(module), examples, inputs or {})
    kept = isinstance(module, str)  # nobody knows what made a module that is built
    home = Path(DEFAULT_STORE) if kept else Path(tempfile.mkdtemp(prefix="conformance-check-"))
    try:
        program, said = _program(module, inputs, home, file.absolute().parent)
        built = None if kept else Here(_module(module) if program is None else module_of_program(program))
        said |= {} if call or inputs is None else {"inputs": inputs}
        if call is None and "inputs" not in said:
            how = 'conformance.check(module, torch.randn(2, 8)), or inputs={"x": "float32[batch, 8]"}'
            raise UserTypeError(f"nothing says what forward takes; pass an example of each input, or types: {how}")
        given, worker, why_not = _isolated(built, home, program) if isolated else (built, None, "isolated=False")
        notes: list[str] = []
        if call is not None and given is not None:
            mode = str(case.get("mode", "eval"))
            with _unchanged():
                draft = ask(worker, draft_example, given, call, mode) if worker else draft_example(given, call, mode)
            drafted = keys_of(draft, case.get("dims", {}))
            notes += assumed(draft, drafted)
            said, case = said | drafted, {**case, "dims": drafted["dims"]}
        said |= {"about": "conformance.check", **case, "module": GIVEN if built else module}
        cases = _cases(name or _name_of(module), said, file, line, notes)
        cells = [cell for one in cases for cell in plan(dataclasses.replace(one, built=given))]
        with _unchanged():
            runner = Runner(Settings(store=home / "models"), TIMEOUT, worker)
            records = list(runner.each(cells, lambda cell: ProgressLines(cell.id)))
        kept = kept or any(record.bundle for record in records)
    finally:
        if not kept:
            shutil.rmtree(home, ignore_errors=True)
    failures = list(_failures(records))
    notes += [f"run in this process: {why_not}"] if failures and why_not else []
    told = failures or _right(records)
    return Result(records, [*told, *notes], right=not failures, not_isolated=why_not)


def _caller() -> tuple[Path, int]:
    """File and line of the call of ``check``."""
    frame = sys._getframe(2)
    return Path(frame.f_code.co_filename), frame.f_lineno


def _program(given: object, inputs: Inputs, home: Path, folder: Path) -> tuple[Any, dict[str, Any]]:
    """Return the exported program that is to be compared with its model, and the keys of its case; else None."""
    import torch

    if isinstance(given, torch.export.ExportedProgram):
        given = torch.onnx.export(given, dynamo=True, verbose=False)
    if not isinstance(given, torch.onnx.ONNXProgram):
        return None, {}
    if given.exported_program is None:
        raise UserTypeError("this ONNXProgram does not know what it was exported of; save it, and check its file")
    file = home / "given.onnx"
    given.save(file)
    outputs = [output.name for output in given.model_proto.graph.output]
    export = {"onnx": {"file": os.path.relpath(file, folder)}}
    own = case_of_program(given.exported_program, inputs)
    return given.exported_program, {**own, "outputs": outputs, "export": export}


def _module(given: object) -> Any:
    import torch

    if isinstance(given, torch.nn.Module):
        return given
    if isinstance(given, str):
        how = 'or declare its inputs, as in inputs={"x": "float32[batch, 8]"}'
        raise UserTypeError(
            f"examples are taken of a module that is built: pass {given}(...) in place of '{given}', {how}"
        )
    if isinstance(given, (torch.onnx.ONNXProgram, torch.export.ExportedProgram)):
        raise UserTypeError(f"this {type(given).__name__} says itself what it takes; leave the examples out")
    if isinstance(given, type):
        got = f"got the class {given.__name__}; build it first: conformance.check({given.__name__}(...), ...)"
    elif isinstance(given, torch.Tensor):
        got = "got a Tensor; the module comes first: conformance.check(module, x)"
    else:
        call = "; call it in the forward of a module" if callable(given) else ""
        got = f"got a {type(given).__name__}{call}"
    raise UserTypeError(f"conformance.check takes a torch.nn.Module, or the name of one, or an ONNX file, and {got}")


def _name_of(module: object) -> str:
    name = module.rpartition(".")[2] if isinstance(module, str) else type(module).__name__
    return re.sub(r"\W", "_", name) or "module"


def _cases(name: str, said: dict[str, object], file: Path, line: int, notes: Sequence[str]) -> list[Case]:
    """The case, or one for each combination of ``vary``; UserError with all that is wrong, and the notes."""
    place = file.absolute() if file.is_file() else Path.cwd() / "notebook"
    cases, problems = cases_of(name, said, Document(place, {}, {(name,): (line, 1)}))
    if problems:
        wrong = (problem.message for problem in problems)
        raise UserError("\n  ".join(["conformance.check:", *wrong, *notes]))
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


def _isolated(built: Here | None, home: Path, program: Any = None) -> tuple[Built | None, Worker | None, str | None]:
    """Return what the cells get for the module, the worker that runs them, and why there is none."""
    if built is None:
        return None, _worker(), None
    pickled: Pickled | ExportedProgramModule = Pickled(home / "module.pickle", tuple(sys.path))
    if program is not None:
        pickled = ExportedProgramModule(home / "program.pt2")
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


def _trouble(progress: object, pickled: Pickled | ExportedProgramModule) -> str | None:
    """Say why the module cannot be made of the file in this process; None if it can."""
    module = attempt(pickled.module)
    return f"{type(module).__name__}: {module}" if isinstance(module, Exception) else None


@contextlib.contextmanager
def _unchanged() -> Iterator[None]:
    """Put the number of PyTorch's threads back, of which cells have one, and its random numbers."""
    import torch

    count = torch.get_num_threads()
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        torch.set_num_threads(count)


# ---- results -------------------------------------------------------------------------------------------------


def _right(records: Sequence[Record]) -> Iterator[str]:
    """Say what is right, and what was skipped."""
    passed = [record for record in records if record.status == "passed"]
    if verified(passed):
        cases = ", ".join(dict.fromkeys(record.case for record in passed))
        exports = ", ".join(dict.fromkeys(f"{record.exporter} opset {record.opset}" for record in passed))
        runs = (f"{title(name, brief=True)} {', '.join(words)}" for name, words in verified(passed).items())
        count = sum(record.examples for record in passed if record.runtime)
        yield f"right: {cases}: {exports} in {'; '.join(runs)}, {count:,} examples"
    declared = [record.id for record in records if record.status == "xfailed"]
    if declared:
        yield f"failed as declared: {', '.join(declared)}"
    skipped = [record for record in records if record.status == "skipped"]
    for runtime in dict.fromkeys(str(record.runtime or record.exporter) for record in skipped):
        own = [record for record in skipped if str(record.runtime or record.exporter) == runtime]
        yield text.not_run(runtime, len(own), [*dict.fromkeys(str(record.reason) for record in own)])
        yield from dict.fromkeys(line for record in own for line in known.lines(record))


def _failures(records: Sequence[Record]) -> Iterator[str]:
    """Each cause once, as a run of the suite has it, with the cells that fail for it."""
    found = findings(records)
    for number, finding in enumerate(found, 1):
        block = finding_block.lines(finding_block.describe(finding, kept=False), number, len(found), WIDTH)
        yield "\n".join([*block, ""])
    held = any(record.status == "xfailed" or (record.status == "passed" and record.examples) for record in records)
    if not found and not held:
        reasons = dict.fromkeys(f"{record.id}: {record.reason or record.status}" for record in records)
        yield "\n".join(["nothing was compared:", *reasons, ""])
