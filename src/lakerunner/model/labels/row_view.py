"""The labels of log records and spans: flat names for what a row has, and where their values stand.

A label is a fixed column under a name of its own, or all attributes whose keys become the same name once every
character but ASCII letters, digits and `_` is a `_`: `http.method` and `http_method` are one label. Its value in a row
is the first that the row has of: the column, the resource's attribute, the record's, the scope's.

Comes in: names, matchers and the attributes that occur. Goes out: SQL of LakeQL's tables, by whose conditions segments
are pruned as for any SQL. What always holds: foreign keys and values stand in SQL as literals only. One class serves
both signals; they differ in one row of `ROW_VIEWS`. It is part of the model, below all languages, because each of them
compiles matchers of these labels.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from lakerunner.model.errors import TooLarge
from lakerunner.model.labels.matcher import Matcher, Matchers, matches_empty
from lakerunner.model.regex import compile_regex
from lakerunner.model.segment import Segment
from lakerunner.model.signal import ATTRIBUTES, LOGS, RESOURCE, SCOPE, SCOPES, TRACES, Attribute, SignalSpec
from lakerunner.model.time import TimeRange

MAX_SPELLINGS = 100  # attributes that map to one label
# LakeQL's columns of attributes, in the order in which a value is looked up.
MAP_COLUMNS = {
    RESOURCE.map_column: "resource_attrs",
    ATTRIBUTES.map_column: "attributes",
    SCOPE.map_column: "scope_attrs",
}
_NOT_OF_NAME = re.compile("[^a-zA-Z0-9_]")
_ID = str.lower  # the case of ids, which are hexadecimal text
_CUT = 256  # characters after which the index cuts a label in its statistics


@dataclass(frozen=True)
class ColumnLabel:
    """A column of texts. `case` is the case of all its values, if matchers ignore case."""

    column: str
    case: Callable[[str], str] | None = None

    @property
    def sql(self) -> str:
        return self.column


@dataclass(frozen=True)
class NumberLabel:
    """A column of integers, divided and shown as digits, or as OpenTelemetry's word for 0, 1, 2, ..."""

    column: str
    divisor: int = 1
    words: tuple[str, ...] = ()

    @property
    def sql(self) -> str:
        number = self.column if self.divisor == 1 else f"{self.column} // {self.divisor}"
        cases = "".join(f"WHEN {n} THEN '{word}' " for n, word in enumerate(self.words))
        digits = f"CAST({number} AS VARCHAR)"
        return f"CASE {number} {cases}ELSE {digits} END" if cases else digits


@dataclass(frozen=True)
class AttributeLabel:
    """The first of these attributes that a row has."""

    attributes: tuple[Attribute, ...]

    @property
    def sql(self) -> str:
        if len(self.attributes) > MAX_SPELLINGS:
            name = label_name(self.attributes[0].key)
            raise TooLarge(
                f"label {name!r} stands for {len(self.attributes)} attributes, the limit is {MAX_SPELLINGS}: use SQL"
            )
        parts = [f"{MAP_COLUMNS[one.scope]}[{literal(one.key)}]" for one in self.attributes]
        return f"coalesce({', '.join(parts)})" if len(parts) > 1 else parts[0]


RowLabel = ColumnLabel | NumberLabel | AttributeLabel


@dataclass(frozen=True)
class RowView:
    """The labels of one signal. `fixed` are columns; `aliases` are further names of some of them, which count only if
    no attribute has that name. `keys`, below, are the attributes of all rows that a query reads: an alias must mean the
    same in each of them."""

    spec: SignalSpec
    fixed: Mapping[str, ColumnLabel | NumberLabel]
    aliases: Mapping[str, str]

    def labels(self, keys: Iterable[Attribute]) -> dict[str, RowLabel]:
        """Return all labels by name. An empty key is not a label."""
        attributes: dict[str, list[Attribute]] = {}
        for key in keys:
            if key.key:
                attributes.setdefault(label_name(key.key), []).append(key)
        return {name: AttributeLabel(_in_order(same)) for name, same in attributes.items()} | dict(self.fixed)

    def find(self, name: str, keys: Iterable[Attribute]) -> RowLabel | None:
        """Return where rows have this label; None if no row has it."""
        labels = self.labels(keys)
        return labels.get(self._own_name(name, labels))

    def where(self, time: TimeRange, matchers: Matchers, keys: Iterable[Attribute]) -> str:
        """Return the SQL condition of the rows of this time that meet all matchers."""
        return " AND ".join([_within(time), *(_matcher_sql(*needed) for needed in self._needed(matchers, keys))])

    def keys_sql(self, where: str, names: Collection[str] | None, limit: int) -> str:
        """Return the SQL of rows (scope, key): all attributes that occur, or those that are one of these labels."""
        scopes = " UNION ALL ".join(
            f"SELECT DISTINCT {literal(scope)} AS scope, unnest(map_keys({column})) AS key "
            f"FROM {self.spec.table} WHERE {where}"
            for scope, column in MAP_COLUMNS.items()
        )
        wanted = ""
        if names is not None:
            flat = f"regexp_replace(key, '{_NOT_OF_NAME.pattern}', '_', 'g')"
            wanted = f" WHERE {flat} IN ({', '.join(map(literal, sorted(names)))})"
        return f"WITH found AS ({scopes}) SELECT scope, key FROM found{wanted} ORDER BY scope, key LIMIT {limit}"

    def values_sql(self, label: RowLabel, where: str, limit: int) -> str:
        """Return the SQL of rows (value): the label's values that are not empty, sorted."""
        return (
            f"WITH found AS (SELECT {label.sql} AS value FROM {self.spec.table} WHERE {where}) "
            f"SELECT DISTINCT value FROM found WHERE value <> '' ORDER BY value LIMIT {limit}"
        )

    def _needed(self, matchers: Matchers, keys: Iterable[Attribute]) -> Iterator[tuple[Matcher, RowLabel | None]]:
        """Yield each matcher with the label's own name and a value in its case, and where rows have the label."""
        labels = self.labels(keys)
        for matcher in matchers:
            name = self._own_name(matcher.name, labels)
            label, value = labels.get(name), matcher.value
            if isinstance(label, ColumnLabel) and label.case and not matcher.is_regex:
                value = label.case(value)
            yield Matcher(name, matcher.op, value), label

    def _own_name(self, name: str, labels: Mapping[str, RowLabel]) -> str:
        flat = label_name(name)
        return flat if flat in labels else self.aliases.get(flat, flat)


_COMMON = {name: ColumnLabel(name) for name in ("collector", "scope_name", "scope_version", "service_name")}
_COMMON_ALIASES = {"resource_service_name": "service_name"}
_KINDS = ("Unspecified", "Internal", "Server", "Client", "Producer", "Consumer")
_STATUSES = ("Unset", "Ok", "Error")
_PREFIXED = ("duration", "kind", "name", "parent_span_id", "status_code", "status_message", "trace_id")

LOG_VIEW = RowView(
    LOGS,
    _COMMON
    | {
        "event_name": ColumnLabel("event_name"),
        "fingerprint": NumberLabel("fingerprint"),
        "level": ColumnLabel("severity", str.upper),
        "message": ColumnLabel("message"),
        "span_id": ColumnLabel("span_id", _ID),
        "trace_id": ColumnLabel("trace_id", _ID),
    },
    _COMMON_ALIASES
    | {"severity": "level", "log_level": "level", "log_message": "message", "chq_fingerprint": "fingerprint"},
)
SPAN_VIEW = RowView(
    TRACES,
    _COMMON
    | {
        "duration": NumberLabel("duration", divisor=1_000_000),  # ms, as the plugin shows and compares it
        "kind": NumberLabel("kind", words=_KINDS),
        "name": ColumnLabel("name"),
        "parent_span_id": ColumnLabel("parent_span_id", _ID),
        "span_id": ColumnLabel("span_id", _ID),
        "status_code": NumberLabel("status_code", words=_STATUSES),
        "status_message": ColumnLabel("status_message"),
        "trace_id": ColumnLabel("trace_id", _ID),
        "trace_state": ColumnLabel("trace_state"),
    },
    _COMMON_ALIASES | {"id": "span_id"} | {f"span_{name}": name for name in _PREFIXED},
)
ROW_VIEWS = {view.spec.name: view for view in (LOG_VIEW, SPAN_VIEW)}


def label_name(key: str) -> str:
    return _NOT_OF_NAME.sub("_", key)


def known_keys(segment: Segment) -> set[Attribute] | None:
    """Return all keys of the segment's attributes, or None if the index does not know them all. They are those that
    have a column, and the labels in the statistics, if they are as many as the statistics count."""
    labels = segment.statistics.get("labels", ())
    if any(len(label) >= _CUT for label in labels):
        return None
    keys = {Attribute(ATTRIBUTES.map_column, label) for label in labels}
    for column in segment.columns:
        for scope in SCOPES:
            if column.type and column.name.startswith(scope.prefix):
                keys.add(Attribute(scope.map_column, column.name.removeprefix(scope.prefix)))
    return keys if len(keys) == segment.statistics.get("key_count") else None


def literal(text: str) -> str:
    """Return the SQL of a text. A NUL, which no SQL text can hold, is made by a function."""
    quoted = ("'" + part.replace("'", "''") + "'" for part in text.split("\0"))
    joined = " || chr(0) || ".join(quoted)
    return f"({joined})" if "\0" in text else joined


def _in_order(attributes: Iterable[Attribute]) -> tuple[Attribute, ...]:
    scopes = list(MAP_COLUMNS)
    return tuple(sorted(attributes, key=lambda one: (scopes.index(one.scope), one.key)))


def _within(time: TimeRange) -> str:
    return f"timestamp >= make_timestamp_ns({time.start_ns}) AND timestamp < make_timestamp_ns({time.end_ns})"


def _matcher_sql(matcher: Matcher, label: RowLabel | None) -> str:
    """Return the SQL condition that a row meets the matcher. If a row without the label does not meet it, the value
    stands bare: then the condition is not true of NULL, and lakeql/prune.py can prune by it."""
    absent = matches_empty(matcher)
    if label is None:
        return "true" if absent else "false"
    value, wanted = f"coalesce({label.sql}, '')" if absent else label.sql, literal(matcher.value)
    if not matcher.is_regex:
        return f"{value} {'<>' if matcher.is_negated else '='} {wanted}"
    compile_regex(matcher.value)  # a wrong pattern is refused with the same words in all languages
    matched = f"regexp_full_match({value}, {wanted}, 's')"  # . matches a newline too, as in model/regex.py
    return f"NOT {matched}" if matcher.is_negated else matched
