"""Errors as Prometheus' API tells them: {"status": "error", "errorType": ..., "error": ...} and a status.

Those of the request are bad_data (400), those of a query that runs are execution (422), past its time it is a timeout
(503). What Prometheus itself does not know, keys and limits of an organization, has types of its own.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse, Response

from lakerunner.api.errors import error_body, log_detail, retry_after
from lakerunner.model.errors import (
    Busy,
    LakerunnerError,
    NotAllowed,
    NotAuthenticated,
    NotFound,
    TooLarge,
    TooLong,
    Unavailable,
    UserError,
)

BAD_DATA, EXECUTION, TIMEOUT, INTERNAL = "bad_data", "execution", "timeout", "internal"
UNAVAILABLE, NOT_FOUND = "unavailable", "not_found"
UNAUTHORIZED, FORBIDDEN, TOO_MANY = "unauthorized", "forbidden", "too_many_requests"
STATUSES = {
    BAD_DATA: 400,
    UNAUTHORIZED: 401,
    FORBIDDEN: 403,
    NOT_FOUND: 404,
    EXECUTION: 422,
    TOO_MANY: 429,
    INTERNAL: 500,
    TIMEOUT: 503,
    UNAVAILABLE: 503,
}
_logger = logging.getLogger("lakerunner.api.prometheus")


class Refused(Exception):
    """An answer that is an error, of one of the types."""

    def __init__(self, type_: str, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.type = type_
        self.message = message
        self.headers = dict(headers or {})


def query_text(error: UserError) -> str:
    """As Prometheus writes an error in a query: the place first."""
    if error.position:
        return f"{error.position.line}:{error.position.column}: {error.message}"
    return f"unknown position: {error.message}" if error.message.startswith("parse error: ") else error.message


def running(error: Exception) -> Exception:
    """What a query that runs raised; what it is to blame for itself is an execution error, past its time a timeout."""
    if isinstance(error, TooLong):
        return Refused(TIMEOUT, f"query timed out in expression evaluation: {error.message}")
    if isinstance(error, UserError) and not isinstance(error, NotAuthenticated | NotAllowed):
        return Refused(EXECUTION, query_text(error))
    return error


def refused(error: Exception) -> Refused:
    match error:
        case Refused():
            return error
        case NotAuthenticated():
            return Refused(UNAUTHORIZED, str(error), {"www-authenticate": "Bearer"})
        case NotAllowed():
            return Refused(FORBIDDEN, str(error))
        case NotFound():
            return Refused(NOT_FOUND, str(error))
        case UserError():
            return Refused(BAD_DATA, query_text(error))
        case Busy():
            return Refused(TOO_MANY, str(error), retry_after(error))
        case Unavailable():
            log_detail(error)
            return Refused(UNAVAILABLE, str(error), retry_after(error))
        case HTTPException():
            return Refused(BAD_DATA, error.detail)
        case LakerunnerError():
            log_detail(error)
            return Refused(INTERNAL, str(error))
    _logger.error("request failed", exc_info=error)
    return Refused(INTERNAL, str(error_body(error)["message"]))


def error_response(error: Exception) -> Response:
    if isinstance(error, ClientDisconnect):
        raise error
    told = refused(error)
    status = 413 if isinstance(error, TooLarge) else STATUSES[told.type]
    body = {"status": "error", "errorType": told.type, "error": _in_unicode(told.message)}
    return JSONResponse(body, status, told.headers)


def _in_unicode(message: str) -> str:
    """A query's strings may hold bytes that are no UTF-8; JSON has a sign in their place, as Prometheus' has."""
    return message.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
