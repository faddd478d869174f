"""The coordinator's part of a query: its SQL over what the leaves gave, in a sandbox.

Comes in: the plan's SQL and, for each relation it names, the rows that workers gave. Goes out: the answer's rows. What
always holds: rows are streamed through where DuckDB reads each relation once; where it would read one twice they are
put into a table first, which DuckDB spills if it must.
"""

from __future__ import annotations

import sys
from contextlib import ExitStack
from dataclasses import replace
from uuid import UUID

from lakerunner.query.feed import Feeds
from lakerunner.query.running import Running, Work
from lakerunner.query.sandbox.pool import Sandboxes
from lakerunner.query.sandbox.process import Sandbox


class Coordinator:
    """Safe to use from many threads. Rows are not limited here: an answer may take many runs (query/bounded.py)."""

    def __init__(self, sandboxes: Sandboxes) -> None:
        self.sandboxes = sandboxes
        self.limits = sandboxes.limits

    def run(self, organization: UUID, sql: str, feeds: Feeds) -> Running:
        """At once: the work begins when the answer is looked at. When it ends the feeds are closed."""

        def open_(held: ExitStack) -> tuple[Sandbox, Work]:
            held.callback(feeds.close)
            streams = feeds.readers()
            return self.sandboxes.lend(held, organization), Work(sql, streams=streams)

        return Running(self.sandboxes, open_, replace(self.limits, max_rows=sys.maxsize), feeds)
