"""Keep the parsed documents of case files from one process to the next.

Parsing YAML takes longer than all else that reads them.
"""

from __future__ import annotations

import contextlib
import hashlib
import marshal
import os
import sys
from pathlib import Path
from typing import Any, NamedTuple

from conformance import __version__
from conformance.process.disk.whole_files import replacing

_DIGEST = hashlib.sha256().digest_size
_LEAST = 2048
"""Bytes of a text below which parsing it takes no longer than finding what is kept."""
_folder: Path | None = None


class KeptDocument(NamedTuple):
    """The values of a document, and where each stands."""

    values: dict[Any, Any]
    places: dict[tuple[str | int, ...], tuple[int, int]]


def keep_in(folder: Path | None) -> None:
    """From now on documents are kept in this folder, once there is a store that it lies in; None keeps none."""
    global _folder
    _folder = folder


def recall(file: Path, text: str) -> KeptDocument | None:
    """Return what is kept of the file with this text, if it can be read."""
    if _folder is None or len(text) < _LEAST:
        return None
    with contextlib.suppress(OSError, EOFError, ValueError, TypeError):
        data = _place(_folder, file).read_bytes()
        of, digest, payload = data[:_DIGEST], data[_DIGEST : 2 * _DIGEST], data[2 * _DIGEST :]
        if of == _sign(text) and digest == hashlib.sha256(payload).digest():
            return KeptDocument(*marshal.loads(payload))
    return None


def keep(file: Path, text: str, kept: KeptDocument) -> None:
    """Keep the document of a file; where the disk does not take it, nothing is kept."""
    if _folder is None or len(text) < _LEAST or not _folder.parent.is_dir():
        return
    payload = marshal.dumps(tuple(kept))
    with contextlib.suppress(OSError):
        _folder.mkdir(exist_ok=True)
        with replacing(_place(_folder, file)) as stream:
            stream.write(_sign(text) + hashlib.sha256(payload).digest() + payload)


def _place(folder: Path, file: Path) -> Path:
    """One for each file, so that an edit replaces what was kept."""
    return folder / hashlib.sha256(os.fsencode(file.absolute())).hexdigest()[:24]


def _sign(text: str) -> bytes:
    """Of the text, and of all that decides what is made of it and how it is kept."""
    maker = f"{__version__} {sys.implementation.cache_tag} {marshal.version} {_source()}\n"
    return hashlib.sha256(maker.encode() + text.encode()).digest()


def _source() -> str:
    """Return the source that reads documents: an edit of it is no other version."""
    return hashlib.sha256(Path(__file__).with_name("document.py").read_bytes()).hexdigest()
