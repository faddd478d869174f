"""Files of the collector's file exporter with `format: proto`, or with `compression: zstd`: messages in frames.

Comes in: the bytes of an OTLP file. Goes out: its messages. A frame is a length of four bytes, big-endian, and a
message, which may be packed by zstd alone. What always holds: a file is framed from its first byte to its last.
Neither a message of protobuf nor JSON begins with a byte below 8, and no frame with another one: that would be a
message of 128 MiB.
"""

from __future__ import annotations

from collections.abc import Iterator

from lakerunner.model.errors import Corrupt

_LENGTH = 4
_FIRST_BYTE = 8
_MAX_FRAMES = 1_000_000
# What stands between two messages of a format.
SEPARATORS = {"otlp": b"", "otlp_json": b"\n", "jsonl": b"\n"}


def messages(data: memoryview) -> Iterator[memoryview] | None:
    """Return the messages of a framed file, perhaps packed; None if it is not framed."""
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
