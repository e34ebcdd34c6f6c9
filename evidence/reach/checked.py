"""Runs cases through ``conformance.check`` as a test of one's own would, one call for each, and writes what it said.

``python -P evidence/reach/checked.py CASES TOLD``: the names, files and keys of cases as JSON, and the file for the
verdicts by cell.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import conformance
from conformance.case.files.case_file import cases_of
from conformance.case.files.document import Document
from conformance.case.files.made import value_of
from conformance.case.files.python import Folder


def told(name: str, file: Path, said: dict[str, Any]) -> dict[str, str]:
    """The verdicts by cell. The call stands, as Python sees it, in the case file, since what a case names lies beside
    its caller. Of a case that fails only the failing cells are known."""
    module, said = _module(name, file, said)
    call = compile("check(module, name=name, **said)", str(file), "eval")
    try:
        records = eval(call, {"check": conformance.check, "module": module, "name": name, "said": said})
    except AssertionError as error:
        lines = str(error).replace("so do ", "").replace(", ", "\n").splitlines()
        return {line: "failed" for line in lines if line.endswith("]") and "[" in line}
    return {record.id: record.status for record in records}


def _module(name: str, file: Path, said: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """What ``check`` takes as its module, and the other keys: of an expression the module that it stands for."""
    if "module" in said:
        return said["module"], {key: value for key, value in said.items() if key != "module"}
    from conformance.models.reference.expression import expression_module

    (case,), _ = cases_of(name, said, Document(file, {}, {(name,): (1, 1)}))
    with Folder.of(file.parent).active() as folder:
        arguments = {word: value_of(value, folder) for word, value in case.arguments.items()}
        return expression_module(case, folder, arguments), {key: said[key] for key in said if key != "forward"}


if __name__ == "__main__":
    given = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    found: dict[str, str] = {}
    for name, file, said in given:
        found |= told(name, Path(file), said)
    Path(sys.argv[2]).write_text(json.dumps(found), encoding="utf-8")
