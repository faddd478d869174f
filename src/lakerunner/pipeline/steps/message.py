"""A record's body as text, and where it is not a string, as typed JSON beside it.

A string body is the message itself. Of any other the message is its plain text: digits, `true`, base64 of bytes, the
typed JSON of an array or kvlist, nothing for an empty value; the column `body` then says exactly what it was.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from lakerunner.pipeline.read.memory import PADDING
from lakerunner.pipeline.read.rows import Json, Rows, Texts
from lakerunner.pipeline.read.walk import ABSENT, BYTES, DOUBLE, NULL, STRING
from lakerunner.pipeline.steps.json_text import stack
from lakerunner.pipeline.steps.take import take_json

# What typed JSON puts around the text of bytes, and of doubles that are not finite.
_BEFORE = {BYTES: len('{"bytesValue":"'), DOUBLE: len('{"doubleValue":"')}
_BEHIND = len('"}')


def render_message(rows: Rows) -> Rows:
    """Adds message; body keeps only what is not a string."""
    body = rows.column("body", Json).values
    at, size = body["at"].copy(), np.where(body["kind"] == STRING, body["size"], 0)
    data = rows.data
    others = np.flatnonzero((body["kind"] != STRING) & (body["kind"] != ABSENT))
    if len(others):
        starts, sizes, texts = plain_texts(data, body[others])
        at[others], size[others] = starts + len(data), sizes
        data = np.concatenate([data, texts, np.zeros(PADDING, np.uint8)])
    rest = body.copy()
    rest["kind"][body["kind"] == STRING] = ABSENT
    return replace(rows, data=data).plus(message=Texts(STRING, at, size), body=Json(rest))


def plain_texts(data: Any, values: Any) -> tuple[Any, Any, Any]:
    """(start, size, bytes) of the plain texts of these values: their typed JSON without what says the type."""
    kind, at, size = (np.ascontiguousarray(values[field]) for field in ("kind", "at", "size"))
    offsets, texts, _ = take_json(data, kind, at, size, stack())
    starts, sizes = offsets[:-1].copy(), np.diff(offsets)
    wrapped = texts[starts] == ord("{")
    for wrapper, before in _BEFORE.items():
        chosen = wrapped & (kind == wrapper)
        starts[chosen] += before
        sizes[chosen] -= before + _BEHIND
    sizes[kind == NULL] = 0
    return starts, sizes, texts
