"""The operator of SQL: a SELECT over the scan's relation, all of which DuckDB does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from lakerunner.plan.operator import RowOperator
from lakerunner.plan.scan import Scan
from lakerunner.plan.text import one_line


@dataclass(frozen=True)
class SqlRows(RowOperator):
    """`sql` names no relation but the scan's."""

    name = "sql"

    sql: str
    steady: bool = True

    def source_sql(self, scan: Scan) -> str:  # noqa: ARG002
        return self.sql

    def to_json(self) -> dict[str, Any]:
        return {"sql": self.sql, "steady": self.steady}

    @classmethod
    def from_json(cls, given: Mapping[str, Any]) -> SqlRows:
        return cls(str(given["sql"]), bool(given["steady"]))

    def lines(self) -> Iterator[str]:
        yield f"sql {one_line(self.sql)}"
