"""Lines of a file, numbered from 1, one at a time and each of bounded size."""

from __future__ import annotations

from collections.abc import Iterator

from lakerunner.model.errors import Corrupt

# As for a field of OTLP: no record is larger.
MAX_LINE = 64 << 20

_BOM = b"\xef\xbb\xbf"
_BLOCK = 1 << 20


def without_bom(data: memoryview) -> memoryview:
    return data[3:] if data[:3] == _BOM else data


def lines(data: memoryview) -> Iterator[tuple[int, bytes]]:
    """(number, line without its end); only blocks of the data are copied. Corrupt at a line that is too long."""
    number, rest = 1, b""
    for start in range(0, len(data), _BLOCK):
        first, *others = bytes(data[start : start + _BLOCK]).split(b"\n")
        if not others:
            rest += first
            if len(rest) > MAX_LINE:
                raise Corrupt(f"line {number} is longer than {MAX_LINE >> 20} MB")
            continue
        yield number, rest + first
        *whole, rest = others
        for line in whole:
            number += 1
            yield number, line
        number += 1
    if rest:
        yield number, rest
