"""Which tags there are, which values they have, which metrics: blocking, through the queries of one request.

Tags come from the index where it knows all keys of a segment, else from the rows of the stretch of time in question.
Values come from the rows. Every list is sorted and bounded, and says so where it was cut.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

from lakerunner.api.native_ask import Ask
from lakerunner.api.native_selector import NAME, Matcher
from lakerunner.api.native_tags import (
    METRICS_TAGS,
    TagTable,
    keys_sql,
    known_keys,
    literal,
    matcher_sql,
    needs_keys,
    tag_name,
    tag_sql,
    values_sql,
    within,
)
from lakerunner.model.errors import NotFound
from lakerunner.model.prometheus import METADATA_ENTRY
from lakerunner.model.time import TimeRange
from lakerunner.plan.scan import Attribute
from lakerunner.query.known_segments import Segments

MAX_LISTED = 10_000  # tags, values or metrics of one answer
_TYPES = {"exponential_histogram": "histogram", "gaugehistogram": "histogram"}
_METRICS_SQL = """
SELECT DISTINCT metric_name AS name, metric_type AS type, monotonic, unit, description,
    CASE WHEN metric_type = {entry} THEN attributes['type'] END AS stated
FROM metrics WHERE {where} ORDER BY ALL LIMIT {limit}
"""


@dataclass(frozen=True)
class Wanted:
    """Rows of one signal: of this time, that meet all matchers."""

    table: TagTable
    time: TimeRange
    matchers: tuple[Matcher, ...] = ()

    def of_metric(self, name: str) -> Wanted:
        """Those of them that are of this metric."""
        return replace(self, matchers=(Matcher(NAME, "=", name), *self.matchers))


@dataclass(frozen=True)
class Listed:
    """`truncated`: there are more, the first MAX_LISTED are here."""

    items: list[Any]
    truncated: bool


class Lookup:
    """Of one request."""

    def __init__(self, ask: Ask, segments: Segments) -> None:
        self._ask = ask
        self._segments = segments

    def tags(self, wanted: Wanted) -> Listed:
        """All fixed tags where there is a row, and those of the attributes that occur."""
        keys = self._keys(wanted) if wanted.matchers else self._keys_by_index(wanted, None)
        if keys is None:
            return Listed([], truncated=False)
        names = sorted({*wanted.table.fixed, *(tag_name(key.key) for key in keys if key.key)})
        return Listed(names[:MAX_LISTED], truncated=len(names) > MAX_LISTED or len(keys) > MAX_LISTED)

    def values(self, wanted: Wanted, name: str) -> Iterator[list[str]]:
        """The tag's values in parts as they come, sorted, at most one more than MAX_LISTED."""
        labels = {matcher.label for matcher in wanted.matchers}
        keys = self._meant(wanted, {name, *labels})
        value = tag_sql(wanted.table, name, keys)
        if value is not None:
            sql = values_sql(wanted.table, value, self._where(wanted, keys), MAX_LISTED + 1)
            for batch in self._ask.batches(sql):
                yield [row["value"] for row in batch]

    def metrics(self, wanted: Wanted) -> Listed:
        """A metric for each name, type, unit and description that occur."""
        keys = self._meant(wanted, {matcher.label for matcher in wanted.matchers})
        where = self._where(wanted, keys)
        sql = _METRICS_SQL.format(entry=literal(METADATA_ENTRY), where=where, limit=MAX_LISTED + 1)
        rows = list(self._ask.rows(sql))
        items = [item for _, group in groupby(rows, lambda row: row["name"]) for item in _metric(list(group))]
        return Listed(items[:MAX_LISTED], truncated=len(rows) > MAX_LISTED)

    def metric(self, name: str, time: TimeRange) -> dict[str, str]:
        """NotFound where there is no such metric in this time."""
        found = self.metrics(Wanted(METRICS_TAGS, time).of_metric(name)).items
        if not found:
            raise NotFound(f"there is no metric {name!r} in this time: /api/v1/metrics/metadata lists those there are")
        return {"name": found[0]["name"], "type": found[0]["type"]}

    def _keys(self, wanted: Wanted) -> set[Attribute] | None:
        """Of the rows that meet the matchers, at most some more than MAX_LISTED; None if there is no row."""
        meant = self._meant(wanted, {matcher.label for matcher in wanted.matchers})
        where = self._where(wanted, meant)
        found = self._scanned(wanted.table, where, None)
        one_row = f"SELECT 1 AS one FROM {wanted.table.table} WHERE {where} LIMIT 1"
        return found if found or list(self._ask.rows(one_row)) else None

    def _meant(self, wanted: Wanted, names: Collection[str]) -> set[Attribute]:
        """The attributes behind these tags."""
        flat = {tag_name(name) for name in names if needs_keys(wanted.table, name)}
        return (self._keys_by_index(wanted, flat) or set()) if flat else set()

    def _keys_by_index(self, wanted: Wanted, names: Collection[str] | None) -> set[Attribute] | None:
        """Of the segments of this time, all or those of these tags; None where there is no segment."""
        found: set[Attribute] = set()
        unknown: TimeRange | None = None
        segments = self._segments.pick(self._ask.organization, wanted.table.signal, wanted.time).segments
        for segment in segments:
            keys = known_keys(segment)
            if keys is None:
                unknown = _hull(unknown, segment.time)
            else:
                found |= {key for key in keys if names is None or tag_name(key.key) in names}
        if unknown:
            found |= self._scanned(wanted.table, within(_common(unknown, wanted.time)), names)
        return found if segments else None

    def _scanned(self, table: TagTable, where: str, names: Collection[str] | None) -> set[Attribute]:
        rows = self._ask.rows(keys_sql(table, where, names, MAX_LISTED + 1))
        return {Attribute(row["scope"], row["key"]) for row in rows}

    def _where(self, wanted: Wanted, keys: Collection[Attribute]) -> str:
        matchers = wanted.matchers
        conditions = [matcher_sql(matcher, tag_sql(wanted.table, matcher.label, keys)) for matcher in matchers]
        return " AND ".join([within(wanted.time), *conditions])


def _hull(one: TimeRange | None, other: TimeRange) -> TimeRange:
    return TimeRange(min(one.start_ns, other.start_ns), max(one.end_ns, other.end_ns)) if one else other


def _common(one: TimeRange, other: TimeRange) -> TimeRange:
    return TimeRange(max(one.start_ns, other.start_ns), min(one.end_ns, other.end_ns))


def _metric(rows: list[dict[str, Any]]) -> list[dict[str, str]]:
    """The entries of one name. What remote-write 1.0 says of a metric comes in rows apart from its points, which do not
    know their type; it is told where there are such points."""
    said = [row for row in rows if row["type"] == METADATA_ENTRY]
    points = [row for row in rows if row["type"] != METADATA_ENTRY]
    untyped = any(row["type"] == "unknown" for row in points)
    kept = [row for row in points if row["type"] != "unknown" or not said]
    entries = [_entry(row, _type(row)) for row in kept]
    if untyped:
        entries += [_entry(row, row["stated"] or "unknown") for row in said]
    return list({tuple(entry.items()): entry for entry in entries}.values())


def _entry(row: dict[str, Any], type_: str) -> dict[str, str]:
    return {"name": row["name"], "type": type_, "unit": row["unit"], "description": row["description"]}


def _type(row: dict[str, Any]) -> str:
    """As Prometheus and the plugin call it: what only grows is a counter, a sum that may fall a gauge."""
    if row["type"] == "sum":
        return "counter" if row["monotonic"] else "gauge"
    return _TYPES.get(row["type"], str(row["type"]))
