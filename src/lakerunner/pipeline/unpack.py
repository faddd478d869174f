"""Unpacking a raw object to the bytes of its messages.

Comes in: an object's key and its bytes. Goes out: the format that its ending states, and the same bytes unpacked. What
always holds: never more than max_bytes are unpacked, however small the object and whatever it claims; what cannot be
unpacked whole is Corrupt with the reason, so that half a file is never taken for a file.
"""

from __future__ import annotations

from collections.abc import Callable
from gzip import BadGzipFile
from io import BytesIO

import pyarrow as pa
from isal import igzip, isal_zlib

from lakerunner.model.errors import Corrupt

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
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_IsalError: type[Exception] = isal_zlib.error  # type: ignore[assignment]  # its stub calls it an instance
_GZIP_MAX_RATIO = 1032  # deflate cannot do better, so a trailer that says more is lying
_ZSTD_BLOCK = 1 << 20

Unpack = Callable[[memoryview, int], memoryview]


def unpack(key: str, data: memoryview, max_bytes: int) -> tuple[str, memoryview]:
    """(format, content) of an object, by its key's ending. Content that is gzip or zstd is unpacked under any known
    ending: nothing that we read begins like that. An empty object is empty, whatever its ending says of packing."""
    name = key.lower()
    packing = next((ending for ending in PACKINGS if name.endswith(ending)), "")
    name = name.removesuffix(packing)
    found = next((found for ending, found in FORMATS.items() if name.endswith(ending)), None)
    if found is None:
        raise Corrupt(
            f"{key!r} has an unknown ending: use {', '.join(FORMATS)}, each also with {' or '.join(PACKINGS)}"
        )
    return found, _packing_of(data, packing)(data, max_bytes) if data else data


def _packing_of(data: memoryview, packing: str) -> Unpack:
    if data[:2] == _GZIP_MAGIC:
        return gunzip
    if data[:4] == _ZSTD_MAGIC:
        return unzstd
    return PACKINGS.get(packing, _plain)


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
    parts, size = [], 0
    try:
        with pa.CompressedInputStream(pa.BufferReader(pa.py_buffer(data)), "zstd") as reader:
            while size <= max_bytes:
                part = reader.read(min(_ZSTD_BLOCK, max_bytes + 1 - size))
                if not part:
                    break
                parts.append(part)
                size += len(part)
    except OSError as error:
        if "Truncated" in str(error):
            raise Corrupt("the zstd file is cut short") from None
        raise Corrupt(f"the zstd file is damaged, or not zstd: {error}") from None
    if size > max_bytes:
        raise _too_large(max_bytes)
    return memoryview(b"".join(parts))


def _too_large(max_bytes: int) -> Corrupt:
    return Corrupt(f"the file unpacks to more than {max_bytes} bytes: raise object_max_bytes to ingest it")


PACKINGS: dict[str, Unpack] = {".gz": gunzip, ".zst": unzstd}
