"""The contract of operators, which compute a result from the rows of a scan; and the operator of SQL.

An operator is a frozen value in a file of its own, with a line in query/operator_table.py. It states how it runs, how
it is sent to a worker and how its results are sent back. It knows nothing of files or HTTP: it is given the rows. So
the same operator can run in a query worker, in a Spark task and while a file is ingested.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self
from uuid import UUID

import pyarrow as pa

from lakerunner.model.display import one_line
from lakerunner.model.segment import Segment
from lakerunner.plan.scan import Scan


class Operator(ABC):
    """`input`: how it sees rows, "rows" as Arrow batches (RowOperator), "series" as samples (SeriesOperator in
    series/evaluation/pieces.py). `steady`: its results over the same segments come in the same order every time, so
    that another worker can continue where a lost one stopped; otherwise the results of a unit are held back until the
    unit is done."""

    name: ClassVar[str]
    input: ClassVar[Literal["rows", "series"]]
    steady: bool = False

    @abstractmethod
    def to_json(self) -> dict[str, Any]:
        """Return what `from_json` reads back."""

    @classmethod
    @abstractmethod
    def from_json(cls, given: Mapping[str, Any]) -> Self:
        """Raise ValueError, KeyError or TypeError for what `to_json` did not write."""

    @abstractmethod
    def lines(self) -> Iterator[str]:
        """Describe it for EXPLAIN, in one line or more."""

    def encode(self, results: Iterable[Any]) -> Iterator[pa.RecordBatch]:
        """Turn results into Arrow batches, for a worker in another process to send."""
        return iter(results)

    def decode(self, batches: Iterable[pa.RecordBatch]) -> Iterator[Any]:
        """Read back what `encode` made."""
        return iter(batches)


class RowOperator(Operator):
    """Rows in, rows out. DuckDB first runs `source_sql` over the scan's relation; `run` takes its result. Where nothing
    is left to read, `run` gets no batches, and if the operator has a `result_schema`, DuckDB is not called.
    `wants_streams`: a worker calls `with_streams` first."""

    input = "rows"

    @property
    def wants_streams(self) -> bool:
        return False

    @abstractmethod
    def source_sql(self, scan: Scan) -> str:
        """Return the SELECT over the scan's relation whose rows `run` takes: projection, and the filters that DuckDB
        can do."""

    @property
    def result_schema(self) -> pa.Schema | None:
        """Return the columns that `run` gives; None: those of the batches that it takes."""
        return None

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the results of these batches, which belong to one unit, in the order of its segments if steady."""
        return batches

    def with_streams(self, scan: Scan, segments: Sequence[Segment], tables: Mapping[UUID, pa.Table]) -> StreamPlan:
        """Use what the tables of streams (model/streams/stream_table.py) say of a unit's segments: return the operator
        that runs in place of this one, the scan that it needs, and the segments whose rows are still to be read.

        `tables` has those of the segments that have one, by segment id; a segment without one must be read. The
        returned operator is not sent anywhere and may hold what it found; its `run` is called also if no segment is
        left. The result must be that of this operator over the rows of all segments."""
        del tables
        return StreamPlan(self, scan, tuple(segments))


@dataclass(frozen=True)
class StreamPlan:
    """What is left of a unit after its tables of streams were read."""

    operator: RowOperator
    scan: Scan
    segments: tuple[Segment, ...]


@dataclass(frozen=True)
class SqlRows(RowOperator):
    """The operator of SQL: a SELECT that DuckDB runs completely. `sql` names no relation but the scan's."""

    name = "sql"

    sql: str
    steady: bool = True

    def source_sql(self, scan: Scan) -> str:  # noqa: ARG002
        return self.sql

    def to_json(self) -> dict[str, Any]:
        return {"sql": self.sql, "steady": self.steady}

    @classmethod
    def from_json(cls, given: Mapping[str, Any]) -> SqlRows:
        return cls(str(given["sql"]), bool(given["steady"]))

    def lines(self) -> Iterator[str]:
        yield f"sql {one_line(self.sql)}"
