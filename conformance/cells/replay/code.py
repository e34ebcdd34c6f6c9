"""The code in a bundle: custom-operator libraries and TensorRT plugins. It runs only where that was asked for."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence

from conformance.models.bundle.bundle_files import Files
from conformance.models.bundle.entry import Entry
from conformance.process.errors import UserError, why


def refusal(files: Files, entry: Entry) -> str:
    """Say why an entry with libraries is not run, by their names."""
    names = ", ".join(str(files.place(entry) / name) for name in entry.code)
    return f"this would load and run code of the bundle: {names}; allow it with --allow-libraries if you trust it"


def announced(files: Files, entries: Sequence[Entry]) -> Iterator[str]:
    """A line for each library of the entries, with its hash, before any is loaded. UserError where one cannot be
    read."""
    for path in dict.fromkeys(path for entry in entries for path in files.code(entry)):
        try:
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
        except OSError as error:
            raise UserError(f"{path}: cannot be read ({why(error)})") from None
        yield f"will load and run {path} (sha256 {digest})"
