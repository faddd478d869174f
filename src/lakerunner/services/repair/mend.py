"""What fsck finds lost or damaged, made again from what is left and committed in its place.

Comes in: a lake, and whose data. Goes out: what became of each unit of lost segments. Raw rows come from raw objects,
windows of rollups from the segments that they are made of; a file that stands beside a whole segment is made again with
an equal segment.

What always holds: lost segments go and their rows come in one transaction, if all of them are still live. Killed before
it, nothing has changed but for files that the sweeper takes; killed after it, the unit is repaired. Segments that a
repair writes have the level, the place in the order of `ingested` and the time of birth of those that were lost.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from lakerunner.index.commit import Commit
from lakerunner.model.errors import Conflict, Corrupt
from lakerunner.model.failpoint import reach
from lakerunner.model.organization import Organization
from lakerunner.model.plural import plural
from lakerunner.model.segment import Segment
from lakerunner.pipeline.compact import CompactLimits, merge_segments
from lakerunner.pipeline.ingest import IngestLimits
from lakerunner.pipeline.merge.scratch import scratch
from lakerunner.pipeline.restore import Outlet, RestoreWork, write_again
from lakerunner.pipeline.transcode.mapping_file import read_mapping_file
from lakerunner.services.checks.files import Harm
from lakerunner.services.checks.finding import Lake
from lakerunner.services.follow_up import committed
from lakerunner.services.repair.lost import Tools, Unit, Unrepairable, find_lost, units_of
from lakerunner.services.repair.search import MOST_OBJECTS, Found, Moved, Search
from lakerunner.services.repair.windows import make_windows
from lakerunner.settings import Settings

_TRIES = 3
_NAMED = 3  # raw objects that a reason names


@dataclass(frozen=True)
class Mended:
    """What became of a unit. `did` is a sentence for people, `reason` says why not all of it is whole; `whole`: nothing
    of it is lost any more. `changed`: lost segments were replaced, or would be."""

    unit: Unit
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


def mend(tools: Tools, unit: Unit, damaged: Collection[UUID]) -> Mended:
    """Repair one unit. `damaged` are all segments that cannot be read."""
    try:
        for _ in range(_TRIES):
            try:
                return _mended(tools, unit, damaged)
            except (Conflict, Moved):
                if tools.lake.index.inspect.still_live(unit.ids) != set(unit.ids):
                    return Mended(unit, "replaced or expired meanwhile", changed=False)
        raise Unrepairable(f"{_TRIES} times segments were replaced meanwhile: run it again")
    except (Unrepairable, Corrupt) as error:
        return Mended(unit, "", reason=f"not repaired: {error}", whole=False, changed=False)


def _mended(tools: Tools, unit: Unit, damaged: Collection[UUID]) -> Mended:
    if unit.lost[0].whole_file and (made := _equal_segment(tools, unit)) is not None:
        return made
    if not unit.first.frequency_ms:
        return _restored(tools, unit, damaged)
    windows = make_windows(tools, unit, damaged)
    would = "would make" if tools.dry_run else "made"
    did = f"{would} {plural(windows.rows, 'window')} again from {plural(windows.sources, 'segment')}"
    return Mended(unit, did)


def _equal_segment(tools: Tools, unit: Unit) -> Mended | None:
    """Write the segment once more, with all that stands beside it; None if that needs the file that is lost."""
    work = _work(unit, (unit.first,))
    try:
        with scratch() as directory:
            store = Outlet(tools.lake.store, tools.put_file)
            made = tuple(merge_segments(work, store, tools.merge, directory, dedupe=False))
            _commit(tools, unit, made)
    except Corrupt:
        return None
    would = "would make it" if tools.dry_run else "made it"
    return Mended(unit, f"{would} again from the segment's {plural(unit.rows, 'row')}")


def _restored(tools: Tools, unit: Unit, damaged: Collection[UUID]) -> Mended:
    with scratch() as directory:
        search = Search(tools, unit, frozenset(damaged), directory)
        found = search.run()
        reason = _reason(unit, found)
        whole = found.rows == unit.rows or _came_twice(unit, found)
        differs = any(one.harm is Harm.DIFFERS for lost in unit.lost for one in lost.troubles)
        if not found.rows or (not whole and (differs or unit.lost[0].whole_file)):
            left = f"not repaired: {found.rows:,} of {plural(unit.rows, 'row')} found; {reason}"
            return Mended(unit, "", reason=left, whole=False, changed=False)
        parts = [replace(one, ingested=unit.ingested, rolled=unit.first.rolled, level=0) for one in found.segments]
        made = write_again(_work(unit, parts), search.scratch, tools.merge, directory)
        _commit(tools, unit, made)
    return Mended(unit, _did(tools, unit, found), found.rows, found.objects, reason, whole)


def _work(unit: Unit, segments: Sequence[Segment]) -> RestoreWork:
    of = unit.first
    return RestoreWork(
        of.organization, of.collector, of.signal, of.frequency_ms, of.level, tuple(segments), lost=unit.ids
    )


def _commit(tools: Tools, unit: Unit, made: tuple[Segment, ...]) -> None:
    if tools.dry_run:
        return
    reach("before-swap")
    tools.lake.index.commit(Commit(made, (), (), unit.ids, committed(made), repaired=True))
    reach("after-swap")


def _did(tools: Tools, unit: Unit, found: Found) -> str:
    would = "would restore" if tools.dry_run else "restored"
    origins = [plural(found.objects, "raw object")] if found.objects else []
    if found.salvaged:
        origins.append("the sound part of the file")
    return f"{would} {found.rows:,} of {plural(unit.rows, 'row')} from {' and '.join(origins)}"


def _reason(unit: Unit, found: Found) -> str:
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


def _came_twice(unit: Unit, found: Found) -> bool:
    """Whether all rows of all raw objects are there, and so what is missing is there too."""
    return found.complete and not found.rejected and found.elsewhere >= unit.rows - found.rows


def repair_lake(settings: Settings, lake: Lake, whose: Sequence[Organization], *, dry_run: bool) -> Iterator[Mended]:
    """Mend what is lost or damaged of these organizations, one unit at a time."""
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
