"""Make the parts of rules over logs: what their metrics have in each bucket of 10 s because of the rows of a segment.

Comes in: batches of a segment's rows with `resource_id` and `detected_level`, at ingest and in merges. Goes out: for
each rule version with a matching row a batch of PART_SCHEMA; parts of one series and time add up
(docs/decisions/0030). What always holds: the values are those of the rule's query (logql/rule_query.py), because its
own stages run over the rows. A row with an error is a part of the series with the single label `__error__`: it counts,
and adds nothing. No row and no rule makes a segment fail: a version with too many series, or that cannot run, has no
parts of the segment, and is reported.

Each distinct resource is looked at once to find the rules that its rows concern; a rule of other streams costs nothing.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakerunner.logql.columns.column_samples import SampleBatch, SampleColumns
from lakerunner.logql.rule_query import RuleQuery, rule_query
from lakerunner.logql.selector_index import SelectorIndex
from lakerunner.logql.stages.line_labels import ERROR
from lakerunner.logql.stages.sample import series_text
from lakerunner.model.errors import UserError
from lakerunner.model.metric_rules.metric_rule import BUCKET_MS, RuleVersion
from lakerunner.model.segment import Column
from lakerunner.model.signal import RESOURCE
from lakerunner.model.streams.log_record import stored_stream_of
from lakerunner.model.streams.stream_rules import StreamRules
from lakerunner.model.streams.stream_table import RESOURCE_ID
from lakerunner.model.time import MAX_NS, MS_NS
from lakerunner.pipeline.rollup.part_values import VALUES, TooManyCells, add_parts, add_values
from lakerunner.pipeline.steps.arrow_columns import plain
from lakerunner.pipeline.steps.attribute_values import attributes_text, row_attributes, shredded_columns
from lakerunner.pipeline.steps.stored_lines import ROW, StoredBatch, StoredLines, StoredRows

PART_SCHEMA = pa.schema([("labels", pa.dictionary(pa.int32(), pa.string())), *list(VALUES)[1:]])
BUCKET_NS = BUCKET_MS * MS_NS
_LAST_END = MAX_NS // BUCKET_NS * BUCKET_NS
_MAX_BYTES = 64 << 20  # of the parts of all versions that are held
_MAX_KNOWN = 100_000  # resources that are remembered
_NO_RULES: Sequence[int] = ()
_OF_VALUES = VALUES.names[3:]


@dataclass(frozen=True)
class RuleCount:
    """What a version did with a segment: `rows` of the streams that it selects, how many of them `matched` and how many
    have `errors`, and its CPU time."""

    rows: int = 0
    matched: int = 0
    errors: int = 0
    series: int = 0
    seconds: float = 0.0


class RuleParts:
    """Takes the batches of one segment in their order. `columns` are the segment's, `rules` the organization's rules
    for streams. `refused` says why versions cannot run."""

    def __init__(self, versions: Sequence[RuleVersion], columns: Sequence[Column], rules: StreamRules) -> None:
        self._versions = _compiled_versions(tuple(versions))
        self._columns = tuple(columns)
        self._resource_types = shredded_columns(columns, RESOURCE)
        self._rules = rules
        self._stream = stored_stream_of(rules)
        self._resources: dict[int, tuple[str, str]] = {}
        self._concerned: dict[int, Sequence[int]] = {}
        self._sums: dict[int, _VersionSums] = {}
        self._held = 0
        self.refused: Mapping[RuleVersion, str] = self._versions.refused

    @property
    def over_limit(self) -> tuple[RuleVersion, ...]:
        """Return the versions with too many series or too large histograms; `finish` may find further ones."""
        return tuple(sums.version for _, sums in sorted(self._sums.items()) if sums.is_over)

    @property
    def counts(self) -> Mapping[RuleVersion, RuleCount]:
        """Return what each version did whose streams are in the segment."""
        return {sums.version: sums.count for _, sums in sorted(self._sums.items())}

    def add(self, batch: pa.RecordBatch) -> None:
        """Add rows of the segment."""
        if not self._versions.queries or not batch.num_rows:
            return
        if len(self._concerned) > _MAX_KNOWN:
            self._concerned.clear()
            self._resources.clear()
        coded = plain(batch.column(RESOURCE_ID)).dictionary_encode()
        ids, codes = coded.dictionary.to_pylist(), coded.indices.to_numpy()
        self._find_rules(batch, ids, codes)
        resources_of: dict[int, list[int]] = {}
        for place, id_ in enumerate(ids):
            for number in self._concerned[id_]:
                resources_of.setdefault(number, []).append(place)
        stored = StoredBatch(batch, self._resources)
        selected: dict[tuple[int, ...], StoredRows] = {}
        for number, places in resources_of.items():
            key = tuple(places)
            if key not in selected:
                selected[key] = _rows_of(stored, codes, places, len(ids))
            self._add_to(number, selected[key])

    def finish(self, sign: int = 1) -> Iterator[tuple[RuleVersion, pa.RecordBatch]]:
        """Yield the parts of each version that has any. With `sign` -1 they take rows back that other rows repeat:
        counts and sums are negative, and extrema, which stay, are null."""
        for _, sums in sorted(self._sums.items()):
            found = sums.total()
            if found is not None:
                yield sums.version, found if sign > 0 else _negative(found)

    def _find_rules(self, batch: pa.RecordBatch, ids: Sequence[int], codes: Any) -> None:
        """Find the versions that the rows of new resources concern."""
        new = [place for place, id_ in enumerate(ids) if id_ not in self._concerned]
        if not new:
            return
        first = np.empty(len(ids), np.int64)
        first[codes[::-1]] = np.arange(len(codes))[::-1]  # reversed, because the last assignment wins
        for place in new:
            row = int(first[place])
            attributes = attributes_text(row_attributes(batch, row, RESOURCE, self._resource_types))
            own = attributes, batch.column("resource_schema_url")[row].as_py()
            found = self._versions.index.met_by(self._stream(*own).labels)
            self._concerned[ids[place]] = found or _NO_RULES
            if found:
                self._resources[ids[place]] = own

    def _add_to(self, number: int, rows: StoredRows) -> None:
        if number not in self._sums:
            version, query = self._versions.queries[number]
            self._sums[number] = _VersionSums(version, query, self._columns, self._rules)
        sums = self._sums[number]
        self._held -= sums.held
        sums.add(rows)
        self._held += sums.held
        if self._held > _MAX_BYTES:
            self._free()

    def _free(self) -> None:
        """Add up what is held; what is then still too large, the largest version first, has no parts."""
        for sums in self._sums.values():
            sums.fold()
        self._held = sum(one.held for one in self._sums.values())
        for sums in sorted(self._sums.values(), key=lambda one: -one.held):
            if self._held > _MAX_BYTES // 2:  # half, so that not every further batch comes here
                self._held -= sums.held
                sums.give_up()


@dataclass(frozen=True)
class _Versions:
    """The versions that can run, and an index of their selectors by their places."""

    queries: Sequence[tuple[RuleVersion, RuleQuery]]
    index: SelectorIndex
    refused: Mapping[RuleVersion, str]


@lru_cache(8)
def _compiled_versions(versions: tuple[RuleVersion, ...]) -> _Versions:
    """Parse the rules. An organization has the same for many segments."""
    queries, refused = [], {}
    for version in versions:
        try:
            queries.append((version, rule_query(version.rule)))
        except UserError as error:  # one that an older release took
            refused[version] = error.message
    index = SelectorIndex([query.aggregation.lines.pipeline.matchers for _, query in queries])
    return _Versions(queries, index, refused)


def _rows_of(batch: StoredBatch, codes: Any, places: Sequence[int], count: int) -> StoredRows:
    """Return the rows of the resources at these places; `count` is the number of resources."""
    if len(places) == count:
        return StoredRows(batch)
    chosen = np.zeros(count, np.bool_)
    chosen[places] = True
    return StoredRows(batch, np.flatnonzero(chosen[codes]))


class _VersionSums:
    """The parts of one version so far."""

    def __init__(self, version: RuleVersion, query: RuleQuery, columns: Sequence[Column], rules: StreamRules) -> None:
        made = SampleColumns.of_rule(query.aggregation, query.dimensions, rules)
        self._lines = StoredLines(query.aggregation.lines.pipeline.matchers, made.needs, columns)
        self._run = made.compiled(self._lines.find_origins, (ROW,))
        self._sketches = version.rule.measure.kind == "histogram"
        self._series: dict[str, int] = {}
        self._is_error: list[bool] = []  # by the numbers of series
        self._parts: list[pa.RecordBatch] = []
        self.held = 0  # bytes of the parts
        self.version = version
        self.is_over = False
        self.count = RuleCount()

    def add(self, rows: StoredRows) -> None:
        """Add the samples of these rows."""
        began = time.thread_time()
        count = replace(self.count, rows=self.count.rows + rows.places.num_rows)
        if not self.is_over:
            for samples in self._run(self._lines.select(rows)):
                count = self._add_samples(samples, rows.of.times, count)
            count = replace(count, series=len(self._series) - sum(self._is_error))
            if count.series > self.version.rule.max_series:
                self.give_up()
        self.count = count
        self._spend(began)

    def total(self) -> pa.RecordBatch | None:
        """Return all parts, None if there are none."""
        began = time.thread_time()
        self.fold()
        found = self._labelled(self._parts[0]) if self._parts else None
        self._spend(began)
        return found

    def fold(self) -> None:
        """Add up the parts."""
        if len(self._parts) > 1:
            try:
                self._parts = [add_parts(self._parts, sketches=self._sketches)]
                self.held = self._parts[0].nbytes
            except TooManyCells:
                self.give_up()

    def give_up(self) -> None:
        """Forget the parts, and make none any more."""
        self.is_over = True
        self._parts.clear()
        self.held = 0

    def _spend(self, began: float) -> None:
        self.count = replace(self.count, seconds=self.count.seconds + time.thread_time() - began)

    def _add_samples(self, samples: SampleBatch, times: Any, count: RuleCount) -> RuleCount:
        series = np.array([self._number(labels) for labels in samples.series], np.int64)[samples.codes]
        rows = samples.rows.column(ROW).to_numpy()
        times = times[rows]
        values = samples.values
        if len(times) and times.max() > _LAST_END:  # no query can name the bucket's end
            kept = times <= _LAST_END
            series, times, values = series[kept], times[kept], values[kept]
        if not len(series) or self.is_over:
            return count
        failed = int(np.array(self._is_error)[series].sum())
        count = replace(count, matched=count.matched + len(series) - failed, errors=count.errors + failed)
        ends = -(-times // BUCKET_NS) * BUCKET_NS
        try:
            part = add_values(series, ends, values, sketches=self._sketches)
            self._parts.append(part)
            self.held += part.nbytes
        except TooManyCells:
            self.give_up()
        return count

    def _number(self, labels: Sequence[tuple[str, str]]) -> int:
        number = self._series.setdefault(series_text(tuple(labels)), len(self._series))
        if number == len(self._is_error):
            self._is_error.append(len(labels) == 1 and labels[0][0] == ERROR)
        return number

    def _labelled(self, part: pa.RecordBatch) -> pa.RecordBatch:
        """Return the parts with the labels of their series. Errors count, and have no value."""
        series = part.column("series").to_numpy()
        labels = pa.DictionaryArray.from_arrays(pa.array(series, pa.int32()), pa.array(list(self._series), pa.string()))
        columns = {name: part.column(name) for name in VALUES.names[1:]}
        failed = np.array(self._is_error)[series]
        if failed.any():
            for name in _OF_VALUES:
                nothing = pa.scalar(0.0 if name in ("sum", "sum_error") else None, columns[name].type)
                columns[name] = pc.if_else(pa.array(failed), nothing, columns[name])
        return pa.RecordBatch.from_arrays([labels, *columns.values()], schema=PART_SCHEMA)


def _negative(parts: pa.RecordBatch) -> pa.RecordBatch:
    columns = dict(zip(parts.schema.names, parts.columns, strict=True))
    for name in ("count", "sum", "sum_error"):
        columns[name] = pc.negate(columns[name])
    for name in ("min", "max"):
        columns[name] = pa.nulls(len(parts), columns[name].type)
    columns["zero_count"] = pa.array(-columns["zero_count"].fill_null(0).to_numpy(), mask=_is_null(parts, "zero_count"))
    for name in ("positive", "negative"):
        columns[name] = _negative_counts(columns[name])
    return pa.RecordBatch.from_arrays(list(columns.values()), schema=parts.schema)


def _negative_counts(side: pa.StructArray) -> pa.StructArray:
    """Return histogram buckets with counts that take these back, modulo 2^64."""
    offset, counts, float_counts = side.flatten()
    negative = pa.array(-counts.values.to_numpy())
    lists = pa.ListArray.from_arrays(counts.offsets, negative, counts.type)
    return pa.StructArray.from_arrays([offset, lists, float_counts], fields=list(side.type), mask=side.is_null())


def _is_null(parts: pa.RecordBatch, name: str) -> Any:
    return parts.column(name).is_null().to_numpy(zero_copy_only=False)
