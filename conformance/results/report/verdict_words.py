"""A verdict in words. Failures read as in the terminal: that text is made in ``conformance.results.records.text``."""

from __future__ import annotations

from conformance.results.records import text
from conformance.results.records.record import Record
from conformance.results.report.record_rows import place, ratio

_ODD = (AttributeError, KeyError, TypeError, ValueError)
"""What text is stopped by where a field has another form."""


def verdict(row: Record) -> str:
    """A row's verdict in some lines, of which the first says it in short."""
    status = row.status
    if status in ("failed", "xpassed"):
        return _failure(row)
    if status == "skipped":
        return f"not run: {row.reason}"
    if status == "xfailed":
        fault = f"; at fault: {who}" if (who := text.at_fault(row)) else ""
        return "\n".join(
            [f"failed as declared: {row.reason}", f"stage {row.stage}{fault}", *_indent(row), place(row)]
        )
    return "\n".join([_passed(row), *_indent(row)])


def _failure(row: Record) -> str:
    try:
        return text.failure(row)
    except (KeyError, TypeError, ValueError):  # another version wrote its worst example or draw otherwise
        return "\n".join([str(row.reason), f"stage {row.stage}", *_indent(row), place(row)])


def details(row: Record) -> list[str]:
    """Explain the status line by line.

    Nothing where another version wrote it in another form.
    """
    try:
        return text.details(row)
    except _ODD:
        return []


def _indent(row: Record) -> list[str]:
    return [f"  {line}" for line in details(row)]


def _passed(row: Record) -> str:
    parts = [f"{row.examples} examples verified"] if row.examples and row.check != "export" else []
    if row.left_out:
        parts.append(f"{row.left_out['examples']} left out, as {row.left_out['seconds']:g} s were over")
    if row.ill_conditioned:
        parts.append(f"{row.ill_conditioned} too ill-conditioned to judge")
    if row.excused:
        itself = "float32 itself" if row.precision == "fp32" else "the conversion"
        parts.append(f"{row.excused} values excused, as {itself} is off there")
    if row.nothing:
        parts.append(f"{row.nothing} verified nothing, NaN on both sides")
    worst = ratio(row)
    if worst is not None:
        parts.append(f"the largest error is {float(worst):.2g} of what is allowed")
    return f"passed: {'; '.join(parts)}" if parts else "passed"
