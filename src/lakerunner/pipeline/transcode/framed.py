"""Framed objects: messages one behind the other, each preceded by its length as a protobuf varint."""

from __future__ import annotations

from collections.abc import Iterator

from lakerunner.model.errors import Corrupt

_MAX_LENGTH_BYTES = 5


def frames(data: memoryview) -> Iterator[tuple[int, memoryview]]:
    """(where its length stands, message) of each. Corrupt at the first that does not fit what is left."""
    at = 0
    while at < len(data):
        start = at
        size, at = _length(data, at)
        if size > len(data) - at:
            raise Corrupt(f"byte {start}: a message of {size} bytes, but only {len(data) - at} are left")
        yield start, data[at : at + size]
        at += size


def _length(data: memoryview, at: int) -> tuple[int, int]:
    """(the varint that stands here, what is behind it)."""
    number = 0
    for place, byte in enumerate(data[at : at + _MAX_LENGTH_BYTES]):
        number |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            return number, at + place + 1
    raise Corrupt(f"byte {at}: expected the length of a message")
