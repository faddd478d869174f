"""The plan that every query language compiles into: leaves, which workers do, and a finish over what they give.

Comes from the languages; goes to query/engine.py. What always holds: a leaf over the parts it is cut into gives, put
together, what it gives over all of them. So one worker and ten give the same answer. A plan is a frozen value: it can
be compared, printed (plan/explain.py) and kept. It holds no organization: whose segments a scan reads is decided by the
caller's credentials.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from lakerunner.model.time import time_text
from lakerunner.plan.operator import Operator
from lakerunner.plan.scan import Scan
from lakerunner.plan.text import duration_text, one_line


class Cut(StrEnum):
    """Into what a leaf is cut for workers: what must be seen whole is whole on one of them."""

    SEGMENTS = "segments"  # each unit has segments of its own
    SERIES = "series"  # each unit has all segments, and a part of the series
    TRACES = "traces"  # each unit has all segments, and a range of trace ids


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
    """What may be read in the place of raw points: `tier` is the widest windows that give the same results, RAW: none
    do. `reason` says why no wider ones do, "" for the widest there are."""

    tier: int
    reason: str


@dataclass(frozen=True)
class Leaf:
    """The workers' part for one scan. A finish by SQL reads its rows under the name of the scan's relation."""

    scan: Scan
    operator: Operator
    cut: Cut = Cut.SEGMENTS
    rollup: Rollup | None = None


class Finish(ABC):
    """What is done with what the leaves give. query/engine.py has a row for each kind."""

    @abstractmethod
    def lines(self) -> Iterator[str]:
        """Describe it for EXPLAIN."""


@dataclass(frozen=True)
class Rounds:
    """The answer can be worked out time after time: the coordinator's SQL, run over the rows of one stretch of time,
    gives the answer's next rows, and none that another stretch would change. Stretches begin at whole multiples of
    `bucket_ns` since the epoch, plus `origin_ns`. `limit` and `offset` count rows over all rounds and are not in the
    SQL."""

    descending: bool = False
    bucket_ns: int = 1
    origin_ns: int = 0
    limit: int | None = None
    offset: int = 0

    def text(self) -> str:
        text = f"in rounds, {'newest' if self.descending else 'oldest'} first"
        if self.bucket_ns > 1:
            text += f", by whole buckets of {duration_text(self.bucket_ns)}"
            if self.origin_ns:
                text += f" from {time_text(self.origin_ns)}"
        if self.limit is not None:
            text += f", limit {self.limit}"
        return text + (f", offset {self.offset}" if self.offset else "")


@dataclass(frozen=True)
class SqlFinish(Finish):
    """Run `sql`, which is DuckDB's dialect and names only the leaves' relations. `rounds` None: all at once. `passes`:
    hand the rows of the one leaf on as they are."""

    sql: str
    rounds: Rounds | None = None
    passes: bool = False

    def lines(self) -> Iterator[str]:
        yield self.rounds.text() if self.rounds else "all at once"
        yield "rows as the workers give them" if self.passes else f"sql {one_line(self.sql)}"


@dataclass(frozen=True)
class Collect(Finish):
    """Hand over what each leaf gives, as it is."""

    def lines(self) -> Iterator[str]:
        yield "results as the workers give them"


@dataclass(frozen=True)
class Plan:
    leaves: tuple[Leaf, ...]
    finish: Finish

    def __post_init__(self) -> None:
        one_by_one = isinstance(self.finish, SqlFinish) and (self.finish.rounds or self.finish.passes)
        if one_by_one and len(self.leaves) != 1:
            raise ValueError(f"rounds, and rows that pass, take one leaf, not {len(self.leaves)}")

    @property
    def scans(self) -> tuple[Scan, ...]:
        return tuple(leaf.scan for leaf in self.leaves)
