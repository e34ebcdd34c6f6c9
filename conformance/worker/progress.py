"""A note of what a worker is about to do, which outlives the worker.

A process that dies of a signal says nothing, so it writes down each step before taking it, in memory that it shares
with its parent. Writing costs about as much as encoding the note; nothing is flushed, since shared memory survives
the process, only not the machine.
"""

from __future__ import annotations

import json
import struct
import zlib
from typing import Any

_HEAD = struct.Struct("=II")  # length and CRC-32 of the text that follows
_SLOTS = (8, 4096)  # where two notes stand in the memory, whose byte 0 says which of them is the latest
_ROOM = _SLOTS[1] - _SLOTS[0] - _HEAD.size
_TRIES = 100  # to read a note while the writer takes no new one; it writes some 100,000 in a second at most
# default=str: a note must never be what fails, so a NumPy integer or a path reads as its text
_encode = json.JSONEncoder(separators=(",", ":"), check_circular=False, default=str).encode


class Progress:
    """The latest note. Notes go to two slots in turn, so that a half-written note never hides the note before it."""

    SIZE = 2 * _SLOTS[1]

    def __init__(self, memory: Any = None) -> None:
        """``memory``: a zeroed ``RawArray`` of ``SIZE``; none where there is no other process."""
        self._memory = bytearray(self.SIZE) if memory is None else memory
        self._view = memoryview(self._memory).cast("B")

    def __reduce__(self) -> tuple[Any, ...]:
        return Progress, (self._memory,)  # works while a process starts, as RawArray allows

    def note(self, **what: Any) -> None:
        """Replace the note. Values that JSON lacks become text; notes beyond 4 KiB are cut."""
        text = _encode(what).encode()
        if len(text) > _ROOM:  # ASCII grows to at most twice its length in JSON
            cut = {name: ascii(value)[:200] for name, value in list(what.items())[:8]}
            text = _encode(cut).encode()
        slot = 1 - self._view[0]
        start = _SLOTS[slot]
        whole = _HEAD.pack(len(text), zlib.crc32(text)) + text
        self._view[start : start + len(whole)] = whole
        self._view[0] = slot

    def read(self) -> dict[str, Any]:
        """The latest whole note; empty where there is none, or none that can be read. Never one that is older than
        what an earlier call returned."""
        note: dict[str, Any] = {}
        for _ in range(_TRIES):
            latest = self._view[0]
            note = self._whole(latest)
            if self._view[0] == latest:
                break
            # The writer went on in between: what was read may not be the latest yet, and a later read could be older.
        return note

    def _whole(self, latest: int) -> dict[str, Any]:
        """The note of a slot, or of the other slot where that is torn."""
        # a checksum, since a slot may be rewritten while it is read, or spoilt by a stray pointer
        for slot in (latest, 1 - latest) if latest in (0, 1) else (0, 1):
            start = _SLOTS[slot] + _HEAD.size
            length, checksum = _HEAD.unpack(self._view[_SLOTS[slot] : start])
            text = bytes(self._view[start : start + min(length, _ROOM)])
            if length and zlib.crc32(text) == checksum:
                note: dict[str, Any] = json.loads(text)
                return note
        return {}
