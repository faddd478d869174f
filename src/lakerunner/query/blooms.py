"""Parquet's bloom filters: whether a chunk of bytes may hold a value. The format's split block filter with xxHash.

Comes in: the hash of a value, and a way to read the file at a filter's place. Goes out: False if no value of the chunk
has that hash. Only the header and one block of 32 bytes are read, however large the filter is.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable

from xxhash import xxh64_intdigest

from lakerunner.query.spans import Span

Read = Callable[[int, int], bytes]  # so many bytes, from there

_BLOCK = 32
_WORDS = struct.Struct("<8I")
_SALTS = (0x47B6137B, 0x44974D91, 0x8824AD5B, 0xA2B7289D, 0x705495C7, 0x2DF1424B, 0x9EFC4947, 0x5C6BFB31)
# The header in Thrift's compact protocol: 1: numBytes, then 2: BLOCK, 3: XXHASH, 4: UNCOMPRESSED, and its end.
_NUM_BYTES = b"\x15"
_KINDS = bytes.fromhex("1c1c00001c1c00001c1c000000")
_HEADER_MOST = len(_NUM_BYTES) + 5 + len(_KINDS)
# One that rules nothing out: 32 bytes, all bits set.
NEUTRAL = _NUM_BYTES + b"\x40" + _KINDS + b"\xff" * _BLOCK


def may_hold(read: Read, place: Span, hashes: Iterable[int]) -> bool:
    """Whether a value with one of these hashes may be in the chunk whose filter stands there. Of a filter of another
    kind nothing is known."""
    header = read(place[0], min(_HEADER_MOST, place[1] - place[0]))
    start, bytes_ = _size(header)
    if start + bytes_ != place[1] - place[0]:
        return True
    blocks = bytes_ // _BLOCK
    for value in hashes:
        block = _WORDS.unpack(read(place[0] + start + ((value >> 32) * blocks >> 32) * _BLOCK, _BLOCK))
        low = value & 0xFFFFFFFF
        if all(word >> ((low * salt & 0xFFFFFFFF) >> 27) & 1 for word, salt in zip(block, _SALTS, strict=True)):
            return True
    return False


def hash_of(value: bytes) -> int:
    """Return the XXH64, with seed 0, by which Parquet's filters know a value."""
    return xxh64_intdigest(value)


def _size(header: bytes) -> Span:
    """Where the bits start behind the header, and how many bytes they are; (0, 0) if it is no header that we know."""
    if header[:1] != _NUM_BYTES:
        return 0, 0
    number, at = 0, 1
    while at < min(6, len(header)):
        number |= (header[at] & 0x7F) << 7 * (at - 1)
        at += 1
        if not header[at - 1] & 0x80:
            break
    bytes_ = number >> 1  # zigzag, and never negative
    if header[at : at + len(_KINDS)] != _KINDS or bytes_ % _BLOCK or not bytes_:
        return 0, 0
    return at + len(_KINDS), bytes_
