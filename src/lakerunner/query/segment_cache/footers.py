"""The footer of a segment's Parquet file: where column chunks lie, and the range of values in each.

Input: a file that holds at least its footer. Output: spans of bytes, spans of rows, ranges of values. Only columns that
are asked for are examined, each once: a footer has thousands of chunks, and pyarrow's access to each of them is slow.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lakerunner.model.errors import Corrupt
from lakerunner.query.segment_cache.spans import Span

TRAILER = 8  # the footer's length and the magic number, at the very end of a file
BLOOM_LEAST = 47  # header and one block; older files do not state the size of a filter
_MAGIC = b"PAR1"


@dataclass(frozen=True)
class ValueRange:
    """No value of a chunk is below `low` or above `high` in Parquet's order of integers or bytes; None: unknown.
    `none`: the chunk holds nothing but nulls."""

    low: Any = None
    high: Any = None
    none: bool = False

    def may_hold(self, value: Any) -> bool:
        return not self.none and (self.low is None or self.low <= value <= self.high)

    def may_overlap(self, start: int, end: int) -> bool:
        """Return whether a value may lie in the half-open range."""
        return not self.none and (self.low is None or (self.low < end and self.high >= start))


class Footer:
    """Finds chunks by column name. A map or list column has several Parquet leaves; its chunks are those of all of
    them."""

    def __init__(self, metadata: pq.FileMetaData, bytes_: int) -> None:
        """`bytes_` is the length of footer and trailer at the end of the file."""
        self.bytes = bytes_
        self.metadata = metadata
        self._chunks: dict[str, list[list[Span]]] = {}
        self._bounds: dict[int, list[ValueRange]] = {}
        self._blooms: dict[str, list[Span]] = {}

    @property
    def groups(self) -> int:
        return int(self.metadata.num_row_groups)

    @cached_property
    def rows(self) -> list[Span]:
        """Return the span of row numbers of each row group."""
        counts = (self.metadata.row_group(group).num_rows for group in range(self.groups))
        return list(pairwise(accumulate(counts, initial=0)))

    def chunks(self, column: str) -> list[list[Span]]:
        """Return for each row group the byte spans of the column's chunks; empty lists for a column that the file
        lacks."""
        if column not in self._chunks:
            leaves = [self._chunks_of(leaf) for leaf in self.leaves.get(column, ())]
            found = [list(of_group) for of_group in zip(*leaves, strict=True)] if leaves else [[]] * self.groups
            self._chunks[column] = found
        return self._chunks[column]

    def blooms(self, column: str) -> list[Span]:
        """Return the byte spans of all bloom filters of the column."""
        if column not in self._blooms:
            chunks = [self.chunk(group, leaf) for leaf in self.leaves.get(column, ()) for group in range(self.groups)]
            self._blooms[column] = [_bloom(chunk) for chunk in chunks if chunk.bloom_filter_offset is not None]
        return self._blooms[column]

    def bloom(self, column: str, group: int) -> Span | None:
        """Return the span of one bloom filter, for a column with a single leaf."""
        leaf = self._paths.get(column)
        chunk = None if leaf is None else self.chunk(group, leaf)
        return None if chunk is None or chunk.bloom_filter_offset is None else _bloom(chunk)

    def bounds(self, path: str) -> list[ValueRange] | None:
        """Return the range of values in each row group, by the path of a Parquet leaf; None if the file lacks it."""
        leaf = self._paths.get(path)
        if leaf is None:
            return None
        if leaf not in self._bounds:
            self._bounds[leaf] = [_value_range(self.chunk(group, leaf).statistics) for group in range(self.groups)]
        return self._bounds[leaf]

    def _chunks_of(self, leaf: int) -> list[Span]:
        return [_span(self.chunk(group, leaf)) for group in range(self.groups)]

    def chunk(self, group: int, leaf: int) -> pq.ColumnChunkMetaData:
        return self.metadata.row_group(group).column(leaf)

    @cached_property
    def _paths(self) -> dict[str, int]:
        schema = self.metadata.schema
        return {schema.column(leaf).path: leaf for leaf in range(len(schema))}

    @cached_property
    def leaves(self) -> dict[str, list[int]]:
        """Return the numbers of the Parquet leaves of each column. Attribute names contain dots, but attribute columns
        have one leaf each; the names of all other columns contain no dots."""
        schema = self.metadata.schema
        leaves: dict[str, list[int]] = {}
        for path, leaf in self._paths.items():
            plain = schema.column(leaf).name == path
            leaves.setdefault(path if plain else path.partition(".")[0], []).append(leaf)
        return leaves


def footer_bytes(path: Path, key: str) -> int:
    """Return the length of footer and trailer. Corrupt if the file does not end like a Parquet file."""
    with path.open("rb") as file:
        size = file.seek(-TRAILER, 2) + TRAILER
        trailer = file.read(TRAILER)
    length = int.from_bytes(trailer[:4], "little") + TRAILER
    if trailer[4:] != _MAGIC or length > size:
        raise Corrupt(f"{key}: the end of its {size} bytes is not a Parquet footer")
    return length


def read_footer(path: Path, key: str) -> Footer:
    length = footer_bytes(path, key)
    try:
        return Footer(pq.read_metadata(path), length)
    except FileNotFoundError:
        raise  # someone removed it from the cache; the object itself is not damaged
    except (pa.ArrowException, OSError) as error:
        raise Corrupt(f"{key}: cannot read its footer: {error}") from error


def _span(chunk: pq.ColumnChunkMetaData) -> Span:
    start = chunk.data_page_offset
    if chunk.has_dictionary_page:
        start = min(start, chunk.dictionary_page_offset)
    return start, start + chunk.total_compressed_size


def _bloom(chunk: pq.ColumnChunkMetaData) -> Span:
    start = chunk.bloom_filter_offset
    return start, start + (chunk.bloom_filter_length or BLOOM_LEAST)


def _value_range(statistics: pq.Statistics | None) -> ValueRange:
    if statistics is None:
        return ValueRange()
    if statistics.has_null_count and statistics.num_values == 0:
        return ValueRange(none=True)
    return ValueRange(statistics.min_raw, statistics.max_raw) if statistics.has_min_max else ValueRange()
