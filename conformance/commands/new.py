"""``conformance new``: a case file, as a starter or of a module that is there."""

from __future__ import annotations

import argparse
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from conformance import HOME
from conformance.commands import TIMEOUT, ask, outcome, pairs
from conformance.errors import UserError, display_path
from conformance.records.clean import command_line, one_line, tell

if TYPE_CHECKING:
    from conformance.draft.drafting import Draft, Request
    from conformance.records.record import Record
    from conformance.worker.isolation import Worker

_STARTER = HOME / "commands" / "starter"
EXAMPLES = 4
"""Drawn shapes of each cell, for a first verdict."""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", help="name of the case: letters, digits and _")
    parser.add_argument("--folder", type=Path, default=Path("cases"), help="where to (default: %(default)s)")
    parser.add_argument(
        "--from", dest="module", metavar="MODULE",
        help="a class of modules, or a function that returns one, as torch.nn.LSTM: its inputs are found by trying",
    )  # fmt: skip
    parser.add_argument(
        "--with", dest="given", action="append", default=[], metavar="KEY=VALUE",
        help="an argument that the module is made with, in YAML; repeatable",
    )  # fmt: skip
    parser.add_argument(
        "--config", type=Path, metavar="FILE", help="its configuration as JSON, as Hugging Face has it"
    )
    parser.add_argument(
        "--input", dest="inputs", action="append", default=[], metavar="NAME=TYPE",
        help="the type of an input where it is known, as in x='float32[batch, 8]'; repeatable",
    )  # fmt: skip
    parser.add_argument("--submodule", metavar="PATH", help="the part of the module to run, as encoder.layer.0")


def run(given: argparse.Namespace) -> int:
    """0; with ``--from`` 1 where a cell of the new case fails. Raises UserError for what makes no case."""
    name, folder = given.name, given.folder
    if not re.fullmatch(r"[a-z_][a-z0-9_]*", name):
        raise UserError(f"'{name}' is not a case name: lower-case letters, digits and _")
    case = folder / f"{name}.yaml"
    command = command_line(["pytest", "--pyargs", "conformance", "--cases", folder.as_posix(), "-k", name])
    if given.module is not None:
        _absent([case])
        return _drafted(given, case, command)
    if given.given or given.config or given.inputs or given.submodule:
        raise UserError("--with, --config, --input and --submodule are about the module of --from")
    module = folder / f"{name}_module.py"
    _absent([case, module])
    folder.mkdir(parents=True, exist_ok=True)
    text = (_STARTER / "case.yaml").read_text(encoding="utf-8")
    case.write_text(text.format(name=name, command=command), encoding="utf-8")
    module.write_text((_STARTER / "module.py").read_text(encoding="utf-8"), encoding="utf-8")
    tell(f"wrote {display_path(case)} and {display_path(module)}; run it with")
    tell(f"  {command}")
    return 0


def _absent(files: list[Path]) -> None:
    for file in files:
        if file.exists():
            raise UserError(f"{display_path(file)} is there already; choose another name")


def _plain(name: str, text: str) -> Any:
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        return YAML(typ="safe", pure=True).load(text)
    except YAMLError:
        raise UserError(f"--with {name}={text}: the value is no YAML") from None


# ---- of a module ---------------------------------------------------------------------------------------------


def _drafted(given: argparse.Namespace, case: Path, command: str) -> int:
    from conformance.draft.drafting import drafted
    from conformance.worker.warm import new_worker

    case.parent.mkdir(parents=True, exist_ok=True)
    with new_worker(dynamo=True) as worker:
        request = _request(given, case, worker)
        draft = ask(worker, drafted, request)
        records = _written(given.name, case, request, draft, worker)
    for record in records:
        for line in outcome(record):
            tell(line)
    tell(f"wrote {display_path(case)}; run it with")
    tell(f"  {command}")
    return 1 if any(record.status == "failed" for record in records) else 0


def _request(given: argparse.Namespace, case: Path, worker: Worker) -> Request:
    from conformance.draft.drafting import Request, configuration

    made = {name: _plain(name, text) for name, text in pairs(given.given, "--with").items()}
    if given.config is not None:
        file = case.with_suffix(".json")
        of = ask(worker, configuration, case.parent.absolute(), given.module)
        if not (file.exists() and file.read_bytes() == given.config.read_bytes()):
            _absent([file])
            shutil.copy(given.config, file)
        made["config"] = {"file": file.name, "of": of}
    return Request(case.parent.absolute(), given.module, made, pairs(given.inputs, "--input"), given.submodule)


def _written(name: str, case: Path, request: Request, draft: Draft, worker: Worker) -> list[Record]:
    """Writes the case, without exporters that do not export it where the other does, and with weights that show; its
    records."""
    from conformance.draft.drafting import as_text

    left_out: dict[str, str] = {}
    awake = False
    while True:
        case.write_text(as_text(name, request, draft, left_out, awake), encoding="utf-8")
        records = _run(case, worker)
        exports = [record for record in records if record.check == "export"]
        failed = {record.exporter: record for record in exports if record.stage == "export"}
        if failed and len(failed) < len(exports):
            left_out |= {name: one_line(f"{one.error}: {one.reason}", 100) for name, one in failed.items()}
        elif not awake and any(record.error == "Hollow" for record in records):
            awake = True
        else:
            return records


def _run(case: Path, worker: Worker) -> list[Record]:
    from conformance.case.file import load
    from conformance.checks.runner import Runner
    from conformance.plan.catalogue import plan
    from conformance.plan.settings import Settings

    (one,) = load(case)
    settings = Settings(store=Path(".conformance") / "models", examples=EXAMPLES)
    return list(Runner(settings, TIMEOUT, worker).each(plan(one)))
