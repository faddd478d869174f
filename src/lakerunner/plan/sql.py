"""The plan of one SQL query: what to scan, and the DuckDB SQL to run over the scans.

Comes from lakeql/; goes to query/. Nothing here names an organization: whose segments a scan reads is decided
by the caller's credentials, in query/engine.py.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from lakerunner.model.signal import SCOPES, signal_named
from lakerunner.model.time import TimeRange


@dataclass(frozen=True, order=True)
class Attribute:
    """One attribute by key. `scope` is a map column of the signal: attributes, resource_attributes, ..."""

    scope: str
    key: str

    def __post_init__(self) -> None:
        if self.scope not in {scope.map_column for scope in SCOPES}:
            raise ValueError(f"{self.scope} is not a scope")


@dataclass(frozen=True)
class Scan:
    """One table reference. The relation gives exactly `columns` (LakeQL names), then one text column for each of
    `attributes` and one column of bytes for each of `ids`, so that ids can be compared as they are stored.
    Rows outside `time` may be left out: the query does not want them.

    The names of the further columns are the scan's own, so that no other relation of the query has them."""

    relation: str
    signal: str
    time: TimeRange
    columns: tuple[str, ...]
    attributes: tuple[Attribute, ...] = ()
    ids: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        signal_named(self.signal)


@dataclass(frozen=True)
class SqlPlan:
    """`sql` is DuckDB's dialect and names only the scans' relations."""

    sql: str
    scans: tuple[Scan, ...]


def attribute_column(relation: str, attribute: Attribute) -> str:
    """The name under which a scan's relation gives this attribute. Keys differ by case, names in DuckDB do not."""
    key = re.sub(r"[A-Z\\]", r"\\\g<0>", attribute.key)
    return f"{relation}.{attribute.scope}[{key}]"


def id_column(relation: str, column: str) -> str:
    """The name under which a scan's relation gives the bytes of this id."""
    return f"{relation}.{column}.bytes"
