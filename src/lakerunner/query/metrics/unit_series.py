"""The series of one unit: its segments as Prometheus sees them, for operators on series."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from threading import Event
from typing import TypeVar

from lakerunner.model.segment import Segment
from lakerunner.model.tier import Tiles
from lakerunner.plan.plan import Shard
from lakerunner.promql.operators import Selection
from lakerunner.query.contract.account import Account, total
from lakerunner.query.contract.failures import cancelled
from lakerunner.query.metrics.metric_segments import Blocks, MetricSegments
from lakerunner.query.metrics.rolled_blocks import AccountedBlocks, RolledBlocks
from lakerunner.series.bounds import Bounds
from lakerunner.series.rollups import RollupSeries
from lakerunner.series.values import Samples

T = TypeVar("T")


class UnitSeries:
    """The MetricSeries of promql/operators.py. `tiles`: which tier is read where; empty: raw points."""

    def __init__(
        self, metrics: MetricSegments, segments: Sequence[Segment], shard: Shard, tiles: Tiles, stopped: Event
    ) -> None:
        self.metrics = metrics
        self.segments = tuple(segments)
        self.tiles = tiles
        self._shard = shard
        self._stopped = stopped
        self._blocks: list[AccountedBlocks] = []
        self._read = 0

    @property
    def account(self) -> Account:
        return total(blocks.account for blocks in self._blocks) + Account(read=self._read)

    @property
    def reads_rollups(self) -> bool:
        return bool(self.tiles)

    def samples(self, selection: Selection) -> Iterator[Callable[[], Samples]]:
        blocks = Blocks(self.metrics, self.segments, replace(selection, shard=self._shard))
        self._blocks.append(blocks)
        return blocks.parts()

    def rollups(
        self, selection: Selection, facts: Sequence[str], limit: Bounds
    ) -> Iterator[Callable[[], RollupSeries]]:
        own = replace(selection, shard=self._shard)
        blocks = RolledBlocks(self.metrics, self.segments, own, self.tiles, facts, limit)
        self._blocks.append(blocks)
        return blocks.parts()

    def each(self, calls: Iterable[Callable[[], T]]) -> Iterator[T]:
        return self.metrics.each(calls)

    def check(self) -> None:
        if self._stopped.is_set():
            raise cancelled()

    def read_all(self) -> None:
        """Count all segments as read, for a listing."""
        self._read = len(self.segments)
