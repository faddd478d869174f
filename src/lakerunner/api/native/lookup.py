"""Which tags there are and which values they have: blocking, through the queries of one request.

Tags come from the index where it knows all keys of a segment, else from the rows of the stretch of time in question.
Values come from the rows. Every list is sorted and bounded, and says so where it was cut. Where the time reaches into
what has expired, there is a warning.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

from lakerunner.api.native.ask import Ask
from lakerunner.model.labels.matcher import Matchers
from lakerunner.model.labels.row_view import RowView, known_keys, label_name
from lakerunner.model.signal import Attribute
from lakerunner.model.time import TimeRange
from lakerunner.query.expiry import expiry_warning
from lakerunner.query.known_segments import Segments

MAX_LISTED = 10_000  # tags, values or metrics of one answer


@dataclass(frozen=True)
class Wanted:
    """Rows of one signal: of this time, that meet all matchers."""

    view: RowView
    time: TimeRange
    matchers: Matchers = ()

    def where(self, keys: Collection[Attribute]) -> str:
        return self.view.where(self.time, self.matchers, keys)


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
        self._expired: frozenset[str] = frozenset()

    @property
    def warnings(self) -> list[str]:
        """When all is listed."""
        return sorted(self._expired | self._ask.warnings)

    def tags(self, wanted: Wanted) -> Listed:
        """All fixed tags where there is a row, and those of the attributes that occur."""
        keys = self._keys(wanted) if wanted.matchers else self._keys_by_index(wanted, None)
        if keys is None:
            return Listed([], truncated=False)
        names = sorted(wanted.view.labels(keys))
        return Listed(names[:MAX_LISTED], truncated=len(names) > MAX_LISTED or len(keys) > MAX_LISTED)

    def values(self, wanted: Wanted, name: str) -> Iterator[list[str]]:
        """The tag's values in parts as they come, sorted, at most one more than MAX_LISTED."""
        keys = self._meant(wanted, {name, *(matcher.name for matcher in wanted.matchers)})
        label = wanted.view.find(name, keys)
        if label:
            sql = wanted.view.values_sql(label, wanted.where(keys), MAX_LISTED + 1)
            for batch in self._ask.batches(sql):
                yield [row["value"] for row in batch]

    def _keys(self, wanted: Wanted) -> set[Attribute] | None:
        """Of the rows that meet the matchers, at most some more than MAX_LISTED; None if there is no row."""
        meant = self._meant(wanted, {matcher.name for matcher in wanted.matchers})
        where = wanted.where(meant)
        found = self._scanned(wanted.view, where, None)
        one_row = f"SELECT 1 AS one FROM {wanted.view.spec.table} WHERE {where} LIMIT 1"
        return found if found or list(self._ask.rows(one_row)) else None

    def _meant(self, wanted: Wanted, names: Collection[str]) -> set[Attribute]:
        """The attributes behind these tags."""
        flat = {label_name(name) for name in names} - wanted.view.fixed.keys()
        return (self._keys_by_index(wanted, flat) or set()) if flat else set()

    def _keys_by_index(self, wanted: Wanted, names: Collection[str] | None) -> set[Attribute] | None:
        """Of the segments of this time, all or those of these tags; None where there is no segment."""
        found: set[Attribute] = set()
        unknown: TimeRange | None = None
        signal = wanted.view.spec.name
        picked = self._segments.pick(self._ask.organization, signal, wanted.time)
        self._expired |= expiry_warning(signal, wanted.time, picked.expiry)
        for segment in picked.segments:
            keys = known_keys(segment)
            if keys is None:
                unknown = _hull(unknown, segment.time)
            else:
                found |= {key for key in keys if names is None or label_name(key.key) in names}
        if unknown:
            rows = wanted.view.where(_common(unknown, wanted.time), (), ())
            found |= self._scanned(wanted.view, rows, names)
        return found if picked.segments else None

    def _scanned(self, view: RowView, where: str, names: Collection[str] | None) -> set[Attribute]:
        rows = self._ask.rows(view.keys_sql(where, names, MAX_LISTED + 1))
        return {Attribute(row["scope"], row["key"]) for row in rows}


def _hull(one: TimeRange | None, other: TimeRange) -> TimeRange:
    return TimeRange(min(one.start_ns, other.start_ns), max(one.end_ns, other.end_ns)) if one else other


def _common(one: TimeRange, other: TimeRange) -> TimeRange:
    return TimeRange(max(one.start_ns, other.start_ns), min(one.end_ns, other.end_ns))
