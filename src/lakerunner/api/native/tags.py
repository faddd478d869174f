"""Tags: flat names for what rows have, as the Grafana plugin lists them, and the SQL that reads them.

A tag is a fixed column under the plugin's name for it, or all attributes whose keys become the same name once every
character but ASCII letters, digits and `_` is a `_`: `http.method` and `http_method` are one tag. Its value in a row is
that of the first which the row has: the column, else the resource's, the record's, the scope's attribute.

What always holds: keys and values of others stand in SQL as literals only.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from lakerunner.model.errors import TooLarge
from lakerunner.model.segment import Segment
from lakerunner.model.signal import ATTRIBUTES, RESOURCE, SCOPE, SCOPES
from lakerunner.model.time import TimeRange
from lakerunner.plan.scan import Attribute
from lakerunner.series.expression import Matcher

MAX_SPELLINGS = 100  # attributes that are one tag
_NOT_OF_TAG = re.compile("[^a-zA-Z0-9_]")
_MAPS = {RESOURCE.map_column: "resource_attrs", ATTRIBUTES.map_column: "attributes", SCOPE.map_column: "scope_attrs"}
_CUT = 256  # characters after which the index cuts a label in its statistics


@dataclass(frozen=True)
class TagTable:
    """One signal. `fixed` has the SQL of each column that is a tag; `aliases` are older names of some, which count only
    where no attribute has that name."""

    signal: str
    table: str
    language: str
    fixed: Mapping[str, str]
    aliases: Mapping[str, str] = field(default_factory=dict)


_COMMON = {name: name for name in ("collector", "scope_name", "scope_version", "service_name")}
_COMMON_ALIASES = {"resource_service_name": "service_name"}
_KINDS = ("Unspecified", "Internal", "Server", "Client", "Producer", "Consumer")
_STATUSES = ("Unset", "Ok", "Error")


def _named(column: str, names: Sequence[str]) -> str:
    """The words that OpenTelemetry has for these numbers; another number is its digits."""
    cases = " ".join(f"WHEN {number} THEN '{name}'" for number, name in enumerate(names))
    return f"CASE {column} {cases} ELSE CAST({column} AS VARCHAR) END"


LOGS_TAGS = TagTable(
    "logs",
    "logs",
    "LogQL",
    _COMMON
    | {
        "event_name": "event_name",
        "fingerprint": "CAST(fingerprint AS VARCHAR)",
        "level": "severity",
        "message": "message",
        "span_id": "span_id",
        "trace_id": "trace_id",
    },
    _COMMON_ALIASES
    | {"severity": "level", "log_level": "level", "log_message": "message", "chq_fingerprint": "fingerprint"},
)
SPANS_TAGS = TagTable(
    "traces",
    "spans",
    "TraceQL",
    _COMMON
    | {
        "duration": "CAST(duration // 1000000 AS VARCHAR)",  # ms, as the plugin shows and compares it
        "kind": _named("kind", _KINDS),
        "name": "name",
        "parent_span_id": "parent_span_id",
        "span_id": "span_id",
        "status_code": _named("status_code", _STATUSES),
        "status_message": "status_message",
        "trace_id": "trace_id",
        "trace_state": "trace_state",
    },
    _COMMON_ALIASES
    | {"id": "span_id"}
    | {
        f"span_{name}": name
        for name in ("duration", "kind", "name", "parent_span_id", "status_code", "status_message", "trace_id")
    },
)
TAG_TABLES = {table.table: table for table in (LOGS_TAGS, SPANS_TAGS)}


def tag_name(key: str) -> str:
    return _NOT_OF_TAG.sub("_", key)


def literal(text: str) -> str:
    """Text in SQL. A NUL, which no SQL text can hold, is made by a function."""
    quoted = ("'" + part.replace("'", "''") + "'" for part in text.split("\0"))
    joined = " || chr(0) || ".join(quoted)
    return f"({joined})" if "\0" in text else joined


def within(time: TimeRange) -> str:
    return f"timestamp >= make_timestamp_ns({time.start_ns}) AND timestamp < make_timestamp_ns({time.end_ns})"


def known_keys(segment: Segment) -> set[Attribute] | None:
    """All keys of the segment's attributes, or None where the index does not know them all: those that have a column,
    and the labels in the statistics, if they are as many as the statistics count."""
    labels = segment.statistics.get("labels", ())
    if any(len(label) >= _CUT for label in labels):
        return None
    keys = {Attribute(ATTRIBUTES.map_column, label) for label in labels}
    for column in segment.columns:
        for scope in SCOPES:
            if column.type and column.name.startswith(scope.prefix):
                keys.add(Attribute(scope.map_column, column.name.removeprefix(scope.prefix)))
    return keys if len(keys) == segment.statistics.get("key_count") else None


def keys_sql(table: TagTable, where: str, names: Collection[str] | None, limit: int) -> str:
    """Rows (scope, key) of all attributes that occur, or of those that are one of these tags."""
    scopes = " UNION ALL ".join(
        f"SELECT DISTINCT {literal(scope)} AS scope, unnest(map_keys({column})) AS key FROM {table.table} WHERE {where}"
        for scope, column in _MAPS.items()
    )
    wanted = ""
    if names is not None:
        flat = "regexp_replace(key, '[^a-zA-Z0-9_]', '_', 'g')"
        wanted = f" WHERE {flat} IN ({', '.join(map(literal, sorted(names)))})"
    return f"WITH found AS ({scopes}) SELECT scope, key FROM found{wanted} ORDER BY scope, key LIMIT {limit}"


def values_sql(table: TagTable, value: str, where: str, limit: int) -> str:
    """Rows (value), sorted, of the values that are not empty."""
    return (
        f"WITH found AS (SELECT {value} AS value FROM {table.table} WHERE {where}) "
        f"SELECT DISTINCT value FROM found WHERE value <> '' ORDER BY value LIMIT {limit}"
    )


def needs_keys(table: TagTable, name: str) -> bool:
    return tag_name(name) not in table.fixed


def tag_sql(table: TagTable, name: str, keys: Iterable[Attribute]) -> str | None:
    """The value of this tag in a row, as text; None where no row has it. `keys` has the attributes it stands for."""
    flat = tag_name(name)
    if flat in table.fixed:
        return table.fixed[flat]
    order = list(_MAPS)
    meant = sorted((key for key in keys if tag_name(key.key) == flat), key=lambda k: (order.index(k.scope), k.key))
    if len(meant) > MAX_SPELLINGS:
        raise TooLarge(f"tag {flat!r} stands for {len(meant)} attributes, the limit is {MAX_SPELLINGS}: use SQL")
    if not meant:
        alias = table.aliases.get(flat)
        return table.fixed[alias] if alias else None
    parts = [f"{_MAPS[key.scope]}[{literal(key.key)}]" for key in meant]
    return f"coalesce({', '.join(parts)})" if len(parts) > 1 else parts[0]


def matcher_sql(matcher: Matcher, value: str | None) -> str:
    """A condition on a row; `value` is the SQL of the matcher's tag."""
    given, wanted = f"coalesce({value}, '')" if value else "''", literal(matcher.value)
    match matcher.op:
        case "=" if value and matcher.value:
            return f"{value} = {wanted}"  # bare, as what prunes segments reads it
        case "=":
            return f"{given} = {wanted}"
        case "!=":
            return f"{given} <> {wanted}"
        case "=~":
            return f"regexp_full_match({given}, {wanted})"
    return f"NOT regexp_full_match({given}, {wanted})"
