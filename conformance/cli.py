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
    _sensitivity_arguments(
        commands.add_parser("sensitivity", help="rank nodes by what keeping them in fp32 wins back")
    )
    given = parser.parse_args(arguments)
    try:
        if given.command == "new":
            _new(given.name, given.folder)
        elif given.command == "sensitivity":
            _sensitivity(given)
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


def _sensitivity_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("case", help="name of the case, with the values of vary where it has them")
    parser.add_argument("--precision", default="int8", help="fp16, int8 or a variant (default: %(default)s)")
    parser.add_argument("--exporter", choices=("torchscript", "dynamo"), help="default: the first that the case has")
    parser.add_argument("--opset", type=int, help="default: the first that is converted")
    parser.add_argument("--cases", action="append", type=Path, metavar="PATH", help="default: cases/; repeatable")
    parser.add_argument("--samples", type=int, default=8, help="inputs to measure with (default: %(default)s)")
    parser.add_argument("--top", type=int, default=15, help="nodes to show (default: %(default)s)")
    parser.add_argument("--picture", type=Path, metavar="FILE", help="also write it as an SVG file")
    parser.add_argument(
        "--store", type=Path, default=Path(".conformance"), help="exported models (default: %(default)s)"
    )


def _sensitivity(given: argparse.Namespace) -> None:
    from conformance.precision.command import sensitivity

    sensitivity(
        given.case, given.precision, given.cases or [Path("cases")], given.store / "models", exporter=given.exporter,
        opset=given.opset, samples=given.samples, top=given.top, picture=given.picture,
    )  # fmt: skip


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
