"""Repair lost and damaged segments from what is left, and commit the result in their place.

Comes in: a lake and its organizations. Goes out: the outcome for each unit of lost segments. Raw rows come from raw
objects, buckets of rollups from the segments that they are computed from. A side file of an intact segment is written
again with an equal segment.

What always holds: lost segments are replaced in one transaction, if all of them are still live. If the process is
killed before it, nothing has changed except for files that the sweeper deletes; after it, the unit is repaired.
Segments of a repair have the level, the position in the order of `ingested` and the commit time of those that were
lost. Buckets are computed and committed as a rollup does it, from all live segments with rows in them; if some of those
rows have expired, the buckets cannot be computed again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from lakerunner.index.commit import Basis, Commit
from lakerunner.model.display import plural
from lakerunner.model.errors import Conflict, Corrupt
from lakerunner.model.failpoint import reach
from lakerunner.model.organization import Organization, is_of_rule
from lakerunner.model.segment import Segment
from lakerunner.model.tier import TIER_NAMES, source_of
from lakerunner.model.time import MS_NS, TimeRange, iso_time
from lakerunner.pipeline.compact import CompactLimits, merge_segments
from lakerunner.pipeline.ingest import IngestLimits
from lakerunner.pipeline.merge.inputs import scratch
from lakerunner.pipeline.restore import RedirectedStore, RestoreWork, write_again
from lakerunner.pipeline.rollup_job import RollupWork, write_buckets
from lakerunner.pipeline.transcode.columns import read_mapping_file
from lakerunner.services.checks.files import Harm
from lakerunner.services.checks.finding import Lake
from lakerunner.services.outbox import commit_messages, to_merge
from lakerunner.services.repair.lost import RepairUnit, Tools, Unrepairable, find_lost, units_of
from lakerunner.services.repair.search import MOST_OBJECTS, Moved, Search, SearchResult
from lakerunner.settings import Settings

_TRIES = 3
_NAMED = 3  # raw objects named in a reason


@dataclass(frozen=True)
class RepairOutcome:
    """The outcome for a unit. `did` is a sentence for people, `reason` says why it is not complete; `whole`: nothing of
    it is lost any more. `changed`: lost segments were replaced, or would be."""

    unit: RepairUnit
    did: str
    rows: int = 0
    objects: int = 0
    reason: str = ""
    whole: bool = True
    changed: bool = True

    @property
    def line(self) -> str:
        parts = [text for text in (self.did, self.reason) if text]
        return f"{self.unit.name}: {self.unit.what}; {'; '.join(parts)}"


def mend(tools: Tools, unit: RepairUnit, damaged: Collection[UUID]) -> RepairOutcome:
    """Repair one unit. `damaged` are all segments that cannot be read."""
    try:
        for _ in range(_TRIES):
            try:
                return _repair(tools, unit, damaged)
            except (Conflict, Moved):
                if tools.lake.index.inspect.still_live(unit.ids) != set(unit.ids):
                    return RepairOutcome(unit, "replaced or expired meanwhile", changed=False)
        raise Unrepairable(f"{_TRIES} times segments were replaced meanwhile: run it again")
    except (Unrepairable, Corrupt) as error:
        return RepairOutcome(unit, "", reason=f"not repaired: {error}", whole=False, changed=False)


def _repair(tools: Tools, unit: RepairUnit, damaged: Collection[UUID]) -> RepairOutcome:
    if unit.lost[0].whole_file and (made := _equal_segment(tools, unit)) is not None:
        return made
    if not unit.first.frequency_ms and is_of_rule(unit.first.collector):
        raise Unrepairable("a rule made it: drop the rule and add it again")
    if not unit.first.frequency_ms:
        return _restore_rows(tools, unit, damaged)
    rows, sources = make_buckets(tools, unit, damaged)
    would = "would make" if tools.dry_run else "made"
    did = f"{would} {plural(rows, 'bucket')} again from {plural(sources, 'segment')}"
    return RepairOutcome(unit, did)


def _equal_segment(tools: Tools, unit: RepairUnit) -> RepairOutcome | None:
    """Write the segment again with its side files; None if that needs the file that is lost."""
    work = _work(unit, (unit.first,))
    try:
        with scratch() as directory:
            store = RedirectedStore(tools.lake.store, tools.put_file)
            made = tuple(merge_segments(work, store, tools.merge, directory, dedupe=False))
            _commit(tools, unit, made)
    except Corrupt:
        return None
    would = "would make it" if tools.dry_run else "made it"
    return RepairOutcome(unit, f"{would} again from the segment's {plural(unit.rows, 'row')}")


def _restore_rows(tools: Tools, unit: RepairUnit, damaged: Collection[UUID]) -> RepairOutcome:
    with scratch() as directory:
        search = Search(tools, unit, frozenset(damaged), directory)
        found = search.run()
        reason = _reason(unit, found)
        whole = found.rows == unit.rows or _came_twice(unit, found)
        differs = any(one.harm is Harm.DIFFERS for lost in unit.lost for one in lost.troubles)
        if not found.rows or (not whole and (differs or unit.lost[0].whole_file)):
            left = f"not repaired: {found.rows:,} of {plural(unit.rows, 'row')} found; {reason}"
            return RepairOutcome(unit, "", reason=left, whole=False, changed=False)
        rule_set, renewed = _cover(tools, unit, damaged, is_same=found.rows == unit.rows)
        parts = [
            replace(one, ingested=unit.ingested, rolled=unit.first.rolled, rule_set=rule_set, level=0)
            for one in found.segments
        ]
        made = write_again(_work(unit, parts), search.scratch, tools.merge, directory)
        _commit(tools, unit, made)
    return RepairOutcome(unit, _did(tools, unit, found) + renewed, found.rows, found.objects, reason, whole)


def _cover(tools: Tools, unit: RepairUnit, damaged: Collection[UUID], *, is_same: bool) -> tuple[tuple[int, ...], str]:
    """Return which rules cover the restored rows, and what was done for it. If they are the rows that were lost, their
    rules cover them, whose parts are still there. Else nobody can tell what the rules made of rows that stay lost, or
    that were in lost segments with other rules: new versions begin, which cover nothing, and no query reads the parts
    of the old ones."""
    others = tools.lake.index.segments.get(unit.first.organization, damaged)
    sets = {one.segment.rule_set for one in unit.lost}
    sets |= {one.rule_set for one in others if _is_near(one, unit)}
    if is_same and len(sets) == 1:
        return sets.pop(), ""
    covering = {id_ for rules in sets for id_ in rules}
    rules, organization = tools.lake.index.metric_rules, unit.first.organization
    if not covering or not any(one.id in covering for one in rules.current(organization)):
        return (), ""
    if tools.dry_run:
        return (), "; would begin new versions of the rules that covered them"
    names = ", ".join(one.rule.name for one in rules.renew(organization, covering))
    return (), f"; new versions of the rules that covered them: {names}"


def _is_near(segment: Segment, unit: RepairUnit) -> bool:
    """Return whether the unit may have got rows of this segment."""
    of = unit.first
    is_alike = (segment.collector, segment.signal) == (of.collector, of.signal) and not segment.frequency_ms
    return is_alike and segment.time.overlaps(unit.time)


def _work(unit: RepairUnit, segments: Sequence[Segment]) -> RestoreWork:
    of = unit.first
    return RestoreWork(
        of.organization, of.collector, of.signal, of.frequency_ms, of.level, tuple(segments), lost=unit.ids
    )


def _commit(tools: Tools, unit: RepairUnit, made: tuple[Segment, ...]) -> None:
    if tools.dry_run:
        return
    reach("before-swap")
    tools.lake.index.commit(Commit(made, (), (), unit.ids, commit_messages(made), repaired=True))
    reach("after-swap")


def _did(tools: Tools, unit: RepairUnit, found: SearchResult) -> str:
    would = "would restore" if tools.dry_run else "restored"
    origins = [plural(found.objects, "raw object")] if found.objects else []
    if found.salvaged:
        origins.append("the sound part of the file")
    return f"{would} {found.rows:,} of {plural(unit.rows, 'row')} from {' and '.join(origins)}"


def _reason(unit: RepairUnit, found: SearchResult) -> str:
    """Say why not all rows were found."""
    left = unit.rows - found.rows
    if not left:
        return ""
    if found.rejected:
        some = "; ".join(f"raw object {one.key}: {one.reason}" for one in found.rejected[:_NAMED])
        more = f"; and {len(found.rejected) - _NAMED:,} more raw objects" if len(found.rejected) > _NAMED else ""
        return f"{plural(left, 'row')} lost: {some}{more}"
    if _came_twice(unit, found):
        return f"{plural(left, 'row')} came twice, and other segments have them"
    if found.complete:
        return f"{plural(left, 'row')} lost: no raw object that the index knows has them"
    return f"{plural(left, 'row')} lost: they are not in the last {MOST_OBJECTS:,} raw objects before it"


def _came_twice(unit: RepairUnit, found: SearchResult) -> bool:
    """Return whether live segments hold all rows of all raw objects, and therefore also the missing ones."""
    return found.complete and not found.rejected and found.elsewhere >= unit.rows - found.rows


def repair_lake(
    settings: Settings, lake: Lake, whose: Sequence[Organization], *, dry_run: bool
) -> Iterator[RepairOutcome]:
    """Repair what is lost or damaged in these organizations, one unit at a time."""
    tools = _tools(settings, lake, dry_run)
    for one in whose:
        lost = find_lost(lake, one)
        damaged = frozenset(found.segment.id for found in lost if not found.whole_file)
        for unit in units_of(one, lost):
            yield mend(tools, unit, damaged)


def _tools(settings: Settings, lake: Lake, dry_run: bool) -> Tools:
    return Tools(
        lake,
        IngestLimits(
            settings.object_max_bytes, settings.task_max_bytes, settings.failpoint, settings.bad_lines_max_share
        ),
        CompactLimits(settings.compact_memory, 2 * settings.compact_target_bytes, settings.failpoint),
        read_mapping_file(settings.mapping_file),
        dry_run,
    )


def make_buckets(tools: Tools, unit: RepairUnit, damaged: Collection[UUID]) -> tuple[int, int]:
    """Compute the buckets again and commit them; return how many, and from how many segments. Unrepairable if not all
    of their source exists."""
    work, basis = _plan_buckets(tools, unit)
    if bad := {one.id for one in (*work.sources, *work.made)} & set(damaged):
        if tools.dry_run:  # a real run repairs it first
            return unit.rows, len(work.touched)
        raise Unrepairable(f"segment {min(bad)}, which it is made of, cannot be read")
    with scratch() as directory:
        store = RedirectedStore(tools.lake.store, tools.put_file)
        made = tuple(write_buckets(work, store, directory, tools.merge))
    rows = sum(one.rows for one in made)
    if not made or rows < max(one.segment.rows for one in unit.lost):
        raise Unrepairable(f"the segments that it is made of give {rows:,} buckets, and it had {unit.rows:,}")
    if not tools.dry_run:
        reach("before-roll")
        touched = work.touched
        newly = [one for one in touched if not one.rolled]
        commit = Commit(
            made,
            (),
            (),
            unit.ids,
            (*commit_messages(made), *to_merge(newly)),
            rolled=tuple(one.id for one in touched),
            basis=basis,
            rolled_of=work.organization,
        )
        tools.lake.index.commit(commit)
        reach("after-roll")
    return rows, len(work.touched)


def _plan_buckets(tools: Tools, unit: RepairUnit) -> tuple[RollupWork, Basis]:
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
        # Existing buckets whose source rows have expired are left as they are.
        made = tuple(one for one in index.inspect.tier(target, work.span) if one.id not in unit.ids)
        work = replace(work, whole_from_ns=expired_ns, made=made)
    return work, basis
