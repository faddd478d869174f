"""`lakerunner repair`: what fsck finds lost or damaged is made again from what is left.

Comes in: settings, whose lake, whether it is a dry run. Goes out: a line for each lost segment and a last line, or
JSON; and an exit code. What always holds: one repair of a lake runs at a time; it may run beside every service, and if
it is killed at any moment, it is simply run again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TextIO

import orjson

from lakerunner.index.index import Index
from lakerunner.model.errors import Unavailable, UserError, in_full
from lakerunner.model.failpoint import arm
from lakerunner.model.plural import plural
from lakerunner.objects.open import shared_store
from lakerunner.pipeline.compact import CompactLimits
from lakerunner.pipeline.ingest import IngestLimits
from lakerunner.pipeline.transcode.mapping_file import read_mapping_file
from lakerunner.services.admin import administered, inspected, organization
from lakerunner.services.checks.finding import Lake
from lakerunner.services.drawn import drawn, for_terminal
from lakerunner.services.ground import store_address
from lakerunner.services.progress import progress
from lakerunner.services.repair.lost import Tools, find_lost, units_of
from lakerunner.services.repair.mend import Mended, mend
from lakerunner.services.sweeper import this_process
from lakerunner.settings import Settings

WHOLE, NOT_ALL, USAGE, UNREACHABLE = 0, 1, 2, 3


@dataclass(frozen=True)
class RepairRequest:
    """What the command line names."""

    organization: str | None = None
    dry_run: bool = False
    json: bool = False


def run_repair(settings: Settings, request: RepairRequest, output: TextIO, errors: TextIO) -> int:
    """Return the exit code."""
    arm(settings.failpoint)
    mended: list[Mended] = []
    try:
        with _index_of(settings, request) as index, index.inspect.repairing(this_process()) as alone:
            if not alone:
                raise Unavailable("another repair of this lake is running: wait for its end")
            with _progress(errors) as say, TemporaryDirectory(prefix="lakerunner-repair-") as at:
                lake = Lake(index, shared_store(store_address(settings)), Path(at), say)
                for one in _repaired(_tools(settings, request, lake), request):
                    mended.append(one)
                    if not request.json:
                        output.write(f"{drawn(one.line)}\n")
                        output.flush()
    except UserError as error:
        errors.write(f"error: {drawn(str(error))}\n")
        return USAGE
    except Unavailable as error:
        errors.write(f"error: not all could be repaired: {drawn(in_full(error))}\n")
        return UNREACHABLE
    _show_end(mended, request, output)
    return WHOLE if all(one.whole for one in mended) else NOT_ALL


def _progress(errors: TextIO) -> AbstractContextManager[Callable[[str], None]]:
    """For people who wait at a terminal."""
    return progress(errors) if errors.isatty() else nullcontext(lambda _: None)


def _index_of(settings: Settings, request: RepairRequest) -> AbstractContextManager[Index]:
    return inspected(settings) if request.dry_run else administered(settings)


def _tools(settings: Settings, request: RepairRequest, lake: Lake) -> Tools:
    return Tools(
        lake,
        IngestLimits(
            settings.object_max_bytes, settings.task_max_bytes, settings.failpoint, settings.bad_lines_max_share
        ),
        CompactLimits(settings.compact_memory, 2 * settings.compact_target_bytes, settings.failpoint),
        read_mapping_file(settings.mapping_file),
        request.dry_run,
    )


def _repaired(tools: Tools, request: RepairRequest) -> Iterator[Mended]:
    index = tools.lake.index
    named = request.organization
    for one in [organization(index, named)] if named else index.organizations.all():
        lost = find_lost(tools.lake, one)
        damaged = frozenset(found.segment.id for found in lost if not found.whole_file)
        for unit in units_of(one, lost):
            yield mend(tools, unit, damaged)


def _show_end(mended: list[Mended], request: RepairRequest, output: TextIO) -> None:
    done = [one for one in mended if one.changed]
    segments = sum(len(one.unit.lost) for one in done)
    rows = sum(one.rows for one in done)
    if request.json:
        document = {
            "repaired": segments,
            "rows_restored": rows,
            "not_whole": sum(len(one.unit.lost) for one in mended if not one.whole),
            "dry_run": request.dry_run,
            "segments": [_entry(one) for one in mended],
        }
        text = orjson.dumps(document, option=orjson.OPT_INDENT_2).decode()
        output.write(for_terminal(text, output) + "\n")
        return
    if not mended:
        output.write("nothing to repair\n")
        return
    would = " would be" if request.dry_run else ""
    ended = f"{plural(segments, 'segment')}{would} repaired, {plural(rows, 'row')}{would} restored"
    left = sum(len(one.unit.lost) for one in mended if not one.whole)
    output.write(f"{ended}{f', {left:,} not whole' if left else ''}\n")


def _entry(one: Mended) -> dict[str, object]:
    unit = one.unit
    return {
        "organization": unit.organization.name,
        "collector": unit.first.collector,
        "signal": unit.first.signal,
        "frequency_ms": unit.first.frequency_ms,
        "start_ns": unit.time.start_ns,
        "end_ns": unit.time.end_ns,
        "segments": [str(id_) for id_ in unit.ids],
        "what": unit.what,
        "findings": [trouble.what for lost in unit.lost for trouble in lost.troubles],
        "did": one.did,
        "rows": unit.rows,
        "restored": one.rows,
        "raw_objects": one.objects,
        "reason": one.reason,
        "repaired": one.changed,
        "whole": one.whole,
    }
