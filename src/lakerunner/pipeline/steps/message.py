"""A record's body as text, and where it is not a string, as typed JSON beside it.

A string body is the message itself. Of any other the message is its plain text: digits, `true`, base64 of bytes, the typed JSON
of an array or kvlist, nothing for an empty value; the column `body` then says exactly what it was.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numba import njit

from lakerunner.pipeline.read.rows import Json, Rows, Texts
from lakerunner.pipeline.read.walk import ABSENT, BYTES, DOUBLE, NULL, STRING
from lakerunner.pipeline.steps.json_text import double_bits, put_base64, put_plain_double, put_value, room, stack


def render_message(rows: Rows) -> Rows:
    """Adds message; body keeps only what is not a string."""
    body = rows.columns["body"]
    assert isinstance(body, Json)
    values = body.values
    kind = values["kind"]
    at, size = values["at"].copy(), np.where(kind == STRING, values["size"], 0)
    others = np.flatnonzero((kind != STRING) & (kind != ABSENT))
    data = rows.data
    if len(others):
        offsets, out = _render(data, values[others], stack())
        at[others], size[others] = offsets[:-1] + len(data), np.diff(offsets)
        data = np.concatenate([data, out])
    rest = values.copy()
    rest["kind"][kind == STRING] = ABSENT
    return replace(rows, data=data).plus(message=Texts(STRING, at, size), body=Json(rest))


@njit(cache=True)
def _render(data: Any, values: Any, levels: Any) -> Any:
    """(offsets, bytes) of the plain text of these values."""
    offsets = np.empty(len(values) + 1, np.int32)
    most = 0
    for row in range(len(values)):
        most += room(np.int64(values[row].size))
    out = np.empty(most, np.uint8)
    end = 0
    for row in range(len(values)):
        offsets[row] = end
        value = values[row]
        kind, at, size = np.int64(value.kind), np.int64(value.at), np.int64(value.size)
        if kind == BYTES:
            end = put_base64(data, at, at + size, out, end)
        elif kind == DOUBLE:
            end = put_plain_double(double_bits(data, at), out, end)
        elif kind != NULL:
            end = put_value(data, (kind, at, size), out, end, levels)
    offsets[len(values)] = end
    return offsets, out[:end]
