"""Rows as every reader gives them: columns that still point into the input, and who owns which attributes.

Nothing has been copied out of `data` yet. The steps add columns and choose an order; pipeline/steps/take.py then copies each
value once, straight to where the segment wants it. That is why a column here is not an Arrow array.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from lakerunner.model.source import SourceObject
from lakerunner.pipeline.read.names import Names


@dataclass(frozen=True)
class Raw:
    """The unpacked bytes of one source object."""

    source: SourceObject
    data: memoryview


@dataclass(frozen=True)
class Numbers:
    """One number per row, or per owner where `owner` names each row's; null where `valid` is false."""

    values: Any
    valid: Any = None
    owner: Any = None


@dataclass(frozen=True)
class Texts:
    """One slice of the data per row, strings or bytes (`kind`); an empty one is null where `empty_is_null`."""

    kind: int
    at: Any
    size: Any
    empty_is_null: bool = False


@dataclass(frozen=True)
class Coded:
    """Few different values: `values[codes[r]]` for row r, or `values[codes[owner[r]]]` where rows have an owner; a code of
    -1 is null."""

    codes: Any
    values: pa.Array
    owner: Any = None


@dataclass(frozen=True)
class Json:
    """One OTLP value per row (walk.VALUE), null where its kind is ABSENT; becomes typed JSON."""

    values: Any


Column = Numbers | Texts | Coded | Json


@dataclass(frozen=True)
class Attached:
    """The attributes of one scope (model.signal.SCOPES). Owner i has the values first[i] to first[i + 1]; row r belongs
    to owner[r], or to owner r where `owner` is None."""

    values: Any
    keys: Names
    first: Any
    owner: Any = None


@dataclass(frozen=True)
class Rows:
    """`columns` by name; `attached` by the scope's map column. `fallback_time` is each row's time if it has none."""

    count: int
    data: Any
    columns: Mapping[str, Column]
    attached: Mapping[str, Attached]
    fallback_time: Any

    def numbers(self, name: str) -> Any:
        """The values of a Numbers column of rows."""
        column = self.columns[name]
        if not isinstance(column, Numbers) or column.owner is not None:
            raise TypeError(f"{name} is not a number per row")
        return column.values

    def plus(self, **columns: Column) -> Rows:
        return replace(self, columns={**self.columns, **columns})


@dataclass(frozen=True)
class Read:
    """What a reader gives: rows of the objects that are `done`, and the reasons of those that are not."""

    rows: Rows | None
    done: tuple[SourceObject, ...]
    failed: tuple[tuple[SourceObject, str], ...] = field(default=())
