"""Who knows what a SELECT over a scan gives: names and types, as DuckDB binds them. query/types.py asks DuckDB; the
languages, which do no I/O, ask whoever they are handed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from lakerunner.plan.scan import Scan


class Types(Protocol):
    def of(self, sql: str, scan: Scan) -> Sequence[tuple[str, str]] | None:
        """(name, type) of each column that this SELECT over the scan's relation gives; None if it cannot be bound."""
