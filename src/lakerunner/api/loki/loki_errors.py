"""Errors of the Loki API: plain text, with Loki's statuses.

A fault of the request or of the query, a limit that it exceeds too, is 400; a query that ran too long is 504. Errors
that Loki does not know, such as a wrong key, have the statuses of our other APIs.
"""

from __future__ import annotations

import logging

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import PlainTextResponse, Response

from lakerunner.api.errors import error_body, log_detail, retry_after
from lakerunner.model.errors import (
    LakerunnerError,
    NotAllowed,
    NotAuthenticated,
    TooLarge,
    TooLong,
    Unavailable,
    UserError,
)

_logger = logging.getLogger("lakerunner.api.loki")


class LokiError(Exception):
    """An error response with this status."""

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.message = message
        self.status = status


def to_query_error(error: Exception) -> Exception:
    """Convert an error of a query: past a limit of the query it is a fault of the query, past its time 504."""
    if isinstance(error, TooLong):
        return LokiError(f"request timed out: {error.message}", 504)
    if isinstance(error, TooLarge):
        return LokiError(error.message)
    return error


def error_response(error: Exception) -> Response:
    """Return the response for an error; raise ClientDisconnect again, as nobody would read it. An error outside of the
    error tree is a bug, which is logged."""
    match error:
        case ClientDisconnect():
            raise error
        case LokiError():
            return _plain(error.message, error.status)
        case NotAuthenticated():
            return _plain(str(error), error.http_status, {"www-authenticate": "Bearer"})
        case NotAllowed():
            return _plain(str(error), error.http_status)
        case UserError():
            return _plain(error.message, error.http_status)
        case Unavailable():
            log_detail(error)
            return _plain(str(error), error.http_status, retry_after(error))
        case HTTPException():
            return _plain(error.detail, error.status_code)
        case LakerunnerError():
            log_detail(error)
            return _plain(str(error), 500)
    _logger.error("request failed", exc_info=error)
    return _plain(str(error_body(error)["message"]), 500)


def _plain(message: str, status: int, headers: dict[str, str] | None = None) -> Response:
    text = message.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    return PlainTextResponse(text, status, {"x-content-type-options": "nosniff", **(headers or {})})
