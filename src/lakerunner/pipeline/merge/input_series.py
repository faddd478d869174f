"""Facts about the series of a merged segment or a rollup, from the tables of series beside the inputs.

Comes in: the inputs, and series of the output. Goes out: the facts that the first input with each series has about it.
Memory is bounded by the series of the output and of one input: tables are read one after the other, and of each only
the series that none before it had are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from lakerunner.model.errors import Corrupt
from lakerunner.model.prometheus import SERIES_TABLE
from lakerunner.model.segment import Segment
from lakerunner.model.signal import METRICS
from lakerunner.pipeline.merge.opened import Damaged
from lakerunner.pipeline.sides.series_table import FACTS, KEY

ReadSide = Callable[[Segment, str], memoryview | None]


@dataclass(frozen=True)
class InputSeries:
    """`read_side` gives the bytes of a file beside an input, None where there is none."""

    inputs: Sequence[Segment]
    read_side: ReadSide

    def of(self, series: pa.Table) -> pa.Table:
        left = series.select(list(KEY)).append_column("place", pa.array(np.arange(len(series))))
        parts: list[pa.Table] = []
        places = []
        for segment in self.inputs:
            if not len(left):
                break
            table = self._read(segment)
            keys = table.select(list(KEY)).append_column("row", pa.array(np.arange(len(table))))
            found = left.join(keys, list(KEY), join_type="inner", use_threads=False)
            parts.append(table.select(list(FACTS)).take(found.column("row")))
            places.append(found.column("place").to_numpy())
            left = left.join(keys, list(KEY), join_type="left anti", use_threads=False)
        if len(left):
            one = left.select(list(KEY)).slice(0, 1).to_pylist()[0]
            raise Corrupt(
                f"series {one['series']} of metric {one['metric_name']!r} is missing from the "
                f"tables of series of {', '.join(str(segment.id) for segment in self.inputs)}: "
                "ingest their metrics again"
            )
        at = np.empty(len(series), np.int64)
        at[np.concatenate(places)] = np.arange(len(series))
        return pa.concat_tables(parts).combine_chunks().take(pa.array(at))

    def _read(self, segment: Segment) -> pa.Table:
        key = segment.side_path(SERIES_TABLE)
        data = self.read_side(segment, SERIES_TABLE)
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
            kinds = {name: METRICS.schema.field(name).type for name in KEY} | FACTS
            return table.select(list(kinds)).cast(pa.schema(kinds.items()))
        except (pa.ArrowException, OSError, KeyError, ValueError) as error:
            raise Damaged(segment.id, f"{key}: cannot read this table of series: {error}") from error
