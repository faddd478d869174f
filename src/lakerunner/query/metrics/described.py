"""What the series of a segment say of their metrics: names, types, units and words, for listings.

Comes in: the table of series beside a segment. Goes out: each description once. Queries of samples never ask.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from lakerunner.model.prometheus import METADATA_ENTRY
from lakerunner.query.metrics.parquet import ParquetTable

_COLUMNS = (
    "metric_name",
    "metric_type",
    "temporality",
    "monotonic",
    "unit",
    "description",
    "prometheus_name",
    "prometheus_escaped",
    "as_sent",
)


@dataclass(frozen=True, slots=True)
class Described:
    """What some series of a segment say of their metric, as the table has it."""

    metric: str
    type: str
    temporality: str | None
    monotonic: bool | None
    unit: str
    help: str
    name: str | None
    escaped: str | None
    as_sent: bool


@dataclass(frozen=True)
class Descriptions:
    """Of one segment. `entries` are the types of remote-write's metadata entries with what they describe."""

    described: tuple[Described, ...]
    entries: tuple[tuple[str, Described], ...]

    @property
    def bytes(self) -> int:
        return 500 * (len(self.described) + len(self.entries)) + 1000


def descriptions(file: ParquetTable) -> Descriptions:
    table = file.read((*_COLUMNS, "labels"))
    return Descriptions(tuple(_described(table)), tuple(_entries(table)))


def _described(table: pa.Table) -> list[Described]:
    """Each once, but for metadata entries."""
    distinct = table.select(_COLUMNS).group_by(list(_COLUMNS)).aggregate([]).to_pylist()
    return [Described(*(one[name] for name in _COLUMNS)) for one in distinct if one["metric_type"] != METADATA_ENTRY]


def _entries(table: pa.Table) -> Iterator[tuple[str, Described]]:
    types = table.column("metric_type").to_pylist()
    for n in [n for n, type_ in enumerate(types) if type_ == METADATA_ENTRY]:
        row = table.slice(n, 1).to_pylist()[0]
        type_ = next((one["value"] for one in row["labels"] if one["name"] == "type"), "unknown")
        yield type_, Described(*(row[name] for name in _COLUMNS))
