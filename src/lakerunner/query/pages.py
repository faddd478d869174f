"""Whether the pages of a column chunk are as they were written: what DuckDB does not look at before it decodes them.

Comes in: the bytes of a chunk, and what the file's footer says of it. Goes out: nothing, or Corrupt. What always holds:
a chunk of which one byte is another than was written is refused, or gives the same rows. Numbers that do not pack well
are stored as they are, so damage in them shows in no other way than by a page's checksum, its CRC-32.

The checksum is of what stands behind a page's header. The header itself, in Thrift's compact protocol, has none: so it
is read as our writer writes it and not otherwise, and what it says must add up to what the footer says of the chunk:
bytes, values, and which pages have which encoding. How many values a dictionary of texts has is nowhere else; DuckDB
refuses one that ends before them, and a row whose value lies beyond them.

Pages without a checksum, as older segments have them, are looked at in the same way but for it.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Final, NamedTuple

import pyarrow.parquet as pq
from isal import isal_zlib

from lakerunner.model.errors import Corrupt

_INT = rb"([\x80-\xff]{0,4}[\x00-\x7f])"
_SIZES = rb"\x15" + _INT + rb"\x15" + _INT  # of the page: unpacked, packed
_COUNTED = rb"\x15" + _INT + rb"\x15" + _INT  # of its values: how many, and their encoding
# A header is: its kind, sizes, a checksum, then what only pages of this kind have. Levels are always RLE; behind them
# may stand statistics of the page.
_DICTIONARY = re.compile(
    rb"\x15\x04" + _SIZES + rb"(?:\x15" + _INT + rb"\x3c|\x4c)" + _COUNTED + rb"[\x11\x12]?\x00\x00", re.S
)
_DATA = re.compile(
    rb"\x15\x00" + _SIZES + rb"(?:\x15" + _INT + rb"\x1c|\x2c)" + _COUNTED + rb"\x15\x06\x15\x06(?:\x00\x00|(\x1c))",
    re.S,
)
_END = b"\0\0"  # of the part and of the header, behind statistics

_PLAIN, _RLE_DICTIONARY = 0, 8
_NUMBERS: Final = {
    "PLAIN": _PLAIN,
    "RLE": 3,
    "BIT_PACKED": 4,
    "DELTA_BINARY_PACKED": 5,
    "DELTA_LENGTH_BYTE_ARRAY": 6,
    "DELTA_BYTE_ARRAY": 7,
    "RLE_DICTIONARY": _RLE_DICTIONARY,
    "BYTE_STREAM_SPLIT": 9,
}
_LEVELS = {"RLE", "BIT_PACKED"}
_WIDTHS: Final = {"INT32": 4, "FLOAT": 4, "INT64": 8, "DOUBLE": 8}
_LENGTH = 4  # bytes that a text in a dictionary takes at least

# In the footer: an encoding of pages, and of how many.
_STATED = re.compile(rb"\x15([\x00\x04])\x15" + _INT + rb"\x15" + _INT + rb"\x00", re.S)
_BINARY, _BOOLEANS, _INTEGERS = 8, (1, 2), (5, 6)


class Page(NamedTuple):
    """`body` is where it starts behind its header."""

    body: int
    unpacked: int
    packed: int
    checksum: bytes | None
    values: int
    encoding: int


def check_pages(data: bytes, chunk: pq.ColumnChunkMetaData, footer: bytes) -> None:
    """`data` are the chunk's bytes, `footer` the file's as it is stored."""
    pages = pages_of(data, dictionary=chunk.has_dictionary_page)
    if len({page.checksum is None for page in pages}) > 1:
        raise Corrupt("only some of its pages have checksums")
    for page in pages:
        _check_sum(data, page)
    if len(data) + sum(page.unpacked - page.packed for page in pages) != chunk.total_uncompressed_size:
        raise Corrupt("page sizes do not add up to the uncompressed size in the footer")
    dictionary = pages.pop(0) if chunk.has_dictionary_page else None
    if sum(page.values for page in pages) != chunk.num_values:
        raise Corrupt("page value counts do not add up to the count in the footer")
    if dictionary is None:
        _check_plain(pages, chunk.encodings)
    else:
        _check_dictionary(dictionary, chunk.physical_type)
        _check_coded(pages, chunk, footer)


def pages_of(data: bytes, *, dictionary: bool) -> list[Page]:
    """All pages of a chunk, which begins with a dictionary or has none, as their headers state them."""
    pages: list[Page] = []
    at = 0
    while at < len(data):
        page = _page(data, at, _DATA if pages or not dictionary else _DICTIONARY)
        at = page.body + page.packed
        if page.packed < 0 or at > len(data):
            raise Corrupt(f"page at byte {page.body} ends beyond its column chunk")
        pages.append(page)
    return pages


def _page(data: bytes, at: int, kind: re.Pattern[bytes]) -> Page:
    header = kind.match(data, at)
    if header is None:
        raise Corrupt(f"no valid page header at byte {at}")
    unpacked, packed, checksum, values, encoding = header.groups()[:5]
    body = header.end()
    if header.lastindex == 6:
        body = _behind_statistics(data, body)
        if data[body : body + 2] != _END:
            raise Corrupt(f"no valid page header at byte {at}")
        body += 2
    return Page(body, _int(unpacked), _int(packed), checksum, _int(values), _int(encoding))


def _check_sum(data: bytes, page: Page) -> None:
    if page.checksum is None:
        return
    found = isal_zlib.crc32(memoryview(data)[page.body : page.body + page.packed])
    if found - (found >> 31 << 32) != _int(page.checksum):  # which is stated as a signed number
        raise Corrupt(f"page checksum mismatch at byte {page.body}")


def _check_dictionary(page: Page, physical_type: str) -> None:
    width = _WIDTHS.get(physical_type)
    fits = page.values * width == page.unpacked if width else 0 <= page.values * _LENGTH <= page.unpacked
    if not fits or page.encoding != _PLAIN:
        raise Corrupt("invalid dictionary page header")


def _check_plain(pages: list[Page], encodings: tuple[str, ...]) -> None:
    """Without a dictionary all pages have one encoding."""
    stated = {_NUMBERS.get(name) for name in encodings if name not in _LEVELS} or {_NUMBERS["RLE"]}
    if len(stated) > 1 or {page.encoding for page in pages} - stated:
        raise Corrupt("page encoding differs from the encoding in the footer")


def _check_coded(pages: list[Page], chunk: pq.ColumnChunkMetaData, footer: bytes) -> None:
    """A dictionary that grew too large is not gone on with: then the last pages are plain. Where there is one page, the
    dictionary would be for nothing."""
    found = [page.encoding for page in pages]
    if found != [_RLE_DICTIONARY] and (not found or found != _encodings(chunk, footer)):
        raise Corrupt("page encoding differs from the encoding in the footer")


def _encodings(chunk: pq.ColumnChunkMetaData, footer: bytes) -> list[int]:
    """Of the chunk's data pages, in order: those with the dictionary come first. pyarrow does not show what the footer
    states of it, but its place, which no other chunk has in common, is found by what it does show."""
    numbers = chunk.num_values, chunk.total_uncompressed_size, chunk.total_compressed_size
    place = b"".join(b"\x16" + _written(number) for number in numbers)
    place += b"\x26" + _written(chunk.data_page_offset) + b"\x26" + _written(chunk.dictionary_page_offset)
    at = footer.find(place)
    if at < 0:
        return []
    at += len(place)
    if footer[at : at + 1] == b"\x1c":
        at = _behind_statistics(footer, at + 1)
    counts: Counter[int] = Counter()
    if footer[at : at + 1] == b"\x19":  # a list of up to 14 structs
        at, left = at + 2, footer[at + 1] >> 4
        while left and (one := _STATED.match(footer, at)):
            if one[1] == b"\0":
                counts[_int(one[2])] += _int(one[3])
            at, left = one.end(), left - 1
    return sorted(counts.elements(), key=lambda encoding: encoding == _PLAIN)


def _behind_statistics(data: bytes, at: int) -> int:
    """Where the struct of Thrift ends whose fields begin here, which are texts, numbers and truths."""
    while at < len(data) and data[at]:
        kind, at = data[at] & 0x0F, at + 1
        if kind in _BOOLEANS:
            continue
        number, at = _varint(data, at)
        if kind == _BINARY:
            at += number
        elif kind not in _INTEGERS:
            break
    if at >= len(data) or data[at]:
        raise Corrupt("its statistics cannot be read")
    return at + 1


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """The number, and what follows it."""
    number = 0
    for place, byte in enumerate(data[at : at + 10]):
        number |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            return number, at + place + 1
    raise Corrupt("its statistics cannot be read")


def _int(stated: bytes) -> int:
    number = 0
    for byte in reversed(stated):
        number = number << 7 | byte & 0x7F
    return number >> 1 ^ -(number & 1)


def _written(number: int) -> bytes:
    """As `_int` reads it; not negative."""
    number <<= 1
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*out, number))
