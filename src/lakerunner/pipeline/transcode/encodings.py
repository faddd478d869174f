"""Text in the encoding that its first bytes state, as UTF-8: what Windows and spreadsheets write is often UTF-16."""

from __future__ import annotations

import codecs

from lakerunner.pipeline.transcode.reading import Reading

_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_BLOCK = 1 << 20


def as_utf8(data: memoryview, reading: Reading) -> memoryview:
    """Return the content as UTF-8 where it begins with a byte order mark of UTF-16, else as it is."""
    if bytes(data[:2]) not in _UTF16:
        return data
    decoder = codecs.getincrementaldecoder("utf-16")("replace")
    content = bytearray()
    for start in range(0, len(data), _BLOCK):
        content += decoder.decode(bytes(data[start : start + _BLOCK]), start + _BLOCK >= len(data)).encode()
    if b"\xef\xbf\xbd" in content:
        reading.note("not UTF-16", "bytes that are not UTF-16 are U+FFFD")
    return memoryview(content)
