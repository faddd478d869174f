"""What a worker makes of a scan's rows: the contract of operators.

An operator is a frozen value in a file of its own, with a line in query/operators.py. It states how it runs, how it
travels to a worker and how its results travel back. It knows nothing of files or HTTP: the rows are handed
in. So the same operator can run in a query worker, in a Spark task and while a file is ingested.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar, Literal, Self

import pyarrow as pa

from lakerunner.plan.scan import Scan


class Operator(ABC):
    """`input`: how it sees rows, "rows" as Arrow batches (RowOperator), "series" as samples (SeriesOperator in
    series/evaluation/operator.py). `steady`: its results over the same segments come in the same order every time, so
    that a worker that is lost in the middle can be taken over from where it was; otherwise the results of a unit wait
    until all are there."""

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
        """Describe it for EXPLAIN, one line at least."""

    def encode(self, results: Iterable[Any]) -> Iterator[pa.RecordBatch]:
        """Make results Arrow batches, for a worker elsewhere to send."""
        return iter(results)

    def decode(self, batches: Iterable[pa.RecordBatch]) -> Iterator[Any]:
        """Read back what `encode` made."""
        return iter(batches)


class RowOperator(Operator):
    """Rows in, rows out. DuckDB first runs `source_sql` over the scan's relation; `run` takes what that gives."""

    input = "rows"

    @abstractmethod
    def source_sql(self, scan: Scan) -> str:
        """Return the SELECT over the scan's relation whose rows `run` takes: projection, and filters DuckDB can do."""

    def schema(self, rows: pa.Schema) -> pa.Schema:
        """Return the columns that `run` gives for batches of this schema."""
        return rows

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Give the results of these batches, which are those of one unit, in the order of its segments if steady."""
        return batches
