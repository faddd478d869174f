"""Unpacking a raw object to the bytes of its messages.

Comes in: an object's key and its bytes. Goes out: the format that its ending states, and the same bytes unpacked. What
always holds: never more than max_bytes are unpacked, however small the object and whatever it claims; what cannot be
unpacked whole is Corrupt with the reason, so that half a file is never taken for a file.
"""

from __future__ import annotations

import re
from bz2 import BZ2Decompressor
from collections.abc import Callable
from gzip import BadGzipFile
from io import BytesIO
from lzma import FORMAT_XZ, LZMADecompressor, LZMAError

import pyarrow as pa
from isal import igzip, isal_zlib

from lakerunner.model.errors import Corrupt
from lakerunner.pipeline.exporter_frames import SEPARATORS, messages

# What a key ends with, before .gz or .zst if it has one of them.
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
# What logrotate and its kin put behind a name: x.log.1, x.log-20261117, x.log.2026-11-17_13.
_ROTATED = re.compile(r"(?<=[a-z])[.-]\d[\d._:-]*$", re.ASCII)
_IsalError: type[Exception] = isal_zlib.error  # type: ignore[assignment]  # its stub calls it an instance
_GZIP_MAX_RATIO = 1032  # deflate cannot do better, so a trailer that says more is lying
_BLOCK = 1 << 20
_MAX_STREAMS = 100_000  # of one bzip2 or xz file: each costs a decompressor
_STREAM_BLOCK = 64 << 10
_XZ_MEMORY = 128 << 20  # `xz -9` takes half of it

Unpack = Callable[[memoryview, int], memoryview]


def unpack(key: str, data: memoryview, max_bytes: int) -> tuple[str, memoryview]:
    """(format, content) of an object, by its key's ending. Packed content is unpacked under any known ending: nothing
    that we read begins like that. An empty object is empty, whatever its ending says of packing."""
    name = key.lower()
    packing = next((ending for ending in PACKINGS if name.endswith(ending)), "")
    found = _format_of(name.removesuffix(packing))
    if found is None:
        *others, last = PACKINGS
        packings = f"{', '.join(others)} or {last}"
        raise Corrupt(f"{key!r} has an unknown ending. Known are {', '.join(FORMATS)}, each also with {packings}")
    content = _packing_of(data, packing)(data, max_bytes) if data else data
    separator = SEPARATORS.get(found)
    return found, content if separator is None else _unframed(content, separator, max_bytes)


def _format_of(name: str) -> str | None:
    """Return the format of a name, also of one that was rotated: `x.log.1`."""
    name = _ROTATED.sub("", name)
    return next((found for ending, found in FORMATS.items() if name.endswith(ending)), None)


def _packing_of(data: memoryview, packing: str) -> Unpack:
    head = bytes(data[:10])
    return next((found for magic, found in _MAGICS if head.startswith(magic)), PACKINGS.get(packing, _plain))


def _unframed(data: memoryview, separator: bytes, max_bytes: int) -> memoryview:
    """Return the content of a file without the frames of the collector's file exporter, if it has them."""
    found = messages(data)
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
    """All members of a gzip file, each with its checksum; zeros may pad the end."""
    if data[:2] != _GZIP_MAGIC:
        raise Corrupt("the file's name ends in .gz, but its content is not gzip")
    stated = int.from_bytes(data[-4:], "little")
    first = min(stated, len(data) * _GZIP_MAX_RATIO, max_bytes)
    parts = []
    try:
        with igzip.IGzipFile(fileobj=BytesIO(data)) as reader:  # type: ignore[no-untyped-call]
            # One byte more than we expect: in a file of one member, which nearly all are, this reads
            # everything in one piece and sees its end.
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


def unzstd(data: memoryview, max_bytes: int) -> memoryview:
    """All frames of a zstd file."""
    return _streamed("zstd", data, max_bytes)


def _streamed(codec: str, data: memoryview, max_bytes: int) -> memoryview:
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


def unbzip2(data: memoryview, max_bytes: int) -> memoryview:
    """All streams of a bzip2 file."""
    return _unpacked("bzip2", BZ2Decompressor, data, max_bytes)


def unxz(data: memoryview, max_bytes: int) -> memoryview:
    """All streams of an xz file; zeros may pad the end."""
    return _unpacked("xz", lambda: LZMADecompressor(FORMAT_XZ, _XZ_MEMORY), data, max_bytes)


def _unpacked(
    name: str, opened: Callable[[], BZ2Decompressor | LZMADecompressor], data: memoryview, max_bytes: int
) -> memoryview:
    """Decompress stream after stream, the input in blocks: what is behind the end of a stream is copied each time."""
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
        raise Corrupt(f"the {name} file is damaged, or none: {error}") from None
    if not reader.eof:
        raise Corrupt(f"the {name} file is cut short")
    return memoryview(content)


def unlz4(data: memoryview, max_bytes: int) -> memoryview:
    """All frames of an lz4 file."""
    return _streamed("lz4", data, max_bytes)


def _unzip(_data: memoryview, _max_bytes: int) -> memoryview:
    raise Corrupt("this is a zip archive: unpack it, and pack each file with gzip or zstd if it is large")


def _too_large(max_bytes: int) -> Corrupt:
    return Corrupt(f"the file unpacks to more than {max_bytes} bytes: raise object_max_bytes to ingest it")


PACKINGS: dict[str, Unpack] = {".gz": gunzip, ".zst": unzstd, ".bz2": unbzip2, ".xz": unxz, ".lz4": unlz4}
_MAGICS: tuple[tuple[bytes, Unpack], ...] = (
    (_GZIP_MAGIC, gunzip),
    (b"\x28\xb5\x2f\xfd", unzstd),
    *((b"BZh%d1AY&SY" % level, unbzip2) for level in range(1, 10)),
    (b"\xfd7zXZ\0", unxz),
    (b"\x04\x22\x4d\x18", unlz4),
    (b"PK\x03\x04", _unzip),
)
