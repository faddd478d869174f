"""Lines of a file, numbered from 1, one at a time and each of bounded size; UTF-16 files as UTF-8."""

from __future__ import annotations

import codecs
from collections.abc import Iterator

from lakerunner.pipeline.transcode.results import FindingsBuilder

# The largest record, as for a field of OTLP.
MAX_LINE = 64 << 20

_BOM = b"\xef\xbb\xbf"
_BLOCK = 1 << 20
_HEAD = 1 << 10
_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


class Overlong(bytes):
    """The beginning of a line that is longer than MAX_LINE. Such a line is rejected."""

    @property
    def reason(self) -> str:
        return f"longer than {MAX_LINE >> 20} MB"


def without_bom(data: memoryview) -> memoryview:
    return data[3:] if data[:3] == _BOM else data


def lines(data: memoryview) -> Iterator[tuple[int, int, bytes]]:
    """Yield (number, offset in the data, line without its end); a BOM is skipped. Only blocks of the data are
    copied."""
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


def as_utf8(data: memoryview, findings: FindingsBuilder) -> memoryview:
    """Return the content as UTF-8 if it begins with a byte order mark of UTF-16, as files of Windows and spreadsheets
    often do; else unchanged."""
    if bytes(data[:2]) not in _UTF16:
        return data
    decoder = codecs.getincrementaldecoder("utf-16")("replace")
    content = bytearray()
    for start in range(0, len(data), _BLOCK):
        content += decoder.decode(bytes(data[start : start + _BLOCK]), start + _BLOCK >= len(data)).encode()
    if b"\xef\xbf\xbd" in content:
        findings.note("not UTF-16", "bytes that are not UTF-16 were replaced by U+FFFD")
    return memoryview(content)
