"""Write what ``conformance check`` found as JSON, and as JUnit's XML, which services for CI read."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from conformance import __version__
from conformance.process.errors import UserError, why
from conformance.results.records import text

if TYPE_CHECKING:
    from conformance.cells.check_models import CheckedModel
    from conformance.results.records.record import Record


def as_json(checked: Sequence[CheckedModel], others: int, code: int) -> str:
    """Return all that is known as JSON: each model with its records, how many ``others`` are no models, the code."""
    models = [
        {
            "file": str(one.file), "verdict": _verdict(one), "verified": one.verified(), "refused": one.refused,
            "sizes": one.dims, "narrow": [dim.as_dict() for dim in one.narrow], "seconds": round(one.seconds, 3),
            "uncounted": sorted(one.uncounted),
            "records": [each.as_dict() for each in one.records],
        }
        for one in checked
    ]  # fmt: skip
    told = {"conformance": __version__, "exit_code": code, "no_models": others, "models": models}
    return json.dumps(told, indent=1, default=str) + "\n"


def _verdict(one: CheckedModel) -> str:
    if one.refused:
        return "refused"
    if one.is_wrong():
        return "wrong"
    return "right" if one.verified() else "not verified"


def as_junit(checked: Sequence[CheckedModel], others: int, code: int) -> str:
    """Return a suite for each model with a test for each of its cells; a model that is refused is an error."""
    root = ElementTree.Element("testsuites", name="conformance check")
    for one in checked:
        records = one.records
        skipped = sum(record.status == "skipped" or record.id in one.uncounted for record in records)
        wrong = sum(dim.proven for dim in one.narrow)
        suite = ElementTree.SubElement(
            root, "testsuite", name=_plain(str(one.file)),
            tests=str(len(records) + bool(one.refused) + len(one.narrow)),
            failures=str(len(one.failed()) + wrong), skipped=str(skipped + len(one.narrow) - wrong),
            errors=str(int(bool(one.refused))),
            time=f"{one.seconds:.3f}",
        )  # fmt: skip
        suite.extend(_tests(one, records))
    ElementTree.indent(root)
    return f'<?xml version="1.0" encoding="utf-8"?>\n{ElementTree.tostring(root, encoding="unicode")}\n'


def _tests(one: CheckedModel, records: Sequence[Record]) -> Iterator[ElementTree.Element]:
    if one.refused:
        test = ElementTree.Element("testcase", classname=_plain(str(one.file)), name="read", time="0")
        ElementTree.SubElement(test, "error", message=_plain(one.refused))
        yield test
    for dim in one.narrow:
        test = ElementTree.Element("testcase", classname=_plain(str(one.file)), name=f"dim {dim.name}", time="0")
        ElementTree.SubElement(test, "failure" if dim.proven else "skipped", message=_plain(str(dim)))
        yield test
    for record in records:
        seconds = f"{sum(record.seconds.values()):.3f}"
        test = ElementTree.Element("testcase", classname=_plain(str(one.file)), name=record.id, time=seconds)
        if record.id in one.uncounted:
            ElementTree.SubElement(test, "skipped", message=_plain(f"not counted: {record.reason}"))
        elif record.status == "failed":
            failure = ElementTree.SubElement(test, "failure", message=_plain(f"{record.error}: {record.reason}"))
            failure.text = _plain(text.failure(record))
        elif record.status == "skipped":
            ElementTree.SubElement(test, "skipped", message=_plain(str(record.reason)))
        yield test


def _plain(said: str) -> str:
    """Return the text without what XML has no form of: control characters, and halves of surrogate pairs."""
    return re.sub("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "?", said)


def write(file: Path | None, report: str) -> None:
    """Write a report into a file, or print it. Raises UserError for a file that cannot be written."""
    if file is None:
        encoding = sys.stdout.encoding or "utf-8"
        sys.stdout.write(report.encode(encoding, "backslashreplace").decode(encoding))
        return
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(report, encoding="utf-8")
    except OSError as error:
        raise UserError(f"--output {file}: cannot be written ({why(error)})") from error
