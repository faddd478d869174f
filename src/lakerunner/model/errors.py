"""The one error tree. Its branches say who must act:

    LakerunnerError
    ├── UserError           the caller: 400, with a position in the text if there is one
    │   ├── NotAuthenticated    401: no key, or an unknown one
    │   ├── NotAllowed          403: the key may not see or do this
    │   ├── NotFound            404: the request names something that does not exist
    │   ├── TooLarge            413: a limit is exceeded; the message names it
    │   ├── BadMediaType        415: the body has a type that is not read here
    │   └── TooLong             400: the query exceeded its time limit
    ├── Unavailable         nobody: a dependency is down, retry later
    │   ├── Crashed             the process that did the work died: the work may be to blame
    │   ├── Lost                the worker cannot be reached or broke off: another takes over
    │   └── Busy                429: a limit allows no more now, retry later
    ├── Corrupt             the sender: this input is set aside with its reason
    │   └── Absent              the object does not exist (any more)
    └── Conflict            nobody: another process did this work already; look again, go on

A message names what is wrong, where it stands and what to do. It may reach a client: it never holds a secret, nor the
address of a part of this installation, which goes into `Unavailable.detail`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID


@dataclass(frozen=True)
class Position:
    """A place in a user's text; line and column count from 1."""

    line: int
    column: int

    def __str__(self) -> str:
        return f"line {self.line}, column {self.column}"


class LakerunnerError(Exception):
    """The root of the tree; never raised itself."""

    http_status = 500
    exit_code = 1  # of a command that ends with this error; 2: wrong usage


class UserError(LakerunnerError):
    """The request is wrong, and will be wrong again."""

    http_status = 400

    def __init__(self, message: str, position: Position | None = None) -> None:
        super().__init__(f"{message} ({position})" if position else message)
        self.message = message
        self.position = position


class NotAuthenticated(UserError):
    """No credentials, or credentials we do not know."""

    http_status = 401


class NotAllowed(UserError):
    """The caller is known and may not do this."""

    http_status = 403


class NotFound(UserError):
    """The request names something that does not exist."""

    http_status = 404


class TooLarge(UserError):
    """The request, or its answer, exceeds a limit."""

    http_status = 413


class BadMediaType(UserError):
    """The body has a media type that this endpoint does not read."""

    http_status = 415


class TooLong(UserError):
    """The query exceeded its time limit."""


class Unavailable(LakerunnerError):
    """A dependency is down or overloaded. The same call may work later."""

    http_status = 503
    retry_seconds: float = 2.0

    def __init__(self, message: str = "", *, detail: str = "") -> None:
        """`detail` is for logs and for people who run the process: addresses, and what the dependency itself reported.
        No client sees it."""
        super().__init__(message)
        self.detail = detail


def full_message(error: LakerunnerError) -> str:
    """Return the message with its detail, for logs and for people who run the process."""
    detail = error.detail if isinstance(error, Unavailable) else ""
    return f"{error} ({detail})" if detail else str(error)


class Crashed(Unavailable):
    """The process that did the work died. A retry may work; if it never does, the work is at fault."""


class Lost(Unavailable):
    """A worker is gone, or does not answer. Another worker can take its work over."""


class Busy(Unavailable):
    """A limit, which the message names, allows no more now; nothing of this request was kept."""

    http_status = 429

    def __init__(self, message: str, retry_seconds: float = Unavailable.retry_seconds) -> None:
        super().__init__(message)
        self.retry_seconds = retry_seconds


class Corrupt(LakerunnerError):
    """This input cannot be read. Retrying does not help: set it aside with this reason. `segment` is the id of the one
    segment that cannot be read, where it is known: the others can be read without it."""

    http_status = 422
    segment: UUID | None = None


class WrongContent(Corrupt):
    """This input is not telemetry of the signal that it was announced as. `signal` is its actual signal, if that is
    clear."""

    def __init__(self, message: str, signal: str = "") -> None:
        super().__init__(message)
        self.signal = signal


class Absent(Corrupt):
    """The named object does not exist."""


class Conflict(LakerunnerError):
    """Another process was first. Look at what it did and go on from there."""

    http_status = 409


KINDS: dict[str, type[LakerunnerError]] = {
    kind.__name__: kind
    for kind in (
        UserError,
        NotAuthenticated,
        NotAllowed,
        NotFound,
        TooLarge,
        BadMediaType,
        TooLong,
        Unavailable,
        Busy,
        Lost,
        Corrupt,
        Absent,
        Conflict,
    )
}


def error_from_body(body: dict[str, Any]) -> LakerunnerError:
    """Return the error that a body of our API stands for. An unknown kind becomes Unavailable, because it may pass."""
    kind = KINDS.get(body.get("kind", ""), Unavailable)
    message, position = str(body["message"]), body.get("position")
    if issubclass(kind, UserError):
        return kind(message, Position(position["line"], position["column"]) if position else None)
    error = kind(message)
    if isinstance(error, Corrupt):
        error.segment = UUID(body["segment"]) if "segment" in body else None
    return error


def error_to_body(error: BaseException) -> dict[str, Any]:
    """Return `{"kind": ..., "message": ..., "position": {...}}`, which `error_from_body` reads, for every format.
    What is not in the tree is a bug, of which no client learns details."""
    if not isinstance(error, LakerunnerError):
        return {"kind": "InternalError", "message": "an internal error; the server's log has the details"}
    kind = next((one.__name__ for one in type(error).__mro__ if one.__name__ in KINDS), type(error).__name__)
    if not isinstance(error, UserError):
        return {"kind": kind, "message": str(error)}
    position = error.position
    where = {"position": {"line": position.line, "column": position.column}} if position else {}
    return {"kind": kind, "message": error.message, **where}
