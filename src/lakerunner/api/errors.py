"""Errors as HTTP answers: the branch of the error tree gives the status, the message goes to the client.

Anything outside the tree is a bug: it is logged with its trace and the client gets 500 without details.
"""

from __future__ import annotations

import logging
import math

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from lakerunner.model.errors import KINDS, Corrupt, LakerunnerError, NotFound, Unavailable, UserError

PROMETHEUS_ROOT = "/prometheus"
_PATH_SHOWN = 200  # characters
_logger = logging.getLogger("lakerunner.api")


def error_body(error: BaseException) -> dict[str, object]:
    """`{"kind": ..., "message": ..., "position": {...}}`, the same in every format."""
    kind = next((one.__name__ for one in type(error).__mro__ if one.__name__ in KINDS), type(error).__name__)
    if isinstance(error, UserError):
        position = error.position
        where = {"position": {"line": position.line, "column": position.column}} if position else {}
        return {"kind": kind, "message": error.message, **where}
    log_detail(error)
    if isinstance(error, LakerunnerError):
        return {"kind": kind, "message": str(error)}
    return {"kind": "InternalError", "message": "an internal error; the server's log has the details"}


def log_detail(error: BaseException) -> None:
    """Log what an operator must know: a segment that cannot be read, and what the client does not see of a dependency
    that is away, its address and its own words."""
    if isinstance(error, Corrupt):
        _logger.error("a segment cannot be read, `lakerunner repair` restores it: %s", error)
    if isinstance(error, Unavailable) and error.detail:
        _logger.warning("request failed: %s (%s)", error, error.detail)


def retry_after(error: Exception) -> dict[str, str]:
    """The header that says when to try the same again; none where that would not help."""
    return {"retry-after": str(retry_seconds(error))} if isinstance(error, Unavailable) else {}


def retry_seconds(error: Unavailable) -> int:
    return max(1, math.ceil(error.retry_seconds))


def on_lakerunner_error(_request: Request | None, error: Exception) -> Response:
    status = getattr(error, "http_status", 500)
    headers = retry_after(error)
    if status == 401:
        headers["www-authenticate"] = "Bearer"
    return JSONResponse({"error": error_body(error)}, status, headers)


def on_http_exception(request: Request, error: Exception) -> Response:
    if not isinstance(error, HTTPException):
        raise error
    if error.status_code == NotFound.http_status:
        return on_lakerunner_error(request, _no_endpoint(request))
    message = error.detail
    if error.status_code == 405:
        allowed = ", ".join(sorted((error.headers or {}).get("Allow", "another method").split(", ")))
        message = f"{request.url.path[:_PATH_SHOWN]} does not take {request.method}: use {allowed}"
    return JSONResponse({"error": {"message": message}}, error.status_code, error.headers)


def _no_endpoint(request: Request) -> NotFound:
    """Name the path that is not served, and the one that may be meant: clients of Prometheus leave its prefix out."""
    path = request.url.path[:_PATH_SHOWN]
    meant = f"{PROMETHEUS_ROOT}{path}"
    routes = [route for route in request.app.routes if isinstance(route, Route)]
    if any(route.path_regex.match(meant) for route in routes):
        return NotFound(f"there is no endpoint {path}: did you mean {meant}?")
    if path.startswith("/loki/"):
        return NotFound(f"there is no endpoint {path}: LogQL is not available yet, query logs by POST /api/v1/sql")
    return NotFound(f"there is no endpoint {path}: GET /openapi.json lists all endpoints")


def on_client_left(_request: Request, _error: Exception) -> Response:
    """Nobody reads this answer. It is no bug either: dashboards give up a query whenever their user moves on."""
    return Response(status_code=499)


def on_bug(request: Request, error: Exception) -> Response:
    _logger.error("request failed: %s %s", request.method, request.url.path, exc_info=error)
    return JSONResponse({"error": error_body(error)}, 500)
