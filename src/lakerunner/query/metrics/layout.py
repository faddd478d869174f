"""Which points of which segments are the samples of which Prometheus series, decided before any point is read.

The words of this folder, each with one meaning:

- entry: the points of one stored series in one segment, which are consecutive rows
- facet: one way in which Prometheus shows a stored series, such as a histogram's `_sum` (model/labels/metric_view.py)
- group: the entries that make up one Prometheus series; a *spread* group makes several, which differ in a further label
    (`le`, `quantile`) alone and are known only from the points
- part: a point that a rule made; parts of one group and time add up
- block: groups that are computed together, of a bounded number of samples

Input: the series tables of some segments, in their order, and matchers. Output: a layout, which is groups of entries.
Groups are ordered by metric name, then by their smallest series digest; entries of a group by stored series, as
segments order these, then by kind and segment. So the same segments give the same layout, shards and blocks on every
worker.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from itertools import pairwise

import numpy as np

from lakerunner.model.labels import Labels, value_of
from lakerunner.model.labels.matcher import Matchers
from lakerunner.model.labels.metric_view import FURTHER_LABEL, SPREAD, Facet, SampleKind
from lakerunner.plan.plan import Shard
from lakerunner.query.metrics.kernels import chosen_entries, sort_into
from lakerunner.query.metrics.series_registry import FacetTable, SeriesRegistry, SeriesTable, TextNumbers
from lakerunner.series.arrays import Bools, Ints

_BLOCKS_CACHED = 64
_LEAST = 300_000  # samples of a block that is split off only for parallel work
_SPREAD_WEIGHT = 16  # samples that a point of a spread group counts for
_Key = tuple[Labels, str | None]  # common labels, and the further label of a spread group


@dataclass(frozen=True)
class Entries:
    """Arrays of equal length, one element per entry. `stored` numbers the stored series of all groups in the order of
    entries. `text` is the value of the further label if the entry is one series of a spread group, as a number in
    `Layout.texts`, or -1."""

    table: Ints
    first: Ints
    rows: Ints
    kind: Ints
    delta: Bools
    text: Ints
    stored: Ints

    def take(self, places: Ints) -> Entries:
        return Entries(*(getattr(self, one.name)[places] for one in fields(self)))


@dataclass(frozen=True, eq=False)
class Layout:
    """The entries of group n are `offsets[n]:offsets[n + 1]`. `further` is the label in which the series of a spread
    group differ, "" for other groups and for info. `metrics` are the names of metrics as sent. `of_rule`: which tables
    are of segments that rules made."""

    labels: list[Labels]
    offsets: Ints
    entries: Entries
    spread: Bools
    further: list[str]
    texts: list[str]
    metrics: tuple[str, ...]
    of_rule: Bools
    blocks_known: dict[tuple[int, int], Block] = field(default_factory=dict)

    @property
    def bytes(self) -> int:
        return 56 * len(self.entries.first) + 100 * len(self.labels) + 1000

    @cached_property
    def has_parts(self) -> Bools:
        """Return which groups have an entry of a rule."""
        own = self.of_rule[self.entries.table] if self.of_rule.any() else np.zeros(len(self.entries.table), bool)
        before = np.append(0, np.cumsum(own))
        found: Bools = before[self.offsets[1:]] > before[self.offsets[:-1]]
        return found

    @cached_property
    def weights(self) -> Ints:
        """Return the most samples that each group has; an estimate for spread groups."""
        total = np.append(0, np.cumsum(self.entries.rows))
        rows: Ints = total[self.offsets[1:]] - total[self.offsets[:-1]]
        return np.where(self.spread, _SPREAD_WEIGHT * rows, rows)

    def blocks(self, shard: Shard, most: int, parts: int = 1) -> Iterator[Block]:
        """Yield the shard's groups in blocks of at most `most` samples, but at least one group; in at least `parts`
        blocks unless these would be too small."""
        before = np.append(0, np.cumsum(self.weights))
        # A group belongs to the shard in which its first sample falls: every group is in exactly one.
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
            if len(self.blocks_known) >= _BLOCKS_CACHED:
                self.blocks_known.clear()
            block = self.blocks_known[first, end] = Block(self, first, end)
        return block


class Block:
    """Groups first:end of a layout: plain ones, those with parts, and spread ones apart. `parts` have the entries that
    are parts, `beside_parts` the others of the same groups."""

    def __init__(self, layout: Layout, first: int, end: int) -> None:
        self.layout = layout
        groups = np.arange(first, end)
        is_spread = layout.spread[first:end]
        has_parts = layout.has_parts[first:end] & ~is_spread
        self.plain = GroupSet(layout, groups[~is_spread & ~has_parts])
        self.parts = GroupSet(layout, groups[has_parts], layout.of_rule)
        self.beside_parts = GroupSet(layout, groups[has_parts], ~layout.of_rule)
        self.spread = GroupSet(layout, groups[is_spread])

    @property
    def tables(self) -> list[int]:
        """Return the numbers of the tables of the segments with entries in the block."""
        some = (self.plain, self.parts, self.beside_parts, self.spread)
        return sorted({table for part in some for table in part.by_table})

    def of_further(self) -> Block:
        """Return only the groups whose series differ in a further label."""
        made = Block(self.layout, 0, 0)
        further = [n for n in self.spread.groups.tolist() if self.layout.further[n]]
        made.spread = GroupSet(self.layout, np.array(further, np.int64))
        return made


class GroupSet:
    """Some groups with their entries, or those of some tables, and the places of each segment's entries among them."""

    def __init__(self, layout: Layout, groups: Ints, tables: Bools | None = None) -> None:
        sizes = np.diff(layout.offsets)[groups]
        self.layout = layout
        self.groups = groups
        self.offsets: Ints = np.append(0, np.cumsum(sizes))
        self._tables = tables
        chosen = ranges(layout.offsets[groups], sizes)
        if tables is not None:
            kept = tables[layout.entries.table[chosen]]
            self.offsets = np.append(0, np.cumsum(kept))[self.offsets]
            chosen = chosen[kept]
        self.entries = layout.entries.take(chosen)
        self.labels = [layout.labels[n] for n in groups.tolist()]

    def __len__(self) -> int:
        return len(self.groups)

    def only(self, chosen: Bools) -> GroupSet:
        """Return only these groups."""
        return GroupSet(self.layout, self.groups[chosen], self._tables)

    @cached_property
    def kinds(self) -> tuple[SampleKind, ...]:
        return tuple(SampleKind(kind) for kind in np.unique(self.entries.kind).tolist())

    @cached_property
    def has_delta(self) -> bool:
        return bool(self.entries.delta.any())

    @cached_property
    def is_mixed(self) -> bool:
        """Return whether a group consists of more than one stored series."""
        changes = np.diff(self.entries.stored) != 0
        return bool(changes[np.diff(self.group_of) == 0].any())

    @cached_property
    def by_table(self) -> dict[int, Ints]:
        """Return the places of each segment's entries, by the number of its table."""
        if not len(self.entries.table):
            return {}
        order, offsets = sort_into(self.entries.table, int(self.entries.table.max()) + 1)
        return {n: order[a:b] for n, (a, b) in enumerate(pairwise(offsets.tolist())) if a < b}

    @cached_property
    def slots(self) -> Ints:
        """Return a slot for each entry; each group has one more slot after its entries (`last_slots`)."""
        found: Ints = np.arange(len(self.entries.first)) + self.group_of
        return found

    @cached_property
    def last_slots(self) -> Ints:
        """Return the last slot of each group."""
        return self.offsets[1:] + np.arange(len(self.groups))

    @cached_property
    def group_of(self) -> Ints:
        """Return for each entry the place of its group in this set."""
        found: Ints = np.repeat(np.arange(len(self.groups)), np.diff(self.offsets))
        return found


def lay_out(registry: SeriesRegistry, tables: Sequence[SeriesTable], matchers: Matchers) -> Layout:
    """Build the layout. Call it with the lock of `registry` held."""
    selected, facet_table = registry.select(matchers)
    found, own = selected.found, facet_table.series[selected.found]  # both arrays ascend
    # Linked lists of the facets of each series; assigned in reverse, so that `head` is the first of them.
    head = np.full(len(registry.series) + 1, -1, np.int64)
    after = np.full(len(facet_table.facets) + 1, -1, np.int64)
    head[own[::-1]] = found[::-1]
    after[found[:-1]] = np.where(own[:-1] == own[1:], found[1:], -1)
    numbers = np.concatenate([np.zeros(0, np.int64), *(table.numbers for table in tables)])
    rows, facets = chosen_entries(numbers, head, after)
    present = np.flatnonzero(np.bincount(facets, minlength=1))
    grouping = Grouping(facet_table, present)
    place = np.zeros(len(facet_table.facets) + 1, np.int64)
    place[present] = np.arange(len(present))
    of = place[facets]
    order, ends = sort_into(grouping.rank[of], len(present))
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
        facet_table.kinds[facets],
        facet_table.deltas[facets],
        grouping.text[of],
        grouping.rank[of],
    )
    of_rule = np.array([table.of_rule for table in tables], bool)
    return Layout(
        grouping.labels, offsets, entries, grouping.spread, grouping.further, grouping.texts, grouping.metrics, of_rule
    )


def ranges(starts: Ints, sizes: Ints) -> Ints:
    """Return start, start + 1, ... for each of the starts, as many as its size."""
    ends = np.cumsum(sizes)
    found: Ints = np.arange(int(ends[-1]) if len(ends) else 0) - np.repeat(ends - sizes - starts, sizes)
    return found


class Grouping:
    """Facets in groups, ordered as a layout orders them. `rank` and `text` are by facet, in the order of `chosen`: the
    facets of group n have the ranks firsts[n]:firsts[n + 1]. `text` is the value of a further label, as a number in
    `texts`, or -1."""

    def __init__(self, table: FacetTable, chosen: Ints) -> None:
        self.texts: list[str] = []
        self.text = np.full(len(chosen), -1, np.int64)
        group, keys = self._grouped(table, chosen)
        digests, metrics, metric = table.digests[chosen], *_ranked(table.metrics, table.metric_of[chosen])
        self.metrics = tuple(metrics)
        least = np.full(len(keys), np.iinfo(np.int64).max)
        np.minimum.at(least, group, digests)
        name = np.zeros(len(keys), np.int64)
        name[group] = _ranked(table.names, table.name_of[chosen])[1]
        order = _in_order(name, least, keys)
        place = np.empty(len(keys), np.int64)
        place[order] = np.arange(len(keys))
        group = place[group]
        ordered = [keys[n] for n in order.tolist()]
        self.labels = [labels for labels, _ in ordered]
        self.spread = np.array([further is not None for _, further in ordered], bool)
        self.further = [further or "" for _, further in ordered]
        self.firsts: Ints = np.append(0, np.cumsum(np.bincount(group, minlength=len(keys))))
        self.rank = np.empty(len(chosen), np.int64)
        self.rank[np.lexsort((table.kinds[chosen], digests, metric, group))] = np.arange(len(chosen))

    def _grouped(self, table: FacetTable, chosen: Ints) -> tuple[Ints, list[_Key]]:
        """Return the group of each facet, and what each group has in common; not in order yet."""
        facets = [table.facets[n] for n in chosen.tolist()]
        kinds = {facet.kind for facet in facets}
        if kinds & SPREAD and len(kinds) > 1:
            numbers: dict[_Key, int] = {}
            group = [numbers.setdefault(key, len(numbers)) for key in self._keys(facets)]
            return np.array(group, np.int64), list(numbers)
        further = facets[0].further if kinds & SPREAD else None
        firsts, of = alike([facet.labels for facet in facets], table.hashes[chosen])
        return of, [(facets[n].labels, further) for n in firsts.tolist()]

    def _keys(self, facets: Sequence[Facet]) -> list[_Key]:
        """Return the key of each facet's group. A facet that is one of the series of a spread group belongs to that
        group."""
        spread = {(facet.labels, facet.further) for facet in facets if facet.kind in SPREAD}
        keys: list[_Key] = []
        codes: dict[str, int] = {}
        for n, facet in enumerate(facets):
            key: _Key = facet.labels, facet.further if facet.kind in SPREAD else None
            if key[1] is None:
                for further in ("", *FURTHER_LABEL.values()):
                    text = value_of(facet.labels, further)
                    if bool(text) != bool(further):
                        continue
                    base = tuple(pair for pair in facet.labels if pair[0] != further)
                    if (base, further) in spread:
                        key = base, further
                        self.text[n] = codes.setdefault(text, len(codes))
            keys.append(key)
        self.texts = list(codes)
        return keys


def alike(labels: Sequence[Labels], hashes: Ints) -> tuple[Ints, Ints]:
    """Number equal label sets: return (first, of), where `of` is the number of each set and first[n] is the first set
    with number n. Equal sets have equal hashes; sets with equal hashes are compared."""
    _, first, of = np.unique(hashes, return_index=True, return_inverse=True)
    again = np.flatnonzero(first[of] != np.arange(len(of)))
    if all(labels[n] == labels[at] for n, at in zip(again.tolist(), first[of[again]].tolist(), strict=True)):
        return first, of
    numbers: dict[Labels, int] = {}
    of = np.array([numbers.setdefault(one, len(numbers)) for one in labels], np.int64)
    return np.unique(of, return_index=True)[1], of


def _ranked(texts: TextNumbers, numbers: Ints) -> tuple[list[str], Ints]:
    """Return the distinct texts in order, and for each number the place of its text among them."""
    there, of = np.unique(numbers, return_inverse=True)
    found = texts.texts(there)
    order = sorted(range(len(found)), key=found.__getitem__)
    place = np.empty(len(found), np.int64)
    place[order] = np.arange(len(found))
    return [found[n] for n in order], place[of]


def _in_order(name: Ints, least: Ints, keys: Sequence[_Key]) -> Ints:
    """Sort by name, then by the smallest digest; in the rare case that it is equal, by labels."""
    order = np.lexsort((least, name))
    same = np.flatnonzero((np.diff(name[order]) == 0) & (np.diff(least[order]) == 0))
    for run in np.split(same, np.flatnonzero(np.diff(same) > 1) + 1) if len(same) else ():
        own = slice(int(run[0]), int(run[-1]) + 2)
        order[own] = sorted(order[own].tolist(), key=lambda n: (keys[n][0], keys[n][1] or ""))
    return order
