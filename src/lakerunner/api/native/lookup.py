"""Look up the tags of logs and spans and their values, by SQL queries of one request; blocking.

Tags come from the index if it knows all keys of a segment, otherwise from the rows of its time. Values come from rows.
Every list is sorted and bounded, and is marked if it was cut. If the time range includes expired data, there is a
warning.

`read_selector` reads `q`, the selector of rows that the Grafana plugin writes around its filters, for example
`http_requests{code=~"5..", "k8s.pod.name"!=""}`, perhaps inside calls such as `sum by (x) (rate(...[5m]))`, which
select the same rows. It returns matchers, all of which a row must match; a metric's name is a matcher of `__name__`.
Filters that we do not support, and everything else of PromQL, LogQL and TraceQL, are refused with their position:
otherwise values of rows would be listed that the query excludes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar
from uuid import UUID

import anyio
from anyio import to_thread

from lakerunner.api.query_service import QueryRequest
from lakerunner.api.stream import while_connected
from lakerunner.model.errors import Position, UserError
from lakerunner.model.labels import NAME
from lakerunner.model.labels.matcher import Matcher, Matchers
from lakerunner.model.labels.row_view import RowView, known_keys, label_name
from lakerunner.model.labels.selector import TAGS, read_items
from lakerunner.model.signal import Attribute
from lakerunner.model.time import TimeRange
from lakerunner.promql.cursor import Cursor
from lakerunner.promql.lexer import END, KEYWORDS, Token
from lakerunner.query.answer import Answer
from lakerunner.query.contract.failures import cancelled
from lakerunner.query.known_segments import Segments, expiry_warning
from lakerunner.query.sql import Question, SqlQueries

MAX_LISTED = 10_000  # tags, values or metrics in one answer
T = TypeVar("T")
MAX_DEPTH = 20  # calls inside each other
MAX_MATCHERS = 50
_NAMES = KEYWORDS | {"identifier", "metric identifier"}
_GROUPINGS = ("by", "without")


@dataclass(frozen=True)
class RowSelection:
    """The rows of one signal in this time that all matchers match."""

    view: RowView
    time: TimeRange
    matchers: Matchers = ()

    def where(self, keys: Collection[Attribute]) -> str:
        return self.view.where(self.time, self.matchers, keys)


class Lookup:
    """The lookup of one request."""

    def __init__(self, queries: RequestQueries, segments: Segments) -> None:
        self._queries = queries
        self._segments = segments
        self._expired: frozenset[str] = frozenset()

    @property
    def warnings(self) -> list[str]:
        """The warnings; complete after everything was listed."""
        return sorted(self._expired | self._queries.warnings)

    def tags(self, selection: RowSelection) -> tuple[list[str], bool]:
        """Return all fixed tags if there is a row, and the tags of the attributes that occur; and whether these are
        only the first MAX_LISTED."""
        keys = self._keys(selection) if selection.matchers else self._keys_by_index(selection, None)
        if keys is None:
            return [], False
        names = sorted(selection.view.labels(keys))
        return names[:MAX_LISTED], len(names) > MAX_LISTED or len(keys) > MAX_LISTED

    def values(self, selection: RowSelection, name: str) -> Iterator[list[str]]:
        """Yield the values of a tag in sorted parts as they come, at most MAX_LISTED + 1 of them."""
        keys = self._attributes_of(selection, {name, *(matcher.name for matcher in selection.matchers)})
        label = selection.view.find(name, keys)
        if label:
            sql = selection.view.values_sql(label, selection.where(keys), MAX_LISTED + 1)
            for batch in self._queries.batches(sql):
                yield [row["value"] for row in batch]

    def _keys(self, selection: RowSelection) -> set[Attribute] | None:
        """Return the attributes of the matching rows, a few more than MAX_LISTED at most; None if no row matches."""
        attributes = self._attributes_of(selection, {matcher.name for matcher in selection.matchers})
        where = selection.where(attributes)
        found = self._scan_keys(selection.view, where, None)
        one_row = f"SELECT 1 AS one FROM {selection.view.spec.table} WHERE {where} LIMIT 1"
        return found if found or list(self._queries.rows(one_row)) else None

    def _attributes_of(self, selection: RowSelection, names: Collection[str]) -> set[Attribute]:
        """Return the attributes with the names of these tags."""
        flat = {label_name(name) for name in names} - selection.view.fixed.keys()
        return (self._keys_by_index(selection, flat) or set()) if flat else set()

    def _keys_by_index(self, selection: RowSelection, names: Collection[str] | None) -> set[Attribute] | None:
        """Return the attributes of the segments of this time, all or those of these tags; None if there is no
        segment."""
        found: set[Attribute] = set()
        unknown: TimeRange | None = None
        signal = selection.view.spec.name
        picked = self._segments.pick(self._queries.organization, signal, selection.time)
        self._expired |= expiry_warning(signal, selection.time, picked.expiry)
        for segment in picked.segments:
            keys = known_keys(segment)
            if keys is None:
                unknown = _hull(unknown, segment.time)
            else:
                found |= {key for key in keys if names is None or label_name(key.key) in names}
        if unknown:
            rows = selection.view.where(_common(unknown, selection.time), (), ())
            found |= self._scan_keys(selection.view, rows, names)
        return found if picked.segments else None

    def _scan_keys(self, view: RowView, where: str, names: Collection[str] | None) -> set[Attribute]:
        rows = self._queries.rows(view.keys_sql(where, names, MAX_LISTED + 1))
        return {Attribute(row["scope"], row["key"]) for row in rows}


def _hull(one: TimeRange | None, other: TimeRange) -> TimeRange:
    return TimeRange(min(one.start_ns, other.start_ns), max(one.end_ns, other.end_ns)) if one else other


def _common(one: TimeRange, other: TimeRange) -> TimeRange:
    return TimeRange(max(one.start_ns, other.start_ns), min(one.end_ns, other.end_ns))


class RequestQueries:
    """The SQL queries of one request, one at a time. One thread runs them, any thread may close."""

    def __init__(self, queries: SqlQueries, organization: UUID, now_ns: int) -> None:
        self.organization = organization
        self.now_ns = now_ns
        self._queries = queries
        self.warnings: frozenset[str] = frozenset()  # of the answers that were read so far
        self._running: Answer | None = None
        self._closed = False

    def batches(self, sql: str) -> Iterator[list[dict[str, Any]]]:
        """Yield the rows of an answer as they come; raise if it is not complete."""
        self._refuse_if_closed()
        self._running = answer = self._queries.sql(self.organization, Question(sql, self.now_ns))
        try:
            # `close` sets the flag before it looks for a running answer: either it sees this one, or we see the flag.
            self._refuse_if_closed()
            for batch in answer:
                yield batch.to_pylist()
            self.warnings |= answer.account.warnings
        finally:
            answer.close()

    def rows(self, sql: str) -> Iterator[dict[str, Any]]:
        for batch in self.batches(sql):
            yield from batch

    def close(self) -> None:
        """Stop the running query and refuse further ones. Closing twice is fine."""
        self._closed = True
        if self._running:
            self._running.close()

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise cancelled()


async def run_cancellable(asked: QueryRequest, queries: RequestQueries, work: Callable[[], T]) -> T:
    """Return the result of blocking work that runs its queries through `queries`; stop it when the client leaves."""
    slot = await asked.slot()
    try:
        return await while_connected(asked.http, to_thread.run_sync(work, abandon_on_cancel=True))
    finally:
        with anyio.CancelScope(shield=True):
            await to_thread.run_sync(slot.after(queries.close))


def read_selector(text: str, language: str) -> tuple[Matcher, ...]:
    """Return the matchers of `text`; `language` is its language in error messages."""
    cursor = Cursor(text, TAGS)
    try:
        matchers = _expression(cursor, MAX_DEPTH)
        cursor.expect(END)
    except UserError as error:
        raise UserError(
            f'{language} is not available yet: q may be one selector as `{{service_name="cart"}}`; {error.message}',
            error.position or Position(1, 1),
        ) from None
    return tuple(matchers)


def _expression(cursor: Cursor, depth: int) -> list[Matcher]:
    """Read a selector, or a call with any numbers and then one expression as arguments."""
    if not depth:
        raise cursor.fail(cursor.peek().start, f"calls are more than {MAX_DEPTH} deep")
    name = _name(cursor)
    if name and cursor.kind in ("(", *_GROUPINGS):
        _grouping(cursor)
        cursor.expect("(")
        while cursor.accept("number"):
            cursor.expect(",")
        inner = _expression(cursor, depth - 1)
        cursor.expect(")")
        _grouping(cursor)
        return inner
    found = [Matcher(NAME, "=", name.text)] if name else []
    if not name or cursor.kind == "{":
        found += _matchers(cursor)
    _window(cursor)
    return found


def _matchers(cursor: Cursor) -> list[Matcher]:
    if cursor.kind != "{":
        raise cursor.unexpected()
    found: list[Matcher] = []
    for item in read_items(cursor, TAGS):
        found.append(item.matcher)
        if len(found) > MAX_MATCHERS:
            raise cursor.fail(item.start, f"it has more than {MAX_MATCHERS} matchers")
    return found


def _window(cursor: Cursor) -> None:
    """Skip `[5m]`, which selects no rows."""
    bracket = cursor.accept("[")
    if bracket and not (cursor.accept("duration") and cursor.accept("]")):
        raise cursor.fail(bracket.start, "between brackets is more than a window such as [5m]")


def _grouping(cursor: Cursor) -> None:
    """Skip `by (a, b)`, which selects no rows."""
    if cursor.kind not in _GROUPINGS:
        return
    cursor.take()
    cursor.expect("(")
    while cursor.kind != ")":
        if not cursor.accept("string") and not _name(cursor):
            raise cursor.unexpected()
        if cursor.kind != ")":
            cursor.expect(",")
    cursor.take()


def _name(cursor: Cursor) -> Token | None:
    return cursor.take() if cursor.kind in _NAMES else None
