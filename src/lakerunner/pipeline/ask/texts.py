"""The text a query sees of an attribute, the same as query/sandbox/macros.py gives it to DuckDB: wherever a value
stands, in a column of its own or in the overflow map as typed JSON, its text is the same.
"""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Callable, Iterable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

_BYTES = re.compile(r'\{"bytesValue":"([A-Za-z0-9+/=]*)"\}')
_DOUBLE = re.compile(r'\{"doubleValue":"(NaN|-?Infinity)"\}')
_PAIRS = '{"kvlistValue":'
Pair = tuple[str, str | None]


def typed_text(value: str) -> str | None:
    """The plain text of typed JSON (model/typed_json.py)."""
    if value.startswith('"'):
        return str(json.loads(value))
    if value == "null":
        return None
    if not value.startswith('{"'):
        return value
    if wrapped := _BYTES.fullmatch(value) or _DOUBLE.fullmatch(value):
        return wrapped[1]
    if value.startswith(_PAIRS + "{") and len(json.loads(value)) == 1:
        return value[len(_PAIRS) : -1]
    return value


def double_text(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return repr(value)


def each_once(column: pa.Array, text: Callable[[Any], str | None]) -> pa.Array:
    """The texts of a column's values; each value that occurs is turned into text once."""
    coded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    texts = pa.array([None if value is None else text(value) for value in coded.dictionary.to_pylist()], pa.string())
    return texts.take(coded.indices)


def _doubles(column: pa.Array) -> pa.Array:
    """Arrow takes 0.0 and -0.0 for one value: so each row by itself."""
    return pa.array([None if value is None else double_text(value) for value in column.to_pylist()], pa.string())


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode()


# By the type of a shredded column.
TEXT_OF: dict[str, Callable[[pa.Array], pa.Array]] = {
    "string": lambda column: column.cast(pa.string()),
    "int64": lambda column: column.cast(pa.string()),
    "double": _doubles,
    "bool": lambda column: column.cast(pa.string()),
    "bytes": lambda column: each_once(column, _base64),
    "json": lambda column: each_once(column, typed_text),
}


def looked_up(overflow: pa.Array, key: str) -> pa.Array:
    """The text of the first value of this key."""
    return each_once(pc.map_lookup(overflow, pa.scalar(key), "first"), typed_text)


def whole_map(own: Iterable[Pair], overflow: Iterable[tuple[str, str]] | None) -> list[Pair]:
    """All attributes, by key; the first of several equal keys counts."""
    first: dict[str, str | None] = {key: text for key, text in own if text is not None}
    for key, value in overflow or ():
        if key not in first:
            first[key] = typed_text(value)
    return sorted(first.items(), key=lambda pair: pair[0].encode())
