"""Build the stream table of a segment of logs: one row for each resource (model/streams/stream_table.py).

Comes in: the row groups, sorted by service and time, with `resource_id` and `detected_level`. Goes out: a Parquet file,
or none if the segment has more resources or deliveries than the limits allow. The same rows give the same table, in
whatever row groups and whatever columns their attributes are.

Rows that were delivered twice have equal sort keys, so they are looked for in runs of equal time. A run may continue in
the next row group: its rows are held until it ends.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakerunner.kernel_cache import njit
from lakerunner.model.segment import Column
from lakerunner.model.signal import RESOURCE
from lakerunner.model.streams.stream_table import (
    DETECTED_LEVEL,
    LEVEL_ROWS,
    MAX_DELIVERIES,
    MAX_RESOURCE_BYTES,
    MAX_RESOURCES,
    RESOURCE_ID,
    STREAM_SCHEMA,
)
from lakerunner.pipeline.segment.writer import SideFile
from lakerunner.pipeline.steps.arrow_columns import changes, column
from lakerunner.pipeline.steps.attribute_values import attributes_text, row_attributes, shredded_columns
from lakerunner.pipeline.steps.stream_columns import sizes_of_lines

_MAX_HELD = 100_000  # rows of a run; a longer one counts as one with repeated rows
_NO_ROWS = (0, 0, (1 << 63) - 1, -(1 << 63))  # rows, bytes, first_ns, last_ns
_RUN_ROW = np.dtype([("delivery", np.int64), ("row", np.int64), ("resource", np.int64)])


class StreamTableSide:
    """Builds the stream table. `columns` are those of the segment."""

    def __init__(self, columns: Iterable[Column]) -> None:
        self._types = shredded_columns(columns, RESOURCE)
        self._numbers: dict[int, int] = {}
        self._described: list[tuple[str, str, str]] = []
        self._levels: dict[tuple[int, str | None], tuple[int, int, int, int]] = {}
        self._deliveries = np.zeros((0, 2), np.int64)  # distinct pairs of resource and delivery
        self._repeating: set[int] = set()
        self._run: tuple[Any, Any] = (None, np.zeros(0, _RUN_ROW))  # its sort key, its rows
        self._bytes = 0
        self._is_small = True

    def add(self, batch: pa.RecordBatch) -> None:
        if not batch.num_rows or not self._is_small:
            return
        coded = batch.column(RESOURCE_ID).dictionary_encode()
        local = coded.indices.to_numpy()
        resource = self._resources(batch, coded.dictionary.to_pylist(), local)[local]
        self._add_levels(batch, resource)
        self._add_deliveries(batch, resource)
        self._is_small = (
            len(self._numbers) <= MAX_RESOURCES
            and len(self._deliveries) <= MAX_DELIVERIES
            and self._bytes <= MAX_RESOURCE_BYTES
        )

    def finish(self) -> SideFile | None:
        if not self._is_small:
            return None
        sink = pa.BufferOutputStream()
        table = self._table()
        with pq.ParquetWriter(
            sink,
            STREAM_SCHEMA,
            compression="zstd",
            use_dictionary=["resource_schema_url", "service_name", "levels.list.element.level"],
            column_encoding={"deliveries.list.element": "DELTA_BINARY_PACKED"},
            write_page_checksum=True,
            store_schema=False,
        ) as writer:
            writer.write_table(table)
        return SideFile(sink.getvalue())

    def _resources(self, batch: pa.RecordBatch, ids: list[int], local: Any) -> Any:
        """Return the numbers of these resources, and describe those that are new."""
        first = np.empty(len(ids), np.int64)
        first[local[::-1]] = np.arange(len(local))[::-1]  # reversed, because the last assignment wins
        numbers = []
        for number, row in zip(ids, first.tolist(), strict=True):
            if number not in self._numbers:
                self._numbers[number] = len(self._numbers)
                text = attributes_text(row_attributes(batch, row, RESOURCE, self._types))
                url, service = (batch.column(name)[row].as_py() for name in ("resource_schema_url", "service_name"))
                self._described.append((text, url, service))
                self._bytes += len(text)
                if self._bytes > MAX_RESOURCE_BYTES:
                    self._described.clear()
            numbers.append(self._numbers[number])
        return np.array(numbers, np.int64)

    def _add_levels(self, batch: pa.RecordBatch, resource: Any) -> None:
        levels = batch.column(DETECTED_LEVEL)
        coded = levels if pa.types.is_dictionary(levels.type) else levels.dictionary_encode()
        names = [*coded.dictionary.to_pylist(), None]
        codes = coded.indices.fill_null(len(names) - 1).to_numpy().astype(np.int64)
        groups = pa.array(resource * len(names) + codes).dictionary_encode()
        totals = np.tile(np.array(_NO_ROWS, np.int64), (len(groups.dictionary), 1))
        times = batch.column("timestamp").cast(pa.int64()).to_numpy()
        _add_up(groups.indices.to_numpy(), times, sizes_of_lines(batch), totals)
        for group, (rows, size, first, last) in zip(groups.dictionary.to_pylist(), totals.tolist(), strict=True):
            key = group // len(names), names[group % len(names)]
            before = self._levels.get(key, _NO_ROWS)
            self._levels[key] = before[0] + rows, before[1] + size, min(before[2], first), max(before[3], last)

    def _add_deliveries(self, batch: pa.RecordBatch, resource: Any) -> None:
        delivery, place = column(batch, "delivery", pa.int64()), column(batch, "delivery_row", pa.uint32())
        valid = pc.and_(delivery.is_valid(), place.is_valid()).to_numpy(zero_copy_only=False)
        coded = delivery.fill_null(0).dictionary_encode()
        values, codes = coded.dictionary.to_numpy(), coded.indices.to_numpy().astype(np.int64)
        pairs = pc.unique(pa.array((resource * len(values) + codes)[valid])).to_numpy()
        found = np.stack([pairs // len(values), values[pairs % len(values)]], axis=1)
        self._deliveries = np.unique(np.concatenate([self._deliveries, found]), axis=0)
        rows = np.empty(batch.num_rows, _RUN_ROW)
        rows["delivery"], rows["row"], rows["resource"] = values[codes], place.fill_null(0).to_numpy(), resource
        self._find_repeated(batch, rows, valid)

    def _find_repeated(self, batch: pa.RecordBatch, rows: Any, valid: Any) -> None:
        """Look for rows of one delivery and place in runs of equal sort keys."""
        starts = changes(batch.column("service_name")) | changes(batch.column("timestamp"))
        keys = [tuple(batch.column(name)[row].as_py() for name in ("service_name",)) for row in (0, -1)]
        times = batch.column("timestamp").cast(pa.int64())
        first_key, last_key = ((*key, times[row].as_py()) for key, row in zip(keys, (0, -1), strict=True))
        held = self._run[1] if self._run[0] == first_key else np.zeros(0, _RUN_ROW)
        run = np.concatenate([np.zeros(len(held), np.int64), np.cumsum(starts) - 1])
        last_run = run[-1]
        rows, valid = np.concatenate([held, rows]), np.append(np.ones(len(held), np.bool_), valid)
        sizes = np.bincount(run)
        candidates = np.flatnonzero(valid & (sizes[run] > 1))
        if len(candidates):
            chosen = rows[candidates]
            order = np.lexsort((chosen["row"], chosen["delivery"], run[candidates]))
            chosen, runs = chosen[order], run[candidates][order]
            same = (chosen[1:]["delivery"] == chosen[:-1]["delivery"]) & (chosen[1:]["row"] == chosen[:-1]["row"])
            again = chosen[1:][same & (runs[1:] == runs[:-1])]
            self._repeating.update(np.unique(again["resource"]).tolist())
        kept = rows[(run == last_run) & valid]
        if len(kept) > _MAX_HELD:
            self._repeating.update(np.unique(kept["resource"]).tolist())
            kept = kept[:0]
        self._run = last_key, kept

    def _table(self) -> pa.Table:
        ids = sorted(self._numbers.items())
        levels: dict[int, list[dict[str, Any]]] = {number: [] for _, number in ids}
        for (number, name), totals in sorted(self._levels.items(), key=lambda one: (one[0][1] is None, one[0][1])):
            levels[number].append(dict(zip(LEVEL_ROWS.names, (name, *totals), strict=True)))
        numbers = [number for _, number in ids]
        starts = np.searchsorted(self._deliveries[:, 0], numbers, "left")
        ends = np.searchsorted(self._deliveries[:, 0], numbers, "right")
        parts = [self._deliveries[start:end, 1] for start, end in zip(starts, ends, strict=True)]
        columns = [
            [number for number, _ in ids],
            *zip(*(self._described[number] for number in numbers), strict=True),
            [levels[number] for number in numbers],
            parts,
            [number in self._repeating for number in numbers],
        ]
        arrays = [pa.array(values, field.type) for values, field in zip(columns, STREAM_SCHEMA, strict=True)]
        return pa.Table.from_arrays(arrays, schema=STREAM_SCHEMA)


@njit(cache=True)
def _add_up(groups: Any, times: Any, sizes: Any, totals: Any) -> Any:
    for row in range(len(groups)):
        total = totals[groups[row]]
        total[0] += 1
        total[1] += sizes[row]
        total[2] = min(total[2], times[row])
        total[3] = max(total[3], times[row])
