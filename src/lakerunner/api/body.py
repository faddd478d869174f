"""Request bodies, read with limits: as sent, and again after unpacking."""

from __future__ import annotations

from typing import Any

import orjson
from starlette.requests import Request

from lakerunner.model.errors import Corrupt, TooLarge, UserError
from lakerunner.pipeline.unpack import gunzip


async def read_body(request: Request, max_bytes: int) -> bytes:
    """The whole body, unpacked if it says gzip; TooLarge as soon as either form passes max_bytes."""
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > max_bytes:
            raise TooLarge(f"the body is larger than {max_bytes} bytes (request_max_bytes): send smaller batches")
        parts.append(part)
    body = b"".join(parts)
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if encoding in ("identity", ""):
        return body
    if encoding != "gzip":
        raise UserError(f"content-encoding {encoding!r} is not understood: send gzip or none")
    try:
        return bytes(gunzip(memoryview(body), max_bytes))
    except Corrupt as error:
        raise UserError(f"the gzip body cannot be read: {error}") from error


async def read_json(request: Request, max_bytes: int) -> dict[str, Any]:
    """The body as a JSON object."""
    try:
        value = orjson.loads(await read_body(request, max_bytes))
    except orjson.JSONDecodeError as error:
        raise UserError(f"the body is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise UserError("the body must be a JSON object")
    return value
