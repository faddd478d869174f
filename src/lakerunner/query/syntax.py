"""DuckDB's reading of the user's own text: what DuckDB cannot parse is refused, though sqlglot might guess at it.

sqlglot forgives a missing condition or a comma too many, and would so change what was asked without a word.
"""

from __future__ import annotations

import json

import duckdb

from lakerunner.lakeql.source import Source
from lakerunner.model.errors import UserError


class Syntax:
    """Safe to use from many threads. Nothing is run: the text is parsed only."""

    def __init__(self) -> None:
        self._connection = duckdb.connect(config={"threads": "1", "python_enable_replacements": "false"})

    def check(self, text: str) -> None:
        """UserError, with the place, unless DuckDB can parse the text as SELECTs."""
        with self._connection.cursor() as cursor:
            (serialized,) = cursor.execute("SELECT json_serialize_sql(?)", [text]).fetchone() or ("{}",)
        parsed = json.loads(serialized)
        if not parsed.get("error"):
            return
        said = str(parsed["error_message"]).partition("\n")[0]
        place = parsed.get("position")
        if place is None:
            raise UserError(f"the query cannot be read: {said}")
        before = text.encode()[: int(place)].decode(errors="ignore")  # DuckDB counts bytes
        raise UserError(f"the query cannot be read: {said}", Source(text).position(len(before)))
