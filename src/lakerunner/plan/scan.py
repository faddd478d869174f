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


@dataclass(frozen=True)
class Scan:
    """One table reference. The relation gives exactly `columns` (LakeQL names), then one text column for each of
    `attributes` and one column of bytes for each of `ids`, so that ids can be compared as they are stored.
    Rows outside `time`, or that do not meet all of `conditions`, may be left out: the query does not want them. They
    may also be there: the query's own filter is what counts.

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

    def __post_init__(self) -> None:
        signal_named(self.signal)


def attribute_column(relation: str, attribute: Attribute) -> str:
    """The name under which a scan's relation gives this attribute. Keys differ by case, names in DuckDB do not."""
    key = re.sub(r"[A-Z\\]", r"\\\g<0>", attribute.key)
    return f"{relation}.{attribute.scope}[{key}]"


def id_column(relation: str, column: str) -> str:
    """The name under which a scan's relation gives the bytes of this id."""
    return f"{relation}.{column}.bytes"
