"""Run the checks of `lakerunner fsck`: the invariants of the design, against the stored data.

Comes in: a lake, the organizations, and how thoroughly to check. Goes out: findings, and counts of what was checked.
What always holds: it only reads, and may run beside every service. A finding was true for segments that were live when
it was reported. Memory does not grow with the lake.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa

from lakerunner.bus.backlog import backlog
from lakerunner.index.index import Index
from lakerunner.index.segments import CollectorTier
from lakerunner.model.display import plural
from lakerunner.model.organization import Organization
from lakerunner.model.retention_policy import parse_retention
from lakerunner.model.segment import Segment
from lakerunner.pipeline.rollup_job import RollupWork, recompute_buckets
from lakerunner.services.checks.doubles import check_equal_rows, check_inputs
from lakerunner.services.checks.files import check_files
from lakerunner.services.checks.finding import NOTE, CheckScope, Finding, Findings, Lake
from lakerunner.services.checks.queues import check_bus, check_outbox, check_sources, check_work
from lakerunner.services.checks.rollup_buckets import Horizon, Pick, Recompute, check_buckets, check_rolled
from lakerunner.services.checks.strays import check_strays, check_unowned
from lakerunner.services.ground import now_ns
from lakerunner.settings import Settings

_OUTBOX_SECONDS = 2.0


@dataclass(frozen=True)
class Thoroughness:
    """How much is checked: every page, or a sample of hours and rollups, drawn with a seed."""

    deep: bool
    sample: int
    seed: int


def check_lake(settings: Settings, lake: Lake, whose: Sequence[Organization] | None, how: Thoroughness) -> Findings:
    """Check these organizations; None means all, and what belongs to no organization."""
    found = Findings()
    for one in lake.index.organizations.all() if whose is None else whose:
        scope = CheckScope(one, how.deep, how.sample, how.seed, now_ns(), settings.sweep_grace_seconds)
        check_organization(settings, lake, scope, found)
    if whose is None:
        with found.attempt("objects of no organization"):
            check_unowned(lake, found)
        with found.attempt("raw objects of no organization"):
            _check_unplaced(lake.index, found)
    with found.attempt("outbox"):
        check_outbox(lake, found, lambda: time.sleep(_OUTBOX_SECONDS))
    with found.attempt("bus"):
        check_bus(backlog(settings.bus, lake.index.pool, settings.bus_topic_prefix), found)
    return found


def check_organization(settings: Settings, lake: Lake, scope: CheckScope, found: Findings) -> None:
    """Run each check by itself: if one cannot reach what it needs, others may."""
    found.looked_at["organizations"] += 1
    name = scope.organization.name
    retention = parse_retention(settings.retention.items())
    with found.attempt(f"retention of {name}"):
        retention = retention.with_rows(lake.index.retention.of(scope.organization.id))
    horizon = Horizon(retention, scope.now_ns)
    checks: tuple[tuple[str, Callable[[], None]], ...] = (
        ("files", lambda: check_files(lake, scope, found)),
        ("objects", lambda: check_strays(lake, scope, found)),
        ("replaced segments", lambda: check_inputs(lake, scope, found)),
        ("equal rows", lambda: check_equal_rows(lake, scope, found)),
        ("rolled segments", lambda: check_rolled(lake, scope, horizon, found)),
        ("rollups", lambda: check_buckets(lake, scope, horizon, recomputing(lake), found)),
        ("raw objects", lambda: check_sources(lake, scope, found)),
        ("failed work", lambda: check_work(lake, scope, found)),
    )
    for what, check in checks:
        with found.attempt(f"{what} of {name}"):
            check()


def _check_unplaced(index: Index, found: Findings) -> None:
    if count := index.inspect.unplaced():
        what = f"{plural(count, 'raw object')} of an unknown organization"
        to_do = "create it with `lakerunner orgs create`, then run `lakerunner objects --retry`"
        found.add(Finding("sources", NOTE, "", what, "lrdb.source_objects", to_do))


def recomputing(lake: Lake) -> Recompute:
    """Return a function that computes the buckets of a segment as pipeline/rollup does, without writing them."""

    def recompute(tier: CollectorTier, target_ms: int, segment: Segment, pick: Pick) -> pa.Table:
        work = RollupWork(tier.organization, tier.collector, tier.frequency_ms, target_ms, (segment,), (segment,))
        work = replace(work, sources=tuple(pick(work.span)))
        with TemporaryDirectory(dir=lake.directory) as directory:
            return recompute_buckets(work, lake.store, Path(directory))

    return recompute
