"""Which points of which segments are the samples of which Prometheus series, before any point is read.

Comes in: the tables of series of some segments, in the order of these, and what matchers found. Goes out: groups of
entries. An entry is the points of one stored series in one segment; a group is all entries that make up one Prometheus
series, or the ones that differ in a further label (`le`, `quantile`) alone.

What always holds: groups are ordered by metric name, then by their smallest series digest; entries of a group by stored
series, as segments order these, then by segment. The same segments give the same layout on every worker, and so the
same parts and blocks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise

import numpy as np

from lakerunner.model.labels import Labels
from lakerunner.model.labels.matcher import Matchers
from lakerunner.model.labels.metric_view import Kind
from lakerunner.plan.plan import Shard
from lakerunner.query.metrics.grouping import Grouping
from lakerunner.query.metrics.kernels import chosen_entries, sort_into
from lakerunner.query.metrics.series import Known, SeriesTable
from lakerunner.series.arrays import Bools, Ints

_BLOCKS_KNOWN = 64
_LEAST = 300_000  # samples of a block that is made only to be worked out beside others
_SPREAD_WEIGHT = 16  # as many samples a point of a spread group counts for


@dataclass(frozen=True)
class Entries:
    """Arrays of equal length. `stored` numbers the stored series of all groups in the order of entries. `text` is the
    further label's value of an entry that is one series of a spread group, as a number of `Layout.texts`, or -1."""

    table: Ints
    first: Ints
    rows: Ints
    kind: Ints
    delta: Bools
    text: Ints
    stored: Ints


@dataclass(frozen=True, eq=False)
class Layout:
    """The entries of group n are `offsets[n]:offsets[n + 1]`. `further` is the label by which the series of a spread
    group are told apart, "" of the others and of info. `metrics` are the names of the metrics as they came."""

    labels: list[Labels]
    offsets: Ints
    entries: Entries
    spread: Bools
    further: list[str]
    texts: list[str]
    metrics: tuple[str, ...]
    blocks_known: dict[tuple[int, int], Block] = field(default_factory=dict)

    @property
    def bytes(self) -> int:
        return 56 * len(self.entries.first) + 100 * len(self.labels) + 1000

    @cached_property
    def weights(self) -> Ints:
        """The most samples that a group has; of a spread one about as many."""
        total = np.append(0, np.cumsum(self.entries.rows))
        rows: Ints = total[self.offsets[1:]] - total[self.offsets[:-1]]
        return np.where(self.spread, _SPREAD_WEIGHT * rows, rows)

    def blocks(self, shard: Shard, most: int, parts: int = 1) -> Iterator[Block]:
        """The shard's groups in parts of at most `most` samples, but at least one group; in so many parts at least,
        where these are not too small."""
        before = np.append(0, np.cumsum(self.weights))
        share = before[:-1] * shard.of // max(int(before[-1]), 1)
        first, end = (int(n) for n in np.searchsorted(share, [shard.number, shard.number + 1]))
        most = min(most, max(_LEAST, -(-int(before[end] - before[first]) // parts)))
        while first < end:
            until = max(int(np.searchsorted(before, before[first] + most, side="right")) - 1, first + 1)
            yield self._block(first, min(until, end))
            first = min(until, end)

    def _block(self, first: int, end: int) -> Block:
        block = self.blocks_known.get((first, end))
        if block is None:
            if len(self.blocks_known) >= _BLOCKS_KNOWN:
                self.blocks_known.clear()
            block = self.blocks_known[first, end] = Block(self, first, end)
        return block


class Block:
    """Groups first:end of a layout, the plain ones and the spread ones apart."""

    def __init__(self, layout: Layout, first: int, end: int) -> None:
        self.layout = layout
        groups = np.arange(first, end)
        is_spread = layout.spread[first:end]
        self.plain = Part(layout, groups[~is_spread])
        self.spread = Part(layout, groups[is_spread])

    def of_further(self) -> Block:
        """Those alone whose series are told apart by a further label."""
        made = Block(self.layout, 0, 0)
        further = [n for n in self.spread.groups.tolist() if self.layout.further[n]]
        made.spread = Part(self.layout, np.array(further, np.int64))
        return made


class Part:
    """Some groups: their entries, and of each segment the places of its own among them."""

    def __init__(self, layout: Layout, groups: Ints) -> None:
        sizes = np.diff(layout.offsets)[groups]
        self.layout = layout
        self.groups = groups
        self.offsets: Ints = np.append(0, np.cumsum(sizes))
        chosen = ranges(layout.offsets[groups], sizes)
        every = layout.entries
        self.entries = Entries(
            every.table[chosen],
            every.first[chosen],
            every.rows[chosen],
            every.kind[chosen],
            every.delta[chosen],
            every.text[chosen],
            every.stored[chosen],
        )
        self.labels = [layout.labels[n] for n in groups.tolist()]

    def __len__(self) -> int:
        return len(self.groups)

    def only(self, chosen: Bools) -> Part:
        """These of the groups."""
        return Part(self.layout, self.groups[chosen])

    @cached_property
    def kinds(self) -> tuple[Kind, ...]:
        return tuple(Kind(kind) for kind in np.unique(self.entries.kind).tolist())

    @cached_property
    def has_delta(self) -> bool:
        return bool(self.entries.delta.any())

    @cached_property
    def is_mixed(self) -> bool:
        """Whether a group is of more than one stored series."""
        changes = np.diff(self.entries.stored) != 0
        return bool(changes[np.diff(self.group_of) == 0].any())

    @cached_property
    def by_table(self) -> dict[int, Ints]:
        """The places of each segment's entries."""
        if not len(self.entries.table):
            return {}
        order, offsets = sort_into(self.entries.table, int(self.entries.table.max()) + 1)
        return {n: order[a:b] for n, (a, b) in enumerate(pairwise(offsets.tolist())) if a < b}

    @cached_property
    def slots(self) -> Ints:
        """Of each entry, its place where each group has one more behind its entries (`last_slots`)."""
        found: Ints = np.arange(len(self.entries.first)) + self.group_of
        return found

    @cached_property
    def last_slots(self) -> Ints:
        """Of each group."""
        return self.offsets[1:] + np.arange(len(self.groups))

    @cached_property
    def group_of(self) -> Ints:
        """Of each entry, the place of its group in this part."""
        found: Ints = np.repeat(np.arange(len(self.groups)), np.diff(self.offsets))
        return found


def lay_out(known: Known, tables: Sequence[SeriesTable], matchers: Matchers) -> Layout:
    """With the lock of `known` held."""
    matched, seen = known.matched(matchers)
    found, own = matched.found, seen.series[matched.found]  # both ascend
    head = np.full(len(known.series) + 1, -1, np.int64)
    after = np.full(len(seen.facets) + 1, -1, np.int64)
    head[own[::-1]] = found[::-1]
    after[found[:-1]] = np.where(own[:-1] == own[1:], found[1:], -1)
    numbers = np.concatenate([np.zeros(0, np.int64), *(table.numbers for table in tables)])
    rows, facets = chosen_entries(numbers, head, after)
    there = np.flatnonzero(np.bincount(facets, minlength=1))
    grouping = Grouping(seen, there)
    place = np.zeros(len(seen.facets) + 1, np.int64)
    place[there] = np.arange(len(there))
    of = place[facets]
    order, ends = sort_into(grouping.rank[of], len(there))
    offsets = ends[grouping.firsts]
    table_of = np.repeat(np.arange(len(tables)), [len(table.numbers) for table in tables])
    rows, facets, of = rows[order], facets[order], of[order]
    first, count = (
        np.concatenate([np.zeros(0, np.int64), *(getattr(table, name) for table in tables)])
        for name in ("first", "rows")
    )
    entries = Entries(
        table_of[rows],
        first[rows],
        count[rows],
        seen.kinds[facets],
        seen.deltas[facets],
        grouping.text[of],
        grouping.rank[of],
    )
    return Layout(
        grouping.labels, offsets, entries, grouping.spread, grouping.further, grouping.texts, grouping.metrics
    )


def ranges(starts: Ints, sizes: Ints) -> Ints:
    """start, start + 1, ... of each, so many."""
    ends = np.cumsum(sizes)
    found: Ints = np.arange(int(ends[-1]) if len(ends) else 0) - np.repeat(ends - sizes - starts, sizes)
    return found
