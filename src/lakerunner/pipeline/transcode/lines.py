"""Lines of a file, numbered from 1, one at a time and each of bounded size."""

from __future__ import annotations

from collections.abc import Iterator

# As for a field of OTLP: no record is larger.
MAX_LINE = 64 << 20

_BOM = b"\xef\xbb\xbf"
_BLOCK = 1 << 20
_HEAD = 1 << 10


class Overlong(bytes):
    """The beginning of a line that is longer than MAX_LINE: such a line is rejected."""

    @property
    def reason(self) -> str:
        return f"longer than {MAX_LINE >> 20} MB"


def without_bom(data: memoryview) -> memoryview:
    return data[3:] if data[:3] == _BOM else data


def lines(data: memoryview) -> Iterator[tuple[int, int, bytes]]:
    """(number, offset in the data, line without its end); a BOM is left out. Only blocks of the data are copied."""
    number, offset, rest = 1, len(data) - len(without_bom(data)), b""
    size = 0  # of the line that has begun, all of which is in `rest` unless it is too long
    for start in range(offset, len(data), _BLOCK):
        first, *others = bytes(data[start : start + _BLOCK]).split(b"\n")
        size += len(first)
        rest = rest + first if size <= MAX_LINE else Overlong(rest[:_HEAD])
        if not others:
            continue
        yield number, offset, rest
        offset += size + 1
        *whole, rest = others
        for line in whole:
            number += 1
            yield number, offset, line
            offset += len(line) + 1
        number += 1
        size = len(rest)
    if rest:
        yield number, offset, rest
