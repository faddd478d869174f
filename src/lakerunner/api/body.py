"""Read request bodies, complete or refused, within limits on the announced, the sent and the unpacked size; and the
parameters of a request, from a form in its body and from its query string."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import Any, NoReturn, Self
from urllib.parse import parse_qsl

import orjson
import pyarrow as pa
from anyio import to_thread
from isal import igzip, isal_zlib
from starlette.requests import HTTPConnection, Request

from lakerunner.model.errors import BadMediaType, TooLarge, UserError

JSON = "application/json"
FORM = "application/x-www-form-urlencoded"
# The best compression of a snappy block is a copy of 64 bytes, encoded in 3 bytes.
_SNAPPY_MAX_RATIO = 22
_STEP = 1 << 20
_IsalError: type[Exception] = isal_zlib.error  # type: ignore[assignment]  # its stub calls it an instance


@dataclass(frozen=True)
class BodyLimit:
    """Maximum bytes of a body. `name` is for the error message: the setting to change, or what the limit is for."""

    bytes: int
    name: str

    def refuse(self) -> NoReturn:
        raise TooLarge(f"the body is larger than {self.bytes} bytes ({self.name}): send smaller requests")


_FORM_LIMIT = BodyLimit(4 << 20, "the limit of a form")
_FIELDS_MAX = 10_000


def content_type(request: Request) -> str:
    """Return the media type in lower case, without parameters."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def content_encoding(request: Request) -> str:
    """Return the content encoding in lower case; "" for a body that is not encoded."""
    encoding = request.headers.get("content-encoding", "").strip().lower()
    return "" if encoding == "identity" else encoding


async def read_body(request: Request, limit: BodyLimit) -> bytes:
    """Read and decode the whole body; raise TooLarge as soon as the encoded or decoded size passes the limit."""
    body = await read_sent(request, limit)
    encoding = content_encoding(request)
    if not encoding:
        return body
    unpack = _ENCODINGS.get(encoding)
    if unpack is None:
        raise UserError(f"content-encoding {encoding!r} is not supported: send {', '.join(_ENCODINGS)} or none")
    return await to_thread.run_sync(unpack, body, limit)


async def read_sent(request: Request, limit: BodyLimit) -> bytes:
    """Read the whole body without decoding it.

    A body whose Content-Length is too large is refused before any of it is read. A body that is shorter than its
    Content-Length is refused too: a part of a body, or an empty one, can be a valid request, and the rest would be
    lost silently.
    """
    announced = request.headers.get("content-length", "")
    if announced.isdigit() and int(announced) > limit.bytes:
        limit.refuse()
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > limit.bytes:
            limit.refuse()
        parts.append(part)
    if announced.isdigit() and size != int(announced):
        raise UserError(f"the body has {size} bytes, Content-Length is {announced}: send it again")
    return b"".join(parts)


def unsnappy(body: bytes, limit: BodyLimit) -> bytes:
    """Decode a snappy block, as Prometheus and Loki clients send it."""
    size = snappy_size(body, limit)
    if size > len(body) * _SNAPPY_MAX_RATIO:  # checked before that much memory is allocated
        raise UserError(f"cannot read the snappy body: {len(body)} bytes cannot hold the stated {size}")
    try:
        return bytes(pa.decompress(body, size, "snappy", asbytes=True)) if size else b""
    except OSError as error:
        raise UserError(f"cannot read the snappy body: {error}") from error


def snappy_size(block: bytes, limit: BodyLimit) -> int:
    """Return the unpacked size that a snappy block states in its first bytes, as a varint."""
    size = 0
    for place, byte in enumerate(block[:5]):
        size |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            if size > limit.bytes:
                limit.refuse()
            return size
    raise UserError("cannot read the snappy body: not a snappy block, it does not begin with its size")


def _gunzip(body: bytes, limit: BodyLimit) -> bytes:
    try:
        with igzip.IGzipFile(fileobj=BytesIO(body)) as stream:  # type: ignore[no-untyped-call]
            return _read_all(stream, limit)
    except (EOFError, OSError, _IsalError) as error:
        raise UserError(f"cannot read the gzip body: {error}") from error


def _unzstd(body: bytes, limit: BodyLimit) -> bytes:
    try:
        with pa.CompressedInputStream(pa.BufferReader(body), "zstd") as stream:
            return _read_all(stream, limit)
    except OSError as error:
        raise UserError(f"cannot read the zstd body: {error}") from error


def _read_all(stream: Any, limit: BodyLimit) -> bytes:
    parts, size = [], 0
    while part := stream.read(_STEP):
        size += len(part)
        if size > limit.bytes:
            limit.refuse()
        parts.append(part)
    return b"".join(parts)


_ENCODINGS: dict[str, Callable[[bytes, BodyLimit], bytes]] = {"gzip": _gunzip, "zstd": _unzstd, "snappy": unsnappy}


def require_json(request: Request) -> None:
    """Raise BadMediaType unless the body is sent as JSON.

    A web page of any site can make a browser send text or a form to us without a CORS preflight, but not JSON.
    """
    kind = content_type(request)
    if kind != JSON and not (kind.startswith("application/") and kind.endswith("+json")):
        raise BadMediaType(f"content-type {kind!r} is not JSON: send {JSON}")


async def read_json(request: Request, limit: BodyLimit, empty: dict[str, Any] | None = None) -> dict[str, Any]:
    """Read the body as a JSON object; an empty body gives `empty`, if that is not None."""
    if empty is None:
        require_json(request)
    body = await read_body(request, limit)
    if not body and empty is not None:
        return empty
    require_json(request)
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise UserError(f"the body is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise UserError("the body must be a JSON object")
    return value


class FormParameters:
    """The parameters of one request; those of a form in the body come before those of the query string. `path` has
    those of the path."""

    def __init__(self, pairs: Sequence[tuple[str, str]], path: Mapping[str, str] | None = None) -> None:
        self.path = dict(path or {})
        self._values: dict[str, list[str]] = {}
        for name, value in pairs:
            self._values.setdefault(name, []).append(value)

    @classmethod
    async def read(cls, request: Request) -> Self:
        """Read the parameters of a request."""
        body = await read_body(request, _FORM_LIMIT) if request.method == "POST" else b""
        if body and content_type(request) != FORM:
            raise UserError(f"error parsing form values: the body of a POST is {FORM}")
        return cls(_pairs(body) + _pairs(request.scope["query_string"]), request.path_params)

    @classmethod
    def in_query(cls, request: HTTPConnection) -> Self:
        """Read the parameters of the query string alone."""
        return cls(_pairs(request.scope["query_string"]), request.path_params)

    def all(self, name: str) -> list[str]:
        return self._values.get(name, [])

    def text(self, name: str) -> str:
        """Return the first value; "" if the parameter is missing."""
        return self._values.get(name, [""])[0]


def _pairs(encoded: bytes) -> list[tuple[str, str]]:
    try:
        return parse_qsl(encoded.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=_FIELDS_MAX)
    except ValueError as error:  # also raised for invalid UTF-8
        raise UserError(f"error parsing form values: {error}") from error
