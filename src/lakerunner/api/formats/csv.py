"""CSV: a line of names, then a line per row, as rows come. docs/formats/sql_api.md says how values are written."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from starlette.responses import Response

from lakerunner.api.formats.format import Close, Format, schema_of, streamed, written
from lakerunner.query.answer import Answer
from lakerunner.query.csv_rows import csv_header, csv_rows


async def _respond(answer: Answer, close: Close) -> Response:
    return await streamed(answer, close, f"{CSV.media_type}; charset=utf-8; header=present", _lines(answer))


async def _lines(answer: Answer) -> AsyncGenerator[bytes]:
    """The names go with the first rows, so that a query that fails before any has its status."""
    head = csv_header((await schema_of(answer)).names)
    async for lines in written(answer, csv_rows):
        yield head + lines
        head = b""
    yield head


CSV = Format("csv", "text/csv", _respond)
