"""Mistakes of the user's, as pytest ends with them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from conformance.process.errors import UserError
from conformance.results.records.sanitize import block


@contextlib.contextmanager
def refusing(before: str = "") -> Iterator[None]:
    """Raise UsageError for a UserError inside the block, and for a file that cannot be read; ``before`` names the
    option that it is about."""
    try:
        yield
    except (UserError, OSError) as error:
        raise pytest.UsageError(block(f"{before}{error}")) from None
