"""Read and write messages of protobuf without its library and without classes for them, as far as their parts matter.

The encoding is that of https://protobuf.dev/programming-guides/encoding.
"""

from __future__ import annotations

from collections.abc import Iterator


class Damaged(ValueError):
    """Raised for bytes that protobuf does not know."""


def fields(data: memoryview | int | None) -> Iterator[tuple[int, memoryview | int]]:
    """The fields of a message: their numbers, and numbers or bytes. Raises IndexError where the message ends within
    one, Damaged for what protobuf does not know."""
    if isinstance(data, memoryview):
        for number, value, _, _ in placed_fields(data):
            yield number, value


def placed_fields(data: memoryview) -> Iterator[tuple[int, memoryview | int, int, int]]:
    """The fields of a message with the places where each begins, with its key, and ends. What a field holds as bytes
    ends with it. Raises as ``fields``."""
    place = 0
    while place < len(data):
        begin = place
        key, place = _varint(data, place)
        kind = key & 7
        if kind == 0:
            value, place = _varint(data, place)
            yield key >> 3, value, begin, place
            continue
        if kind == 2:
            size, place = _varint(data, place)
        elif kind in (1, 5):
            size = 8 if kind == 1 else 4
        else:
            raise Damaged("no message of protobuf")
        if place + size > len(data):
            raise IndexError
        yield key >> 3, data[place : place + size], begin, place + size
        place += size


def _varint(data: memoryview, place: int) -> tuple[int, int]:
    if (byte := data[place]) < 0x80:  # as most are
        return byte, place + 1
    value = shift = 0
    while True:
        byte = data[place]
        value |= (byte & 0x7F) << shift
        place, shift = place + 1, shift + 7
        if byte < 0x80:
            return value, place
        if shift > 63:
            raise Damaged("no message of protobuf")


def varints(data: memoryview | int) -> Iterator[int]:
    """The numbers of a field that holds several, packed, or one of several that are not. Raises as ``fields``."""
    if isinstance(data, int):
        yield data
        return
    place = 0
    while place < len(data):
        value, place = _varint(data, place)
        yield value


def head(number: int, size: int) -> bytes:
    """Return what stands before the bytes of a field: its key, and how many bytes these are."""
    return _encoded(number << 3 | 2) + _encoded(size)


def _encoded(value: int) -> bytes:
    made = bytearray()
    while value > 0x7F:
        made.append(value & 0x7F | 0x80)
        value >>= 7
    made.append(value)
    return bytes(made)


def number(value: memoryview | int | None) -> int:
    return value if isinstance(value, int) else 0


def signed(value: int) -> int:
    """Return a number of 64 bits as the signed number that it encodes."""
    return value - 2**64 if value >= 2**63 else value


def text(value: memoryview | int | None) -> str:
    """Return a text, which is empty where there is none. Raises UnicodeDecodeError."""
    return str(value, "utf-8") if isinstance(value, memoryview) else ""
