"""Limits of a query, and the errors of queries that fail: a sandbox's reports as the errors of this project.

DuckDB's errors are classified by their text, which is the same whether DuckDB raises them or an Arrow reader passes
them on. Paths of our files are removed.
"""

from __future__ import annotations

import math
import re
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import orjson

from lakerunner.model.errors import (
    Corrupt,
    Crashed,
    LakerunnerError,
    Position,
    TooLarge,
    TooLong,
    Unavailable,
    UserError,
)
from lakerunner.model.setting_check import memory_bytes

_KIND = re.compile(r"\s*([A-Za-z][A-Za-z ]*?) Error: ")
_TOO_LONG = "exceeded maximum execution time"
_DAMAGED = re.compile(r"Parquet file is likely corrupted|Out of buffer")  # errors that DuckDB gives no kind


@dataclass(frozen=True)
class Limits:
    """Limits of one query: `memory` as DuckDB reads it ("2GB"), seconds of running time, rows of the answer and the
    setting that limits them, and the directories that no message may show."""

    memory: str
    seconds: float
    max_rows: int
    hidden: tuple[Path, ...] = ()
    rows_setting: str = "query_max_rows"
    memory_setting: str = ""  # as messages name it; empty: query_memory and its value

    def lifted(self) -> Limits:
        """Return the limits without those of rows and of time in all."""
        return replace(self, max_rows=sys.maxsize, seconds=math.inf)

    @property
    def memory_bytes(self) -> int:
        """Return the bytes as DuckDB reads the setting: GB are powers of 1000, GiB of 1024, a percentage is of the
        machine's memory."""
        found = memory_bytes(self.memory)
        if found is None:
            raise UserError(f"invalid size {self.memory!r} for query_memory; use 500MB, 2GB, 50%, ...")
        return found


class EngineError(UserError):
    """DuckDB's message about SQL that it ran. `position` is one in `sql`, which is on one line, and not in the user's
    text; query/sql_errors.py makes of it what a user is shown."""

    def __init__(self, message: str, position: Position | None = None, sql: str = "") -> None:
        super().__init__(message, position)
        self.sql = sql


def reported(payload: bytes | bytearray, limits: Limits) -> tuple[LakerunnerError, bool]:
    """Parse the error that a sandbox sent; return it with whether the sandbox is fit for more work."""
    error = orjson.loads(payload)
    message = str(error["message"])
    match error["kind"]:
        case "cancelled":
            return cancelled(), True
        case "user":
            return UserError(message), True
        case "large":
            return TooLarge(message), True
        case "deep":
            return UserError("the query is nested too deeply: split it with WITH"), True
        case "memory":
            return _too_much_memory(message, limits), False
        case "engine":
            failure = translated(message, limits)
            if type(failure) is UserError:
                failure = EngineError(failure.message, None if error["at"] is None else Position(1, error["at"] + 1))
            return failure, isinstance(failure, UserError) and not isinstance(failure, TooLarge)
    return Unavailable(f"the query failed: {_first_paragraph(message, limits.hidden)}"), False


def ended(status: int, resident_bytes: int, limits: Limits) -> LakerunnerError:
    """Return the error of a query whose sandbox died: it ran out of memory, or the engine crashed."""
    if resident_bytes > limits.memory_bytes:
        return _too_much_memory("its process was killed", limits)
    how = f"signal {-status}" if status < 0 else f"exit code {status}"
    return Crashed(f"the process that ran the query ended ({how}): the engine cannot run this query")


def _too_much_memory(message: str, limits: Limits) -> TooLarge:
    return TooLarge(
        f"the query needs more than {limits.memory_setting or f'query_memory {limits.memory}'}: "
        f"{_first_paragraph(message, limits.hidden)}"
    )


def translated(message: str, limits: Limits) -> LakerunnerError:
    """Return the error that DuckDB's or Arrow's text stands for."""
    found = _KIND.match(message)
    kind = found[1].lower() if found else ""
    text = _first_paragraph(message, limits.hidden)
    match kind:
        case "interrupt" if _TOO_LONG in message:
            return too_long(limits.seconds)
        case "interrupt":
            return cancelled()
        case "out of memory":
            return _too_much_memory(message, limits)
        case "io" | "serialization":
            return Corrupt(f"a segment cannot be read: {text}")
        case "" if _DAMAGED.match(text):
            return Corrupt(f"a segment cannot be read: {text}")
        case "internal" | "fatal" | "":
            return Unavailable(f"DuckDB failed: {text}")
    return UserError(text.partition(" Error: ")[2])


def cancelled() -> UserError:
    return UserError("the query was cancelled")


def too_long(seconds: float) -> TooLong:
    return TooLong(f"stopped after {seconds:g} s: limit query_seconds")


def too_many_rows(limits: Limits) -> TooLarge:
    return TooLarge(
        f"the answer has more than {limits.max_rows} rows, limit {limits.rows_setting}: "
        "return fewer with LIMIT or WHERE"
    )


def _first_paragraph(message: str, hidden: tuple[Path, ...]) -> str:
    """Return the first paragraph on one line, without paths: what follows it quotes our SQL or advises the server's
    owner."""
    first = message.strip().partition("\n\n")[0]
    for directory in hidden:
        first = re.sub(re.escape(str(directory)) + r"[^\s\"']*", "(file)", first)
    return " ".join(first.split())
