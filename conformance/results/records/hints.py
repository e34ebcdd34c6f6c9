"""Say what to do about a failure, by the names that records have for that."""

from __future__ import annotations

from collections.abc import Iterator

from conformance.results.records.record import Record
from conformance.results.records.subject import is_file_alone

_HINTS = {
    "branch": "a branch on values has to be written with torch.cond, or for TorchScript be scripted (script: true)",
    "conditioning": "declare values that are better conditioned, or a tolerance and because",
    "exclude": "keep these nodes in fp32 with exclude:, or say why this case has no fp16 with left_out:",
    "hollow": "give the case inputs or weights with which they show (weights: awake), or say hollow: and why",
    "hollow inputs": "give the case inputs with which they show, or say hollow: and why",
    "memory": "smaller sizes take less: narrow the ranges under dims:, or limit the sum of two with where:",
    "report": "this is a mistake in the harness; please report it with these lines:",
    "rounding": "its own float32 is too far from float64 to compare with; declare values or a tolerance",
    "slow": "too slow? say examples: or smaller dims, or leave the runtime out with runtimes:",
    "symbolic": "the exporter has no nodes for that operator; a function that makes them goes under symbolics:",
    "translation": "the exporter has no nodes for that operator; a function that makes them goes under translations:",
    "specials": "where NaN and infinities spread to all outputs, say specials: false",
    "vacuous": "give the case inputs or weights that show in this output, or say vacuous: and why",
}
_HINTS_OF_FILE = {
    "conditioning": "give better conditioned values (--input), or a case with a tolerance (docs/onnx-files.md)",
    "exclude": "a case keeps nodes in fp32 (exclude:, docs/onnx-files.md); --precision fp32 leaves the others out",
    "memory": "smaller sizes take less: --dim NAME=1..2",
    "rounding": "its own float32 is too far from float64 to compare with; give other values (--input)",
    "slow": "too slow? draw fewer examples (--examples), or smaller sizes (--dim)",
    "specials": "where NaN and infinities spread to all outputs, leave out --specials",
    "vacuous": "give inputs that show in this output (--input)",
}
"""In place of these where nobody has written a case: what to type."""


def hints(record: Record) -> Iterator[str]:
    """Yield what to do about the failure of a record; a hint of another version says itself."""
    known = _HINTS | (_HINTS_OF_FILE if is_file_alone(record) else {})
    yield from (known.get(hint, hint) for hint in record.hints)
