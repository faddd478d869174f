"""Lost rollups: their windows, made again from the segments that they are made of.

Comes in: a unit of lost segments of one tier. Goes out: how many windows took their place. What always holds: windows
are made and committed as the rollup does it, of all live segments that have rows of them; where part of these has
expired, they cannot be made again.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from uuid import UUID

from lakerunner.index.commit import Commit
from lakerunner.index.inspect import Tier
from lakerunner.index.segments import Basis
from lakerunner.model.failpoint import reach
from lakerunner.model.segment import Segment
from lakerunner.model.tier import TIER_NAMES, source_of
from lakerunner.model.time import MS_NS, TimeRange, iso_time
from lakerunner.pipeline.merge.scratch import scratch
from lakerunner.pipeline.restore import Outlet
from lakerunner.pipeline.rollup.work import RollupWork, write_buckets
from lakerunner.services.follow_up import committed, to_merge
from lakerunner.services.repair.lost import Tools, Unit, Unrepairable


@dataclass(frozen=True)
class Windows:
    """How many were made, and of how many segments."""

    rows: int
    sources: int


def make_windows(tools: Tools, unit: Unit, damaged: Collection[UUID]) -> Windows:
    """Make the windows again and commit them. Unrepairable if what they are made of is not all there."""
    work, basis = _planned(tools, unit)
    if bad := {one.id for one in (*work.sources, *work.made)} & set(damaged):
        if tools.dry_run:  # which repairs it first
            return Windows(unit.rows, len(work.touched))
        raise Unrepairable(f"segment {min(bad)}, which it is made of, cannot be read")
    with scratch() as directory:
        store = Outlet(tools.lake.store, tools.put_file)
        made = tuple(write_buckets(work, store, directory, tools.merge))
    rows = sum(one.rows for one in made)
    if not made or rows < max(one.segment.rows for one in unit.lost):
        raise Unrepairable(f"the segments that it is made of give {rows:,} windows, and it had {unit.rows:,}")
    if not tools.dry_run:
        reach("before-roll")
        touched = work.touched
        newly = [one for one in touched if not one.rolled]
        commit = Commit(
            made,
            (),
            (),
            unit.ids,
            (*committed(made), *to_merge(newly)),
            rolled=tuple(one.id for one in touched),
            basis=basis,
            rolled_of=work.organization,
        )
        tools.lake.index.commit(commit)
        reach("after-roll")
    return Windows(rows, len(work.touched))


def _planned(tools: Tools, unit: Unit) -> tuple[RollupWork, Basis]:
    index, target = tools.lake.index, unit.tier
    source = replace(target, frequency_ms=source_of(target.frequency_ms))
    time = TimeRange(unit.time.start_ns - (target.frequency_ms - 1) * MS_NS, unit.time.end_ns + MS_NS)
    expired_ns = index.sweep.expired_before(target.organization, target.collector, source.frequency_ms)
    if expired_ns > time.start_ns:
        name = TIER_NAMES[source.frequency_ms]
        raise Unrepairable(f"the {name} rows that it is made of have expired, up to {iso_time(expired_ns)}")
    touched = tuple(index.inspect.tier(source, time))
    if not touched:
        raise Unrepairable("none of the segments that it is made of is there")
    whose = target.organization, target.collector, source.frequency_ms, target.frequency_ms
    work = RollupWork(*whose, touched, touched, lost=unit.ids)
    sources = index.inspect.tier(source, work.span)
    basis = Basis(target.collector, target.signal, source.frequency_ms, work.span, frozenset(one.id for one in sources))
    work = replace(work, sources=tuple(sources))
    if expired_ns > work.span.start_ns:
        work = replace(work, whole_from_ns=expired_ns, made=_made(tools, target, work.span, unit))
    return work, basis


def _made(tools: Tools, target: Tier, time: TimeRange, unit: Unit) -> tuple[Segment, ...]:
    """Windows that are there, and left as they are where rows of theirs have expired."""
    return tuple(one for one in tools.lake.index.inspect.tier(target, time) if one.id not in unit.ids)
