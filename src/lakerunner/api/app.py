"""The ASGI application of a process: the routes its parts bring, and one way to answer errors."""

from __future__ import annotations

from collections.abc import Sequence

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from lakerunner.api.errors import on_bug, on_http_exception, on_lakerunner_error
from lakerunner.api.health import Health
from lakerunner.model.errors import LakerunnerError


def build_app(*parts: Sequence[BaseRoute]) -> Starlette:
    return Starlette(
        routes=[route for part in parts for route in part],
        exception_handlers={
            LakerunnerError: on_lakerunner_error,
            HTTPException: on_http_exception,
            Exception: on_bug,
        },
    )


def admin_routes(health: Health) -> list[Route]:
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
        Route("/healthz", healthz),
        Route("/readyz", readyz),
        Route("/livez", livez),
        Route("/metrics", metrics),
    ]
