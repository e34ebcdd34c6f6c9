"""The command ``conformance``: everything that is not a test run."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from conformance import __version__
from conformance.errors import display_path

_STARTER = Path(__file__).parent / "starter"


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit code: 0, or 2 for what the user has to correct."""
    parser = argparse.ArgumentParser(prog="conformance", description="Work on case files; pytest runs them.")
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    new = commands.add_parser("new", help="write a starter case file that passes as it is")
    new.add_argument("name", help="name of the case: letters, digits and _")
    new.add_argument("--folder", type=Path, default=Path("cases"), help="where to (default: %(default)s)")
    commands.add_parser("schema", help="print the JSON Schema of case files, for editors")
    given = parser.parse_args(arguments)
    try:
        if given.command == "new":
            _new(given.name, given.folder)
        else:
            print(json.dumps(schema(), indent=2))
    except (ValueError, OSError) as error:
        print(f"conformance {given.command}: {error}", file=sys.stderr)
        return 2
    return 0


def _new(name: str, folder: Path) -> None:
    if not re.fullmatch(r"[a-z_][a-z0-9_]*", name):
        raise ValueError(f"'{name}' is not a case name: lower-case letters, digits and _")
    case, module = folder / f"{name}.yaml", folder / f"{name}_module.py"
    for file in (case, module):
        if file.exists():
            raise ValueError(f"{display_path(file)} is there already; choose another name")
    folder.mkdir(parents=True, exist_ok=True)
    command = f"pytest --pyargs conformance --cases {folder.as_posix()} -k {name}"
    text = (_STARTER / "case.yaml").read_text(encoding="utf-8")
    case.write_text(text.format(name=name, command=command), encoding="utf-8")
    module.write_text((_STARTER / "module.py").read_text(encoding="utf-8"), encoding="utf-8")
    print(f"wrote {display_path(case)} and {display_path(module)}; run it with\n  {command}")


def schema() -> dict[str, object]:
    """The JSON Schema of a case file; ``conformance/case.schema.json`` is a copy of it."""
    from conformance.case import Declaration

    case = Declaration.model_json_schema(by_alias=True, ref_template="#/$defs/{model}")
    definitions = case.pop("$defs")
    case.pop("required")  # the defaults of the file may say it
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Case file",
        "type": "object",
        "properties": {"defaults": {**case, "title": "Defaults"}},
        "additionalProperties": case,
        "$defs": definitions,
    }


if __name__ == "__main__":
    sys.exit(main())
