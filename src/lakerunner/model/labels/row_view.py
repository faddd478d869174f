"""The labels of log records and spans: flat names for what a row has, and where their values stand.

A label is a fixed column under a name of its own, or all attributes whose keys become the same name once every
character but ASCII letters, digits and `_` is a `_`: `http.method` and `http_method` are one label. Its value in a row
is the first that the row has of: the column, the resource's attribute, the record's, the scope's.

Comes in: names, matchers, the attributes that occur, and batches of rows. Goes out: conditions that prune, SQL of
LakeQL's tables, and the labels of a batch. What always holds: all three agree; foreign keys and values stand in SQL as
literals only. One class serves both signals; they differ in one row of `ROW_VIEWS`. It is part of the model, below all
languages, because each of them compiles matchers of these labels.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakerunner.model.condition import Condition, Equals, Present, regex_literals
from lakerunner.model.errors import TooLarge
from lakerunner.model.labels import Labels
from lakerunner.model.labels.matcher import Matcher, Matchers, matches_empty
from lakerunner.model.regex import compile_regex
from lakerunner.model.segment import Segment
from lakerunner.model.signal import ATTRIBUTES, LOGS, RESOURCE, SCOPE, SCOPES, TRACES, Attribute, SignalSpec
from lakerunner.model.time import MAX_NS, TimeRange

MAX_SPELLINGS = 100  # attributes that map to one label
# LakeQL's columns of attributes, in the order in which a value is looked up.
MAP_COLUMNS = {
    RESOURCE.map_column: "resource_attrs",
    ATTRIBUTES.map_column: "attributes",
    SCOPE.map_column: "scope_attrs",
}
_NOT_OF_NAME = re.compile("[^a-zA-Z0-9_]")
_HEX = re.compile(r"(?:[0-9a-f]{2})+")
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

    def conditions(self, matcher: Matcher) -> Sequence[Condition]:
        """Return what a row has that meets the matcher. Rows without the label must not meet it."""
        if self.case is _ID and not (matcher.op == "=" and _HEX.fullmatch(matcher.value)):
            return []
        return _compared(self.column, matcher)


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

    def text(self, number: int) -> str:
        return self.words[number] if 0 <= number < len(self.words) else str(number)

    def conditions(self, _matcher: Matcher) -> Sequence[Condition]:
        return []  # statistics of numbers are not compared with texts


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

    def conditions(self, matcher: Matcher) -> Sequence[Condition]:
        compared = _compared(self.attributes[0], matcher) if len(self.attributes) == 1 else []
        return compared or [Present(self.attributes)]


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

    def resolve(self, matchers: Matchers, keys: Iterable[Attribute]) -> Matchers:
        """Return matchers with the same meaning that use the labels' own names and values in their case."""
        return tuple(matcher for matcher, _ in self._needed(matchers, keys))

    def conditions(self, matchers: Matchers, keys: Iterable[Attribute]) -> tuple[Condition, ...]:
        """Return what every row has that meets the matchers."""
        found = (
            condition
            for matcher, label in self._needed(matchers, keys)
            if label and not matches_empty(matcher)
            for condition in label.conditions(matcher)
        )
        return tuple(dict.fromkeys(found))

    def where(self, time: TimeRange, matchers: Matchers, keys: Iterable[Attribute]) -> str:
        """Return the SQL condition of the rows of this time that meet all matchers."""
        return " AND ".join([within(time), *(_matcher_sql(*needed) for needed in self._needed(matchers, keys))])

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


def _compared(column: str | Attribute, matcher: Matcher) -> Sequence[Condition]:
    """Return what the text of the column is or contains where it meets the matcher, as far as the matcher tells."""
    if matcher.op == "=":
        return [Equals(column, (matcher.value,))]
    return regex_literals(matcher.value).within(column) if matcher.op == "=~" else []


def within(time: TimeRange) -> str:
    """Return the SQL of rows of this time. The greatest number of ns is not a time for DuckDB; all rows are before."""
    start = f"timestamp >= make_timestamp_ns({time.start_ns})"
    return start if time.end_ns >= MAX_NS else f"{start} AND timestamp < make_timestamp_ns({time.end_ns})"


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


# ---- labels of a batch of rows

Ints = npt.NDArray[np.int64]


class RowLabels:
    """The labels of one batch of rows of LakeQL's tables as Arrow, with ids as text and attributes in maps. They are
    what the view's SQL returns for the rows. Each distinct value and key is looked at once: the rest is arithmetic on
    their numbers."""

    def __init__(self, view: RowView, batch: pa.RecordBatch) -> None:
        self._view = view
        self._batch = batch

    @property
    def keys(self) -> set[Attribute]:
        """Return the attributes that occur, also those without a value."""
        return set(self._entries.keys)

    def values(self, label: RowLabel) -> pa.DictionaryArray:
        """Return the label's value in each row, null where the row lacks it."""
        if isinstance(label, AttributeLabel):
            return self._entries.values(label.attributes)
        column = self._batch.column(label.column)
        if not isinstance(label, NumberLabel):
            return column.dictionary_encode()
        numbers = column if label.divisor == 1 else pc.divide(column, pa.scalar(label.divisor, column.type))
        encoded = numbers.dictionary_encode()
        texts = pa.array([label.text(number) for number in encoded.dictionary.to_pylist()], pa.string())
        return pa.DictionaryArray.from_arrays(encoded.indices, texts)

    def sets(self, names: Collection[str] | None = None) -> tuple[Ints, list[Labels]]:
        """Return the number of each row's label set, and the sets in the order in which they first occur: of the labels
        with these names, or of all. Aliases are not among them: only all rows of a query decide what they mean."""
        labels = self._view.labels(self.keys)
        chosen = sorted(labels if names is None else labels.keys() & names)
        columns = [(name, *_codes(self.values(labels[name]))) for name in chosen]
        numbers, first = _renumbered(np.zeros(self._batch.num_rows, np.int64))
        for _, texts, codes in columns:
            numbers, first = _renumbered(numbers * (len(texts) + 1) + codes + 1)
        found: list[list[tuple[str, str]]] = [[] for _ in first]
        for name, texts, codes in columns:
            for pairs, code in zip(found, codes[first].tolist(), strict=True):
                if code >= 0:
                    pairs.append((name, texts[code]))
        return numbers, [tuple(pairs) for pairs in found]

    @cached_property
    def _entries(self) -> _Entries:
        return _Entries(self._batch)


class _Entries:
    """The entries of all three maps that have a value, ordered by their attribute: `rows` has each entry's row, `codes`
    the number of its value in `texts`. Those of `keys[n]` stand from `bounds[n]` up to `bounds[n + 1]`."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self.keys: list[Attribute] = []
        rows, keys, values = [], [], []
        for scope, name in MAP_COLUMNS.items():
            maps = batch.column(name)
            offsets = maps.offsets.to_numpy()
            here = slice(offsets[0], offsets[-1])  # `keys` and `items` of a slice are those of the whole array
            of_scope = maps.keys[here].dictionary_encode()
            rows.append(np.repeat(np.arange(len(maps)), np.diff(offsets)))
            keys.append(of_scope.indices.to_numpy() + len(self.keys))
            values.append(maps.items[here])
            self.keys += [Attribute(scope, key) for key in of_scope.dictionary.to_pylist()]
        encoded = pa.concat_arrays(values).dictionary_encode()
        self._texts = encoded.dictionary
        codes, key_of = _numbers(encoded.indices), np.concatenate(keys)
        order = np.argsort(key_of, kind="stable")
        order = order[codes[order] >= 0]
        self._rows, self._codes = np.concatenate(rows)[order], codes[order]
        self._bounds = np.searchsorted(key_of[order], np.arange(len(self.keys) + 1))
        self._number = {key: n for n, key in enumerate(self.keys)}
        self._row_count = batch.num_rows

    def values(self, attributes: Collection[Attribute]) -> pa.DictionaryArray:
        """Return the value of the first of the attributes that a row has."""
        found: Ints = np.full(self._row_count, -1, np.int64)
        for attribute in reversed(tuple(attributes)):  # the first is written last
            n = self._number.get(attribute)
            if n is not None:
                here = slice(self._bounds[n], self._bounds[n + 1])
                found[self._rows[here]] = self._codes[here]
        encoded = pa.array(found, mask=found < 0).dictionary_encode()
        return pa.DictionaryArray.from_arrays(encoded.indices, self._texts.take(encoded.dictionary))


def _codes(values: pa.DictionaryArray) -> tuple[list[str], Ints]:
    """Return the texts and the number of each row's text, -1 if it has none: an empty label is an absent one."""
    texts: list[Any] = values.dictionary.to_pylist()
    codes = _numbers(values.indices)
    if "" in texts:
        codes = np.where(codes == texts.index(""), -1, codes)
    return texts, codes


def _renumbered(numbers: Ints) -> tuple[Ints, Ints]:
    """Return numbers without gaps, in the order in which they first occur, and where each of them first occurs."""
    codes = _numbers(pa.array(numbers).dictionary_encode().indices)
    first: Ints = np.zeros(codes.max(initial=-1) + 1, np.int64)
    first[codes[::-1]] = np.arange(len(codes))[::-1]  # the first is written last
    return codes, first


def _numbers(indices: pa.Array) -> Ints:
    numbers: Ints = indices.cast(pa.int64()).fill_null(-1).to_numpy(zero_copy_only=False)
    return numbers
