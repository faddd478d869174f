"""A scan: which columns of which rows of one signal a plan reads, and what it knows of those rows.

Comes from the languages; read by query/, which leaves out what cannot matter: segments by time and by what the index
knows of them, row groups by the text index and by Parquet's statistics. Nothing here names an organization: whose
segments a scan reads is decided by the caller's credentials, in query/engine.py.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from lakerunner.model.condition import Condition
from lakerunner.model.signal import Attribute, signal_named
from lakerunner.model.time import TimeRange

STORED = "stored"
# For each SQL type, the types of stored columns whose values can be cast to it directly: TRY_CAST of the value is
# TRY_CAST of its text. A double is not among those of whole numbers: DuckDB rounds 2.5 to 2 and '2.5' to 3.
NUMBER_TYPES = {
    **dict.fromkeys(("TINYINT", "SMALLINT", "INT", "BIGINT", "INT128"), frozenset({"int64"})),
    "DOUBLE": frozenset({"int64", "double"}),
}


@dataclass(frozen=True, order=True)
class Typed:
    """The first of these attributes that is not null, by a type instead of as text.

    `type` is a SQL type of numbers, and the value TRY_CAST(text AS type). Or it is STORED, and the value is a BIGINT
    where all segments of a unit have whole numbers only, else the text: the leaf's SQL must mean the same for both."""

    attributes: tuple[Attribute, ...]
    type: str

    def __post_init__(self) -> None:
        if self.type != STORED and self.type not in NUMBER_TYPES:
            raise ValueError(f"attributes cannot be read as {self.type!r}: use one of {', '.join(NUMBER_TYPES)}")


@dataclass(frozen=True)
class Scan:
    """One table reference. The relation gives exactly `columns` (LakeQL names), then one text column for each of
    `attributes`, one column of bytes for each of `ids`, so that ids can be compared as they are stored, and one column
    for each of `typed`. Rows outside `time`, or that do not meet all of `conditions`, may be left out: the query does
    not want them. They may also be there: the query's own filter is what counts.

    `stored` are columns of the segments' files that no language knows; they are there to be read, and in no relation.

    The names of the further columns are the scan's own, so that no other relation of the query has them."""

    relation: str
    signal: str
    time: TimeRange
    columns: tuple[str, ...]
    attributes: tuple[Attribute, ...] = ()
    ids: tuple[str, ...] = ()
    conditions: tuple[Condition, ...] = ()
    stored: tuple[str, ...] = ()
    typed: tuple[Typed, ...] = ()

    def __post_init__(self) -> None:
        signal_named(self.signal)


def attribute_column(relation: str, attribute: Attribute) -> str:
    """The name under which a scan's relation gives this attribute. Keys differ by case, names in DuckDB do not."""
    key = re.sub(r"[A-Z\\]", r"\\\g<0>", attribute.key)
    return f"{relation}.{attribute.scope}[{key}]"


def typed_column(relation: str, typed: Typed) -> str:
    """The name under which a scan's relation gives these attributes by type. It does not end as those of texts do."""
    names = (attribute_column(relation, attribute) for attribute in typed.attributes)
    return f"{'|'.join(names)}.{typed.type}"


def id_column(relation: str, column: str) -> str:
    """The name under which a scan's relation gives the bytes of this id."""
    return f"{relation}.{column}.bytes"
