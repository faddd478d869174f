"""Read attributes of stored rows one by one, from their columns and from the map.

Comes in: a record batch of a segment and the types of its columns. Goes out: the attributes of one row by their keys,
of several values of a key the first; and their text as the internal columns of plan/scan.py have it, in a form that
does not depend on which of them have a column.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import orjson
import pyarrow as pa

from lakerunner.model.segment import Column
from lakerunner.model.signal import Scope
from lakerunner.model.streams.attribute_text import value_text
from lakerunner.model.typed_json import KeyValues, Value, decode_value, encode_value
from lakerunner.pipeline.read.walk import ARRAY, BOOL, BYTES, DOUBLE, INT, KVLIST, NULL, STRING

_NO_ENTRIES = np.zeros(0, np.int64), np.zeros(0, np.int64)


def shredded_columns(columns: Iterable[Column], scope: Scope) -> dict[str, str]:
    """Return the types of this scope's columns in the order of their keys, by key."""
    named = {one.name.removeprefix(scope.prefix): one.type for one in columns if one.type and _is_of(one.name, scope)}
    return dict(sorted(named.items()))


def _is_of(name: str, scope: Scope) -> bool:
    return name.startswith(scope.prefix)


def row_attributes(batch: pa.RecordBatch, row: int, scope: Scope, types: Mapping[str, str]) -> dict[str, Value]:
    """Return the attributes of a row, sorted by key. `types` are those of shredded_columns."""
    found: dict[str, Value] = {}
    for key, kind in types.items():
        value = batch.column(scope.prefix + key)[row].as_py()
        if value is not None:
            found[key] = decode_value(value) if kind == "json" else value
    for key, text in batch.column(scope.map_column)[row].as_py() or ():
        if key not in found:
            found[key] = decode_value(text)
    return dict(sorted(found.items()))


def map_entries(maps: pa.Array, is_wanted: Callable[[str], bool]) -> tuple[Any, Any]:
    """Return (the row of each entry whose key is wanted, its place among the keys and items of the maps)."""
    offsets = maps.offsets.to_numpy()
    first, count = int(offsets[0]), int(offsets[-1] - offsets[0])
    if not count:
        return _NO_ENTRIES
    keys = maps.keys.slice(first, count)
    coded = keys if pa.types.is_dictionary(keys.type) else keys.dictionary_encode()
    wanted = np.array([is_wanted(key) for key in coded.dictionary.to_pylist()], np.bool_)
    if not wanted.any():
        return _NO_ENTRIES
    places = np.flatnonzero(wanted[coded.indices.to_numpy()])
    return np.repeat(np.arange(len(maps)), np.diff(offsets))[places], first + places


def attributes_text(attributes: Mapping[str, Value]) -> str:
    """Return the attributes as an internal column has them (plan/scan.py), without a map."""
    return orjson.dumps([{key: _own(value) for key, value in attributes.items()}, None]).decode()


def _own(value: Value) -> Any:
    """Return the text, or a list of the typed JSON if the text would lose the type."""
    if value is None or isinstance(value, float | tuple | KeyValues):
        return [encode_value(value)]
    return value_text(value)


def kind_of(text: str) -> int:
    """Return the kind of the value that this typed JSON encodes."""
    match text[:1]:
        case '"':
            return STRING
        case "t" | "f":
            return BOOL
        case "n":
            return NULL
        case "[":
            return ARRAY
        case "{":
            value = decode_value(text)
            return KVLIST if isinstance(value, KeyValues) else BYTES if isinstance(value, bytes) else DOUBLE
        case _:
            return DOUBLE if any(sign in text for sign in ".eE") else INT
