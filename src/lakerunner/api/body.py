"""Request bodies, read with limits: as sent, and again after unpacking."""

from __future__ import annotations

from collections.abc import Callable
from io import BytesIO
from typing import Any

import orjson
import pyarrow as pa
from anyio import to_thread
from isal import igzip, isal_zlib
from starlette.requests import Request

from lakerunner.model.errors import TooLarge, UserError

# A snappy block cannot say more in less: its best is a copy of 64 bytes in 3.
_SNAPPY_MAX_RATIO = 22
_STEP = 1 << 20
_IsalError: type[Exception] = isal_zlib.error  # type: ignore[assignment]  # its stub calls it an instance


def content_type(request: Request) -> str:
    """In lower case and without parameters."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def content_encoding(request: Request) -> str:
    """In lower case; "" for a body that is sent as it is."""
    encoding = request.headers.get("content-encoding", "").strip().lower()
    return "" if encoding == "identity" else encoding


async def read_body(request: Request, max_bytes: int) -> bytes:
    """The whole body, unpacked as its content-encoding says; TooLarge as soon as either form passes max_bytes."""
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > max_bytes:
            raise _too_large(max_bytes)
        parts.append(part)
    body = b"".join(parts)
    encoding = content_encoding(request)
    if not encoding:
        return body
    unpack = _ENCODINGS.get(encoding)
    if unpack is None:
        raise UserError(f"content-encoding {encoding!r} is not understood: send {', '.join(_ENCODINGS)} or none")
    return await to_thread.run_sync(unpack, body, max_bytes)


def unsnappy(body: bytes, max_bytes: int) -> bytes:
    """A snappy block, as Prometheus and Loki clients send it. It begins with its unpacked size as a varint."""
    size = 0
    for place, byte in enumerate(body[:5]):
        size |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            break
    else:
        raise UserError("the snappy body cannot be read: it does not begin with its size")
    if size > max_bytes:
        raise _too_large(max_bytes)
    if size > len(body) * _SNAPPY_MAX_RATIO:  # before so much memory is taken for it
        raise UserError(f"the snappy body cannot be read: its {len(body)} bytes cannot hold the {size} they state")
    try:
        return bytes(pa.decompress(body, size, "snappy", asbytes=True)) if size else b""
    except OSError as error:
        raise UserError(f"the snappy body cannot be read: {error}") from error


def _gunzip(body: bytes, max_bytes: int) -> bytes:
    try:
        with igzip.IGzipFile(fileobj=BytesIO(body)) as stream:  # type: ignore[no-untyped-call]
            return _all_of(stream, max_bytes)
    except (EOFError, OSError, _IsalError) as error:
        raise UserError(f"the gzip body cannot be read: {error}") from error


def _unzstd(body: bytes, max_bytes: int) -> bytes:
    try:
        with pa.CompressedInputStream(pa.BufferReader(body), "zstd") as stream:
            return _all_of(stream, max_bytes)
    except OSError as error:
        raise UserError(f"the zstd body cannot be read: {error}") from error


def _all_of(stream: Any, max_bytes: int) -> bytes:
    parts, size = [], 0
    while part := stream.read(_STEP):
        size += len(part)
        if size > max_bytes:
            raise _too_large(max_bytes)
        parts.append(part)
    return b"".join(parts)


_ENCODINGS: dict[str, Callable[[bytes, int], bytes]] = {"gzip": _gunzip, "zstd": _unzstd, "snappy": unsnappy}


def _too_large(max_bytes: int) -> TooLarge:
    return TooLarge(f"the body is larger than {max_bytes} bytes (request_max_bytes): send smaller batches")


async def read_json(request: Request, max_bytes: int, empty: dict[str, Any] | None = None) -> dict[str, Any]:
    """The body as a JSON object; `empty` for no body at all, where that is allowed."""
    body = await read_body(request, max_bytes)
    if not body and empty is not None:
        return empty
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise UserError(f"the body is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise UserError("the body must be a JSON object")
    return value
