"""Raw objects over HTTP: list them and their rejected lines, retry failed ones, dismiss them.

A request sees the objects of its organization; a request without a key, where none is needed, also those that belong to
no organization.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from anyio import to_thread
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from lakerunner.api.auth import Authenticator
from lakerunner.api.openapi import COUNT, JSON, TEXT, Endpoint, Operation, Parameter, Reply, Schema
from lakerunner.index.sources import SourceRecord, Sources
from lakerunner.model.errors import UserError
from lakerunner.model.organization import Role
from lakerunner.model.source import Rejects, SourceState

LIMIT_MAX = 10_000
_KEY_MAX = 4096
_NULLABLE: Schema = {"type": ["string", "null"]}
_NOTE: Schema = {
    "type": "object",
    "required": ["kind", "count", "line", "text"],
    "properties": {"kind": TEXT, "count": COUNT, "line": COUNT, "text": TEXT},
}
_REJECT: Schema = {
    "type": "object",
    "required": ["line", "offset", "reason", "excerpt"],
    "properties": {"line": COUNT, "offset": COUNT, "reason": TEXT, "excerpt": TEXT},
}
_OBJECT: Schema = {
    "type": "object",
    "required": ["bucket", "key", "etag", "size", "state", "reason"],
    "properties": {
        "bucket": TEXT,
        "key": TEXT,
        "etag": TEXT,
        "size": COUNT,
        "organization_id": _NULLABLE,
        "collector": _NULLABLE,
        "signal": _NULLABLE,
        "state": {"type": "string", "enum": [state.value for state in SourceState]},
        "reason": {"type": ["string", "null"], "description": "reason of the failure"},
        "seen_at": _NULLABLE,
        "ended_at": _NULLABLE,
        "rows": {"type": ["integer", "null"], "description": "number of rows ingested"},
        "rejected": {**COUNT, "description": "number of lines that could not be read"},
        "notes": {"type": "array", "items": _NOTE, "description": "values that were guessed or are improbable"},
    },
}
_LISTED: Schema = {
    "type": "object",
    "required": ["counts", "objects"],
    "properties": {
        "counts": {"type": "object", "additionalProperties": COUNT},
        "objects": {"type": "array", "items": _OBJECT},
    },
}
_REJECTED: Schema = {
    "type": "object",
    "required": ["key", "etag", "lines", "rejected", "rejects"],
    "properties": {
        "key": TEXT,
        "etag": _NULLABLE,
        "lines": COUNT,
        "rejected": {**COUNT, "description": "number of all; the first 100 are listed"},
        "rejects": {"type": "array", "items": _REJECT},
    },
}
_DISMISSED: Schema = {"type": "object", "required": ["dismissed"], "properties": {"dismissed": COUNT}}
_RETRIED: Schema = {"type": "object", "required": ["retried"], "properties": {"retried": COUNT}}
LIST = Operation(
    tag="objects",
    summary="List raw objects and their state",
    parameters=(
        Parameter("state", "query", {"enum": [state.value for state in SourceState]}, "only these", "failed"),
        Parameter(
            "key", "query", TEXT, "only keys that start with this text, or match it if it contains * or ?", "otel-raw/"
        ),
        Parameter("limit", "query", {"type": "integer", "minimum": 1, "maximum": LIMIT_MAX}, "default: 100", "10"),
    ),
    replies={200: Reply("Number of objects in each state, and some of them.", {JSON: _LISTED})},
    errors=(400, 401, 403, 503),
)
RETRY = Operation(
    tag="objects",
    summary="Ingest failed objects again",
    replies={200: Reply("Number of objects queued again.", {JSON: _RETRIED})},
    errors=(401, 403, 503),
)
_KEY = Parameter("key", "query", TEXT, "full key of the object; required", "otel-raw/default/files/app.jsonl")
REJECTS = Operation(
    tag="objects",
    summary="List the lines of an object that could not be read",
    parameters=(_KEY,),
    replies={
        200: Reply("Lines of its newest version that has any; rejected is 0 if there are none.", {JSON: _REJECTED})
    },
    errors=(400, 401, 403, 503),
)
DISMISS = Operation(
    tag="objects",
    summary="Close a failed or partial object",
    parameters=(_KEY,),
    replies={200: Reply("Number of versions: failed ones are dismissed, partial ones are done.", {JSON: _DISMISSED})},
    errors=(400, 401, 403, 503),
)


@dataclass(frozen=True)
class ObjectsApi:
    """The endpoints of raw objects. `retry` queues failed records again and returns how many it could."""

    sources: Sources
    authenticator: Authenticator
    retry: Callable[[list[SourceRecord]], int]

    def routes(self) -> list[Route]:
        return [
            Endpoint("/api/v1/objects", self.list, GET=LIST),
            Endpoint("/api/v1/objects/retry", self.again, POST=RETRY),
            Endpoint("/api/v1/objects/rejects", self.rejects, GET=REJECTS),
            Endpoint("/api/v1/objects/dismiss", self.dismiss, POST=DISMISS),
        ]

    async def list(self, request: Request) -> Response:
        own, unplaced = await self._scope(request, Role.READ)
        state = _state(request.query_params.get("state"))
        limit = _limit(request.query_params.get("limit", "100"))
        pattern = _storable(request.query_params.get("key"))
        records = await to_thread.run_sync(
            lambda: self.sources.list(state, organization=own, unplaced=unplaced, key=pattern, limit=limit)
        )
        counts = await to_thread.run_sync(lambda: self.sources.counts(own, unplaced=unplaced))
        return JSONResponse(
            {
                "counts": {state.value: counts.get(state, 0) for state in SourceState},
                "objects": [_object_json(record) for record in records],
            }
        )

    async def again(self, request: Request) -> Response:
        own, unplaced = await self._scope(request, Role.WRITE)
        failed = await to_thread.run_sync(
            lambda: self.sources.list(SourceState.FAILED, organization=own, unplaced=unplaced, limit=LIMIT_MAX)
        )
        return JSONResponse({"retried": await to_thread.run_sync(self.retry, failed)})

    async def rejects(self, request: Request) -> Response:
        own, unplaced = await self._scope(request, Role.READ)
        key = _key(request)
        found = await to_thread.run_sync(lambda: self.sources.rejects(key, own, unplaced=unplaced))
        etag, rejects = found or (None, Rejects())
        listed = [vars(one) for one in rejects.first]
        return JSONResponse(
            {"key": key, "etag": etag, "lines": rejects.lines, "rejected": rejects.count, "rejects": listed}
        )

    async def dismiss(self, request: Request) -> Response:
        own, unplaced = await self._scope(request, Role.WRITE)
        key = _key(request)
        return JSONResponse(
            {"dismissed": await to_thread.run_sync(lambda: self.sources.dismiss(key, own, unplaced=unplaced))}
        )

    async def _scope(self, request: Request, role: Role) -> tuple[UUID, bool]:
        """Return the caller's organization, and whether the caller sees objects without an organization."""
        caller = await self.authenticator.admit(request, role)
        return caller.organization.id, caller.key is None


def _state(text: str | None) -> SourceState | None:
    try:
        return SourceState(text) if text else None
    except ValueError:
        raise UserError(f"unknown state {text!r}: use one of {', '.join(SourceState)}") from None


def _key(request: Request) -> str:
    key = _storable(request.query_params.get("key"))
    if not key:
        raise UserError("parameter key is missing: give the full key of an object")
    return key


def _storable(key: str | None) -> str | None:
    """Return the key; raise UserError if no object can have it."""
    if key is not None and ("\0" in key or len(key) > _KEY_MAX):
        raise UserError(f"{key[:80]!r} is not a valid key of an object")
    return key


def _limit(text: str) -> int:
    if not text.isdigit() or not 1 <= int(text) <= LIMIT_MAX:
        raise UserError(f"limit must be a number from 1 to {LIMIT_MAX}, not {text!r}")
    return int(text)


def _object_json(record: SourceRecord) -> dict[str, Any]:
    source = record.source
    return {
        "bucket": source.bucket,
        "key": source.key,
        "etag": source.etag,
        "size": source.size,
        "organization_id": str(record.organization) if record.organization else None,
        "collector": record.collector,
        "signal": record.signal,
        "state": record.state.value,
        "reason": record.reason,
        "seen_at": _iso(record.seen_at),
        "ended_at": _iso(record.ended_at),
        "rows": record.rows,
        "rejected": record.rejected,
        "notes": [vars(note) for note in record.notes],
    }


def _iso(time: datetime | None) -> str | None:
    return time.isoformat() if time else None
