"""Read what a cell's id says of it."""

from __future__ import annotations

import re
from typing import get_args

from conformance.process.errors import UserError
from conformance.results.records.words import Exporter

_ID = re.compile(
    rf"(?P<check>\w+)\[(?P<case>.+)-(?P<exporter>{'|'.join(get_args(Exporter))})-op(?P<opset>\d{{1,9}})"
    r"(?:-(?P<runtime>[a-z]+(?:-[a-z]+)*?))??(?:-(?P<precision>(?:fp32|fp16|int8)(?:-.+)?))?\]"
)


def fields_of(name: str) -> dict[str, object]:
    """check, case, exporter, opset, runtime and precision, as in the record of the cell ``name``.

    Empty where ``name`` is not the id of a cell.
    """
    match = _ID.fullmatch(name)
    if match is None:
        return {}
    return {**match.groupdict(), "opset": int(match["opset"]), "precision": match["precision"] or "fp32"}


def case_of(name: str) -> str:
    """The case in a cell's id: ``asinh`` of ``accuracy[asinh-torchscript-op17-onnxruntime-fp32]``."""
    fields = fields_of(name)
    if not fields:
        raise UserError(f"'{name}' is not the id of a cell, such as export[asinh-torchscript-op17]")
    return str(fields["case"])
