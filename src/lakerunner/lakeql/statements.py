"""Statements around queries: EXPLAIN before one, and SHOW TABLES, DESCRIBE and SHOW COLUMNS.

Comes in: the user's text. Goes out: what is to be explained or listed, and the query. What always holds: every
character of the query keeps its place in the user's text, because positions in errors refer to that text. The words
that are taken off leave blanks.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from difflib import get_close_matches

from lakerunner.lakeql.source import QueryText
from lakerunner.lakeql.tables import TABLES
from lakerunner.model.errors import UserError
from lakerunner.plan.explain import Explain

SPACE = r"(?:\s|--[^\n]*(?:\n|$)|/\*(?s:.*?)\*/)"
_PREFIX = re.compile(rf"({SPACE}*)EXPLAIN\b(?:({SPACE}+)ANALYZE\b)?", re.IGNORECASE)
_WORDS = {"explain": " " * len("explain"), "analyze": " " * len("analyze")}


@dataclass(frozen=True)
class Statement:
    """A query, and whether it is to be explained."""

    query: str
    explain: Explain


def read_statement(text: str) -> Statement:
    """Take EXPLAIN and ANALYZE off the beginning of a query. Anything else is left for the parser to refuse."""
    found = _PREFIX.match(text)
    if not found:
        return Statement(text, Explain.NO)
    before, between = found[1], found[2]
    if between is None:
        return Statement(before + _WORDS["explain"] + text[found.end() :], Explain.PLAN)
    blank = before + _WORDS["explain"] + between + _WORDS["analyze"]
    return Statement(blank + text[found.end() :], Explain.ANALYZE)


_BEGINS = re.compile(rf"{SPACE}*(SHOW|DESCRIBE|DESC)\b", re.IGNORECASE)
_TABLES = re.compile(rf"(?:SHOW{SPACE}+(?:ALL{SPACE}+)?TABLES|DESCRIBE|DESC){SPACE}*;?{SPACE}*", re.IGNORECASE)
_COLUMNS = re.compile(
    rf"(?:(?:DESCRIBE|DESC)(?:{SPACE}+TABLE)?|SHOW{SPACE}+COLUMNS{SPACE}+(?:FROM|IN)){SPACE}+"
    rf"(\"\w+\"|\w+){SPACE}*;?{SPACE}*",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Listing:
    """List the columns of `table`; without one, the tables."""

    table: str = ""

    def columns(self) -> list[str]:
        return ["name", "type", "description"] if self.table else ["name", "description"]

    def rows(self) -> list[tuple[str, ...]]:
        if not self.table:
            return [(name, table.meaning) for name, table in TABLES.items()]
        return [(column.name, column.type, column.meaning) for column in TABLES[self.table].columns]


def read_listing(text: str) -> Listing | None:
    """Return what is to be listed, or None if the text is a query. Raise UserError, with the position, for an unknown
    table and for other forms."""
    begins = _BEGINS.match(text)
    if begins is None:
        return None
    start = begins.start(1)
    if _TABLES.fullmatch(text, start):
        return Listing()
    found = _COLUMNS.fullmatch(text, start)
    if found is None:
        raise UserError(
            f"{begins[1].upper()} is not available in this form: "
            "write SHOW TABLES, DESCRIBE logs or SHOW COLUMNS FROM logs",
            QueryText(text).position(start),
        )
    name = found[1].strip('"')
    if name.lower() not in TABLES:
        near = get_close_matches(name.lower(), TABLES, n=1)
        hint = f"did you mean {near[0]}?" if near else f"the tables are {', '.join(TABLES)}"
        raise UserError(f"unknown table {name}: {hint}", QueryText(text).position(found.start(1)))
    return Listing(name.lower())
