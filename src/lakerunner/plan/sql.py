"""The plan of one SQL query: what to scan, and the DuckDB SQL to run over the scans.

Comes from lakeql/; goes to query/. Nothing here names an organization: whose segments a scan reads is decided
by the caller's credentials, in query/pick.py.
"""

from __future__ import annotations

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
    """One table reference. The relation gives exactly `columns` (LakeQL names), then one column for each of
    `attributes`, named by `attribute_column`. Rows outside `time` may be left out: the query does not want them."""

    relation: str
    signal: str
    time: TimeRange
    columns: tuple[str, ...]
    attributes: tuple[Attribute, ...] = ()

    def __post_init__(self) -> None:
        signal_named(self.signal)


@dataclass(frozen=True)
class SqlPlan:
    """`sql` is DuckDB's dialect and names only the scans' relations."""

    sql: str
    scans: tuple[Scan, ...]


def attribute_column(attribute: Attribute) -> str:
    """The name under which a scan's relation gives this attribute."""
    return f"{attribute.scope}[{attribute.key}]"
