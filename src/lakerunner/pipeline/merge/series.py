"""The table of series of a merged segment of metrics, or of a rollup segment: pipeline/steps/series_table.py's file.

Comes in: the rows as they are written, and the tables beside the segments that they come from. Goes out: the table that
ingest would have made of these rows. What a point says of its series in columns of its own is that of the series' first
point in the output. Names in Prometheus, labels and resource follow from what the digest is made of and are the same in
every table that has the series: they come from the first input that does.

Memory is bounded by the series of the output and of one input: tables are read one after the other, and of each only
the series that none before it had are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from lakerunner.model.errors import Corrupt
from lakerunner.model.prometheus import SERIES_TABLE
from lakerunner.model.segment import Segment
from lakerunner.model.signal import METRICS
from lakerunner.pipeline.merge.arrays import changes, column
from lakerunner.pipeline.merge.opened import Damaged
from lakerunner.pipeline.steps.series_table import AS_STORED, LABELS, series_file

_KEY = ("metric_name", "series")
# What only a table of series says, in the order of its columns.
_TOLD = {
    "prometheus_name": pa.string(),
    "prometheus_escaped": pa.string(),
    "labels": LABELS,
    "as_sent": pa.bool_(),
    "resource": LABELS,
}
_FIRSTS = pa.schema([(name, METRICS.schema.field(name).type) for name in AS_STORED] + [("first_row", pa.int64())])


class SeriesSide:
    """`read_side` gives the bytes of a file beside a segment, None where there is none."""

    def __init__(self, inputs: Sequence[Segment], read_side: Callable[[Segment, str], memoryview | None]) -> None:
        self._inputs = inputs
        self._read_side = read_side
        self._rows = 0
        self._firsts: list[pa.RecordBatch] = []

    def add(self, batch: pa.RecordBatch) -> None:
        if not batch.num_rows:
            return
        new = changes(batch.column("metric_name")) | changes(batch.column("series"))
        new[0] = not self._goes_on(batch)
        place = np.flatnonzero(new)
        chosen = batch.select([name for name in AS_STORED if name in batch.schema.names]).take(pa.array(place))
        columns = [column(chosen, name, _FIRSTS.field(name).type) for name in AS_STORED]
        columns.append(pa.array(place + self._rows, pa.int64()))
        self._firsts.append(pa.RecordBatch.from_arrays(columns, schema=_FIRSTS))
        self._rows += batch.num_rows
        self._last = tuple(batch.column(name)[-1].as_py() for name in _KEY)

    def _goes_on(self, batch: pa.RecordBatch) -> bool:
        """Whether the first row is of the series that the last batch ended with."""
        return self._rows > 0 and self._last == tuple(batch.column(name)[0].as_py() for name in _KEY)

    def finish(self) -> pa.Buffer:
        series = pa.Table.from_batches(self._firsts, _FIRSTS).combine_chunks()
        first = series.column("first_row").to_numpy()
        series = series.append_column("rows", pa.array(np.diff(np.append(first, self._rows))))
        told = self._told(series.select(list(_KEY)))
        for name in _TOLD:
            series = series.append_column(name, told.column(name))
        return series_file(series.combine_chunks())

    def _told(self, wanted: pa.Table) -> pa.Table:
        """What the inputs' tables say of these series, in their order."""
        left = wanted.append_column("place", pa.array(np.arange(len(wanted))))
        parts: list[pa.Table] = []
        places = []
        for segment in self._inputs:
            if not len(left):
                break
            table = self._read(segment)
            keys = table.select(list(_KEY)).append_column("row", pa.array(np.arange(len(table))))
            found = left.join(keys, list(_KEY), join_type="inner", use_threads=False)
            parts.append(table.select(list(_TOLD)).take(found.column("row")))
            places.append(found.column("place").to_numpy())
            left = left.join(keys, list(_KEY), join_type="left anti", use_threads=False)
        if len(left):
            series = left.select(list(_KEY)).slice(0, 1).to_pylist()[0]
            raise Corrupt(
                f"series {series['series']} of metric {series['metric_name']!r} is missing from the "
                f"tables of series of {', '.join(str(segment.id) for segment in self._inputs)}: "
                "ingest their metrics again"
            )
        at = np.empty(len(wanted), np.int64)
        at[np.concatenate(places)] = np.arange(len(wanted))
        return pa.concat_tables(parts).combine_chunks().take(pa.array(at))

    def _read(self, segment: Segment) -> pa.Table:
        key = segment.side_path(SERIES_TABLE)
        data = self._read_side(segment, SERIES_TABLE)
        if data is None:
            raise Damaged(segment.id, f"{key}: table of series is missing: ingest its metrics again")
        try:
            table = pq.read_table(pa.BufferReader(data), use_threads=False, page_checksum_verification=True)
            if "as_sent" not in table.column_names:
                raise Damaged(
                    segment.id,
                    f"{key}: this table of series was written by an earlier version: ingest its metrics "
                    "again, into a new home",
                )
            kinds = {name: METRICS.schema.field(name).type for name in _KEY} | _TOLD
            return table.select(list(kinds)).cast(pa.schema(kinds.items()))
        except (pa.ArrowException, OSError, KeyError, ValueError) as error:
            raise Damaged(segment.id, f"{key}: cannot read this table of series: {error}") from error
