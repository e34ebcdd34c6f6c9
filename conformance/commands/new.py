"""``conformance new``: a starter case file."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from conformance import HOME
from conformance.errors import UserError, display_path
from conformance.records.clean import command_line, tell

_STARTER = HOME / "commands" / "starter"


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", help="name of the case: letters, digits and _")
    parser.add_argument("--folder", type=Path, default=Path("cases"), help="where to (default: %(default)s)")


def run(given: argparse.Namespace) -> int:
    name, folder = given.name, given.folder
    if not re.fullmatch(r"[a-z_][a-z0-9_]*", name):
        raise UserError(f"'{name}' is not a case name: lower-case letters, digits and _")
    case, module = folder / f"{name}.yaml", folder / f"{name}_module.py"
    for file in (case, module):
        if file.exists():
            raise UserError(f"{display_path(file)} is there already; choose another name")
    folder.mkdir(parents=True, exist_ok=True)
    command = command_line(["pytest", "--pyargs", "conformance", "--cases", folder.as_posix(), "-k", name])
    text = (_STARTER / "case.yaml").read_text(encoding="utf-8")
    case.write_text(text.format(name=name, command=command), encoding="utf-8")
    module.write_text((_STARTER / "module.py").read_text(encoding="utf-8"), encoding="utf-8")
    tell(f"wrote {display_path(case)} and {display_path(module)}; run it with")
    tell(f"  {command}")
    return 0
