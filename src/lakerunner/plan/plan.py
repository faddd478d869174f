"""The plan that every query language compiles into: leaves for workers, and a finish over their results.

Comes from the languages; goes to query/engine.py. What always holds: the results of a leaf over the units it is cut
into, joined, equal its result over everything. So one worker and ten give the same answer. A plan is a frozen value: it
can be compared, printed (plan/explain.py) and cached. It holds no organization: the caller's credentials decide whose
segments a scan reads.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from lakerunner.model.display import one_line
from lakerunner.model.time import interval_text, time_text
from lakerunner.plan.operator import Operator
from lakerunner.plan.scan import Scan


class Cut(StrEnum):
    """Into which units a leaf is cut: what must be seen completely is on one worker."""

    SEGMENTS = "segments"  # each unit has segments of its own
    SERIES = "series"  # each unit has all segments, and a part of the series
    TRACES = "traces"  # each unit has all segments, and a range of trace ids
    WHOLE = "whole"  # one unit has all segments


@dataclass(frozen=True)
class Shard:
    """Shard `number` (from 0) of `of` shards of the series or traces."""

    number: int = 0
    of: int = 1

    def __post_init__(self) -> None:
        if not 0 <= self.number < self.of:
            raise ValueError(f"shard {self.number} of {self.of}")


ALL = Shard()


@dataclass(frozen=True)
class Rollup:
    """What may be read instead of raw points: `tier` is the widest one that gives the same results, RAW if none does.
    `reason` says why no wider one does, "" for the widest tier."""

    tier: int
    reason: str


@dataclass(frozen=True)
class Leaf:
    """The workers' part for one scan. A finish by SQL reads its rows under the name of the scan's relation. `points`
    may replace its rows, and `refused` says which rules may not, and why."""

    scan: Scan
    operator: Operator
    cut: Cut = Cut.SEGMENTS
    rollup: Rollup | None = None
    points: Points | None = None
    refused: tuple[str, ...] = ()


@dataclass(frozen=True)
class Points:
    """Points that a rule made (docs/decisions/0030), in place of the rows of segments that its `version` covers. `name`
    is for people; the points are those of `collector`.

    `made` reads them, `rows` the rows of the same time, of segments that the version does not cover, and `once` checks
    that no row is in any of these segments twice. `edges` read all rows of what is left of the leaf's time. Together
    the results are those of the leaf."""

    version: int
    name: str
    collector: str
    made: Leaf
    rows: Leaf
    once: Leaf
    edges: tuple[Leaf, ...] = ()


class Finish(ABC):
    """What the coordinator does with the results of the leaves. query/engine.py has a row for each kind."""

    @abstractmethod
    def lines(self) -> Iterator[str]:
        """Describe it for EXPLAIN."""


@dataclass(frozen=True)
class Rounds:
    """The answer can be computed one time interval after the other: the coordinator's SQL over the rows of one interval
    gives the next rows of the answer, and no other interval changes them.

    Intervals begin at multiples of `bucket_ns` since the epoch, plus `origin_ns`. `limit` and `offset` count rows over
    all rounds and are not in the SQL. `first_bytes` is the size of segments in the first round where a leaf costs more
    than DuckDB's reading; 0: the engine's."""

    descending: bool = False
    bucket_ns: int = 1
    origin_ns: int = 0
    limit: int | None = None
    offset: int = 0
    first_bytes: int = field(default=0, repr=False)

    def text(self) -> str:
        text = f"in rounds, {'newest' if self.descending else 'oldest'} first"
        if self.bucket_ns > 1:
            text += f", by whole buckets of {interval_text(self.bucket_ns)}"
            if self.origin_ns:
                text += f" from {time_text(self.origin_ns)}"
        if self.limit is not None:
            text += f", limit {self.limit}"
        return text + (f", offset {self.offset}" if self.offset else "")


@dataclass(frozen=True)
class SqlFinish(Finish):
    """Run `sql`, which is DuckDB's dialect and names only the leaves' relations. If `rounds` is None it runs once.
    `passes`: return the rows of the one leaf unchanged. `needs_all`: it needs all rows of its leaves in one place, and
    does not only fold groups, pass rows on or sort a bounded number of them."""

    sql: str
    rounds: Rounds | None = None
    passes: bool = False
    needs_all: bool = False

    def lines(self) -> Iterator[str]:
        yield self.rounds.text() if self.rounds else "all at once"
        yield "rows as the workers give them" if self.passes else f"sql {one_line(self.sql)}"


@dataclass(frozen=True)
class Collect(Finish):
    """Return the results of each leaf unchanged."""

    def lines(self) -> Iterator[str]:
        yield "results as the workers give them"


@dataclass(frozen=True)
class Plan:
    leaves: tuple[Leaf, ...]
    finish: Finish

    def __post_init__(self) -> None:
        one_by_one = isinstance(self.finish, SqlFinish) and (self.finish.rounds or self.finish.passes)
        if one_by_one and len(self.leaves) != 1:
            raise ValueError(f"a plan in rounds, or that passes rows on, has one leaf, not {len(self.leaves)}")

    @property
    def scans(self) -> tuple[Scan, ...]:
        return tuple(leaf.scan for leaf in self.leaves)
