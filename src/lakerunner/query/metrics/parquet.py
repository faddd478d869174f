"""Columns of Parquet files by pyarrow's bare reader: to make a ParquetFile takes the square of the number of columns.

Comes in: a file on this machine's disk. Goes out: tables of the columns that are asked for. What always holds: page
checksums are looked at, where a file has them.
"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq


def opened(path: Path, metadata: pq.FileMetaData | None = None) -> Any:
    """A reader; `metadata` is the file's, if it is known already."""
    reader = pq.core.ParquetReader()
    reader.open(
        pa.memory_map(str(path)),
        metadata=metadata,
        pre_buffer=False,
        page_checksum_verification=True,  # numbers that do not pack well are stored as they are
    )
    return reader


class ParquetTable:
    """A file that is read whole, but not all of its columns."""

    def __init__(self, path: Path) -> None:
        self._reader = opened(path)

    @cached_property
    def leaves(self) -> dict[str, list[int]]:
        """By column the numbers of its parts in the file."""
        leaves: dict[str, list[int]] = {}
        for leaf, path in enumerate(self._reader.column_paths):
            leaves.setdefault(path[0], []).append(leaf)
        return leaves

    def read(self, columns: tuple[str, ...]) -> pa.Table:
        """KeyError for one that is not there."""
        leaves = [leaf for name in columns for leaf in self.leaves[name]]
        return self._reader.read_all(column_indices=leaves, use_threads=False)
