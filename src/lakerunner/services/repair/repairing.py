"""What `lakerunner repair` does: what fsck finds lost or damaged is made again from what is left.

Comes in: a lake, whose data, whether it is a dry run. Goes out: what became of each unit of lost segments. What always
holds: it may run beside every service, and if it is killed at any moment, it is simply run again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from lakerunner.model.organization import Organization
from lakerunner.pipeline.compact import CompactLimits
from lakerunner.pipeline.ingest import IngestLimits
from lakerunner.pipeline.transcode.mapping_file import read_mapping_file
from lakerunner.services.checks.finding import Lake
from lakerunner.services.repair.lost import Tools, find_lost, units_of
from lakerunner.services.repair.mend import Mended, mend
from lakerunner.settings import Settings


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
