"""What there is of an organization's metrics: series, label names and values, metadata, exemplars, gathered from
workers.

Segments are handed out as those of SQL are (query/assign.py), each to one worker; what several of them know counts
once. Where the time reaches into what has expired, the account has a warning.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

from lakerunner.model.labels import Labels
from lakerunner.model.labels.matcher import Matcher
from lakerunner.plan.plan import Collect, Leaf, Plan
from lakerunner.promql.sample_range import Selection
from lakerunner.query.account import Account
from lakerunner.query.collected import Collected
from lakerunner.query.engine import Engine
from lakerunner.query.expiry import expiry_warning
from lakerunner.query.metrics.answer import Listing
from lakerunner.query.metrics.exemplars import in_order
from lakerunner.query.metrics.list_series import ListSeries
from lakerunner.query.options import Options
from lakerunner.series.evaluation.pieces import Listed

_EVERYTHING: tuple[tuple[Matcher, ...], ...] = ((),)
Selectors = Sequence[tuple[Matcher, ...]]


@dataclass(frozen=True)
class ListRequest:
    """Of whom, and when; times are ms, both included. Past the ends of time there is nothing."""

    organization: UUID
    start_ms: int
    end_ms: int
    now_ns: int

    def selection(self, matchers: tuple[Matcher, ...]) -> Selection:
        return Selection(matchers, self.start_ms - 1, max(self.end_ms, self.start_ms - 1))


@dataclass
class Lists:
    """Of one request: the account is that of all it asked for."""

    engine: Engine
    asked: ListRequest
    account: Account = field(default_factory=Account)

    def series(self, selectors: Selectors, limit: int) -> Listing:
        return self._sorted("series", selectors, limit, _labels)

    def label_names(self, selectors: Selectors, limit: int) -> Listing:
        return self._sorted("label_names", selectors, limit, str)

    def label_values(self, label: str, selectors: Selectors, limit: int) -> Listing:
        return self._sorted("label_values", selectors, limit, str, label)

    def metadata(self, metric: str | None, limit: int, limit_per_metric: int) -> Listing:
        rows = self._rows("metadata", _EVERYTHING, 1_000_000)
        families: dict[str, list[tuple[str, str, str, str]]] = {}
        for name, type_, unit, said in sorted(set(map(tuple, rows))):
            if metric is None or metric == name:
                families.setdefault(name, []).append((name, type_, said, unit))
        stated = ([row for row in family if row[1] != "unknown"] or family for family in families.values())
        kept = list(stated)[:limit]
        per_metric = limit_per_metric or None
        found = [row for family in kept for row in family[:per_metric]]
        return Listing(found, len(families) > limit, self.account)

    def exemplars(self, selectors: Selectors, limit: int) -> Listing:
        found: dict[Labels, dict[Any, dict[str, Any]]] = {}
        for labels, exemplars in self._rows("exemplars", selectors, limit):
            own = found.setdefault(_labels(labels), {})
            for one, value, time in exemplars:
                named = _labels(one)
                own[named, value, time] = {"labels": named, "value": float(value), "timestamp": time}
        rows = [(labels, sorted(own.values(), key=_in_order)) for labels, own in sorted(found.items())]
        return Listing(rows[:limit], len(rows) > limit, self.account)

    def _sorted(
        self, what: Any, selectors: Selectors, limit: int, read: Callable[[Any], Any], label: str = ""
    ) -> Listing:
        rows = sorted({read(row) for row in self._rows(what, selectors or _EVERYTHING, limit, label)})
        return Listing(rows[:limit], len(rows) > limit, self.account)

    def _rows(self, what: Any, selectors: Selectors, limit: int, label: str = "") -> Iterator[Any]:
        selections = [self.asked.selection(matchers) for matchers in selectors]
        scanned = [(one, scan) for one in selections if (scan := one.scan)]
        leaves = tuple(Leaf(scan, ListSeries(what, one, limit, label)) for one, scan in scanned)
        options = Options(self.asked.now_ns)
        collected: Collected = self.engine.answer(self.asked.organization, Plan(leaves, Collect()), options)
        warnings: set[str] = set()
        for found in collected:
            scan = found.leaf.scan
            warnings |= expiry_warning(scan.signal, scan.time, found.pick.expiry)
            for piece in found.pieces:
                if isinstance(piece.value, Listed):
                    yield from piece.value.rows
        self.account += replace(collected.account, warnings=frozenset(warnings))


def _labels(row: Iterable[Sequence[str]]) -> Labels:
    return tuple((name, value) for name, value in row)


def _in_order(exemplar: dict[str, Any]) -> Any:
    return in_order(exemplar["timestamp"], exemplar["labels"], exemplar["value"])
