"""The coordinator's part of a query: its SQL over what the leaves gave, in a sandbox.

Comes in: the plan's SQL and, for each relation it names, the rows that workers gave. Goes out: the answer's rows. What
always holds: rows are streamed through where DuckDB reads each relation once; where it would read one twice they are
put into a table first, which DuckDB spills if it must.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from uuid import UUID

import pyarrow as pa

from lakerunner.query.account import Account, total
from lakerunner.query.row_gather import RowGather
from lakerunner.query.running import Running, Work
from lakerunner.query.sandbox.pool import Sandboxes
from lakerunner.query.sandbox.process import Sandbox


class Leaves:
    """The rows of a plan's leaves, by relation: the Source of what the coordinator runs (query/running.py)."""

    def __init__(self, gathers: Mapping[str, RowGather]) -> None:
        self._gathers = gathers

    @property
    def account(self) -> Account:
        return total(one.account for one in self._gathers.values())

    @property
    def failure(self) -> Exception | None:
        return next((one.failure for one in self._gathers.values() if one.failure), None)

    def start(self) -> None:
        for one in self._gathers.values():
            one.start()

    def readers(self) -> dict[str, pa.RecordBatchReader]:
        """All start at once, however they are read."""
        self.start()
        return {relation: one.reader() for relation, one in self._gathers.items()}

    def close(self) -> None:
        for one in self._gathers.values():
            one.close()


class Coordinator:
    """Safe to use from many threads. Rows are not limited here: an answer may take many runs (query/row_answer.py)."""

    def __init__(self, sandboxes: Sandboxes) -> None:
        self.sandboxes = sandboxes
        self.limits = sandboxes.limits

    def run(self, organization: UUID, sql: str, leaves: Leaves) -> Running:
        """At once: the work begins when the answer is looked at. When it ends the leaves are closed."""

        def open_(held: ExitStack) -> tuple[Sandbox, Work]:
            held.callback(leaves.close)
            streams = leaves.readers()
            return self.sandboxes.lend(held, organization), Work(sql, streams=streams)

        return Running(self.sandboxes, open_, replace(self.limits, max_rows=sys.maxsize), leaves)
