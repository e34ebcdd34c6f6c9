"""Read what records of earlier versions say in words, and those of this version in fields of their own.

This module alone takes a sentence apart that this package has written.
"""

from __future__ import annotations

from conformance.results.records.record import Record


def details(record: Record) -> list[str]:
    """Return the lines that explain the status of a record, as the first versions kept them."""
    return list((record.unknown or {}).get("details") or ())
