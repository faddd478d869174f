"""EXPLAIN and EXPLAIN ANALYZE: a plan, its picked segments, and what running it took, as an answer of one column.

Input: the plan, the picks of its leaves, the number of rounds, and for ANALYZE the query's own answer. Output: an
Answer whose rows are lines. docs/formats/explain.md shows them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa

from lakerunner.model.display import one_line, plural
from lakerunner.model.time import time_range_text
from lakerunner.plan.explain import plan_lines
from lakerunner.plan.plan import Plan, SqlFinish
from lakerunner.plan.spark import SparkPlan
from lakerunner.query.answer import Answer
from lakerunner.query.contract.account import Account
from lakerunner.query.known_segments import Pick, PointsPick
from lakerunner.query.options import DUCKDB

_SCHEMA = pa.schema([("plan", pa.string())])
_STAGES = ("plan", "pick", "gather", "coordinate")


class ExplainAnswer:
    """The lines of the plan. With `measured`, that answer is run to its end, and what it took follows."""

    schema = _SCHEMA

    def __init__(self, lines: Sequence[str], account: Account, measured: Answer | None = None) -> None:
        self._lines = lines
        self._account = account
        self._measured = measured

    @property
    def account(self) -> Account:
        return self._measured.account if self._measured else self._account

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        lines = list(self._lines)
        if self._measured:
            for _ in self._measured:
                pass
            lines += ["measured", *(f"  {line}" for line in account_lines(self._measured.account))]
        yield pa.record_batch([pa.array(lines, pa.string())], schema=_SCHEMA)

    def close(self) -> None:
        if self._measured:
            self._measured.close()


def explained_lines(
    plan: Plan,
    picks: Sequence[Pick],
    rounds: int,
    engine: str = DUCKDB,
    points: Sequence[PointsPick | None] = (),
) -> list[str]:
    """Return the lines of a plan, with what was picked for each of its leaves, and for their points if they have."""
    where = [] if engine == DUCKDB else ["engine spark: units run as tasks"]
    known = {leaf: where + _picked(pick) for leaf, pick in zip(plan.leaves, picks, strict=True)}
    for leaf, found in zip(plan.leaves, points, strict=False):
        known[leaf] += [] if leaf.points is None else [_pointed(found)]
    if isinstance(plan.finish, SqlFinish) and plan.finish.rounds:
        known[plan.leaves[0]].append(f"rounds {rounds}")
    return plan_lines(plan, known)


def spark_sql_lines(plan: SparkPlan, picks: Sequence[Pick]) -> list[str]:
    """Describe a query that Spark SQL runs whole; `picks` are those of its scans."""
    lines = ["engine spark: Spark SQL runs the query whole", f"  sql {one_line(plan.spark_sql)}"]
    for scan, pick in zip(plan.scans, picks, strict=True):
        about = [f"scan {scan.signal} {time_range_text(scan.time)}", *_picked(pick)]
        lines += [f"  tasks, {scan.relation}", *(f"    {line}" for line in about)]
    return lines


def account_lines(account: Account) -> Iterator[str]:
    yield f"rows {account.rows}"
    yield f"segments {account.considered} considered, {account.read} read{_left_out(account.pruned)}"
    if account.row_groups:
        read = account.row_groups - sum(account.row_groups_pruned.values())
        yield f"row groups {account.row_groups} considered, {read} read{_left_out(account.row_groups_pruned)}"
    saved = f", {account.bytes_saved} saved by points of rules" if account.bytes_saved else ""
    yield f"bytes {account.bytes_fetched} fetched, {account.bytes_cached} from the cache{saved}"
    if account.workers:
        yield "units " + ", ".join(f"{units} on {name}" for name, units in sorted(account.workers.items()))
    for missing in account.missing:
        yield f"missing {plural(missing.segments, 'segment')} of {time_range_text(missing.time)}: {missing.reason}"
    if account.degraded:
        yield f"degraded: {account.degraded}"
    yield from (f"warning: {warning}" for warning in sorted(account.warnings))
    yield from _seconds(account.seconds)


def _pointed(found: PointsPick | None) -> str:
    if found is None:
        return "points are not read: their rule covers no segment, rows have expired, or the index is unreachable"
    return (
        f"points stand for {plural(found.covered, 'segment')}, rows of {len(found.rows.segments)} others are read, "
        f"{found.saved} bytes saved"
    )


def _picked(pick: Pick) -> list[str]:
    account = pick.account
    size = sum(segment.bytes for segment in pick.segments)
    lines = [
        f"segments {account.considered} considered, {len(pick.segments)} to read{_left_out(account.pruned)}",
        f"bytes {size} of whole segments",
    ]
    return lines + ([f"degraded: {account.degraded}"] if account.degraded else [])


def _left_out(by: Mapping[str, int]) -> str:
    return "".join(f", {count} left out by {what}" for what, count in sorted(by.items()) if count)


def _seconds(seconds: Mapping[str, float]) -> Iterator[str]:
    """Return the coordinator's stages, which follow each other, and those of the workers, which run in parallel and are
    added up."""
    here = [f"{stage} {seconds[stage]:.3f}" for stage in _STAGES if stage in seconds]
    workers = [f"{stage} {taken:.3f}" for stage, taken in sorted(seconds.items()) if stage not in _STAGES]
    yield "seconds " + ", ".join(here)
    if workers:
        yield "seconds of workers, in total: " + ", ".join(workers)
