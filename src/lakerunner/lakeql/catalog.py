"""SHOW TABLES, DESCRIBE and SHOW COLUMNS: statements about the tables themselves.

Comes in: the user's text. Goes out: what it wants listed, or None where it is a query.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from difflib import get_close_matches

from lakerunner.lakeql.describe import COLUMN_MEANINGS, TABLE_MEANINGS
from lakerunner.lakeql.explain import SPACE
from lakerunner.lakeql.source import Source
from lakerunner.lakeql.tables import TABLES
from lakerunner.model.errors import UserError

_BEGINS = re.compile(rf"{SPACE}*(SHOW|DESCRIBE|DESC)\b", re.IGNORECASE)
_TABLES = re.compile(rf"(?:SHOW{SPACE}+(?:ALL{SPACE}+)?TABLES|DESCRIBE|DESC){SPACE}*;?{SPACE}*", re.IGNORECASE)
_COLUMNS = re.compile(
    rf"(?:(?:DESCRIBE|DESC)(?:{SPACE}+TABLE)?|SHOW{SPACE}+COLUMNS{SPACE}+(?:FROM|IN)){SPACE}+"
    rf"(\"\w+\"|\w+){SPACE}*;?{SPACE}*",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Listing:
    """The columns of `table`; without one, the tables."""

    table: str = ""

    def columns(self) -> list[str]:
        return ["name", "type", "description"] if self.table else ["name", "description"]

    def rows(self) -> list[tuple[str, ...]]:
        if not self.table:
            return list(TABLE_MEANINGS.items())
        meanings = COLUMN_MEANINGS[self.table]
        return [(column.name, column.type, meanings[column.name]) for column in TABLES[self.table].columns]


def read_listing(text: str) -> Listing | None:
    """UserError, with the position, for a table that is not there and for what else cannot be listed."""
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
            Source(text).position(start),
        )
    name = found[1].strip('"')
    if name.lower() not in TABLES:
        near = get_close_matches(name.lower(), TABLES, n=1)
        hint = f"did you mean {near[0]}?" if near else f"the tables are {', '.join(TABLES)}"
        raise UserError(f"unknown table {name}: {hint}", Source(text).position(found.start(1)))
    return Listing(name.lower())
