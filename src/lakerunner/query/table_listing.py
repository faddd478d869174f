"""SHOW TABLES and DESCRIBE as answers; the columns of a table come with the attributes that its newest rows have.

Attributes are found in the columns of segments, which the index knows: no file is read.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from lakerunner.lakeql.statements import Listing
from lakerunner.lakeql.tables import TABLES, ColumnKind
from lakerunner.model.segment import Column, Segment
from lakerunner.model.signal import SCOPES
from lakerunner.model.time import HOUR_NS, TimeRange
from lakerunner.plan.scan import Scan
from lakerunner.query.answer import FixedAnswer
from lakerunner.query.contract.account import Account

DAY_NS = 24 * HOUR_NS
_MOST_ATTRIBUTES = 1_000


def listed_answer(
    listing: Listing, attributes: Iterable[tuple[str, ...]] = (), account: Account | None = None
) -> FixedAnswer:
    schema = pa.schema([(name, pa.string()) for name in listing.columns()])
    rows = [*listing.rows(), *attributes]
    columns = [pa.array(column, pa.string()) for column in zip(*rows, strict=True)]
    return FixedAnswer(schema, iter([pa.record_batch(columns, schema=schema)]), account or Account())


def newest(listing: Listing, now_ns: int) -> Scan:
    """Return a scan of the last day's rows that reads no column."""
    return Scan("newest", TABLES[listing.table].spec.name, TimeRange(now_ns - DAY_NS, now_ns), ())


def attribute_rows(listing: Listing, segments: Iterable[Segment]) -> list[tuple[str, str, str]]:
    """Return the attributes that have columns of their own in these segments, as a query writes them."""
    sets = {id(segment.columns): segment.columns for segment in segments}
    stored = {column for columns in sets.values() for column in columns if column.type}
    maps = {column.scope: column.name for column in TABLES[listing.table].columns if column.kind is ColumnKind.MAP}
    types: dict[str, set[str]] = {}
    for scope in SCOPES:
        for column in _with_prefix(stored, scope.prefix):
            key = column.name.removeprefix(scope.prefix).replace("'", "''")
            types.setdefault(f"{maps[scope.map_column]}['{key}']", set()).add(column.type)
    named = sorted(types.items())[:_MOST_ATTRIBUTES]
    return [
        (name, "VARCHAR", f"attribute of the last 24 hours, sent as {', '.join(sorted(sent))}") for name, sent in named
    ]


def _with_prefix(columns: Iterable[Column], prefix: str) -> list[Column]:
    return [column for column in columns if column.name.startswith(prefix)]
