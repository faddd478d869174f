"""Rows as every reader gives them: columns that still point into the input, and who owns which attributes.

Nothing has been copied out of `data` yet. The steps add columns and choose an order; steps/take.py then copies each
value once, straight to where the segment wants it. That is why a column here is not an Arrow array.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakerunner.model.findings import NOTHING, Findings
from lakerunner.model.source import SourceObject
from lakerunner.pipeline.read.arrays import Bools, Bytes, Int32s, Int64s, Names, Records


@dataclass(frozen=True)
class Raw:
    """The unpacked bytes of one source object, the format that its ending states, and what its transcoder found."""

    source: SourceObject
    data: memoryview
    format: str = "otlp"
    findings: Findings = NOTHING


@dataclass(frozen=True)
class Numbers:
    """One number per row, or per owner where `owner` names each row's; null where `valid` is false."""

    values: npt.NDArray[Any]
    valid: Any = None  # Bools, or None if all are
    owner: Int32s | None = None


@dataclass(frozen=True)
class Texts:
    """One slice of the data per row, strings or bytes (`kind`); an empty one is null where `empty_is_null`."""

    kind: int
    at: Int32s
    size: Int32s
    empty_is_null: bool = False


@dataclass(frozen=True)
class Coded:
    """Few different values: `values[codes[r]]` for row r, or `values[codes[owner[r]]]` where rows have an owner; a code
    of -1 is null."""

    codes: Int32s
    values: pa.Array
    owner: Int32s | None = None


@dataclass(frozen=True)
class Json:
    """One OTLP value per row (walk.VALUE), null where its kind is ABSENT; becomes typed JSON."""

    values: Records


@dataclass(frozen=True)
class Structs:
    """One struct per item: its fields by name. `attached` gives the items a field `attributes`, a map of typed JSON; an
    item is its own owner there. A struct is null where `valid` is false."""

    fields: Mapping[str, Column]
    attached: Attached | None = None
    valid: Bools | None = None


@dataclass(frozen=True)
class Lists:
    """One list per row: row r has the items first[r] to first[r + 1]. An empty list is null where `empty_is_null`."""

    first: Int32s
    items: Column
    empty_is_null: bool = True


Column = Numbers | Texts | Coded | Json | Structs | Lists
C = TypeVar("C", Numbers, Texts, Coded, Json, Structs, Lists)


@dataclass(frozen=True)
class Attached:
    """The attributes of one scope (model.signal.SCOPES). Owner i has the values first[i] to first[i + 1]; row r belongs
    to owner[r], or to owner r where `owner` is None. `keys` are names (read/names.py)."""

    values: Records
    keys: Names
    first: Int32s
    owner: Int32s | None = None

    def owners_of(self, rows: Any) -> Any:
        return rows if self.owner is None else self.owner[rows]


@dataclass(frozen=True)
class Rows:
    """`columns` by name; `attached` by the scope's map column. `fallback_time` is each row's time if it has none,
    `sizes` the bytes that it took in the input, with what it shares beyond a usual amount (read/shared.py).
    `prometheus` says that Prometheus sent them: the names of metrics and labels are its own, and they alone tell series
    apart."""

    count: int
    data: Bytes
    columns: Mapping[str, Column]
    attached: Mapping[str, Attached]
    fallback_time: Int64s
    sizes: npt.NDArray[np.int32] | Int64s
    prometheus: bool = False

    def column(self, name: str, kind: type[C]) -> C:
        """The column of this name, which must be of this kind."""
        column = self.columns[name]
        if not isinstance(column, kind):
            raise TypeError(f"{name} is {type(column).__name__}, not {kind.__name__}")
        return column

    def plus(self, **columns: Column) -> Rows:
        return replace(self, columns={**self.columns, **columns})


@dataclass(frozen=True)
class Read:
    """What a reader gives: the rows of the objects that are `done`, None if there are no rows; the reasons of those
    that `failed`; objects that were `left` because there is a limit to what can be read at once; and how many rows each
    of those that are done has."""

    rows: Rows | None
    done: tuple[SourceObject, ...]
    failed: tuple[tuple[SourceObject, str], ...]
    left: Sequence[Raw]
    counts: tuple[int, ...]
