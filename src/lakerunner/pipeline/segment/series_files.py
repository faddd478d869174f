"""Build the side files of metrics and rollups: the table of series, and the sketches of cardinality.

`series.parquet` has one row for each series of the segment, in the segment's order: its identity, and where its rows
are. A query that selects by labels reads this instead of the points. Comes in: the segment's row groups, in which the
rows of a series are neighbours, and the facts about series that are not in their rows. Values that a point has in
columns of its own are taken from the first point of the series.

`cardinality.parquet` has a row for each metric and bucket of a rollup segment: a sketch of the series that were active.
It follows from the rows alone, which are sorted by metric, series and time: the same rows give the same bytes, whatever
they were merged from. Sketches of several segments are united (model/hll.py), so a bucket may be in several. Registers
are held for the buckets of one metric; finished ones are written and compressed from time to time.

docs/formats/segments.md lists the columns of both.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakerunner.model.hll import REGISTERS, find_registers, pack
from lakerunner.model.signal import METRICS, TIME
from lakerunner.pipeline.segment.writer import SeriesFacts, SideFile
from lakerunner.pipeline.steps.arrow_columns import changes, column, plain

LABELS = pa.list_(pa.struct([("name", pa.string()), ("escaped", pa.string()), ("value", pa.string())]))
KEY = ("metric_name", "series")
# Columns that only a table of series has, in its order. Names, labels and resource follow from what the digest of a
# series is made of: they are the same in every table that has the series.
FACTS = {
    "prometheus_name": pa.string(),
    "prometheus_escaped": pa.string(),
    "labels": LABELS,
    "as_sent": pa.bool_(),
    "resource": LABELS,
}
# Columns of a point that describe its series.
_AS_STORED = (
    "series",
    "metric_name",
    "metric_type",
    "temporality",
    "monotonic",
    "unit",
    "description",
    "service_name",
    "scope_name",
    "scope_version",
)
_FIRSTS = pa.schema([(name, METRICS.schema.field(name).type) for name in _AS_STORED] + [("first_row", pa.int64())])
_NAMES = ("prometheus_name", "prometheus_escaped")
_CODED = [
    *(field.name for field in _FIRSTS if field.type == pa.string()),
    *_NAMES,
    *(f"{name}.list.element.{leaf.name}" for name in ("labels", "resource") for leaf in LABELS.value_type),
]


class SeriesTableSide:
    """Builds `series.parquet`. Memory is bounded by the series of the segment."""

    def __init__(self, facts: SeriesFacts | None) -> None:
        if facts is None:
            raise ValueError("a table of series needs facts about the series")
        self._facts = facts
        self._rows = 0
        self._firsts: list[pa.RecordBatch] = []

    def add(self, batch: pa.RecordBatch) -> None:
        if not batch.num_rows:
            return
        new = changes(batch.column("metric_name")) | changes(batch.column("series"))
        new[0] = not self._goes_on(batch)
        place = np.flatnonzero(new)
        chosen = batch.select([name for name in _AS_STORED if name in batch.schema.names]).take(pa.array(place))
        columns = [column(chosen, name, _FIRSTS.field(name).type) for name in _AS_STORED]
        columns.append(pa.array(place + self._rows, pa.int64()))
        self._firsts.append(pa.RecordBatch.from_arrays(columns, schema=_FIRSTS))
        self._rows += batch.num_rows
        self._last = tuple(batch.column(name)[-1].as_py() for name in KEY)

    def _goes_on(self, batch: pa.RecordBatch) -> bool:
        """Return whether the first row belongs to the series that the last batch ended with."""
        return self._rows > 0 and self._last == tuple(batch.column(name)[0].as_py() for name in KEY)

    def finish(self) -> SideFile:
        series = pa.Table.from_batches(self._firsts, _FIRSTS).combine_chunks()
        first = series.column("first_row").to_numpy()
        series = series.append_column("rows", pa.array(np.diff(np.append(first, self._rows))))
        facts = self._facts.of(series.select([*KEY, "first_row"]))
        for name in FACTS:
            series = series.append_column(name, facts.column(name))
        names = {name for one in _NAMES for name in facts.column(one).unique().to_pylist() if name is not None}
        return SideFile(_file(series.combine_chunks()), {"metric_name": names})


def _file(table: pa.Table) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    pq.write_table(
        table,
        sink,
        compression="zstd",
        compression_level=1,
        use_dictionary=_CODED,
        column_encoding={"first_row": "DELTA_BINARY_PACKED", "rows": "DELTA_BINARY_PACKED"},
        store_schema=False,
        write_page_checksum=True,
    )
    return sink.getvalue()


_SCHEMA = pa.schema(
    [
        pa.field("metric_name", pa.string(), nullable=False),
        pa.field("timestamp", TIME, nullable=False),
        pa.field("hll", pa.binary(), nullable=False),
    ]
)
ROW_GROUP_BUCKETS = 20_000
_AT_ONCE = 1024  # sketches to pack


class CardinalitySide:
    """Builds `cardinality.parquet`."""

    def __init__(self) -> None:
        self._metric: str | None = None
        self._slots: dict[int, int] = {}  # by bucket: which row of the registers is its sketch
        self._registers = np.zeros((64, REGISTERS), np.uint8)
        self._done: dict[str, list[Any]] = {name: [] for name in _SCHEMA.names}
        self._sink = pa.BufferOutputStream()
        self._writer = pq.ParquetWriter(
            self._sink,
            _SCHEMA,
            compression="zstd",
            compression_level=1,
            # In most buckets of a metric the same series are active.
            use_dictionary=["metric_name", "hll"],
            write_statistics=["metric_name", "timestamp"],
            column_encoding={"timestamp": "DELTA_BINARY_PACKED"},
            sorting_columns=pq.SortingColumn.from_ordering(
                _SCHEMA, [("metric_name", "ascending"), ("timestamp", "ascending")]
            ),
            write_page_checksum=True,
            store_schema=False,
        )

    def add(self, batch: pa.RecordBatch) -> None:
        batch = _active(batch)
        if not batch.num_rows:
            return
        names = plain(batch.column("metric_name"))
        times = batch.column("timestamp").cast(pa.int64()).to_numpy()
        registers, ranks = find_registers(batch.column("series").to_numpy())
        first = np.flatnonzero(changes(names))
        for start, end in zip(first.tolist(), [*first[1:].tolist(), len(names)], strict=True):
            name = names[start].as_py()
            if name != self._metric:
                self._end_metric()
                self._metric = name
            buckets, place = np.unique(times[start:end], return_inverse=True)
            slots = np.array([self._slots.setdefault(bucket, len(self._slots)) for bucket in buckets.tolist()])
            self._make_room()
            at = slots[place] * REGISTERS + registers[start:end]
            np.maximum.at(self._registers.reshape(-1), at, ranks[start:end])

    def finish(self) -> SideFile:
        self._end_metric()
        self._write()
        self._writer.close()
        return SideFile(self._sink.getvalue())

    def _make_room(self) -> None:
        if len(self._slots) > len(self._registers):
            grown = np.zeros((2 * len(self._slots), REGISTERS), np.uint8)
            grown[: len(self._registers)] = self._registers
            self._registers = grown

    def _end_metric(self) -> None:
        buckets = sorted(self._slots)
        slots = np.array([self._slots[bucket] for bucket in buckets], np.int64)
        for start in range(0, len(buckets), _AT_ONCE):
            some = buckets[start : start + _AT_ONCE]
            self._done["metric_name"] += [self._metric] * len(some)
            self._done["timestamp"] += some
            self._done["hll"] += pack(self._registers[slots[start : start + _AT_ONCE]])
            if len(self._done["hll"]) >= ROW_GROUP_BUCKETS:
                self._write()
        self._registers[: len(buckets)] = 0
        self._slots = {}

    def _write(self) -> None:
        if self._done["hll"]:
            self._writer.write_table(pa.table(self._done, schema=_SCHEMA))
            self._done = {name: [] for name in _SCHEMA.names}


def _active(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the rows without buckets that hold stale markers and no sample."""
    wanted = batch.select(["metric_name", "timestamp", "series"])
    if "chq_rollup_count" not in batch.schema.names:
        return wanted
    return wanted.filter(pc.not_equal(batch.column("chq_rollup_count"), 0).fill_null(True))
