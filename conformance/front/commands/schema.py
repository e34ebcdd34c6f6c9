"""``conformance schema``: the JSON Schema of case files."""

from __future__ import annotations

import argparse
import json


def arguments(parser: argparse.ArgumentParser) -> None:
    pass


def run(given: argparse.Namespace) -> int:
    print(json.dumps(schema(), indent=2))
    return 0


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
