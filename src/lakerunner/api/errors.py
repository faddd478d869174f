"""Turn errors into HTTP responses: the class in the error tree gives the status, the message goes to the client.

Any other exception is a bug: it is logged with its traceback, and the client gets 500 without details.
"""

from __future__ import annotations

import logging
import math

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from lakerunner.model.errors import Corrupt, NotFound, Unavailable, error_to_body

PROMETHEUS_ROOT = "/prometheus"
_PATH_SHOWN = 200  # characters
_logger = logging.getLogger("lakerunner.api")


def error_body(error: BaseException) -> dict[str, object]:
    """Return the error as every format of ours shows it; the log has what a client must not see."""
    log_detail(error)
    return error_to_body(error)


def log_detail(error: BaseException) -> None:
    """Log what an operator must know: a segment that cannot be read, and the details of an unavailable dependency,
    such as its address, which the client does not see."""
    if isinstance(error, Corrupt):
        _logger.error("a segment cannot be read, `lakerunner repair` restores it: %s", error)
    if isinstance(error, Unavailable) and error.detail:
        _logger.warning("request failed: %s (%s)", error, error.detail)


def retry_after(error: Exception) -> dict[str, str]:
    """Return the Retry-After header, or no header if the same request would fail again."""
    return {"retry-after": str(retry_seconds(error))} if isinstance(error, Unavailable) else {}


def retry_seconds(error: Unavailable) -> int:
    """Return after how many whole seconds, at least one, the client should retry."""
    return max(1, math.ceil(error.retry_seconds))


def on_lakerunner_error(_request: Request | None, error: Exception) -> Response:
    """Answer with the status and message of an error of the tree."""
    status = getattr(error, "http_status", 500)
    headers = retry_after(error)
    if status == 401:
        headers["www-authenticate"] = "Bearer"
    return JSONResponse({"error": error_body(error)}, status, headers)


def on_http_exception(request: Request, error: Exception) -> Response:
    """Answer an error of routing, such as 404 or 405, in our format and with a hint."""
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
    """Name the unknown path, and the one that may be meant: clients of Prometheus often omit the prefix."""
    path = request.url.path[:_PATH_SHOWN]
    meant = f"{PROMETHEUS_ROOT}{path}"
    routes = [route for route in request.app.routes if isinstance(route, Route)]
    if any(route.path_regex.match(meant) for route in routes):
        return NotFound(f"there is no endpoint {path}: did you mean {meant}?")
    return NotFound(f"there is no endpoint {path}: GET /openapi.json lists all endpoints")


def on_client_left(_request: Request, _error: Exception) -> Response:
    """Answer a client that has disconnected, which nobody reads. It is not a bug: dashboards cancel queries whenever
    their user moves on."""
    return Response(status_code=499)


def on_bug(request: Request, error: Exception) -> Response:
    """Log a bug with its traceback and answer 500."""
    _logger.error("request failed: %s %s", request.method, request.url.path, exc_info=error)
    return JSONResponse({"error": error_body(error)}, 500)
