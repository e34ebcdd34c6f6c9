"""A note of what a worker is about to do, which outlives the worker.

A process that dies of a signal says nothing, so it writes down each step before taking it, in memory that it shares
with its parent. Writing costs about as much as encoding the note; nothing is flushed, since shared memory survives
the process, only not the machine.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import mmap
import os
import struct
import weakref
import zlib
from multiprocessing import reduction
from os import _exit, getpid
from typing import Any

_HEAD = struct.Struct("=II")  # length and CRC-32 of the text that follows
_SLOTS = (8, 4096)  # where two notes stand in the memory, whose byte 0 says which of them is the latest
_ROOM = _SLOTS[1] - _SLOTS[0] - _HEAD.size
_Memory = ctypes.Array[ctypes.c_char] | mmap.mmap
_TRIES = 100  # to read a note while the writer takes no new one; it writes some 100,000 in a second at most
# default=str: a note must never be what fails, so a NumPy integer or a path reads as its text
encode = json.JSONEncoder(separators=(",", ":"), check_circular=False, default=str).encode


class Progress:
    """The latest note. Notes go to two slots in turn, so that a half-written note never hides the note before it."""

    SIZE = 2 * _SLOTS[1]

    def __init__(self, memory: _Memory | None = None, owner: int | None = None) -> None:
        """``memory``: zeroed, of ``SIZE`` bytes; none where there is no other process. Other processes than the
        ``owner`` end when they make a note."""
        self.view = memoryview(bytearray(self.SIZE) if memory is None else memory).cast("B")
        """The bytes of both slots, behind the number of the latest."""
        self._owner = owner

    def note(self, **what: object) -> None:
        """Replace the note. Values that JSON lacks become text; notes beyond 4 KiB are cut."""
        text = encode(what)
        if len(text) > _ROOM:  # ASCII grows to at most twice its length in JSON
            text = encode({name: ascii(value)[:200] for name, value in list(what.items())[:8]})
        self.write(text)

    def write(self, text: str) -> None:
        """Replace the note by one that ``encode`` made, or what was put together of such."""
        if self._owner is not None and getpid() != self._owner:
            # This process was forked by the code of a case and came back from it: its steps are no steps of the cell.
            _exit(0)
        if len(text) > _ROOM:
            self.note(**json.loads(text))
            return
        data = text.encode()
        slot = 1 - self.view[0]
        start = _SLOTS[slot]
        whole = _HEAD.pack(len(data), zlib.crc32(data)) + data
        self.view[start : start + len(whole)] = whole
        self.view[0] = slot

    def read(self) -> dict[str, Any]:
        """The latest whole note; empty where there is none, or none that can be read. Never one that is older than
        what an earlier call returned."""
        note: dict[str, Any] = {}
        for _ in range(_TRIES):
            latest = self.view[0]
            note, slot = self._whole(latest)
            if self.view[0] == latest and slot in (latest, None):
                break
            # The writer went on in between: what was read may not be the latest yet, and a later read could be older.
            # So it is where the latest note was torn, though byte 0 is as before: two notes may have been written.
        return note

    def _whole(self, latest: int) -> tuple[dict[str, Any], int | None]:
        """The note of a slot, or of the other slot where that is torn, and which; None where both are."""
        # a checksum, since a slot may be rewritten while it is read, or spoilt by a stray pointer
        for slot in (latest, 1 - latest) if latest in (0, 1) else (0, 1):
            start = _SLOTS[slot] + _HEAD.size
            length, checksum = _HEAD.unpack(self.view[_SLOTS[slot] : start])
            text = bytes(self.view[start : start + min(length, _ROOM)])
            if length and zlib.crc32(text) == checksum:
                return json.loads(text), slot
        return {}, None


class SharedProgress(Progress):
    """A note that a new process shares if it is given this. No other object of the process gives access to it.

    It is sealed, since reading it would crash the parent if a worker could make it shorter.
    """

    def __init__(self) -> None:
        self._fd = os.memfd_create("progress", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        weakref.finalize(self, os.close, self._fd)
        os.truncate(self._fd, self.SIZE)
        fcntl.fcntl(self._fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
        super().__init__(mmap.mmap(self._fd, self.SIZE))

    def __reduce__(self) -> tuple[object, ...]:
        return _inherited, (reduction.DupFd(self._fd),)  # works while a process starts


def _inherited(fd: Any) -> Progress:
    """The note of the parent, in a worker. ``mmap`` would keep a descriptor, to which a case's code may write."""
    file = fd.detach()
    call = ctypes.CDLL(None, use_errno=True).mmap
    call.restype, call.argtypes = (
        ctypes.c_void_p,
        [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long],
    )
    address = call(None, Progress.SIZE, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED, file, 0)
    if address == ctypes.c_void_p(-1).value:
        raise OSError(ctypes.get_errno(), "the note of the parent cannot be mapped")
    os.close(file)
    return Progress((ctypes.c_char * Progress.SIZE).from_address(address), owner=getpid())
