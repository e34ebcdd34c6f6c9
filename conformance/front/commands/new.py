"""``conformance new``: a case file, as a starter or of a module that is there."""

from __future__ import annotations

import argparse
import dataclasses
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from conformance import HOME
from conformance.front.commands import TIMEOUT, add_with, ask, outcomes, pairs
from conformance.front.commands.module_names import locate_module, plain_value
from conformance.process.errors import CaseFileError, UserError, display_path, require_torch, shown
from conformance.results.records.sanitize import command_line, one_line, tell

if TYPE_CHECKING:
    from conformance.extras.draft.drafting import Draft, Request
    from conformance.extras.draft.submodules import Part
    from conformance.process.worker.isolation import Worker
    from conformance.results.records.record import Record

Drafted: TypeAlias = "tuple[str, Request, Draft, str]"
"""A case to be written: its name, module, inputs, and what it is about."""

_STARTER = HOME / "front" / "commands" / "starter"
EXAMPLES = 4
"""Drawn shapes of each cell, for a first verdict."""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", help="name of the case: a letter or _, then letters, digits and _")
    parser.add_argument("--folder", type=Path, help="where to (default: cases, or where the file of --from lies)")
    parser.add_argument(
        "--from", dest="module", metavar="MODULE",
        help="a class of modules, or a function that returns one, as torch.nn.LSTM, mypackage.net.Net or "
        "./audio.py:Net: its inputs are found by trying",
    )  # fmt: skip
    add_with(parser)
    parser.add_argument(
        "--config", type=Path, metavar="FILE", help="its configuration as JSON, as Hugging Face has it"
    )
    parser.add_argument(
        "--tiny", action="store_true",
        help="with random weights and as few layers, as narrow and with as small a vocabulary as its class allows: "
        "a class of transformers, or a class or function that takes such numbers, as those of timm",
    )  # fmt: skip
    parser.add_argument(
        "--input", dest="inputs", action="append", default=[], metavar="NAME=TYPE",
        help="the type of an input where it is known, as in x='float32[batch, 8]', or as a case has it: "
        "ids='{type: int64[batch], values: {integers: {low: 0, high: 9}}}'; repeatable",
    )  # fmt: skip
    parser.add_argument(
        "--dim", dest="dims", action="append", default=[], metavar="NAME=RANGE",
        help="the sizes of a dim where they are known, as in batch=1..8; repeatable",
    )  # fmt: skip
    parser.add_argument("--submodule", metavar="PATH", help="the part of the module to run, as encoder.layer.0")
    parser.add_argument(
        "--observe", type=Path, metavar="SCRIPT",
        help="runs a script of yours, and writes a case of each module that it calls, as it calls it",
    )  # fmt: skip
    parser.add_argument(
        "--submodules", type=int, metavar="LEVELS",
        help="a case of one submodule of each class, down to so many levels, in place of the whole",
    )  # fmt: skip


def run(given: argparse.Namespace) -> int:
    """0; with ``--from`` or ``--observe`` 1 where a cell of a new case fails.

    Raises UserError for what makes no case.
    """
    _check_name(given.name)
    typed = _typed(given)
    name, folder = given.name, _place(given)
    if given.module is not None or given.observe is not None:
        require_torch("finding the inputs of a module needs")
    case = folder / f"{name}.yaml"
    command = command_line(["conformance", "run", case.as_posix()])
    if given.submodules is not None and given.submodules < 1:
        raise UserError(f"--submodules {given.submodules}: write how many levels to go down, from 1")
    if given.module is not None and given.observe is not None:
        raise UserError("give --from or --observe: a script says itself what its modules are")
    if given.tiny and (given.config or given.submodules):
        raise UserError(
            "--tiny makes the numbers itself: leave out --config, and --submodules, or take the parts later"
        )
    if given.module is not None:
        _absent([case])
        return _draft(given, case, typed, command)
    about = (given.given, given.config, given.tiny, given.inputs, given.dims, given.submodule, given.submodules)
    if any(about):
        raise UserError(
            "--with, --config, --tiny, --input, --dim, --submodule and --submodules are about the module of --from"
        )
    if given.observe is not None:
        _absent([case])
        return _observe(given, case, command)
    module = folder / f"{name}_module.py"
    _absent([case, module])
    folder.mkdir(parents=True, exist_ok=True)
    text = (_STARTER / "case.yaml").read_text(encoding="utf-8")
    case.write_text(text.format(name=name, command=command), encoding="utf-8")
    module.write_text((_STARTER / "module.py").read_text(encoding="utf-8"), encoding="utf-8")
    tell(f"wrote {display_path(case)} and {display_path(module)}; run it with")
    tell(f"  {command}")
    return 0


def _check_name(name: str) -> None:
    """Raise UserError for a name that no case file can give a case."""
    from conformance.case.files.case_file import CASE_NAME
    from conformance.case.files.limits import NAME

    if not CASE_NAME.fullmatch(name):
        near = re.sub(r"\W", "_", name)
        hint = f"; as in {near}" if CASE_NAME.fullmatch(near) else ""
        raise UserError(f"{shown(name)} is not a case name: a letter or _, then letters, digits and _{hint}")
    if name == "defaults" or plain_value(name, name) != name:
        raise UserError(f"{shown(name)} is not a case name: it means something else in a case file; as in {name}_")
    if len(name.encode()) > NAME:
        raise UserError(f"{shown(name)} is not a case name: it is longer than {NAME} bytes")


def _typed(given: argparse.Namespace) -> tuple[str, ...]:
    """Return the command that was typed, to which more arguments can be added."""
    one = {
        "--folder": given.folder, "--from": given.module, "--config": given.config, "--submodule": given.submodule,
        "--submodules": given.submodules,
    }  # fmt: skip
    several = {"--with": given.given, "--input": given.inputs, "--dim": given.dims}
    words = [word for option, value in one.items() if value is not None for word in (option, str(value))]
    words += [word for option, values in several.items() for value in values for word in (option, value)]
    return ("conformance", "new", given.name, *words, *(["--tiny"] if given.tiny else []))


def _place(given: argparse.Namespace) -> Path:
    """Return the folder of the case: beside the file of a module that is given by a path, which becomes a name that a
    case may have. Raises UserError for no such file, and for another folder."""
    if given.module is None:
        return given.folder or Path("cases")
    folder, name = locate_module(given.module, "--from ")
    if folder is not None and given.folder is not None and given.folder.resolve() != folder.resolve():
        raise UserError(f"--from {given.module}: the case has to lie beside it: --folder {display_path(folder)}")
    given.module = name
    return folder or given.folder or Path("cases")


def _absent(files: list[Path]) -> None:
    for file in files:
        if file.exists():
            raise UserError(f"{display_path(file)} is there already; choose another name")


# ---- of a module ---------------------------------------------------------------------------------------------


def _draft(given: argparse.Namespace, case: Path, typed: tuple[str, ...], command: str) -> int:
    from conformance.extras.draft.drafting import draft_module
    from conformance.extras.draft.submodules import parts
    from conformance.extras.draft.tiny import draft_tiny
    from conformance.process.worker.warm import new_worker

    with new_worker(dynamo=True) as worker:
        request = _request(given, case, typed, worker)
        if given.tiny:
            small, draft = ask(worker, draft_tiny, request)
            smaller = ", made small" if small.given != request.given else ""
            drafts = [(given.name, small, draft, f"{request.module}{smaller}, with random weights")]
        elif given.submodules is None:
            drafts = [(given.name, request, ask(worker, draft_module, request), "")]
        else:
            drafts = _of_parts(given.name, request, ask(worker, parts, request, given.submodules))
        return _all_written(case, drafts, worker, command)


def _of_parts(name: str, request: Request, parts: list[Part]) -> list[Drafted]:
    found: list[Drafted] = []
    for part in parts:
        if isinstance(part.draft, str):
            tell(f"no case of {part.path} ({part.kind}): {one_line(part.draft, 300)}")
            continue
        of = name if part.count == 1 else f"{name}, one of {part.count} of its class"
        own = dataclasses.replace(request, submodule=".".join(filter(None, (request.submodule, part.path))))
        called = part.name(name, {one[0] for one in found})
        found.append((called, own, part.draft, f"{part.kind} of {of}"))
    if not found:
        raise UserError(f"{request.module} has no submodules of which a case can be written")
    return found


def _observe(given: argparse.Namespace, case: Path, command: str) -> int:
    from conformance.extras.draft.observed_modules import observe
    from conformance.process.worker.warm import new_worker

    if not given.observe.is_file():
        raise UserError(f"there is no script {display_path(given.observe)}")
    with new_worker(dynamo=True) as worker:
        tell(f"running {display_path(given.observe)}")
        seen = ask(worker, observe, given.observe.absolute(), case.parent.absolute(), given.name)
        if seen.stopped:
            tell(f"{seen.stopped}; what was called before is used")
        _absent([case.parent / file for one in seen.modules for file in one.files])
        found: list[Drafted] = []
        for number, one in enumerate(seen.modules, 1):
            if isinstance(one.draft, str):
                tell(f"no case of {one.request.module}: {one_line(one.draft, 300)}")
                continue
            case.parent.mkdir(parents=True, exist_ok=True)
            for file, text in one.files.items():
                (case.parent / file).write_text(text, encoding="utf-8")
            name = given.name if len(seen.modules) == 1 else f"{given.name}_{number}"
            found.append((name, one.request, one.draft, f"{one.kind}, as {given.observe.name} calls it"))
        if not found:
            raise UserError(f"{display_path(given.observe)} calls no module of which a case can be written")
        return _all_written(case, found, worker, command)


def _all_written(case: Path, drafts: list[Drafted], worker: Worker, command: str) -> int:
    """Write the cases into one file, running each; what they came to is told as it is known."""
    text, failed = "", False
    for name, request, draft, about in drafts:
        text, records = _write(case, text, (name, request, draft, about), worker)
        failed |= any(record.status == "failed" and not _is_declared(record) for record in records)
        for line in outcomes(records):
            tell(line)
        for entry in _declared(records):
            tell(f"{display_path(case)} declares under fails: {entry['because']}")
    tell(f"wrote {display_path(case)}; run it with")
    tell(f"  {command}")
    return 1 if failed else 0


def _request(given: argparse.Namespace, case: Path, typed: tuple[str, ...], worker: Worker) -> Request:
    from conformance.extras.draft.drafting import Request, configuration

    made = {name: plain_value(name, text) for name, text in pairs(given.given, "--with").items()}
    if given.config is not None:
        file = case.with_suffix(".json")
        of = ask(worker, configuration, case.parent.absolute(), given.module)
        if not (file.exists() and file.read_bytes() == given.config.read_bytes()):
            _absent([file])
            file.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(given.config, file)
        made["config"] = {"file": file.name, "of": of}
    return Request(
        case.parent.absolute(),
        given.module,
        made,
        pairs(given.inputs, "--input"),
        given.submodule,
        pairs(given.dims, "--dim"),
        typed,
    )


def _write(case: Path, before: str, drafted: Drafted, worker: Worker) -> tuple[str, list[Record]]:
    """Write a case behind those that are there, without exporters that do not export it where the other does, and
    with weights that show; the text of the file, and the records of the new case."""
    from conformance.extras.draft.case_text import as_text

    name, request, draft, about = drafted
    left_out: dict[str, str] = {}
    awake = False
    case.parent.mkdir(parents=True, exist_ok=True)
    tell(f"found the inputs of {name}; running its cells")
    while True:
        text = before + ("\n" if before else "") + as_text(name, request, draft, left_out, awake, about)
        case.write_text(text, encoding="utf-8")
        records = _run(case, name, worker)
        exports = [record for record in records if record.check == "export"]
        failed = {record.exporter: record for record in exports if record.stage == "export"}
        if failed and len(failed) < len(exports):
            left_out |= {name: one_line(f"{one.error}: {one.reason}", 100) for name, one in failed.items()}
        elif not awake and any(record.error in ("Hollow", "Vacuous") for record in records):
            awake = True
        else:
            fails = _declared(records)
            if fails:
                text = before + ("\n" if before else "")
                text += as_text(name, request, draft, left_out, awake, about, fails)
                case.write_text(text, encoding="utf-8")
            return text, records


def _is_declared(record: Record) -> bool:
    """Return whether a failure goes into a new case as one that is expected.

    It is what a runtime makes of NaN and infinities, where others show that it is at fault. Nobody asked for these
    values, and the module and its export are right.
    """
    return record.status == "failed" and record.check == "specials" and record.fault == "runtime"


def _declared(records: list[Record]) -> list[dict[str, object]]:
    """Return what a case says under ``fails`` of these failures."""
    found: dict[str, dict[str, object]] = {}
    for record in filter(_is_declared, records):
        when = {"check": "specials", "exporter": record.exporter, "runtime": record.runtime}
        because = (
            f"{record.runtime} is at fault for what it makes of NaN and infinities ({record.exporter}): "
            f"{one_line(record.reason or '', 160)}"
        )
        found[record.id] = {"when": when, "stage": record.stage, "error": record.error, "because": because}
    return [*found.values()]


def _run(case: Path, name: str, worker: Worker) -> list[Record]:
    from conformance.case.files.case_file import load
    from conformance.case.plan.catalogue import plan
    from conformance.case.plan.settings import Settings
    from conformance.cells.runner import Runner

    try:
        one = next(one for one in load(case) if one.name == name)
    except CaseFileError as error:
        raise UserError(f"wrote {display_path(case)}, which is to be corrected by hand:\n{error}") from None
    settings = Settings(store=Path(".conformance") / "models", examples=EXAMPLES)
    return list(Runner(settings, TIMEOUT, worker).each(plan(one)))
