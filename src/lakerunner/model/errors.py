"""The one error tree. Its branches say who mends the trouble:

    LakerunnerError
    ├── UserError           the caller: 400, with a position in their text where there is one
    │   ├── NotAuthenticated    401: no key, or one we do not know
    │   ├── NotAllowed          403: asks for what its key may not see or do
    │   ├── NotFound            404: names something that is not there
    │   ├── TooLarge            413: past a limit, which the message names
    │   ├── BadMediaType        415: the body is of a type that is not read here
    │   └── TooLong             400: past the time that a query may run
    ├── Unavailable         nobody: a dependency is away, try the same again later
    │   ├── Crashed             the process that did the work died at it: perhaps the work is to blame
    │   ├── Lost                the worker cannot be reached or broke off: another may take its work over
    │   └── Busy                429: a limit allows no more at present, try the same again later
    ├── Corrupt             the sender: this input is set aside with its reason
    │   └── Absent              the object is not there (any more)
    └── Conflict            nobody: someone else did this work already; look again and go on

A message names what is wrong, where it stands and what to do. It may reach a client: it never holds a secret, nor the
address of a part of this installation, which goes into `Unavailable.detail`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID


@dataclass(frozen=True)
class Position:
    """Where in a user's text: both counted from 1."""

    line: int
    column: int

    def __str__(self) -> str:
        return f"line {self.line}, column {self.column}"


class LakerunnerError(Exception):
    """The root; never raised itself."""

    http_status = 500
    exit_code = 1  # of a command that ends with it; 2: it was started in a wrong way


class UserError(LakerunnerError):
    """The request is wrong. The same request will be wrong again."""

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
    """The request names something that is not there."""

    http_status = 404


class TooLarge(UserError):
    """The request, or its answer, is past a limit."""

    http_status = 413


class BadMediaType(UserError):
    """The body is of a media type that is not read here."""

    http_status = 415


class TooLong(UserError):
    """The query ran longer than it may."""


class Unavailable(LakerunnerError):
    """A dependency is away or overloaded. The same call may work later."""

    http_status = 503
    retry_seconds: float = 2.0

    def __init__(self, message: str = "", *, detail: str = "") -> None:
        """`detail` is for logs and for whoever runs the process: addresses, and what the dependency itself reported. No
        client sees it."""
        super().__init__(message)
        self.detail = detail


def in_full(error: LakerunnerError) -> str:
    """The message with its detail, for logs and for whoever runs the process."""
    detail = error.detail if isinstance(error, Unavailable) else ""
    return f"{error} ({detail})" if detail else str(error)


class Crashed(Unavailable):
    """Whoever did the work died. Tried again it may go well; if it never does, the work is at fault."""


class Lost(Unavailable):
    """A worker is gone, or does not answer. What it was doing can be done by another."""


class Busy(Unavailable):
    """A limit, which the message names, allows no more at present; nothing of this request was kept."""

    http_status = 429

    def __init__(self, message: str, retry_seconds: float = Unavailable.retry_seconds) -> None:
        super().__init__(message)
        self.retry_seconds = retry_seconds


class Corrupt(LakerunnerError):
    """This input cannot be read. Retrying does not help: set it aside with this reason. `segment` is the id of the one
    segment that cannot be read, where it is known: without it the others can."""

    http_status = 422
    segment: UUID | None = None


class WrongContent(Corrupt):
    """This input is not telemetry of the signal it was announced as. `signal` is the one that it is of, if it is clear
    that it is of another."""

    def __init__(self, message: str, signal: str = "") -> None:
        super().__init__(message)
        self.signal = signal


class Absent(Corrupt):
    """The named object does not exist."""


class Conflict(LakerunnerError):
    """Someone else was first. Look at what they did and go on from there."""

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


def error_from(body: dict[str, Any]) -> LakerunnerError:
    """The error that a body of ours stands for; one of no kind we know may pass, so it is Unavailable."""
    kind = KINDS.get(body.get("kind", ""), Unavailable)
    message, position = str(body["message"]), body.get("position")
    if issubclass(kind, UserError):
        return kind(message, Position(position["line"], position["column"]) if position else None)
    error = kind(message)
    if isinstance(error, Corrupt):
        error.segment = UUID(body["segment"]) if "segment" in body else None
    return error
