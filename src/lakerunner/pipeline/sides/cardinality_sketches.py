"""How many series of each metric were active in each bucket of a rollup segment: a sketch for each.

Comes in: the rows of a rollup segment, sorted by metric, series and time. Goes out: a Parquet file,
`cardinality.parquet`, with a row for each metric and bucket (docs/formats/segments.md). It follows from the rows alone:
the same rows give the same bytes, whatever they were merged from. Sketches of several segments are united
(model/hll.py), so it is no harm that a bucket is in several.

Registers are held for the buckets of one metric; what is done is written and compressed now and then.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakerunner.model.hll import REGISTERS, packed, places
from lakerunner.model.signal import TIME
from lakerunner.pipeline.arrays import changes, plain
from lakerunner.pipeline.sides.side import SideFile

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
        registers, ranks = places(batch.column("series").to_numpy())
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
            self._done["hll"] += packed(self._registers[slots[start : start + _AT_ONCE]])
            if len(self._done["hll"]) >= ROW_GROUP_BUCKETS:
                self._write()
        self._registers[: len(buckets)] = 0
        self._slots = {}

    def _write(self) -> None:
        if self._done["hll"]:
            self._writer.write_table(pa.table(self._done, schema=_SCHEMA))
            self._done = {name: [] for name in _SCHEMA.names}


def _active(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Without the buckets that hold stale markers and no sample."""
    wanted = batch.select(["metric_name", "timestamp", "series"])
    if "chq_rollup_count" not in batch.schema.names:
        return wanted
    return wanted.filter(pc.not_equal(batch.column("chq_rollup_count"), 0).fill_null(True))
