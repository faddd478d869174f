"""Checks that the pages of a column chunk are as they were written, which DuckDB does not do before it decodes them.

Input: the bytes of a chunk, and what the file's footer says about it. Output: nothing, or Corrupt. Invariant: a chunk
with one changed byte is refused or gives the same rows. Numbers that do not compress are stored as they are, so damage
in them shows only in the page's checksum, a CRC-32.

The checksum covers what follows a page's header. The header itself, in Thrift's compact protocol, has none: so only the
form that our writer produces is accepted, and its numbers must add up to those in the footer: bytes, values, and the
encodings of pages. The number of values in a dictionary of texts is stated nowhere else; DuckDB refuses a dictionary
that ends early, and a row that refers beyond its end.

Pages without a checksum (older segments) get all checks but that one.

Each chunk of a cached file is checked once, before it is first read; the result is remembered with the file as long as
it stays cached. A linked file is the store's own, which others may write to: when its modification time changes, all of
it is checked again.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable
from typing import Final, NamedTuple

import pyarrow.parquet as pq
from isal import isal_zlib

from lakerunner.model.errors import Corrupt
from lakerunner.query.segment_cache.files import CachedFile
from lakerunner.query.segment_cache.footers import TRAILER, Footer
from lakerunner.query.segment_cache.spans import Span, joined, without

_INT = rb"([\x80-\xff]{0,4}[\x00-\x7f])"
_SIZES = rb"\x15" + _INT + rb"\x15" + _INT  # of the page: uncompressed, compressed
_VALUES = rb"\x15" + _INT + rb"\x15" + _INT  # number of values, and their encoding
# A header consists of kind, sizes, checksum, then the fields of its kind. Levels are always RLE (\x15\x06 twice);
# statistics of the page may follow them (\x1c).
_DICTIONARY = re.compile(
    rb"\x15\x04" + _SIZES + rb"(?:\x15" + _INT + rb"\x3c|\x4c)" + _VALUES + rb"[\x11\x12]?\x00\x00", re.S
)
_DATA = re.compile(
    rb"\x15\x00" + _SIZES + rb"(?:\x15" + _INT + rb"\x1c|\x2c)" + _VALUES + rb"\x15\x06\x15\x06(?:\x00\x00|(\x1c))",
    re.S,
)
_END = b"\0\0"  # ends the inner struct and the header, after statistics

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
_LENGTH = 4  # the least bytes that a text takes in a dictionary: its length prefix

# PageEncodingStats in the footer: kind of page, encoding, count.
_STATED = re.compile(rb"\x15([\x00\x04])\x15" + _INT + rb"\x15" + _INT + rb"\x00", re.S)
_BINARY, _BOOLEANS, _INTEGERS = 8, (1, 2), (5, 6)


class Page(NamedTuple):
    """`body` is the offset of the page's data, after its header."""

    body: int
    unpacked: int
    packed: int
    checksum: bytes | None
    values: int
    encoding: int


def check_pages(data: bytes, chunk: pq.ColumnChunkMetaData, footer: bytes) -> None:
    """Raise Corrupt if a page is damaged. `data` are the chunk's bytes, `footer` is the file's footer as stored."""
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
    """Parse the headers of all pages of a chunk, which begins with a dictionary page or has none."""
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
        body = _skip_statistics(data, body)
        if data[body : body + 2] != _END:
            raise Corrupt(f"no valid page header at byte {at}")
        body += 2
    return Page(body, _decode_int(unpacked), _decode_int(packed), checksum, _decode_int(values), _decode_int(encoding))


def _check_sum(data: bytes, page: Page) -> None:
    if page.checksum is None:
        return
    found = isal_zlib.crc32(memoryview(data)[page.body : page.body + page.packed])
    if found - (found >> 31 << 32) != _decode_int(page.checksum):  # Thrift states the CRC as a signed number
        raise Corrupt(f"page checksum mismatch at byte {page.body}")


def _check_dictionary(page: Page, physical_type: str) -> None:
    width = _WIDTHS.get(physical_type)
    fits = page.values * width == page.unpacked if width else 0 <= page.values * _LENGTH <= page.unpacked
    if not fits or page.encoding != _PLAIN:
        raise Corrupt("invalid dictionary page header")


def _check_plain(pages: list[Page], encodings: tuple[str, ...]) -> None:
    """Check that all pages have the encoding of the footer: without a dictionary there is only one."""
    stated = {_NUMBERS.get(name) for name in encodings if name not in _LEVELS} or {_NUMBERS["RLE"]}
    if len(stated) > 1 or {page.encoding for page in pages} - stated:
        raise Corrupt("page encoding differs from the encoding in the footer")


def _check_coded(pages: list[Page], chunk: pq.ColumnChunkMetaData, footer: bytes) -> None:
    """Check the encodings of a chunk with a dictionary. The writer abandons a dictionary that grows too large, and
    writes the remaining pages plain; with one page it would not have kept the dictionary."""
    found = [page.encoding for page in pages]
    if found != [_RLE_DICTIONARY] and (not found or found != _encodings(chunk, footer)):
        raise Corrupt("page encoding differs from the encoding in the footer")


def _encodings(chunk: pq.ColumnChunkMetaData, footer: bytes) -> list[int]:
    """Return the encodings of the chunk's data pages, in order: those with the dictionary come first. pyarrow does not
    expose the footer's PageEncodingStats, but they follow fields that it does expose, whose values together are unique
    to the chunk."""
    numbers = chunk.num_values, chunk.total_uncompressed_size, chunk.total_compressed_size
    place = b"".join(b"\x16" + _encode_int(number) for number in numbers)
    place += b"\x26" + _encode_int(chunk.data_page_offset) + b"\x26" + _encode_int(chunk.dictionary_page_offset)
    at = footer.find(place)
    if at < 0:
        return []
    at += len(place)
    if footer[at : at + 1] == b"\x1c":
        at = _skip_statistics(footer, at + 1)
    counts: Counter[int] = Counter()
    if footer[at : at + 1] == b"\x19":  # a list of up to 14 structs
        at, left = at + 2, footer[at + 1] >> 4
        while left and (one := _STATED.match(footer, at)):
            if one[1] == b"\0":
                counts[_decode_int(one[2])] += _decode_int(one[3])
            at, left = one.end(), left - 1
    return sorted(counts.elements(), key=lambda encoding: encoding == _PLAIN)


def _skip_statistics(data: bytes, at: int) -> int:
    """Return the end of the Thrift struct whose fields begin here, which are binaries, integers and booleans."""
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
    """Return the number and the offset after it."""
    number = 0
    for place, byte in enumerate(data[at : at + 10]):
        number |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            return number, at + place + 1
    raise Corrupt("its statistics cannot be read")


def _decode_int(stated: bytes) -> int:
    number = 0
    for byte in reversed(stated):
        number = number << 7 | byte & 0x7F
    return number >> 1 ^ -(number & 1)


def _encode_int(number: int) -> bytes:
    """Encode a number that is not negative as `_decode_int` reads it (a zigzag varint)."""
    number <<= 1
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*out, number))


def check_chunks(file: CachedFile, footer: Footer, columns: Iterable[str], groups: list[Span]) -> None:
    """Check these columns in these ranges of row groups, unless they were checked before. Corrupt names the object's
    key, the column and the row group."""
    sound = file.sound  # this very dict: a file that is forgotten gets a new one
    written_ns = os.stat(file.path).st_mtime_ns if file.linked else 0
    missing = [
        column for column in columns if sound.get((column, written_ns)) != groups
    ]  # usually none, found without set arithmetic
    new = [(column, left) for column in missing if (left := without(groups, sound.get((column, written_ns), ())))]
    if not new:
        return
    with file.path.open("rb", buffering=0) as opened:
        chunks = Chunks(opened.fileno(), file.object.bytes, footer)
        for column, left in new:
            for first, end in left:
                for group in range(first, end):
                    _check(chunks, column, group, file.object.key)
            sound[column, written_ns] = joined([*sound.get((column, written_ns), ()), *left])


def _check(chunks: Chunks, column: str, group: int, key: str) -> None:
    try:
        chunks.check(column, group)
    except Corrupt as error:
        raise Corrupt(
            f"{key} is damaged in {error}. Run `lakerunner fsck --deep` to find other damage and how to repair it"
        ) from error


class Chunks:
    """The column chunks of an open file of `bytes_` bytes."""

    def __init__(self, descriptor: int, bytes_: int, footer: Footer) -> None:
        self._descriptor = descriptor
        self._bytes = bytes_
        self._footer = footer
        self._stored = self._read(bytes_ - footer.bytes, bytes_ - TRAILER)

    def check(self, column: str, group: int) -> None:
        """Raise Corrupt, with column and row group, if a page is not as it was written."""
        for leaf, span in zip(self._footer.leaves.get(column, ()), self._footer.chunks(column)[group], strict=True):
            try:
                check_pages(self._read(*span), self._footer.chunk(group, leaf), self._stored)
            except Corrupt as error:
                raise Corrupt(f"column {column}, row group {group}: {error}") from error

    def _read(self, start: int, end: int) -> bytes:
        """Read into memory rather than map: if a mapped file were truncated meanwhile, the process would be killed by
        SIGBUS."""
        if not 0 <= start <= end <= self._bytes:
            raise Corrupt("footer points outside of the file")
        return os.pread(self._descriptor, end - start, start)
