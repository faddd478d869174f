"""What DuckDB says when a query fails, as the errors of this project.

Classified by the text, which is the same whether DuckDB raises it itself or an Arrow reader passes it on. Where our
files lie is nobody's business and is taken out.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from lakerunner.model.errors import Corrupt, LakerunnerError, TooLarge, TooLong, Unavailable, UserError

_KIND = re.compile(r"\s*([A-Za-z][A-Za-z ]*?) Error: ")
_TOO_LONG = "exceeded maximum execution time"
_DAMAGED = re.compile(r"Parquet file is likely corrupted|Out of buffer")  # of which DuckDB says no kind


@dataclass(frozen=True)
class Limits:
    """Of one query: `memory` as DuckDB reads it ("2GB"), seconds of running, rows of the answer and the setting that
    limits them, and the directories that no message may show."""

    memory: str
    seconds: float
    max_rows: int
    hidden: tuple[Path, ...] = ()
    rows_setting: str = "query_max_rows"


def translated(error: Exception, limits: Limits) -> LakerunnerError:
    found = _KIND.match(str(error))
    kind = found[1].lower() if found else ""
    said = _said(str(error), limits.hidden)
    match kind:
        case "interrupt" if _TOO_LONG in str(error):
            return too_long(limits.seconds)
        case "interrupt":
            return cancelled()
        case "out of memory":
            return TooLarge(f"the query needs more than query_memory {limits.memory}: {said}")
        case "io" | "serialization":
            return Corrupt(f"a segment cannot be read: {said}")
        case "" if _DAMAGED.match(said):
            return Corrupt(f"a segment cannot be read: {said}")
        case "internal" | "fatal" | "":
            return Unavailable(f"DuckDB failed: {said}")
    return UserError(said)


def cancelled() -> UserError:
    return UserError("the query was cancelled")


def too_long(seconds: float) -> TooLong:
    return TooLong(f"stopped after {seconds:g} s: limit query_seconds")


def too_many_rows(limits: Limits) -> TooLarge:
    return TooLarge(
        f"the answer has more than {limits.max_rows} rows, limit {limits.rows_setting}: "
        "ask for less with LIMIT or WHERE"
    )


def _said(message: str, hidden: tuple[Path, ...]) -> str:
    """The first paragraph, in one line: what follows quotes our SQL or advises the server's owner."""
    first = message.strip().partition("\n\n")[0]
    for directory in hidden:
        first = re.sub(re.escape(str(directory)) + r"[^\s\"']*", "(file)", first)
    return " ".join(first.split())
