"""The ASGI application of a process: the routes its parts bring, and one way to answer errors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute

from lakerunner.api.auth import KEY_HEADERS
from lakerunner.api.body_budget import BODIES_MAX_BYTES, BodyBudget
from lakerunner.api.errors import on_bug, on_client_left, on_http_exception, on_lakerunner_error
from lakerunner.api.guesses import Addressed
from lakerunner.api.health import Health
from lakerunner.api.openapi import ANY, BOOLEAN, JSON, OPEN, TEXT, Endpoint, Operation, Reply, Schema, document
from lakerunner.model.errors import LakerunnerError

_REPORT = {
    "type": "object",
    "required": ["status", "parts"],
    "properties": {"status": TEXT, "parts": {"type": "object", "additionalProperties": TEXT}, "failed": TEXT},
}
_LIVE = {"type": "object", "required": ["live"], "properties": {"live": BOOLEAN}}


def _about(summary: str, media_type: str, schema: Schema, *bad: int) -> Operation:
    """An operation that names no telemetry and needs no key."""
    replies = {status: Reply(summary, {media_type: schema}) for status in (200, *bad)}
    return Operation("process", summary, replies, errors=(), security=OPEN)


HEALTHZ = _about("Health of each part of the process", JSON, _REPORT, 500)
READYZ = _about("Whether the process can serve requests", JSON, _REPORT, 503)
LIVEZ = _about("Whether the process is alive", JSON, _LIVE, 500)
METRICS = _about("Metrics of the process, for Prometheus", "text/plain", TEXT)
DOCUMENT = _about("This document", JSON, ANY)


def build_app(
    *parts: Sequence[BaseRoute], origins: Sequence[str] = (), bodies_max_bytes: int = BODIES_MAX_BYTES
) -> Starlette:
    """These routes, and /openapi.json, which describes them. Pages of `origins` may call them, with a key."""
    routes = [route for part in parts for route in part]

    def openapi(_request: Request) -> Response:
        return JSONResponse(described)

    routes.append(Endpoint("/openapi.json", openapi, GET=DOCUMENT))
    described = document(routes)
    return Starlette(
        routes=routes,
        middleware=[
            *([Middleware(CORSMiddleware, **_cors(origins))] if origins else []),
            Middleware(Addressed),
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
    """What every process serves about itself: /healthz, /readyz, /livez, /metrics. None of it names telemetry."""

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
