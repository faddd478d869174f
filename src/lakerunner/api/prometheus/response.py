"""Responses of the Prometheus API: {"status": "success", "data": ..., "warnings": ..., "infos": ...}, or
{"status": "error", "errorType": ..., "error": ...} and a status.

Errors of the request are bad_data (400), those of a running query are execution (422) or timeout (503). Errors that
Prometheus does not know, such as a wrong key or a limit of an organization, have types of their own.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import orjson
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse, Response

from lakerunner.api.errors import error_body, log_detail, retry_after
from lakerunner.api.query_service import QueryRequest
from lakerunner.model.display import plural
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
from lakerunner.model.time import iso_time
from lakerunner.promql.selection.notes import note_text
from lakerunner.query.contract.account import Account
from lakerunner.series.notes import Note

T = TypeVar("T")
TRUNCATED = "results truncated due to limit"
_MOST_NOTES = 10
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


def success_body(data: Any, warnings: Sequence[str] = (), infos: Sequence[str] = ()) -> bytes:
    """Encode a successful response."""
    notes = {name: list(texts) for name, texts in (("warnings", warnings), ("infos", infos)) if texts}
    return orjson.dumps({"status": "success", "data": data, **notes})


def note_texts(notes: Iterable[Note], level: str, query: str) -> list[str]:
    """Return the texts of the notes of this level; beyond a maximum, one text counts the rest."""
    texts = [note_text(note, query) for note in notes if note.level == level]
    more = len(texts) - _MOST_NOTES
    return texts if more <= 0 else [*texts[:_MOST_NOTES], f"{more} more {level} annotations omitted"]


def account_warnings(account: Account) -> list[str]:
    """Return the warnings of an answer that lacks data or may be out of date."""
    found = [f"this answer may be out of date: {account.degraded}"] if account.degraded else []
    found += [
        f"this answer is not complete: {plural(one.segments, 'segment')} of {iso_time(one.time.start_ns)} to "
        f"{iso_time(one.time.end_ns)} missing: {one.reason}"
        for one in account.missing
    ]
    return found + sorted(account.warnings)


class PrometheusError(Exception):
    """An error response with one of the types in STATUSES."""

    def __init__(self, type_: str, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.type = type_
        self.message = message
        self.headers = dict(headers or {})


def query_text(error: UserError) -> str:
    """Return the message of an error in a query as Prometheus writes it, with the position first."""
    if error.position:
        return f"{error.position.line}:{error.position.column}: {error.message}"
    return f"unknown position: {error.message}" if error.message.startswith("parse error: ") else error.message


def to_execution_error(error: Exception) -> Exception:
    """Convert an error of a running query: a fault of the query is an execution error, past its time a timeout."""
    if isinstance(error, TooLong):
        return PrometheusError(TIMEOUT, f"query timed out in expression evaluation: {error.message}")
    if isinstance(error, UserError) and not isinstance(error, NotAuthenticated | NotAllowed):
        return PrometheusError(EXECUTION, query_text(error))
    return error


def to_prometheus_error(error: Exception) -> PrometheusError:
    """Convert any error; one outside of the error tree is a bug, which is logged."""
    match error:
        case PrometheusError():
            return error
        case NotAuthenticated():
            return PrometheusError(UNAUTHORIZED, str(error), {"www-authenticate": "Bearer"})
        case NotAllowed():
            return PrometheusError(FORBIDDEN, str(error))
        case NotFound():
            return PrometheusError(NOT_FOUND, str(error))
        case UserError():
            return PrometheusError(BAD_DATA, query_text(error))
        case Busy():
            return PrometheusError(TOO_MANY, str(error), retry_after(error))
        case Unavailable():
            log_detail(error)
            return PrometheusError(UNAVAILABLE, str(error), retry_after(error))
        case HTTPException():
            return PrometheusError(BAD_DATA, error.detail)
        case LakerunnerError():
            log_detail(error)
            return PrometheusError(INTERNAL, str(error))
    _logger.error("request failed", exc_info=error)
    return PrometheusError(INTERNAL, str(error_body(error)["message"]))


async def run_work(asked: QueryRequest, work: Callable[[], T]) -> T:
    """Run blocking work of a query in a slot, with its errors converted."""
    try:
        return await asked.run(work)
    except Exception as error:
        raise to_execution_error(error) from error


def error_response(error: Exception) -> Response:
    """Return the response for an error; raise ClientDisconnect again, as nobody would read it."""
    if isinstance(error, ClientDisconnect):
        raise error
    converted = to_prometheus_error(error)
    status = 413 if isinstance(error, TooLarge) else STATUSES[converted.type]
    body = {"status": "error", "errorType": converted.type, "error": _in_unicode(converted.message)}
    return JSONResponse(body, status, converted.headers)


def _in_unicode(message: str) -> str:
    """Replace bytes of a query that are not UTF-8 by U+FFFD, as Prometheus does in JSON."""
    return message.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
