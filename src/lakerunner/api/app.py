"""The ASGI application of a process: the routes of its parts, one way to answer errors, one budget for bodies; and the
health of the process."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lakerunner.api.auth import KEY_HEADERS, organization_of
from lakerunner.api.errors import on_bug, on_client_left, on_http_exception, on_lakerunner_error
from lakerunner.api.key_cache import ClientAddressMiddleware
from lakerunner.api.limits import Holdings
from lakerunner.api.openapi import JSON, OPEN, Endpoint, Operation, Reply, document
from lakerunner.api.schema import ANY, BOOLEAN, TEXT, Schema, record
from lakerunner.model.errors import LakerunnerError

BODIES_MAX_BYTES = 512 << 20
_REPORT = record("status parts failed?", parts={"type": "object", "additionalProperties": TEXT})
_LIVE = record("live", live=BOOLEAN)


def _process_operation(summary: str, media_type: str, schema: Schema, *bad: int) -> Operation:
    """Describe an operation that shows no telemetry and needs no key."""
    replies = {status: Reply(summary, {media_type: schema}) for status in (200, *bad)}
    return Operation("process", summary, replies, errors=(), security=OPEN)


HEALTHZ = _process_operation("Health of each part of the process", JSON, _REPORT, 500)
READYZ = _process_operation("Whether the process can serve requests", JSON, _REPORT, 503)
LIVEZ = _process_operation("Whether the process is alive", JSON, _LIVE, 500)
METRICS = _process_operation("Metrics of the process, for Prometheus", "text/plain", TEXT)
DOCUMENT = _process_operation("This document", JSON, ANY)


def build_app(
    *parts: Sequence[BaseRoute], origins: Sequence[str] = (), bodies_max_bytes: int = BODIES_MAX_BYTES
) -> Starlette:
    """Build an app of these routes and /openapi.json, which describes them. Web pages of `origins` may call them with
    a key."""
    routes = [route for part in parts for route in part]

    def openapi(_request: Request) -> Response:
        return JSONResponse(described)

    routes.append(Endpoint("/openapi.json", openapi, GET=DOCUMENT))
    described = document(routes)
    return Starlette(
        routes=routes,
        middleware=[
            *([Middleware(CORSMiddleware, **_cors(origins))] if origins else []),
            Middleware(ClientAddressMiddleware),
            Middleware(BodyBudget, max_bytes=bodies_max_bytes),
        ],
        exception_handlers={
            LakerunnerError: on_lakerunner_error,
            HTTPException: on_http_exception,
            ClientDisconnect: on_client_left,
            Exception: on_bug,
        },
    )


def _cors(origins: Sequence[str]) -> dict[str, Any]:
    """Return the options of CORSMiddleware: pages send keys in headers, so credentials (cookies) are not allowed."""
    return {
        "allow_origins": origins,
        "allow_methods": ("GET", "POST", "DELETE"),
        "allow_headers": ("authorization", "content-type", "content-encoding", *KEY_HEADERS),
        "expose_headers": ("retry-after", "lakerunner-degraded", "lakerunner-warnings"),
        "max_age": 600,
    }


def admin_routes(health: Health) -> list[BaseRoute]:
    """Return the routes that every process serves: /healthz, /readyz, /livez, /metrics. They show no telemetry."""

    def healthz(_request: Request) -> Response:
        return JSONResponse(health.report(), 200 if health.live else 500)

    def readyz(_request: Request) -> Response:
        return JSONResponse(health.report(), 200 if health.ready else 503)

    def livez(_request: Request) -> Response:
        return JSONResponse({"live": health.live}, 200 if health.live else 500)

    def metrics(_request: Request) -> Response:
        return Response(generate_latest(), media_type=CONTENT_TYPE_LATEST)

    return [
        Endpoint("/healthz", healthz, GET=HEALTHZ),
        Endpoint("/readyz", readyz, GET=READYZ),
        Endpoint("/livez", livez, GET=LIVEZ),
        Endpoint("/metrics", metrics, GET=METRICS),
    ]


class BodyBudget:
    """ASGI middleware that bounds the bytes of request bodies that one app holds in memory at the same time.

    Each endpoint limits the size of one body, but a thousand connections with a large body each would need more memory
    than a machine has. A request beyond the budget, or beyond its organization's share of it (`api/limits.py`), is
    refused as Busy and may be sent again. Endpoints authenticate a request before they read its body
    (`Authenticator.admit`). While no other body is held, a request may have any size that its endpoint accepts.
    """

    def __init__(self, app: ASGIApp, max_bytes: int) -> None:
        self._app = app
        self._held = Holdings(max_bytes, "bytes of bodies that may be received at once")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] in ("GET", "HEAD"):
            await self._app(scope, receive, send)
            return
        holder, own = None, 0

        async def counted() -> Message:
            nonlocal holder, own
            message = await receive()
            if size := len(message.get("body", b"")):
                # Return what the request holds and take the sum: its own bytes must not count against its next part.
                self._held.give_back(holder, own)
                holder, own, size = organization_of(scope), 0, own + size
                self._held.take(holder, size)
                own = size
            return message

        try:
            await self._app(scope, counted, send)
        finally:
            self._held.give_back(holder, own)


@dataclass
class Health:
    """The state of each part of a process, reported by the part and read by probes; safe between threads.

    Live: no part has failed for good. Ready: every part has started and none waits for a dependency.
    """

    _parts: dict[str, str] = field(default_factory=dict)
    _failed: str | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def starting(self, part: str) -> None:
        with self._lock:
            self._parts[part] = "starting"

    def well(self, part: str) -> None:
        with self._lock:
            self._parts[part] = ""

    def waiting(self, part: str, reason: str) -> None:
        with self._lock:
            self._parts[part] = reason

    def fail(self, part: str, reason: str) -> None:
        with self._lock:
            self._failed = f"{part}: {reason}"

    @property
    def live(self) -> bool:
        return self._failed is None

    @property
    def ready(self) -> bool:
        with self._lock:
            return self._failed is None and not any(self._parts.values())

    def report(self) -> dict[str, object]:
        """Return the body of /healthz."""
        with self._lock:
            parts = {part: reason or "ok" for part, reason in sorted(self._parts.items())}
            status = "failed" if self._failed else "ok" if set(parts.values()) <= {"ok"} else "degraded"
            report: dict[str, object] = {"status": status, "parts": parts}
            return report | {"failed": self._failed} if self._failed else report
