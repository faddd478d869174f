"""Answers of the Prometheus API: {"status": "success", "data": ..., "warnings": ..., "infos": ...}, packed with gzip
for those who take it, small ones at once and large ones as they are written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Any

import orjson
from anyio import to_thread
from isal import isal_zlib
from starlette.requests import Request
from starlette.responses import Response

from lakerunner.api.openapi import JSON
from lakerunner.api.stream import Stream, in_thread
from lakerunner.model.plural import plural
from lakerunner.model.time import iso_time
from lakerunner.promql.notes import note_text
from lakerunner.query.account import Account
from lakerunner.series.notes import Note

TRUNCATED = "results truncated due to limit"
_MOST_NOTES = 10
_AT_ONCE = 3  # chunks that make a small answer
_GZIP_LEVEL, _GZIP_WINDOW = 1, 31


def success(data: Any, warnings: Sequence[str] = (), infos: Sequence[str] = ()) -> bytes:
    said = {name: list(texts) for name, texts in (("warnings", warnings), ("infos", infos)) if texts}
    return orjson.dumps({"status": "success", "data": data, **said})


def whole(request: Request, body: bytes, media_type: str = JSON) -> Response:
    return _whole(request, b"".join(_packed(request, [body])), media_type)


async def streamed(request: Request, chunks: Iterator[bytes], close: Callable[[], None]) -> Response:
    """Owns `close`, which may block: it is called when all is sent, or cannot be."""
    packed = _packed(request, chunks)
    first = await to_thread.run_sync(lambda: list(islice(packed, _AT_ONCE)))
    if len(first) < _AT_ONCE:
        await to_thread.run_sync(close)
        return _whole(request, b"".join(first))
    return Stream(in_thread(chain(first, packed)), JSON, close, _headers(request))


def notes_texts(notes: Iterable[Note], level: str, query: str) -> list[str]:
    """Of this level; after so many, how many more there are."""
    texts = [note_text(note, query) for note in notes if note.level == level]
    more = len(texts) - _MOST_NOTES
    return texts if more <= 0 else [*texts[:_MOST_NOTES], f"{more} more {level} annotations omitted"]


def account_warnings(account: Account) -> list[str]:
    """What a reader must know of an answer that lacks something, or may be old."""
    found = [f"this answer may be out of date: {account.degraded}"] if account.degraded else []
    found += [
        f"this answer is not complete: {plural(one.segments, 'segment')} of {iso_time(one.time.start_ns)} to "
        f"{iso_time(one.time.end_ns)} missing: {one.reason}"
        for one in account.missing
    ]
    return found + sorted(account.warnings)


def _whole(request: Request, body: bytes, media_type: str = JSON) -> Response:
    return Response(body, headers={"content-type": media_type} | _headers(request))


def _headers(request: Request) -> dict[str, str]:
    always = {"vary": "Accept-Encoding", "cache-control": "no-store"}
    return always | ({"content-encoding": "gzip"} if _takes_gzip(request) else {})


def _takes_gzip(request: Request) -> bool:
    for one in request.headers.get("accept-encoding", "").split(","):
        name, _, rest = one.partition(";")
        if name.strip().lower() == "gzip":
            return rest.replace(" ", "").removeprefix("q=").strip("0.") != "" or not rest
    return False


def _packed(request: Request, chunks: Iterable[bytes]) -> Iterator[bytes]:
    if not _takes_gzip(request):
        yield from chunks
        return
    packer = isal_zlib.compressobj(_GZIP_LEVEL, wbits=_GZIP_WINDOW)
    for chunk in chunks:
        if packed := packer.compress(chunk):
            yield packed
    yield packer.flush()
