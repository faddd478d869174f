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
from lakerunner.api.openapi import Endpoint, Operation, Parameter, json_reply
from lakerunner.api.schema import COUNT, TEXT, Schema, array, one_of, record
from lakerunner.index.sources import SourceRecord, Sources
from lakerunner.model.errors import UserError
from lakerunner.model.organization import Role
from lakerunner.model.source import Rejects, SourceState

LIMIT_MAX = 10_000
_KEY_MAX = 4096
_NULLABLE: Schema = {"type": ["string", "null"]}
_STATES = [state.value for state in SourceState]
_NOTE = record("kind count line text", count=COUNT, line=COUNT)
_REJECT = record("line offset reason excerpt", line=COUNT, offset=COUNT)
_OBJECT = record(
    "bucket key etag size organization_id? collector? signal? state reason seen_at? ended_at? rows? rejected? notes?",
    size=COUNT,
    organization_id=_NULLABLE,
    collector=_NULLABLE,
    signal=_NULLABLE,
    state=one_of(_STATES),
    reason={**_NULLABLE, "description": "reason of the failure"},
    seen_at=_NULLABLE,
    ended_at=_NULLABLE,
    rows={"type": ["integer", "null"], "description": "number of rows ingested"},
    rejected={**COUNT, "description": "number of lines that could not be read"},
    notes=array(_NOTE, description="values that were guessed or are improbable"),
)
_LISTED = record("counts objects", counts={"type": "object", "additionalProperties": COUNT}, objects=array(_OBJECT))
_REJECTED = record(
    "key etag lines rejected rejects",
    etag=_NULLABLE,
    lines=COUNT,
    rejected={**COUNT, "description": "number of all; the first 100 are listed"},
    rejects=array(_REJECT),
)
LIST = Operation(
    "objects",
    "List raw objects and their state",
    json_reply("Number of objects in each state, and some of them.", _LISTED),
    parameters=(
        Parameter("state", "query", {"enum": _STATES}, "only these", "failed"),
        Parameter(
            "key", "query", TEXT, "only keys that start with this text, or match it if it contains * or ?", "otel-raw/"
        ),
        Parameter("limit", "query", {"type": "integer", "minimum": 1, "maximum": LIMIT_MAX}, "default: 100", "10"),
    ),
    errors=(400, 401, 403, 503),
)
RETRY = Operation(
    "objects",
    "Ingest failed objects again",
    json_reply("Number of objects queued again.", record("retried", retried=COUNT)),
)
_KEY = Parameter("key", "query", TEXT, "full key of the object; required", "otel-raw/default/files/app.jsonl")
REJECTS = Operation(
    "objects",
    "List the lines of an object that could not be read",
    json_reply("Lines of its newest version that has any; rejected is 0 if there are none.", _REJECTED),
    parameters=(_KEY,),
    errors=(400, 401, 403, 503),
)
DISMISS = Operation(
    "objects",
    "Close a failed or partial object",
    json_reply(
        "Number of versions: failed ones are dismissed, partial ones are done.", record("dismissed", dismissed=COUNT)
    ),
    parameters=(_KEY,),
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
