"""Errors as HTTP answers: the branch of the error tree gives the status, the message goes to the client.

Anything outside the tree is a bug: it is logged with its trace and the client gets 500 without details.
"""

from __future__ import annotations

import logging

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from lakerunner.model.errors import LakerunnerError, Unavailable, UserError

RETRY_SECONDS = 2
_logger = logging.getLogger("lakerunner.api")


def error_body(error: BaseException) -> dict[str, object]:
    """`{"message": ..., "position": {...}}`, the same in every format."""
    if isinstance(error, UserError):
        position = error.position
        where = {"position": {"line": position.line, "column": position.column}} if position else {}
        return {"message": error.message, **where}
    if isinstance(error, LakerunnerError):
        return {"message": str(error)}
    return {"message": "an internal error; the server's log has the details"}


def on_lakerunner_error(_request: Request, error: Exception) -> Response:
    status = getattr(error, "http_status", 500)
    headers = {"retry-after": str(RETRY_SECONDS)} if isinstance(error, Unavailable) else {}
    if status == 401:
        headers["www-authenticate"] = "Bearer"
    return JSONResponse({"error": error_body(error)}, status, headers)


def on_http_exception(_request: Request, error: Exception) -> Response:
    if not isinstance(error, HTTPException):
        raise error
    return JSONResponse({"error": {"message": error.detail}}, error.status_code, error.headers)


def on_bug(request: Request, error: Exception) -> Response:
    _logger.error("a request failed: %s %s", request.method, request.url.path, exc_info=error)
    return JSONResponse({"error": error_body(error)}, 500)
