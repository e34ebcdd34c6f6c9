"""Read what both exporters made of PyTorch's own samples of each operator, as it was measured.

``operator_table.json`` is written by ``python -m evidence operators``, of ``docs/evidence/operators.json``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, TypeAlias, get_args

from conformance.process.disk.foreign_files import parse_json, read_text
from conformance.process.errors import UserError, display_path
from conformance.results.records.validation import Measure, Misfit, check_of
from conformance.results.records.words import Exporter

FILE = Path(__file__).with_name("operator_table.json")
FORMAT = 1
EXPORTERS: Mapping[Exporter, str] = {"torchscript": "TorchScript", "dynamo": "dynamo"}
"""What is measured, with the name by which a person knows it."""
OfSamples: TypeAlias = Literal["wrong", "does not run", "not exported", "right"]
"""What comes of a sample, the worst first. Wrong are values, shapes or dtypes, whoever is at fault."""
SEVERITY = get_args(OfSamples)
Counted: TypeAlias = Annotated[int, range(1, 2**31)]


@dataclass(frozen=True)
class MeasuredOutcome:
    """Hold what came of the samples of one operator with one exporter; the worst of them stands for all."""

    outcome: OfSamples
    count: Counted
    """Samples with this outcome."""
    of: Counted
    """Samples that had any."""
    operator: str | None = None
    """Of one that is not right, the entry of ``torch.op_db`` that it is a sample of, as
    ``nn.functional.pad.reflect``."""
    error: str | None = None
    fault: str | None = None
    """Exporter, runtime, PyTorch, open; None where nobody was asked."""
    place: str | None = None
    """The first wrong operator or node, or the pass of an optimizer."""
    ratio: Measure | None = None
    """The largest error over what is allowed; ``inf`` of NaN and infinities."""
    ulp: Measure | None = None
    """The largest error in units in the last place of float32."""


def _both(opsets: Mapping[str, int]) -> None:
    for exporter in EXPORTERS:
        if exporter not in opsets:
            raise Misfit(f"lacks '{exporter}'")


@dataclass(frozen=True)
class OperatorTable:
    """Hold outcomes by operator and exporter, and what they were measured with."""

    format: int
    when: str
    """The date, as 2026-11-29."""
    versions: dict[str, str]
    opsets: Annotated[dict[str, int], _both]
    calls: dict[str, dict[Exporter, MeasuredOutcome]]
    """By overload and its words: ``aten.pad.default(reflect)``."""

    def differences(self, installed: Mapping[str, str | None]) -> Iterator[str]:
        """Yield the packages that are installed in another version than that which was measured, with both."""
        for name in ("torch", "onnxscript", "onnxruntime"):
            version = self.versions.get(name)
            if version != installed.get(name):
                yield f"{name} {installed.get(name) or 'is not installed'} (measured: {version})"


def read_table(file: Path = FILE) -> OperatorTable:
    """Return the table of a file. Raises UserError for a file that is none, or of another format."""
    name = display_path(file)
    try:
        said = parse_json(read_text(file))
    except ValueError as error:  # which a UserError of the file itself is too
        raise error if isinstance(error, UserError) else UserError(f"{name}: is no JSON ({error})") from None
    if not isinstance(said, dict) or "format" not in said:
        raise UserError(f"{name}: is no table of measured operators")
    if said["format"] != FORMAT:
        how = "take the table of this release, or the release that the table is of"
        raise UserError(f"{name}: is a table of format {said['format']!r}, and {FORMAT} is read: {how}")
    try:
        check_of(OperatorTable)(said)
    except Misfit as misfit:
        raise UserError(f"{name}: {misfit}") from None
    calls = {
        call: {exporter: MeasuredOutcome(**one) for exporter, one in of.items()} for call, of in said["calls"].items()
    }
    return OperatorTable(**{**said, "calls": calls})
