"""Messages between a worker and its parent: each says whose it is, for which call, and whether it came whole."""

from __future__ import annotations

import struct
import zlib
from _socket import socket
from collections.abc import Callable

KEY = 16
"""Bytes of the key that a worker and its parent share, and no other worker."""
_HEAD = struct.Struct(f"={KEY}sQQI")  # key, number of the call, length of what follows and its CRC-32
_LONGEST = 2**30  # bytes of a message


class Mismatch(Exception):
    """Raised for another message than the expected one; says how it differs."""


def send(connection: socket, key: bytes, number: int, data: bytes) -> None:
    """Send ``data`` for the call of that number over a connected socket."""
    connection.sendall(_HEAD.pack(key, number, len(data), zlib.crc32(data)))
    connection.sendall(data)


def receive(connection: socket, key: bytes, number: int, left: Callable[[], float] | None = None) -> bytearray:
    """The data of the message for the call of that number.

    ``left`` says how many seconds are left; without it there is no limit. Raises EOFError where the other end closed
    the connection, TimeoutError where no time is left, Mismatch for any other bytes.
    """
    theirs, call, length, checksum = _HEAD.unpack(_read(connection, _HEAD.size, left))
    if theirs != key:
        raise Mismatch("bytes that are no answer")
    if call != number:
        raise Mismatch(f"an answer to call {call} in place of call {number}")
    if length > _LONGEST:
        raise Mismatch(f"an answer of {length} bytes")
    data = _read(connection, length, left)
    if zlib.crc32(data) != checksum:
        raise Mismatch("an answer that was damaged on its way")
    return data


def _read(connection: socket, size: int, left: Callable[[], float] | None) -> bytearray:
    data = bytearray(size)
    view = memoryview(data)
    while view:
        if left is not None:
            seconds = left()
            if seconds <= 0:
                raise TimeoutError
            connection.settimeout(seconds)
        count = connection.recv_into(view)
        if not count:
            raise EOFError
        view = view[count:]
    return data
