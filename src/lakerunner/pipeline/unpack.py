"""Unpacking a raw object to the bytes of its messages.

Comes in: an object's key and its bytes. Goes out: the same bytes unpacked. What always holds: never more than
max_bytes are unpacked, however small the object and whatever it claims; what cannot be unpacked whole is
Corrupt with the reason, so that half a file is never taken for a file.
"""

from __future__ import annotations

from collections.abc import Callable
from gzip import BadGzipFile
from io import BytesIO

from isal import igzip, isal_zlib

from lakerunner.model.errors import Corrupt

_GZIP_MAGIC = b"\x1f\x8b"
_IsalError: type[Exception] = isal_zlib.error  # type: ignore[assignment]  # its stub calls it an instance
_GZIP_MAX_RATIO = 1032  # deflate cannot do better, so a trailer that says more is lying


def unpack(key: str, data: memoryview, max_bytes: int) -> memoryview:
    """The object's content, by its key's ending. Content that is gzip is unpacked under any known ending:
    a plain OTLP message cannot begin like that."""
    unpack_format = next((f for ending, f in FORMATS.items() if key.lower().endswith(ending)), None)
    if unpack_format is None:
        raise Corrupt(f"{key!r} has no ending we know: {', '.join(FORMATS)}")
    if not data:
        raise Corrupt("the file is empty")
    if data[:2] == _GZIP_MAGIC:
        unpack_format = gunzip
    content = unpack_format(data, max_bytes)
    if not content:
        raise Corrupt("the file is empty once unpacked")
    return content


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


def _too_large(max_bytes: int) -> Corrupt:
    return Corrupt(f"the file unpacks to more than {max_bytes} bytes: raise object_max_bytes to take it")


FORMATS: dict[str, Callable[[memoryview, int], memoryview]] = {
    ".binpb": _plain,
    ".binpb.gz": gunzip,
}
