"""Rows as every reader returns them: columns that still point into the input, and attributes by their owners.

Nothing is copied out of `data` yet. The steps add columns and choose an order; steps/take.py then copies each value
once, straight to its place in the segment. That is why these columns are not Arrow arrays.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakerunner.model.source import NO_FINDINGS, Findings, SourceObject
from lakerunner.pipeline.read.memory import Bools, Bytes, Int32s, Int64s, Names, Records


@dataclass(frozen=True)
class Raw:
    """The unpacked bytes of one source object, their format, and the findings of its transcoder."""

    source: SourceObject
    data: memoryview
    format: str = "otlp"
    findings: Findings = NO_FINDINGS


@dataclass(frozen=True)
class NumberColumn:
    """One number per row, or per owner where `owner` has each row's owner; null where `valid` is false."""

    values: npt.NDArray[Any]
    valid: Any = None  # Bools, or None if all are
    owner: Int32s | None = None


@dataclass(frozen=True)
class TextColumn:
    """One slice of the data per row, strings or bytes (`kind`); an empty one is null where `empty_is_null`."""

    kind: int
    at: Int32s
    size: Int32s
    empty_is_null: bool = False


@dataclass(frozen=True)
class CodedColumn:
    """A column of few different values: `values[codes[r]]` for row r, or `values[codes[owner[r]]]` where rows have an
    owner; a code of -1 is null."""

    codes: Int32s
    values: pa.Array
    owner: Int32s | None = None


@dataclass(frozen=True)
class JsonColumn:
    """One OTLP value per row (walk.VALUE), null where its kind is ABSENT. Segments hold it as typed JSON."""

    values: Records


@dataclass(frozen=True)
class StructColumn:
    """One struct per item: its fields by name. `attached` gives the items a field `attributes`, a map of typed JSON; an
    item is its own owner there. A struct is null where `valid` is false."""

    fields: Mapping[str, Column]
    attached: Attached | None = None
    valid: Bools | None = None


@dataclass(frozen=True)
class ListColumn:
    """One list per row: row r has the items first[r] to first[r + 1]. An empty list is null where `empty_is_null`."""

    first: Int32s
    items: Column
    empty_is_null: bool = True


Column = NumberColumn | TextColumn | CodedColumn | JsonColumn | StructColumn | ListColumn
C = TypeVar("C", NumberColumn, TextColumn, CodedColumn, JsonColumn, StructColumn, ListColumn)


@dataclass(frozen=True)
class Attached:
    """The attributes of one scope (model.signal.SCOPES). Owner i has the values first[i] to first[i + 1]; the owner of
    row r is owner[r], or r itself where `owner` is None. `keys` are names (read/names.py)."""

    values: Records
    keys: Names
    first: Int32s
    owner: Int32s | None = None

    def owners_of(self, rows: Any) -> Any:
        return rows if self.owner is None else self.owner[rows]


@dataclass(frozen=True)
class Rows:
    """`columns` by name; `attached` by the scope's map column. `fallback_time` is used for rows without a time. `sizes`
    are the bytes of each row in the input, plus what it shares beyond FREE_BYTES (read/shared.py). `prometheus` marks
    rows of remote-write: metrics and labels have Prometheus' names, and labels alone identify a series."""

    count: int
    data: Bytes
    columns: Mapping[str, Column]
    attached: Mapping[str, Attached]
    fallback_time: Int64s
    sizes: npt.NDArray[np.int32] | Int64s
    prometheus: bool = False

    def column(self, name: str, kind: type[C]) -> C:
        """Return the column of this name. TypeError if it is of another kind."""
        column = self.columns[name]
        if not isinstance(column, kind):
            raise TypeError(f"{name} is {type(column).__name__}, not {kind.__name__}")
        return column

    def plus(self, **columns: Column) -> Rows:
        """Return the rows with these columns added or replaced."""
        return replace(self, columns={**self.columns, **columns})


@dataclass(frozen=True)
class ReadResult:
    """What a reader returns: the rows of the objects that are `done` (None without rows) and how many rows each of them
    has; the objects that `failed`, with their reasons; and those `left` for the next read, because what is read at once
    is limited."""

    rows: Rows | None
    done: tuple[SourceObject, ...]
    failed: tuple[tuple[SourceObject, str], ...]
    left: Sequence[Raw]
    counts: tuple[int, ...]
