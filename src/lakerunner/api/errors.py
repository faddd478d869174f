"""Errors as HTTP answers: the branch of the error tree gives the status, the message goes to the client.

Anything outside the tree is a bug: it is logged with its trace and the client gets 500 without details.
"""

from __future__ import annotations

import logging
import math

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from lakerunner.model.errors import KINDS, LakerunnerError, Unavailable, UserError

_logger = logging.getLogger("lakerunner.api")
_NO_ROUTE = ("Not Found", "Method Not Allowed")  # what Starlette says where no route fits
_SHOWN = 200
# Paths that clients of other systems ask for, and what answers them here.
_ELSEWHERE = (
    ("/api/v1/", ": Prometheus' API is below /prometheus"),
    ("/loki/", ": there is no LogQL, logs are asked for by POST /api/v1/sql"),
)


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
    """What the client is not told of a dependency that is away: its address, and its own words."""
    if isinstance(error, Unavailable) and error.detail:
        _logger.warning("a request failed: %s (%s)", error, error.detail)


def retry_after(error: Exception) -> dict[str, str]:
    """The header that says when to try the same again; none where that would not help."""
    return {"retry-after": str(retry_seconds(error))} if isinstance(error, Unavailable) else {}


def retry_seconds(error: Unavailable) -> int:
    return max(1, math.ceil(error.retry_seconds))


def on_lakerunner_error(_request: Request, error: Exception) -> Response:
    status = getattr(error, "http_status", 500)
    headers = retry_after(error)
    if status == 401:
        headers["www-authenticate"] = "Bearer"
    return JSONResponse({"error": error_body(error)}, status, headers)


def on_http_exception(request: Request, error: Exception) -> Response:
    if not isinstance(error, HTTPException):
        raise error
    message = _without_route(request, error) if error.detail in _NO_ROUTE else error.detail
    return JSONResponse({"error": {"message": message}}, error.status_code, error.headers)


def _without_route(request: Request, error: HTTPException) -> str:
    """Return what to call instead of a path, or a method of it, that is not served."""
    path = request.url.path[:_SHOWN]
    if error.status_code == 405:
        return f"{path} does not take {request.method}: use {(error.headers or {}).get('Allow', 'another method')}"
    hint = next((hint for prefix, hint in _ELSEWHERE if path.startswith(prefix)), "")
    return f"{path} is not served here{hint}; GET /openapi.json lists every endpoint"


def on_client_left(_request: Request, _error: Exception) -> Response:
    """Nobody reads this answer. It is no bug either: dashboards give up a query whenever their user moves on."""
    return Response(status_code=499)


def on_bug(request: Request, error: Exception) -> Response:
    _logger.error("a request failed: %s %s", request.method, request.url.path, exc_info=error)
    return JSONResponse({"error": error_body(error)}, 500)
