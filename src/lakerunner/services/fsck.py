"""`lakerunner fsck`: the invariants of the design, checked against what is really there.

Comes in: settings, whose lake, and how thoroughly. Goes out: a table of findings or JSON, counts of what was looked at,
and an exit code. What always holds: it reads only, and may run beside every service; a finding was true of segments
that were live when it was reported. Memory does not grow with the lake.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TextIO

import orjson

from lakerunner.bus.backlog import backlog
from lakerunner.index.index import Index
from lakerunner.model.errors import Unavailable, UserError, in_full
from lakerunner.model.organization import Organization
from lakerunner.model.plural import plural
from lakerunner.model.retention import parse_retention
from lakerunner.objects.open import shared_store
from lakerunner.services.admin import inspected, organization
from lakerunner.services.checks.doubles import check_equal_rows, check_inputs
from lakerunner.services.checks.files import check_files
from lakerunner.services.checks.finding import ERROR, NOTE, Finding, Findings, Lake, Scope
from lakerunner.services.checks.queues import check_bus, check_outbox, check_sources, check_work
from lakerunner.services.checks.recompute import recomputing
from lakerunner.services.checks.strays import check_strays, check_unowned
from lakerunner.services.checks.windows import Horizon, check_rolled, check_windows
from lakerunner.services.drawn import drawn, for_terminal
from lakerunner.services.ground import now_ns, store_address
from lakerunner.services.progress import progress
from lakerunner.services.show import show_rows
from lakerunner.settings import Settings

CLEAN, FOUND, USAGE, NOT_ALL = 0, 1, 2, 3
_COLUMNS = ("severity", "check", "organization", "what", "where", "to_do")
_OUTBOX_SECONDS = 2.0


@dataclass(frozen=True)
class Asked:
    """What the command line asks for; without a seed the sample is another one each time."""

    organization: str | None = None
    deep: bool = False
    sample: int = 24
    seed: int | None = None
    json: bool = False


def run_fsck(settings: Settings, asked: Asked, output: TextIO, errors: TextIO) -> int:
    """The exit code."""
    seed = secrets.randbelow(1 << 31) if asked.seed is None else asked.seed
    try:
        with inspected(settings) as index, progress(errors) as say, TemporaryDirectory(prefix="lakerunner-fsck-") as at:
            whose = [organization(index, asked.organization)] if asked.organization else index.organizations.all()
            lake = Lake(index, shared_store(store_address(settings)), Path(at), say)
            found = check_lake(settings, lake, whose, asked, seed)
    except UserError as error:
        errors.write(f"error: {drawn(str(error))}\n")
        return USAGE
    except Unavailable as error:
        errors.write(f"error: nothing could be checked: {drawn(in_full(error))}\n")
        return NOT_ALL
    show(found, seed, asked, output)
    return FOUND if found.counts[ERROR] else NOT_ALL if found.unchecked else CLEAN


def check_lake(settings: Settings, lake: Lake, whose: Sequence[Organization], asked: Asked, seed: int) -> Findings:
    found = Findings()
    for one in whose:
        scope = Scope(one, asked.deep, asked.sample, seed, now_ns(), settings.sweep_grace_seconds)
        check_organization(settings, lake, scope, found)
    if asked.organization is None:
        with found.attempt("objects of no organization"):
            check_unowned(lake, found)
        with found.attempt("raw objects of no organization"):
            _check_unplaced(lake.index, found)
    with found.attempt("outbox"):
        check_outbox(lake, found, lambda: time.sleep(_OUTBOX_SECONDS))
    with found.attempt("bus"):
        check_bus(backlog(settings.bus, lake.index.pool, settings.bus_topic_prefix), found)
    return found


def check_organization(settings: Settings, lake: Lake, scope: Scope, found: Findings) -> None:
    """Each check on its own: what one cannot reach, another may."""
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
        ("rollups", lambda: check_windows(lake, scope, horizon, recomputing(lake), found)),
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


def show(found: Findings, seed: int, asked: Asked, output: TextIO) -> None:
    if asked.json:
        text = orjson.dumps(_document(found, seed, asked), option=orjson.OPT_INDENT_2).decode()
        output.write(for_terminal(text, output) + "\n")
        return
    if found.kept:
        show_rows(_COLUMNS, [asdict(one) for one in in_order(found)], output)
    if (left_out := found.counts.total() - len(found.kept)) > 0:
        output.write(f"{plural(left_out, 'more finding')} not shown\n")
    output.write("looked at: " + ", ".join(f"{what} {count}" for what, count in found.looked_at.items()) + "\n")
    if not asked.deep:
        output.write(f"the sample was drawn with --seed {seed}; --deep checks everything\n")
    for said in found.unchecked:
        output.write(f"NOT CHECKED: {drawn(said)}\n")
    errors, notes = found.counts[ERROR], found.counts[NOTE]
    verdict = f"{errors} error{'' if errors == 1 else 's'}" if errors else "no errors"
    output.write(f"{verdict}, {notes} note{'' if notes == 1 else 's'}")
    output.write("; the check is incomplete\n" if found.unchecked else "\n")


def in_order(found: Findings) -> list[Finding]:
    """Errors first."""
    return sorted(found.kept, key=lambda one: one.severity != ERROR)


def _document(found: Findings, seed: int, asked: Asked) -> dict[str, object]:
    return {
        "errors": found.counts[ERROR],
        "notes": found.counts[NOTE],
        "complete": not found.unchecked,
        "findings": [asdict(one) for one in in_order(found)],
        "looked_at": dict(found.looked_at),
        "not_checked": found.unchecked,
        "deep": asked.deep,
        "seed": seed,
    }
