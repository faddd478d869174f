"""The pieces of protobuf's wire format that its writers share: numbers, tags, lengths."""

from __future__ import annotations

VARINT, FIXED64, DELIMITED, FIXED32 = 0, 1, 2, 5  # wire types


def varint(number: int) -> bytes:
    """Return the wire form of a number that is not negative."""
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def tag(field: int, wire_type: int) -> bytes:
    return varint(field << 3 | wire_type)


# Nearly every length is below this; a lookup costs a tenth of encoding it.
_LENGTHS = tuple(varint(number) for number in range(1 << 14))


def length(number: int) -> bytes:
    """Return the varint before a delimited field of this many bytes."""
    return _LENGTHS[number] if number < len(_LENGTHS) else varint(number)


def delimited(field_tag: bytes, data: bytes | bytearray) -> bytes:
    """Return a string, bytes or message field."""
    return b"".join((field_tag, length(len(data)), data))
