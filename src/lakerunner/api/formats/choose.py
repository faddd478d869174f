"""The formats of answers, and which of them a request asks for: by `format`, or by its Accept header."""

from __future__ import annotations

from difflib import get_close_matches

from starlette.exceptions import HTTPException

from lakerunner.api.formats.arrow import ARROW
from lakerunner.api.formats.csv import CSV
from lakerunner.api.formats.format import Format
from lakerunner.api.formats.json import JSON
from lakerunner.api.formats.ndjson import NDJSON
from lakerunner.api.formats.parquet import PARQUET
from lakerunner.api.formats.sse import SSE
from lakerunner.model.errors import UserError

FORMATS = {one.name: one for one in (JSON, NDJSON, CSV, ARROW, PARQUET, SSE)}
_BY_MEDIA_TYPE = {one.media_type: one for one in FORMATS.values()}
_ANY = ("*/*", "application/*", "")


def format_named(name: str) -> Format:
    if name in FORMATS:
        return FORMATS[name]
    near = get_close_matches(name, FORMATS, n=1)
    hint = f"did you mean {near[0]}?" if near else f"use one of {', '.join(FORMATS)}"
    raise UserError(f"unknown format {name!r}: {hint}")


def format_accepted(accept: str) -> Format:
    """The one the client likes best of those we have; JSON where it takes anything."""
    for name in sorted(accept.split(","), key=_liking, reverse=True):
        media_type = name.partition(";")[0].strip().lower()
        if media_type in _BY_MEDIA_TYPE:
            return _BY_MEDIA_TYPE[media_type]
        if media_type in _ANY:
            return JSON
    raise HTTPException(
        406, f"none of the types in Accept {accept!r} is supported: request one of {', '.join(_BY_MEDIA_TYPE)}"
    )


def _liking(media_type: str) -> float:
    """The `q` of one part of an Accept header."""
    for parameter in media_type.split(";")[1:]:
        name, _, value = parameter.partition("=")
        if name.strip().lower() == "q":
            try:
                return float(value)
            except ValueError:
                return 0.0
    return 1.0
