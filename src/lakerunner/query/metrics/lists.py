"""What there is of an organization's metrics: series, label names and values, metadata, exemplars, gathered from
workers.

Segments are handed out as those of SQL are (query/assign.py), each to one worker; what several of them know counts
once. Where the time reaches into what has expired, the account has a warning.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

from lakerunner.model.labels import Labels
from lakerunner.model.labels.matcher import Matcher
from lakerunner.model.labels.metric_view import metric_conditions
from lakerunner.plan.scan import Scan
from lakerunner.query.account import Account
from lakerunner.query.assign import UnitSize, assign
from lakerunner.query.expiry import expiry_warning
from lakerunner.query.known_segments import KnownSegments
from lakerunner.query.metrics.answer import Listing
from lakerunner.query.metrics.exemplars import in_order
from lakerunner.query.metrics.gather import MetricsGather
from lakerunner.query.metrics.pieces import Listed
from lakerunner.query.metrics.selection import Selection
from lakerunner.query.metrics.unit import List, MetricsUnit
from lakerunner.query.workers import Workers

_EVERYTHING: tuple[tuple[Matcher, ...], ...] = ((),)
Selectors = Sequence[tuple[Matcher, ...]]


@dataclass(frozen=True)
class Asked:
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

    segments: KnownSegments
    workers: Workers
    asked: Asked
    account: Account = field(default_factory=Account)

    def series(self, selectors: Selectors, limit: int) -> Listing:
        return self._sorted(List("series", limit), selectors or _EVERYTHING, _labels)

    def label_names(self, selectors: Selectors, limit: int) -> Listing:
        return self._sorted(List("label_names", limit), selectors or _EVERYTHING, str)

    def label_values(self, label: str, selectors: Selectors, limit: int) -> Listing:
        return self._sorted(List("label_values", limit, label), selectors or _EVERYTHING, str)

    def metadata(self, metric: str | None, limit: int, limit_per_metric: int) -> Listing:
        rows = self._rows(List("metadata", 1_000_000), _EVERYTHING)
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
        for labels, exemplars in self._rows(List("exemplars", limit), selectors):
            own = found.setdefault(_labels(labels), {})
            for one, value, time in exemplars:
                named = _labels(one)
                own[named, value, time] = {"labels": named, "value": float(value), "timestamp": time}
        rows = [(labels, sorted(own.values(), key=_in_order)) for labels, own in sorted(found.items())]
        return Listing(rows[:limit], len(rows) > limit, self.account)

    def _sorted(self, task: List, selectors: Selectors, read: Callable[[Any], Any]) -> Listing:
        rows = sorted({read(row) for row in self._rows(task, selectors)})
        return Listing(rows[: task.limit], len(rows) > task.limit, self.account)

    def _rows(self, task: List, selectors: Selectors) -> Iterable[Any]:
        gather = MetricsGather(self.workers)
        for matchers in selectors:
            selection = self.asked.selection(matchers)
            for pieces in gather.run(self._units(task, selection)):
                for piece in pieces:
                    if isinstance(piece.value, Listed):
                        yield from piece.value.rows
        self.account += gather.account

    def _units(self, task: List, selection: Selection) -> list[MetricsUnit]:
        if selection.time is None:
            return []
        scan = Scan("metrics", "metrics", selection.time, (), conditions=metric_conditions(selection.matchers))
        pick = self.segments.pick(self.asked.organization, scan, self.asked.now_ns)
        self.account += replace(pick.account, warnings=expiry_warning(scan.signal, scan.time, pick.expiry))
        names = [worker.name for worker in self.workers.here()]
        shares = assign(pick.segments, names, UnitSize()) if names else []
        return [MetricsUnit(self.asked.organization, share.segments, selection, task) for share in shares]


def _labels(row: Iterable[Sequence[str]]) -> Labels:
    return tuple((name, value) for name, value in row)


def _in_order(exemplar: dict[str, Any]) -> Any:
    return in_order(exemplar["timestamp"], exemplar["labels"], exemplar["value"])
