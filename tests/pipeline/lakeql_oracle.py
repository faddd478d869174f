"""What `SELECT *` must show of a row that an oracle of this folder expects, worked out from docs/formats/lakeql.md.

In: rows of `otlp_oracle.expected`, `metrics_oracle.expected` or `traces_oracle.expected`. Out: each as the JSON object
that an answer has for it, columns, fields and the keys of maps in their stated order.
"""

from __future__ import annotations

import base64
import json
import math
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np

from lakerunner.lakeql.tables import Table
from lakerunner.model.typed_json import KeyValues, Value, decode_value, encode_value
from lakerunner.pipeline.read.memory import PADDING
from lakerunner.pipeline.read.rows import NumberColumn, Rows, TextColumn
from lakerunner.pipeline.read.walk import STRING
from lakerunner.pipeline.steps.record_columns import add_fingerprint
from pipeline.otlp_oracle import COLLECTOR, ORGANIZATION, Row

TIMES = {"timestamp", "observed_timestamp", "start_timestamp", "end_timestamp"}
MAPS = {"attributes", "resource_attributes", "scope_attributes", "metadata"}
ATTRIBUTE_MAPS = {
    "attributes": "attributes",
    "resource_attrs": "resource_attributes",
    "scope_attrs": "scope_attributes",
}
_BUCKETS = ("offset", "counts", "float_counts")
FIELDS = {
    "events": ("timestamp", "name", "attributes", "dropped_attributes_count"),
    "links": ("trace_id", "span_id", "trace_state", "flags", "attributes", "dropped_attributes_count"),
    "exemplars": ("timestamp", "double_value", "int_value", "trace_id", "span_id", "attributes"),
    "positive": _BUCKETS,
    "negative": _BUCKETS,
}
NEVER_NULL = {"events", "links", "exemplars"}
LEVELS = {
    "TRACE": "FINEST FINER VERBOSE",
    "DEBUG": "FINE CONFIG",
    "INFO": "INFORMATION INFORMATIONAL NOTICE",
    "WARN": "WARNING",
    "ERROR": "ERR SEVERE",
    "FATAL": "CRIT CRITICAL ALERT EMERG EMERGENCY PANIC",
}


def shown(table: Table, rows: Iterable[Row]) -> list[str]:
    """The JSON of each row, in no order that says anything."""
    add = _ADDED[table.spec.name]
    found = []
    for row in rows:
        row = {name: _value(name, value) for name, value in {**row, **add(row)}.items()}
        row["organization_id"], row["collector"] = str(ORGANIZATION), COLLECTOR
        row |= {name: row[stored] for name, stored in ATTRIBUTE_MAPS.items()}
        found.append(json.dumps({column.name: row[column.name] for column in table.columns}))
    return sorted(found)


def read_alone(asked: Sequence[tuple[str, str]], rows: Iterable[Row]) -> list[str]:
    """Of each row the attributes of these (map, key), as columns c0, c1 and so on."""
    found = []
    for row in rows:
        maps = {name: _map(row[stored]) for name, stored in ATTRIBUTE_MAPS.items()}
        found.append(json.dumps({f"c{number}": maps[name].get(key) for number, (name, key) in enumerate(asked)}))
    return sorted(found)


def answered(rows: Iterable[bytes]) -> list[str]:
    """The rows of an answer in the same form."""
    return sorted(json.dumps(json.loads(row, object_pairs_hook=_object)) for row in rows)


def _object(pairs: list[tuple[str, Any]]) -> Row:
    found = dict(pairs)
    assert len(found) == len(pairs), f"a key occurs twice in {pairs}"
    return found


def _value(name: str, value: Any) -> Any:
    if value is None:
        return [] if name in NEVER_NULL else None
    if name in MAPS:
        return _map(value)
    if name in TIMES:
        seconds, ns = divmod(value, 1_000_000_000)
        return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{ns:09}Z"
    match value:
        case bytes():
            return value.hex()
        case list():
            return [_value(name, item) for item in value]
        case dict():
            return {field: _value(field, value[field]) for field in FIELDS[name]}
        case ("double", bits):
            return _double(_from_bits(bits))
    return value


def _from_bits(bits: int) -> float:
    number: float = struct.unpack("<d", struct.pack("<Q", bits))[0]
    return number


def _double(number: float) -> float | str:
    if math.isfinite(number):
        return number
    return "NaN" if math.isnan(number) else "Infinity" if number > 0 else "-Infinity"


def _map(attributes: Mapping[str, list[str]]) -> dict[str, str | None]:
    """Sorted by key; of several values the first counts."""
    ordered = sorted(attributes.items(), key=lambda attribute: attribute[0].encode())
    return {key: _text(decode_value(texts[0])) for key, texts in ordered}


def _text(value: Value) -> str | None:
    match value:
        case None | str():
            return value
        case float():
            return str(_double(value))
        case bytes():
            return base64.b64encode(value).decode()
        case KeyValues(pairs):  # which is no wrapper, whatever its key
            return "{" + ",".join(f"{encode_value(key)}:{encode_value(item)}" for key, item in pairs) + "}"
    return encode_value(value)


# ---- columns that are not stored as they came


def _of_log(row: Row) -> Row:
    """No page states the bits of the hash: that a fingerprint says what it should is test_steps_pattern.py's to hold,
    here it must be the one of this row's message."""
    return {"severity": _severity(row), "fingerprint": fingerprint_of(row["message"])}


def _severity(row: Row) -> str:
    if 1 <= row["severity_number"] <= 24:
        return list(LEVELS)[(row["severity_number"] - 1) // 4]
    word: str = row["severity_text"].strip().upper()
    return next((level for level, words in LEVELS.items() if word in words.split()), word)


def _of_point(row: Row) -> Row:
    stored = row["value"]
    number = row["int_value"] if stored is None else _from_bits(stored[1])
    exemplars = row["exemplars"]
    return {
        "value": None if number is None else _double(float(number)),
        "int_value": int(number) if row["is_int"] else None,
        "exemplar_trace": exemplars[0]["trace_id"] if exemplars else None,
    }


_ADDED: dict[str, Callable[[Row], Row]] = {"logs": _of_log, "metrics": _of_point, "traces": lambda row: {}}


def fingerprint_of(message: str) -> int:
    """Return the fingerprint of one message."""
    text = message.encode()
    column = TextColumn(STRING, np.zeros(1, np.int32), np.full(1, len(text), np.int32))
    data = np.frombuffer(text + bytes(PADDING), np.uint8).copy()
    rows = Rows(1, data, {"message": column}, {}, np.zeros(1, np.int64), np.zeros(1, np.int32))
    return int(add_fingerprint(rows).column("fingerprint", NumberColumn).values[0])
