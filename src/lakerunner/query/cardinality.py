"""Counts series: unites the sketches of many workers.

Input: a CardinalityQuestion. Output: estimates for each metric and window, with the tiers that each window is from. A
window is counted from the widest tier that divides the step and has all of it, else from finer ones, at last from
points (index/tiers.py); a series counts once, in however many segments it is. What cannot be read is an error, never a
smaller number.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

from lakerunner.model.condition import Condition, Equals
from lakerunner.model.errors import TooLarge
from lakerunner.model.hll import estimate, union
from lakerunner.model.labels import NAME
from lakerunner.model.labels.matcher import Matcher
from lakerunner.model.labels.metric_view import metric_conditions
from lakerunner.model.tier import NO_TILES, RAW, TIERS, Interval, Tiles, clip_tiles, expiry_text
from lakerunner.model.time import MIN_NS, MS_NS
from lakerunner.plan.plan import Collect, Leaf, Plan, Rollup
from lakerunner.plan.scan import Scan
from lakerunner.promql.operators import Selection
from lakerunner.query.contract.account import Account
from lakerunner.query.engine import Engine
from lakerunner.query.known_segments import Pick
from lakerunner.query.leaf_run import CollectAnswer
from lakerunner.query.metric_answers import Cardinality, CardinalityQuestion, LabelCount, MetricCount
from lakerunner.query.metrics.active import SketchTable, value_sketch
from lakerunner.query.metrics.list_series import ListSeries
from lakerunner.query.options import Options
from lakerunner.query.reads import unrolled_points
from lakerunner.series.evaluation.pieces import ListingRows

MOST_CELLS = 50_000  # metrics times windows, 2 KB each
MOST_WINDOWS = 11_000
_MOST_NAMES = 10_000  # metrics that match one name; labels of a metric


@dataclass
class SeriesCounter:
    """Answers one question."""

    engine: Engine
    organization: UUID
    question: CardinalityQuestion
    account: Account = field(default_factory=Account)

    def __post_init__(self) -> None:
        self._reach = self.question.reach
        self._tiles: Tiles = NO_TILES
        self._tier = max(tier for tier in TIERS if self.question.step_ms % tier == 0)
        if (self._reach[1] - self._reach[0]) // self.question.step_ms > MOST_WINDOWS:
            raise TooLarge(f"more than {MOST_WINDOWS:,} windows in this time: use a longer step")

    def answer(self) -> Cardinality:
        metric = self.question.metric
        names = self._names(metric) if metric else ()
        if metric and not names:
            return self._answer(NO_TILES, SketchTable(0), ())
        conditions = (Equals("metric_name", names),) if names else ()
        sketches = self._operator("sketches", MOST_CELLS, metrics=names, step=self.question.step_ms)
        counts = [self._operator("label_counts", _MOST_NAMES, metrics=names)] if self.question.labels else []
        found = self._collect(conditions, sketches, *counts)
        cells = SketchTable(MOST_CELLS)
        for name, end, sketch in found[sketches] if found else ():
            cells.unite(name, end, b64decode(sketch))
        labels = [row for one in counts if found for row in found[one]]
        return self._answer(self._tiles, cells, _label_counts(labels))

    def _names(self, metric: str) -> tuple[str, ...]:
        """Return the names, as sent, of the metrics that match."""
        names = self._operator("metric_names", _MOST_NAMES, label=metric)
        found = self._collect(metric_conditions((Matcher(NAME, "=", metric),)), names)
        return tuple(sorted(set(found.get(names, ()))))

    def _operator(self, what: Any, limit: int, **more: Any) -> ListSeries:
        return ListSeries(what, Selection((), *self._reach), limit, **more)

    def _collect(self, conditions: tuple[Condition, ...], *operators: ListSeries) -> dict[ListSeries, list[Any]]:
        """Return the rows of each operator, all from the same segments; empty if the reach holds no valid time."""
        time = Selection((), *self._reach).time
        if time is None:
            return {}
        scan = Scan("metrics", "metrics", time, (), conditions=conditions)
        leaves = tuple(Leaf(scan, one, rollup=Rollup(self._tier, "")) for one in operators)
        options = Options(self.question.now_ns)
        collected: CollectAnswer = self.engine.answer(self.organization, Plan(leaves, Collect()), options)
        rows: dict[ListSeries, list[Any]] = {}
        for operator, found in zip(operators, collected, strict=True):
            self._tiles = found.pick.tiles
            warnings = _expired(found.pick, self._reach)
            rows[operator] = []
            for piece in found.pieces:
                if isinstance(piece.value, ListingRows):
                    _check_limit(operator, len(piece.value.rows))
                    rows[operator] += piece.value.rows
        self.account += replace(collected.account, warnings=warnings)
        return rows

    def _answer(self, tiles: Tiles, cells: SketchTable, labels: tuple[LabelCount, ...]) -> Cardinality:
        question, (start, end) = self.question, self._reach
        ends = range(start + question.step_ms, end + 1, question.step_ms)
        windows = tuple((one, _tiers(tiles, (one - question.step_ms, one))) for one in ends)
        sketches: dict[str, dict[int, bytes]] = {}
        for metric, window, sketch in cells.sketches():
            sketches.setdefault(metric, {})[window] = sketch
        over = max((n for n, one in enumerate(ends) if one <= min(question.end_ms, question.now_ms)), default=-1)
        counts = []
        for metric, by_end in sketches.items():
            by_window = tuple(round(estimate(by_end[one])) if one in by_end else 0 for one in ends)
            counts.append(MetricCount(metric, round(estimate(union(by_end.values()))), by_window, by_window[over]))
        counts.sort(key=lambda one: (-one.series, one.metric))
        kept = tuple(counts[: question.limit])
        return Cardinality(windows, kept, labels, len(counts) > len(kept), self.account)


def _label_counts(rows: Iterable[Any]) -> tuple[LabelCount, ...]:
    values: dict[tuple[str, str], set[str]] = {}
    sketches: dict[tuple[str, str], list[bytes]] = {}
    for whose, label, listed, sketch in rows:
        values.setdefault((whose, label), set()).update(listed or ())
        if sketch is not None:
            sketches.setdefault((whose, label), []).append(b64decode(sketch))
    counts = [
        LabelCount(*key, round(estimate(union([*sketches[key], value_sketch(found)]))), exact=False)
        if key in sketches
        else LabelCount(*key, len(found), exact=True)
        for key, found in values.items()
    ]
    return tuple(sorted(counts, key=lambda one: (-one.values, one.label, one.whose)))


def _check_limit(operator: ListSeries, rows: int) -> None:
    if rows > operator.limit:
        what = operator.what.replace("_", " ")
        raise TooLarge(f"more than {operator.limit:,} {what}: use a shorter time")


def _expired(pick: Pick, reach: Interval) -> frozenset[str]:
    found, tiles = set(), clip_tiles(pick.tiles, reach)
    before_ns = pick.expiry.before_ns.get(RAW, MIN_NS)
    if any(start < (before_ns - 1) // MS_NS for start, _ in tiles.get(RAW, ())):
        found.add(f"points up to {expiry_text(before_ns)} have expired by retention: not all of them are counted")
    if never := unrolled_points(tiles, pick.expiry):
        found.add(never.text())
    return frozenset(found)


def _tiers(tiles: Tiles, window: Interval) -> tuple[int, ...]:
    return tuple(
        frequency
        for frequency, times in tiles.items()
        if any(start < window[1] and end > window[0] for start, end in times)
    )
