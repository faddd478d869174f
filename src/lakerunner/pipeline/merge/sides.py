"""What stands beside a segment that a merge or a rollup writes: a builder for each side file.

Comes in: the row groups of the segment, in order, as they are written. Goes out: the bytes of each side file: those
that ingest would have made of the same rows, row group by row group (pipeline/steps/).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import pyarrow as pa

from lakerunner.model.hll import CARDINALITY
from lakerunner.model.prometheus import SERIES_TABLE
from lakerunner.model.segment import Column, Segment
from lakerunner.model.signal import LOGS, METRICS, ROLLUPS, TRACES, SignalSpec
from lakerunner.model.text_index import SIDE_FILE
from lakerunner.pipeline.merge.cardinality import CardinalitySide
from lakerunner.pipeline.merge.series import SeriesSide
from lakerunner.pipeline.merge.texts import TextSide
from lakerunner.pipeline.merge.traces import TraceSide
from lakerunner.pipeline.steps.trace_index import TRACE_INDEX

ReadSide = Callable[[Segment, str], memoryview | None]


class Side(Protocol):
    """One side file in the making. Memory is bounded by what the file holds, not by the rows."""

    def add(self, batch: pa.RecordBatch) -> None:
        """The next row group of the segment, whole."""

    def finish(self) -> pa.Buffer | bytes:
        """The file; Damaged, with the segment's id, where a file beside an input that it is made of cannot be read.
        Once, after the last row group."""


Build = Callable[[Sequence[Segment], ReadSide, Sequence[Column]], Side]


# By the table that a spec's rows are in SQL: the name of each side file, and who builds it.
SIDES: Mapping[str, Mapping[str, Build]] = {
    LOGS.table: {SIDE_FILE: lambda _inputs, _read_side, columns: TextSide(columns)},
    METRICS.table: {SERIES_TABLE: lambda inputs, read_side, _columns: SeriesSide(inputs, read_side)},
    ROLLUPS.table: {
        SERIES_TABLE: lambda inputs, read_side, _columns: SeriesSide(inputs, read_side),
        CARDINALITY: lambda _inputs, _read_side, _columns: CardinalitySide(),
    },
    TRACES.table: {TRACE_INDEX: lambda _inputs, _read_side, _columns: TraceSide()},
}


def sides_of(
    spec: SignalSpec, inputs: Sequence[Segment], read_side: ReadSide, columns: Sequence[Column] = ()
) -> dict[str, Side]:
    """The builders of all side files of a segment of this spec, by the file's name. `inputs` are the segments that its
    rows come from, `read_side` gives the bytes of a file beside one of them, None where there is none; `columns` are
    those of the new segment, as `Segment.columns`."""
    return {name: build(inputs, read_side, columns) for name, build in SIDES[spec.table].items()}
