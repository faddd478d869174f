"""The plan of one SQL query that Spark runs whole, over the same scans that workers would be given.

Comes from lakeql/; goes by way of query/ to pipeline/. What always holds: `spark_sql` over the scans' rows means what
`sql` means to DuckDB; a query of which that is not known has no such plan.
"""

from __future__ import annotations

from dataclasses import dataclass

from lakerunner.plan.scan import Scan


@dataclass(frozen=True)
class SparkPlan:
    """`sql` is DuckDB's dialect, `spark_sql` is Spark's; both name the scans' relations and nothing else. In Spark a
    relation's columns are called by their place: see `place`."""

    sql: str
    spark_sql: str
    scans: tuple[Scan, ...]


def place(number: int) -> str:
    """The name in Spark of a scan's column: its columns come first, then its attributes, then its ids."""
    return f"c{number}"
