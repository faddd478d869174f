"""The contract of builders of side files, and what they may use beside the segment's rows.

What always holds: a builder gets the row groups of a segment as they are written, so that a file that counts by row
groups or rows counts those of the segment.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa

from lakerunner.model.segment import Column


class Consumer(Protocol):
    """Takes the rows of a segment while they are written."""

    def add(self, batch: pa.RecordBatch) -> None:
        """Take the next row group of the segment, whole."""


@dataclass(frozen=True)
class SideFile:
    """The bytes of a side file. `values` are further values that prune, by their column: other names of the same rows
    that only this file has."""

    data: pa.Buffer
    values: Mapping[str, Collection[str]] = field(default_factory=dict)


class Side(Consumer, Protocol):
    """A side file being built. Memory is bounded by what the file holds, not by the rows."""

    def finish(self) -> SideFile:
        """Return the file; Damaged, with the segment's id, where a file beside an input that it is made of cannot be
        read. Call it once, after the last row group."""


class SeriesFacts(Protocol):
    """Facts about series that are not in the columns of their points: names in Prometheus, labels, resource."""

    def of(self, series: pa.Table) -> pa.Table:
        """Return the columns of series_table.FACTS for these series, in their order. `series` has their
        `metric_name`, `series`, and `first_row`, the place in the segment of the first point of each."""


@dataclass(frozen=True)
class SideInputs:
    """What a builder may need. `columns` of the segment, as `Segment.columns`; `facts` about the series of metrics."""

    columns: Sequence[Column] = ()
    facts: SeriesFacts | None = None


BuildSide = Callable[[SideInputs], Side]
