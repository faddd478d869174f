"""The plan of one SQL query: what workers do for each scan, and what the coordinator does with what they give.

Comes from lakeql/; goes to query/. What always holds: a leaf's rows over parts of the segments, put together in any
order, are as good to the coordinator's SQL as its rows over all of them. So one worker and ten give the same answer.
"""

from __future__ import annotations

from dataclasses import dataclass

from lakerunner.plan.scan import Scan


@dataclass(frozen=True)
class Leaf:
    """The workers' part for one scan. `sql` names no relation but the scan's; the coordinator's SQL reads its rows
    under that same name. `steady`: over the same segments its rows come in the same order every time, so that a worker
    that is lost in the middle can be taken over from where it was."""

    scan: Scan
    sql: str
    steady: bool = True


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


@dataclass(frozen=True)
class SqlPlan:
    """`sql` is DuckDB's dialect and names only the leaves' relations. `rounds` None: all at once. `passes`: it hands
    the rows of its one leaf on as they are."""

    sql: str
    leaves: tuple[Leaf, ...]
    rounds: Rounds | None = None
    passes: bool = False

    def __post_init__(self) -> None:
        if (self.rounds or self.passes) and len(self.leaves) != 1:
            raise ValueError(f"rounds, and rows that pass, take one leaf, not {len(self.leaves)}")

    @property
    def scans(self) -> tuple[Scan, ...]:
        return tuple(leaf.scan for leaf in self.leaves)
