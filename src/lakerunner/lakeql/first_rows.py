"""The first rows of an order, as a worker finds them among its own.

Comes in: ORDER BY and LIMIT of a leaf, and what it shows. Goes out: the leaf's SQL. What always holds: the rows are
those that ORDER BY and LIMIT alone would give. Maps and lists of structs are made of many columns, for each row that is
looked at: where the leaf shows some in order of time, it is found first how far the first rows reach, and they are made
for no row beyond.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp

from lakerunner.lakeql.dialect import written
from lakerunner.lakeql.grouped import Reading
from lakerunner.lakeql.tables import Kind, TableColumn

_COSTLY = (Kind.MAP, Kind.ITEMS)


@dataclass(frozen=True)
class FirstRows:
    """`order` is the SQL behind FROM and WHERE; `time` is its first key if that is the table's `timestamp`, which is
    never null, else ""."""

    order: str
    time: str = ""
    descending: bool = False

    def sql(self, shown: str, source: str, columns: list[TableColumn], *, filtered: bool) -> str:
        """`source` is FROM, and WHERE if it is filtered; `columns` are those of the table that `shown` has."""
        if not self.time or not any(column.kind in _COSTLY for column in columns):
            return f"SELECT {shown} {source}{self.order}"
        extreme, sign = ("min", ">=") if self.descending else ("max", "<=")
        last = f"SELECT {extreme}(first_time) FROM (SELECT {self.time} AS first_time {source}{self.order})"
        within = f"{'AND' if filtered else 'WHERE'} {self.time} {sign} ({last})"
        return f"SELECT {shown} {source} {within}{self.order}"


def first_rows(keys: list[tuple[exp.Expr, exp.Expr]], most: int, reading: Reading) -> FirstRows:
    """`keys`: what stands in ORDER BY, and the expression of a row that each of them means; `most` rows are wanted."""
    order = f" ORDER BY {', '.join(_ordered(one, key) for one, key in keys)} LIMIT {most}"
    ordered, key = keys[0]
    if not reading.is_timestamp(key):
        return FirstRows(order)
    return FirstRows(order, written(key), bool(ordered.args.get("desc")))


def _ordered(ordered: exp.Expr, key: exp.Expr) -> str:
    copy = ordered.copy()
    copy.set("this", key.copy())
    return written(copy)
