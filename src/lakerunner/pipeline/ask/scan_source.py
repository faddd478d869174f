"""A scan's segments as a data source of Spark: one task for each group of segments.

What always holds: segments are read in the tasks, straight from the object store; no row passes through the driver
before the query has been worked out. What goes wrong in a task is sent to the driver as text that says what it was.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from lakerunner.model.errors import Absent, Corrupt, LakerunnerError, Unavailable
from lakerunner.model.segment import Segment
from lakerunner.objects.open import StoreAddress, shared_store
from lakerunner.pipeline.ask.scan_rows import scan_schema, segment_rows
from lakerunner.plan.scan import Scan

_ERRORS: dict[str, type[LakerunnerError]] = {kind.__name__: kind for kind in (Unavailable, Corrupt, Absent)}
_REPORT = re.compile(r"\[lakerunner (\w+)\] (.*)")


@dataclass(frozen=True)
class ScanWork:
    """What tasks need to know. A repr shows no secret of the store."""

    address: StoreAddress
    scan: Scan
    groups: tuple[tuple[Segment, ...], ...]


def load_scan(session: SparkSession, work: ScanWork) -> DataFrame:
    """Return the scan's rows, in the columns that plan/spark.py names."""
    # The work is an attribute of the class: so it travels to tasks, and stands in no plan that Spark prints.
    kind: type[_ScanSource] = type(
        "ScanSource", (_ScanSource,), {"work": work, "source_name": f"lakerunner_{work.scan.relation}"}
    )
    session.dataSource.register(kind)
    schema = from_arrow_schema(scan_schema(work.scan), prefer_timestamp_ntz=False)
    return session.read.format(kind.source_name).schema(schema).load()


def group_segments(segments: Sequence[Segment], tasks: int) -> tuple[tuple[Segment, ...], ...]:
    """Return the segments in groups of about equal size: the largest first, each to the lightest group."""
    groups: list[list[Segment]] = [[] for _ in range(max(1, min(tasks, len(segments))))]
    loads = [0] * len(groups)
    for segment in sorted(segments, key=lambda segment: (-segment.bytes, segment.id)):
        lightest = loads.index(min(loads))
        groups[lightest].append(segment)
        loads[lightest] += segment.bytes
    return tuple(tuple(group) for group in groups)


def reported_error(message: str) -> LakerunnerError | None:
    """Return the error that a task of ours reported before it ended, if Spark's message holds one."""
    found = _REPORT.search(message)
    kind = _ERRORS.get(found[1]) if found else None
    return kind(found[2]) if found and kind else None


class _ScanSource(DataSource):
    work: ScanWork
    source_name: str

    @classmethod
    def name(cls) -> str:
        return cls.source_name

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002 - it is ours already
        return _ScanReader(self.work)


class _ScanReader(DataSourceReader):
    def __init__(self, work: ScanWork) -> None:
        self._work = work

    def partitions(self) -> list[InputPartition]:
        """Return at least one partition: without any, Spark makes one of its own."""
        return [InputPartition(number) for number in range(max(1, len(self._work.groups)))]

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        store = shared_store(self._work.address)
        try:
            for segment in self._work.groups[partition.value] if self._work.groups else ():
                yield from segment_rows(store, segment, self._work.scan)
        except LakerunnerError as error:
            kind = next(name for name, kind in _ERRORS.items() if isinstance(error, kind))
            kind = type(error).__name__ if type(error).__name__ in _ERRORS else kind
            raise RuntimeError(f"[lakerunner {kind}] {error}") from None
