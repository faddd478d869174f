"""The series of a segment of metrics or rollups, one row each, in a small file beside it: who they are, and where their
rows stand.

Comes in: the segment's row groups, in which rows of one series are neighbours, and what is known of the series beside
their rows. Goes out: a Parquet file, `series.parquet`, whose row i is the i-th series of the segment in its order. A
query that selects by labels reads this and not the points. What a point says of its series in columns of its own is
that of the series' first point in the segment. docs/formats/segments.md lists the columns.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from lakerunner.model.signal import METRICS
from lakerunner.pipeline.arrays import changes, column
from lakerunner.pipeline.sides.side import SeriesFacts, SideFile

LABELS = pa.list_(pa.struct([("name", pa.string()), ("escaped", pa.string()), ("value", pa.string())]))
KEY = ("metric_name", "series")
# What only a table of series says, in the order of its columns. Names, labels and resource follow from what the digest
# of a series is made of: they are the same in every table that has the series.
FACTS = {
    "prometheus_name": pa.string(),
    "prometheus_escaped": pa.string(),
    "labels": LABELS,
    "as_sent": pa.bool_(),
    "resource": LABELS,
}
# What a point says of its series in columns of its own.
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
    """Memory is bounded by the series of the segment."""

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
        """Whether the first row is of the series that the last batch ended with."""
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
