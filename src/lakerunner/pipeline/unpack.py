"""Unpack a raw object to the bytes of its messages.

Comes in: an object's key and its bytes. Goes out: the format by the key's ending, and the unpacked bytes. What always
holds: never more than max_bytes are unpacked, however small the object and whatever it claims; what cannot be unpacked
completely is Corrupt with the reason, so that half a file is never taken for a file.

The collector's file exporter, with `format: proto` or `compression: zstd`, writes frames: a length of four bytes,
big-endian, and a message, which may be compressed by itself. They are removed here.
"""

from __future__ import annotations

import re
from bz2 import BZ2Decompressor
from collections.abc import Callable, Iterator
from functools import partial
from gzip import BadGzipFile
from io import BytesIO
from lzma import FORMAT_XZ, LZMADecompressor, LZMAError

import pyarrow as pa
from isal import igzip, isal_zlib

from lakerunner.model.errors import Corrupt

# Endings of keys, before an ending of PACKINGS if the key has one.
FORMATS = {
    ".binpb": "otlp",
    ".pb": "otlp",
    ".json": "otlp_json",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".csv": "csv",
    ".tsv": "tsv",
    ".parquet": "parquet",
    ".log": "text",
    ".txt": "text",
    ".prw1": "prw1",
    ".prw2": "prw2",
    ".lokipb": "lokipb",
    ".lokijson": "lokijson",
}

_GZIP_MAGIC = b"\x1f\x8b"
# What logrotate and similar tools append to a name: x.log.1, x.log-20261117, x.log.2026-11-17_13.
_ROTATED = re.compile(r"(?<=[a-z])[.-]\d[\d._:-]*$", re.ASCII)
_IsalError: type[Exception] = isal_zlib.error  # type: ignore[assignment]  # its stub calls it an instance
_GZIP_MAX_RATIO = 1032  # the best that deflate can do, so a trailer that states more is wrong
_BLOCK = 1 << 20
_MAX_STREAMS = 100_000  # in one bzip2 or xz file: each costs a decompressor
_STREAM_BLOCK = 64 << 10
_XZ_MEMORY = 128 << 20  # `xz -9` takes half of it

Unpack = Callable[[memoryview, int], memoryview]


def unpack(key: str, data: memoryview, max_bytes: int) -> tuple[str, memoryview]:
    """Return (format, content) of an object, by its key's ending. Packed content is unpacked under any known ending,
    because no other format begins like it. An empty object is empty, even if its ending states a packing."""
    name = key.lower()
    packing = next((ending for ending in PACKINGS if name.endswith(ending)), "")
    found = _format_of(name.removesuffix(packing))
    if found is None:
        *others, last = PACKINGS
        packings = f"{', '.join(others)} or {last}"
        raise Corrupt(f"{key!r} has an unknown ending. Known are {', '.join(FORMATS)}, each also with {packings}")
    content = _packing_of(data, packing)(data, max_bytes) if data else data
    separator = SEPARATORS.get(found)
    return found, content if separator is None else _strip_frames(content, separator, max_bytes)


def _format_of(name: str) -> str | None:
    """Return the format of a name, also of a rotated one: `x.log.1`."""
    name = _ROTATED.sub("", name)
    return next((found for ending, found in FORMATS.items() if name.endswith(ending)), None)


def _packing_of(data: memoryview, packing: str) -> Unpack:
    """Return the function for these bytes, by their first bytes, else by the ending."""
    head = bytes(data[:10])
    return next((found for magic, found in _MAGICS if head.startswith(magic)), PACKINGS.get(packing, _plain))


def _strip_frames(data: memoryview, separator: bytes, max_bytes: int) -> memoryview:
    """Return the content without the frames of the collector's file exporter, if it has them."""
    found = exporter_messages(data)
    if found is None:
        return data
    content = bytearray()
    for message in found:
        content += _packing_of(message, "")(message, max_bytes)
        content += separator
        if len(content) > max_bytes:
            raise _too_large(max_bytes)
    return memoryview(content)


def _plain(data: memoryview, max_bytes: int) -> memoryview:
    if len(data) > max_bytes:
        raise _too_large(max_bytes)
    return data


def gunzip(data: memoryview, max_bytes: int) -> memoryview:
    """Unpack all members of a gzip file, each with its checksum; zeros may pad the end."""
    if data[:2] != _GZIP_MAGIC:
        raise Corrupt("the file's name ends in .gz, but its content is not gzip")
    stated = int.from_bytes(data[-4:], "little")
    first = min(stated, len(data) * _GZIP_MAX_RATIO, max_bytes)
    parts = []
    try:
        with igzip.IGzipFile(fileobj=BytesIO(data)) as reader:  # type: ignore[no-untyped-call]
            # One byte more than the trailer states: nearly all files have one member, and this reads everything in one
            # piece and reaches the end.
            parts.append(reader.read(first + 1))
            size = len(parts[0])
            while size <= max_bytes and parts[-1]:
                parts.append(reader.read(min(size, max_bytes + 1 - size)))
                size += len(parts[-1])
    except EOFError:
        raise Corrupt("the gzip file is cut short") from None
    except (BadGzipFile, _IsalError) as error:
        raise Corrupt(f"the gzip file is damaged: {error}") from None
    if size > max_bytes:
        raise _too_large(max_bytes)
    return memoryview(parts[0] if len(parts[0]) == size else b"".join(parts))


def _decompress_with_arrow(codec: str, data: memoryview, max_bytes: int) -> memoryview:
    """Unpack all frames of a zstd or lz4 file."""
    parts, size = [], 0
    try:
        with pa.CompressedInputStream(pa.BufferReader(pa.py_buffer(data)), codec) as reader:
            while size <= max_bytes:
                part = reader.read(min(_BLOCK, max_bytes + 1 - size))
                if not part:
                    break
                parts.append(part)
                size += len(part)
    except OSError as error:
        if "Truncated" in str(error):
            raise Corrupt(f"the {codec} file is cut short") from None
        raise Corrupt(f"the {codec} file is damaged, or not {codec}: {error}") from None
    if size > max_bytes:
        raise _too_large(max_bytes)
    return memoryview(b"".join(parts))


def _decompress_streams(
    name: str, opened: Callable[[], BZ2Decompressor | LZMADecompressor], data: memoryview, max_bytes: int
) -> memoryview:
    """Unpack all streams of a bzip2 or xz file; zeros may pad the end. The input is passed in blocks, because a
    decompressor copies what is behind the end of its stream."""
    content, reader, streams = bytearray(), opened(), 1
    try:
        for start in range(0, len(data), _STREAM_BLOCK):
            rest = bytes(data[start : start + _STREAM_BLOCK])
            while rest := rest.lstrip(b"\0") if reader.eof else rest:
                if reader.eof:
                    reader, streams = opened(), streams + 1
                if streams > _MAX_STREAMS:
                    raise Corrupt(f"the {name} file has more than {_MAX_STREAMS} streams")
                content += reader.decompress(rest, max_bytes + 1 - len(content))
                rest = reader.unused_data
                if len(content) > max_bytes:
                    raise _too_large(max_bytes)
    except (OSError, ValueError, LZMAError, EOFError) as error:
        raise Corrupt(f"the {name} file is damaged, or not {name}: {error}") from None
    if not reader.eof:
        raise Corrupt(f"the {name} file is cut short")
    return memoryview(content)


def _unzip(_data: memoryview, _max_bytes: int) -> memoryview:
    raise Corrupt("this is a zip archive: unpack it, and pack each file with gzip or zstd if it is large")


def _too_large(max_bytes: int) -> Corrupt:
    return Corrupt(f"the file unpacks to more than {max_bytes} bytes: raise object_max_bytes to ingest it")


PACKINGS: dict[str, Unpack] = {
    ".gz": gunzip,
    ".zst": partial(_decompress_with_arrow, "zstd"),
    ".bz2": partial(_decompress_streams, "bzip2", BZ2Decompressor),
    ".xz": partial(_decompress_streams, "xz", partial(LZMADecompressor, FORMAT_XZ, _XZ_MEMORY)),
    ".lz4": partial(_decompress_with_arrow, "lz4"),
}
_MAGICS: tuple[tuple[bytes, Unpack], ...] = (
    (_GZIP_MAGIC, gunzip),
    (b"\x28\xb5\x2f\xfd", PACKINGS[".zst"]),
    *((b"BZh%d1AY&SY" % level, PACKINGS[".bz2"]) for level in range(1, 10)),
    (b"\xfd7zXZ\0", PACKINGS[".xz"]),
    (b"\x04\x22\x4d\x18", PACKINGS[".lz4"]),
    (b"PK\x03\x04", _unzip),
)


_LENGTH = 4
_FIRST_BYTE = 8
_MAX_FRAMES = 1_000_000
# What separates two messages of a format once their frames are removed.
SEPARATORS = {"otlp": b"", "otlp_json": b"\n", "jsonl": b"\n"}


def exporter_messages(data: memoryview) -> Iterator[memoryview] | None:
    """Return the messages of a framed file, perhaps compressed; None if it is not framed. Neither protobuf nor JSON
    begins with a byte below 8, and every frame does: another first byte would be a message of 128 MiB."""
    if len(data) <= _LENGTH or data[0] >= _FIRST_BYTE or _end(data, 0) > len(data):
        return None
    return _messages(data)


def _messages(data: memoryview) -> Iterator[memoryview]:
    at = frames = 0
    while at < len(data):
        end, frames = _end(data, at), frames + 1
        if frames > _MAX_FRAMES:
            raise Corrupt(f"the file has more than {_MAX_FRAMES} frames of the collector's file exporter")
        if at + _LENGTH > len(data) or end > len(data):
            raise Corrupt(f"byte {at}: a frame of the collector's file exporter is cut short")
        yield data[at + _LENGTH : end]
        at = end


def _end(data: memoryview, at: int) -> int:
    return at + _LENGTH + int.from_bytes(data[at : at + _LENGTH], "big")
