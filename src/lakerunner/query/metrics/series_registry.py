"""The registry of an organization's series: each segment's series table is read once, each series is known once.

Input: the series table beside a segment (docs/formats/segments.md). Output: for each of its rows the number of a series
and where its points are. Invariants: the same series in any number of segments of an organization is one number and one
object; a number never gets another meaning. Organizations share nothing, because their series may have equal digests.

The facets of the series are kept in columns, one table for each form of names, so that matchers test each distinct
value once and layouts are computed on arrays. Facets are in the order of their series' numbers and never change. The
column of a label is built when a matcher needs it, for one metric name or for all, and cached within a bound.

Listings also need the descriptions of metrics in these tables; queries of samples do not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from threading import RLock
from typing import Any

import numpy as np
import pyarrow as pa

from lakerunner.model.errors import Corrupt
from lakerunner.model.labels import NAME, value_of
from lakerunner.model.labels.matcher import LabelTest, Matchers, SelectorTest
from lakerunner.model.labels.metric_view import Facet, Form, SeriesAttribute, StoredSeries, facets, form_of, wanted_name
from lakerunner.model.lru import LruCache
from lakerunner.model.prometheus import METADATA_ENTRY
from lakerunner.query.metrics.segment_file import ParquetTable
from lakerunner.series.arrays import Bools, Ints

_PLACES = ("series", "first_row", "rows")
_SERIES_COLUMNS = (
    "series",
    "prometheus_name",
    "prometheus_escaped",
    "metric_name",
    "metric_type",
    "temporality",
    "as_sent",
    "labels",
    "resource",
)
_SELECTIONS = 256  # remembered selections of an organization
_COLUMN_BYTES = 64 << 20  # of label columns, for each form of names
_NONE: Ints = np.zeros(0, np.int64)
_DESCRIPTION_COLUMNS = (
    "metric_name",
    "metric_type",
    "temporality",
    "monotonic",
    "unit",
    "description",
    "prometheus_name",
    "prometheus_escaped",
    "as_sent",
)


@dataclass(frozen=True, eq=False)
class SeriesTable:
    """Row n: series `numbers[n]` has `rows[n]` points from row `first[n]` of the segment on. `of_rule`: the points are
    parts."""

    numbers: Ints
    first: Ints
    rows: Ints
    of_rule: bool = False

    @property
    def bytes(self) -> int:
        return 24 * len(self.numbers) + 1000


@contextmanager
def series_file(path: Path, key: str) -> Iterator[ParquetTable]:
    """Open a series table. Corrupt if it is invalid or of another version."""
    try:
        file = ParquetTable(path)
        if "as_sent" not in file.leaves:
            raise Corrupt(
                f"{key}: this table of series was written by an earlier version: ingest its metrics "
                "again, into a new home"
            )
        yield file
    except (pa.ArrowException, OSError, KeyError, ValueError) as error:
        reason = str(error).replace(str(path), key)  # local paths are not shown
        raise Corrupt(f"{key}: cannot read this table of series: {reason}") from error


class SeriesRegistry:
    """All known series of an organization. `lock` guards it."""

    def __init__(self) -> None:
        self.lock = RLock()
        self.series: list[StoredSeries] = []
        self._numbers: dict[int, int] = {}
        self._facets: dict[Form, FacetTable] = {}
        self._selections: dict[Matchers, FacetSelection] = {}
        self._pairs: dict[SeriesAttribute, SeriesAttribute] = {}

    def read(self, path: Path, key: str) -> SeriesTable:
        """Read a segment's table. Corrupt as `series_file` says. The descriptive columns are read only for new series:
        most segments have the series of those before."""
        with series_file(path, key) as file:
            table = file.read(_PLACES)
            digests = table.column("series").to_pylist()
            with self.lock:
                new = [n for n, digest in enumerate(digests) if digest not in self._numbers]
            if new:
                added = file.read(_SERIES_COLUMNS).take(pa.array(new)).combine_chunks()
                with self.lock:
                    self._add(added)
            first, rows = (table.column(name).to_numpy().astype(np.int64) for name in _PLACES[1:])
            if len(first) and (first[0] or np.any(first[1:] != (first + rows)[:-1])):
                raise ValueError("its rows do not follow each other")
            with self.lock:
                return SeriesTable(np.array([self._numbers[digest] for digest in digests], np.int64), first, rows)

    def select(self, matchers: Matchers) -> tuple[FacetSelection, FacetTable]:
        """Return the selection of the matchers, extended to all known series. Call it with the lock held."""
        selection = self._selections.pop(matchers, None) or FacetSelection(matchers)
        self._selections[matchers] = selection
        if len(self._selections) > _SELECTIONS:
            del self._selections[next(iter(self._selections))]
        table = self._facets.setdefault(selection.form, FacetTable(selection.form))
        table.extend(self.series)
        selection.extend(table)
        return selection, table

    def _add(self, table: pa.Table) -> None:
        for series in self._stored(table):
            self._numbers[series.digest] = len(self.series)
            self.series.append(series)

    def _stored(self, table: pa.Table) -> Iterator[StoredSeries]:
        texts = {name: table.column(name).to_pylist() for name in _SERIES_COLUMNS[:-2]}
        labels, resources = (self._attributes(table.column(name).combine_chunks()) for name in ("labels", "resource"))
        for n, digest in enumerate(texts["series"]):
            if digest in self._numbers:  # added by another thread meanwhile, or listed twice
                continue
            yield StoredSeries(
                digest,
                texts["prometheus_name"][n] or "",
                texts["prometheus_escaped"][n] or "",
                texts["metric_name"][n],
                texts["metric_type"][n],
                texts["temporality"][n] == "delta",
                texts["as_sent"][n],
                labels[n],
                resources[n],
            )

    def _attributes(self, lists: Any) -> list[tuple[SeriesAttribute, ...]]:
        lists = lists.chunk(0) if isinstance(lists, pa.ChunkedArray) else lists
        items = lists.flatten()
        columns = [items.field(name).to_pylist() for name in ("name", "escaped", "value")]
        pairs = [self._pairs.setdefault(one, one) for one in zip(*columns, strict=True)]
        offsets = (lists.offsets.to_numpy() - lists.offsets[0].as_py()).tolist()
        return [tuple(pairs[start:end]) for start, end in pairwise(offsets)]


class TextNumbers:
    """Each text once, with its number."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def numbers(self, texts: Iterable[str]) -> list[int]:
        return [self._numbers.setdefault(text, len(self._numbers)) for text in texts]

    def number(self, text: str) -> int | None:
        return self._numbers.get(text)

    def texts(self, numbers: Ints) -> list[str]:
        every = list(self._numbers)
        return [every[number] for number in numbers.tolist()]


class FacetTable:
    """Facets as columns: `series` is the number of its series, with its digest, whether it is a delta, and the metric's
    name as sent (a number in `metrics`); `kinds`, `name_of` (a number in `names`), and a hash of its labels."""

    def __init__(self, form: Form) -> None:
        self.facets: list[Facet] = []
        self.metrics, self.names = TextNumbers(), TextNumbers()
        self.series, self.digests, self.metric_of = _NONE, _NONE, _NONE
        self.kinds, self.name_of, self.hashes = _NONE, _NONE, _NONE
        self.deltas: Bools = np.zeros(0, bool)
        self._by_name: dict[int, Ints] = {}
        self._columns: LruCache[pa.DictionaryArray] = LruCache(_COLUMN_BYTES)
        self._form = form
        self._upto = 0

    def extend(self, series: Sequence[StoredSeries]) -> None:
        if self._upto == len(series):
            return
        new, own = [], []
        for number in range(self._upto, len(series)):
            for facet in facets(series[number], self._form):
                new.append(facet)
                own.append(number)
        self._upto = len(series)
        if not new:  # metadata entries are not series
            return
        stored = [series[number] for number in own]
        names = np.array(self.names.numbers(value_of(facet.labels, NAME) for facet in new), np.int64)
        order = np.argsort(names, kind="stable")
        there, first = np.unique(names[order], return_index=True)
        for name, places in zip(there.tolist(), np.split(len(self.facets) + order, first[1:]), strict=True):
            self._by_name[name] = np.append(self._by_name.get(name, _NONE), places)
        self.facets += new
        self.name_of = np.append(self.name_of, names)
        self.series = _append(self.series, own)
        self.digests = _append(self.digests, [one.digest for one in stored])
        self.metric_of = _append(self.metric_of, self.metrics.numbers(one.metric for one in stored))
        self.deltas = np.append(self.deltas, np.array([one.delta for one in stored], bool))
        self.kinds = _append(self.kinds, [facet.kind for facet in new])
        self.hashes = _append(self.hashes, [hash(facet.labels) for facet in new])

    def named(self, name: str | None) -> Ints:
        """Return the facets with this metric name, or all."""
        if name is None:
            return np.arange(len(self.facets))
        number = self.names.number(name)
        return _NONE if number is None else self._by_name[number]

    def values(self, name: str | None, label: str, begin: int) -> pa.DictionaryArray:
        """Return the label's value in each of the facets of `named(name)` from place `begin` on; null where the label
        is the one in which the series of the facet differ."""
        places = self.named(name)
        key = name, label, begin, len(places)
        found = self._columns.get(key)
        if found is None:
            own = (self.facets[n] for n in places[begin:].tolist())
            values = [None if facet.further == label else value_of(facet.labels, label) for facet in own]
            found = pa.array(values, pa.string()).dictionary_encode()
            self._columns.put(key, found, found.nbytes + 200)
        return found


class FacetSelection:
    """The facets that match some matchers, ascending. Matchers of `le` and `quantile` do not count here where the
    series of a facet differ in that label."""

    def __init__(self, matchers: Matchers) -> None:
        self.form = form_of(matchers)
        self.found = _NONE
        self._tests = SelectorTest(matchers).tests
        self._name = wanted_name(matchers)
        self._upto = 0

    def extend(self, table: FacetTable) -> None:
        places = table.named(self._name)
        if self._upto == len(places):
            return
        chosen = np.ones(len(places) - self._upto, bool)
        for test in self._tests:
            chosen &= _matches(test, table.values(self._name, test.name, self._upto))
        self.found = np.append(self.found, places[self._upto :][chosen])
        self._upto = len(places)


def _matches(test: LabelTest, values: pa.DictionaryArray) -> Bools:
    """Return for each value whether it matches; a null matches, since it is decided later."""
    matching = np.append(test.each(values.dictionary), True)
    codes: Ints = values.indices.fill_null(len(matching) - 1).to_numpy(zero_copy_only=False)
    found: Bools = matching[codes]
    return found


def _append(array: Ints, by: Sequence[int]) -> Ints:
    return np.append(array, np.array(by, np.int64))


@dataclass(frozen=True, slots=True)
class MetricDescription:
    """What some series of a segment state about their metric, as the table has it."""

    metric: str
    type: str
    temporality: str | None
    monotonic: bool | None
    unit: str
    help: str
    name: str | None
    escaped: str | None
    as_sent: bool


@dataclass(frozen=True)
class Descriptions:
    """The descriptions in one segment, each once. `entries` are the types of remote-write's metadata entries, with what
    they describe."""

    described: tuple[MetricDescription, ...]
    entries: tuple[tuple[str, MetricDescription], ...]

    @property
    def bytes(self) -> int:
        return 500 * (len(self.described) + len(self.entries)) + 1000


def descriptions(file: ParquetTable) -> Descriptions:
    table = file.read((*_DESCRIPTION_COLUMNS, "labels"))
    return Descriptions(tuple(_described(table)), tuple(_entries(table)))


def _described(table: pa.Table) -> list[MetricDescription]:
    """Return each description once, without metadata entries."""
    distinct = table.select(_DESCRIPTION_COLUMNS).group_by(list(_DESCRIPTION_COLUMNS)).aggregate([]).to_pylist()
    return [
        MetricDescription(*(one[name] for name in _DESCRIPTION_COLUMNS))
        for one in distinct
        if one["metric_type"] != METADATA_ENTRY
    ]


def _entries(table: pa.Table) -> Iterator[tuple[str, MetricDescription]]:
    types = table.column("metric_type").to_pylist()
    for n in [n for n, type_ in enumerate(types) if type_ == METADATA_ENTRY]:
        row = table.slice(n, 1).to_pylist()[0]
        type_ = next((one["value"] for one in row["labels"] if one["name"] == "type"), "unknown")
        yield type_, MetricDescription(*(row[name] for name in _DESCRIPTION_COLUMNS))
