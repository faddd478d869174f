"""Operators on series: samples in, pieces out. The contract of what runs them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa

from lakerunner.plan.operator import Operator
from lakerunner.series.evaluation.pieces import Piece, from_batch, to_batch


class SeriesOperator(Operator):
    """`run` is handed the series of one unit; what it may ask of them, the operator's own module states."""

    input = "series"

    @abstractmethod
    def run(self, series: Any) -> Iterator[Piece]:
        """Give the results of one unit. The cut into pieces depends on the data and the operator alone."""

    def encode(self, results: Iterable[Piece]) -> Iterator[pa.RecordBatch]:
        return map(to_batch, results)

    def decode(self, batches: Iterable[pa.RecordBatch]) -> Iterator[Piece]:
        for batch in batches:
            yield from from_batch(batch)

    def check_points(self, points: int) -> None:
        """Raise TooLarge if the pieces of a unit may not hold as many values and samples."""
