"""``conformance schema``: the JSON Schema of case files, or the mistakes in some."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from conformance.results.records.sanitize import block


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "paths", nargs="*", type=Path, metavar="PATH",
        help="case files or folders, whose mistakes are printed; nothing is run (default: print the schema)",
    )  # fmt: skip


def run(given: argparse.Namespace) -> int:
    """Return 0, or 1 where a case file has a mistake."""
    if not given.paths:
        print(json.dumps(schema(), indent=2))
        return 0
    from conformance.case.plan.catalogue import Selection, read_suite

    errors = [error for error in read_suite(given.paths, Selection())[1].values() if error is not None]
    for problem in (problem for error in errors for problem in error.problems):
        print(block(str(problem)))
    return 1 if errors else 0


def schema() -> dict[str, object]:
    """The JSON Schema of a case file; ``conformance/case.schema.json`` is a copy of it."""
    from conformance.case.files.declaration import Declaration

    case = Declaration.model_json_schema(by_alias=True, ref_template="#/$defs/{model}")
    definitions = case.pop("$defs")
    case.pop("required")  # the file's defaults may give what a case requires
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Case file",
        "type": "object",
        "properties": {"defaults": {**case, "title": "Defaults"}},
        "additionalProperties": case,
        "$defs": definitions,
    }
