"""Failed merges and rollups of the caller's organization over HTTP: GET /api/v1/work lists them with the reason, POST
/api/v1/requeue retries them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from anyio import to_thread
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from lakerunner.api.auth import Authenticator
from lakerunner.api.openapi import Endpoint, Operation, Parameter, json_reply
from lakerunner.api.schema import COUNT, TEXT, TIME, array, one_of, record, text
from lakerunner.bus.topics import CompactBox, RollupBox, decode
from lakerunner.index.tending import FailedWork, Tending
from lakerunner.model.errors import Corrupt
from lakerunner.model.organization import Role
from lakerunner.model.segment import Segment
from lakerunner.model.tier import TIER_NAMES
from lakerunner.model.time import iso_time

_SHOWN = 1000
_WORK = {
    **record(
        "id work collector? signal? tier? segments state attempts reason first_at next_at",
        work=one_of(("compact", "rollup", "unknown")),
        tier=text("tier of the segments: raw, 10s, 1m, 5m, 1h, 1d"),
        segments=array(TEXT),
        state=one_of(("waiting", "aside"), description="waiting: it is retried at next_at"),
        attempts=COUNT,
        first_at=TIME,
        next_at=TIME,
    ),
    # In this order since the first release.
    "required": ["id", "work", "state", "attempts", "reason", "segments", "first_at", "next_at"],
}
_SEGMENT = record(
    "id collector signal tier level? start end rows bytes path reason", level=COUNT, rows=COUNT, bytes=COUNT
)
LIST = Operation(
    "work",
    "List merges and rollups that failed, and segments set aside",
    json_reply("Failed work with reasons.", record("work segments", work=array(_WORK), segments=array(_SEGMENT))),
    description=f"The newest {_SHOWN} of each.",
)
REQUEUE = Operation(
    "work",
    "Retry failed work",
    json_reply("Number of works and segments queued again.", record("work segments", work=COUNT, segments=COUNT)),
    description="Without an id, all failed work. Segments that were set aside are merged and rolled up again.",
    parameters=(Parameter("id", "query", array(TEXT), "id of a work or a segment; may be repeated"),),
    errors=(401, 403, 404, 503),
)


@dataclass(frozen=True)
class WorkApi:
    """The endpoints of failed work. `requeue` queues the given ids of an organization again, or all if there are none,
    and returns the numbers of works and segments."""

    tending: Tending
    authenticator: Authenticator
    requeue: Callable[[UUID, Collection[str]], tuple[int, int]]

    def routes(self) -> list[Route]:
        return [
            Endpoint("/api/v1/work", self.list, GET=LIST),
            Endpoint("/api/v1/requeue", self.again, POST=REQUEUE),
        ]

    async def list(self, request: Request) -> Response:
        own = await self._organization(request, Role.READ)
        failed = await to_thread.run_sync(lambda: self.tending.failed(own, limit=_SHOWN))
        aside = await to_thread.run_sync(lambda: self.tending.list_aside(own, limit=_SHOWN))
        return JSONResponse(
            {
                "work": [_work_json(one) for one in failed],
                "segments": [_segment_json(one, reason) for one, reason in aside],
            }
        )

    async def again(self, request: Request) -> Response:
        own = await self._organization(request, Role.ADMIN)
        ids = request.query_params.getlist("id")
        works, segments = await to_thread.run_sync(self.requeue, own, ids)
        return JSONResponse({"work": works, "segments": segments})

    async def _organization(self, request: Request, role: Role) -> UUID:
        caller = await self.authenticator.admit(request, role)
        return caller.organization.id


def _work_json(failed: FailedWork) -> dict[str, Any]:
    return {
        "id": failed.work.id,
        **_box_json(failed.work.payload),
        "state": failed.state,
        "attempts": failed.attempts,
        "reason": failed.reason,
        "first_at": failed.first_at.isoformat(),
        "next_at": failed.next_at.isoformat(),
    }


def _box_json(payload: bytes) -> dict[str, Any]:
    try:
        box = decode(payload)
    except Corrupt:
        box = None
    if not isinstance(box, CompactBox | RollupBox):
        return {"work": "unknown", "segments": []}
    return {
        "work": "compact" if isinstance(box, CompactBox) else "rollup",
        "collector": box.collector,
        "signal": box.signal if isinstance(box, CompactBox) else "metrics",
        "tier": TIER_NAMES.get(box.frequency_ms, str(box.frequency_ms)),
        "segments": [str(id_) for id_ in box.segments],
    }


def _segment_json(segment: Segment, reason: str) -> dict[str, Any]:
    return {
        "id": str(segment.id),
        "collector": segment.collector,
        "signal": segment.signal,
        "tier": TIER_NAMES.get(segment.frequency_ms, str(segment.frequency_ms)),
        "level": segment.level,
        "start": iso_time(segment.time.start_ns),
        "end": iso_time(segment.time.end_ns),
        "rows": segment.rows,
        "bytes": segment.bytes,
        "path": segment.path,
        "reason": reason,
    }
