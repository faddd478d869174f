"""`lakerunner rules backfill`: evaluate a rule over stored segments. docs/formats/backfill_of_rules.md describes it."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from lakerunner.commands.options import organization_options, settings_of, store_option
from lakerunner.model.display import plural
from lakerunner.model.time import DAY_NS, time_text

if TYPE_CHECKING:
    from lakerunner.index.index import Index
    from lakerunner.index.rule_history import RuleCoverage, UncoveredDay
    from lakerunner.model.metric_rules.metric_rule import RuleVersion
    from lakerunner.services.rule_estimate import RuleEstimate
    from lakerunner.settings import Settings

_LOOK_SECONDS = 1.0
_SAMPLE = 20  # newest segments, of which one is evaluated for an estimate


@click.command("backfill")
@click.argument("name")
@click.option(
    "--since", metavar="TIME", required=True, help="Cover rows from this time on: 2026-01-31T12:00:00Z, or an age: 30d."
)
@click.option("--dry-run", is_flag=True, help="Show what it costs, and change nothing.")
@click.option("--wait", is_flag=True, help="Show progress until all is covered; Ctrl-C leaves it running.")
@store_option
@organization_options
def backfill_rule(
    name: str, since: str, dry_run: bool, wait: bool, store: str | None, org: str, home: Path | None
) -> None:
    """Evaluate the rule NAME over stored data too, newest hour first. A running lake does it in the background.

    Queries read what is covered from the metric and the rest from rows, so they are right at any time.

    \b
    lakerunner rules backfill checkout-errors --since 30d --dry-run
    lakerunner rules backfill checkout-errors --since 30d --wait
    """
    from lakerunner.services.ground import administered, now_ns, organization
    from lakerunner.services.metric_rules import CheckedRules, history_since

    settings = settings_of({"home": home, "store": store})
    with administered(settings) as index:
        whose = organization(index, org).id
        if dry_run:
            version = index.metric_rules.find(whose, name)
            _show_cost(index, settings, version, history_since(version.rule, since, now_ns()))
            return
        version = CheckedRules(index.metric_rules).set_since(whose, name, since, now_ns())
        click.echo(f"{name} v{version.version}: {coverage_text(version, index.rule_history.coverage(whose))}")
        if wait:
            sys.exit(_wait(index, version))


def coverage_text(version: RuleVersion, found: dict[int, RuleCoverage]) -> str:
    """Return how much of the history a version covers, "" if it has none."""
    if version.since_ns is None or version.id not in found:
        return ""
    one = found[version.id]
    shares = f"{_share(one.covered_segments, one.segments)} of segments, {_share(one.covered_rows, one.rows)} of rows"
    aside = f"; {plural(one.aside, 'segment')} cannot be read" if one.aside else ""
    return f"covers {shares} since {time_text(version.since_ns // 10**9 * 10**9)}{aside}"


def _share(some: int, whole: int) -> str:
    return f"{100 * some // whole if whole else 100}%"


def _show_cost(index: Index, settings: Settings, version: RuleVersion, since_ns: int) -> None:
    from lakerunner.commands.terminal.show import show_rows
    from lakerunner.objects.open import open_store
    from lakerunner.pipeline.part_segments import RuleBook
    from lakerunner.services.ground import store_address
    from lakerunner.services.rule_estimate import estimate

    days = index.rule_history.left_by_day(version, since_ns)
    sample = index.rule_history.newest_left(version, since_ns, _SAMPLE)
    book = RuleBook((version,), index.organizations.stream_rules(version.organization))
    found = estimate(open_store(store_address(settings)), sample, book, settings.compact_memory)
    columns = ("day", "segments", "rows", "bytes", "cpu_seconds")
    show_rows(columns, [_cost(one, found) for one in days], sys.stdout)
    rows = sum(one.rows for one in days)
    total = (sum(one.segments for one in days), rows, sum(one.bytes for one in days))
    click.echo(f"{plural(total[0], 'segment')}, {plural(rows, 'row')}, {plural(total[2], 'byte')} are not covered")
    if found:
        click.echo(
            f"about {found.of(rows):.1f} CPU seconds, by evaluating {version.rule.name} over a segment of "
            f"{plural(found.rows, 'row')} here, which took {found.seconds:.3f} s"
        )


def _cost(day: UncoveredDay, found: RuleEstimate | None) -> dict[str, object]:
    seconds = round(found.of(day.rows), 3) if found else None
    named = {"day": time_text(day.day * DAY_NS)[:10], "segments": day.segments, "rows": day.rows, "bytes": day.bytes}
    return named | {"cpu_seconds": seconds}


def _wait(index: Index, version: RuleVersion) -> int:
    """Show progress until the version covers everything; return the exit code, 1 if it never will."""
    from lakerunner.commands.terminal.show import progress

    whose, name = version.organization, version.rule.name
    began, first = time.monotonic(), None
    try:
        with progress(sys.stderr) as say:
            while True:
                now = index.metric_rules.find(whose, name)
                coverage = index.rule_history.coverage(whose).get(version.id)
                if now.id != version.id or not now.is_active or coverage is None:
                    click.echo(f"{name} v{version.version} stopped: {now.paused or 'the rule was changed'}", err=True)
                    return 1
                if coverage.is_complete:
                    break
                first = coverage.covered_rows if first is None else first
                say(progress_text(coverage, coverage.covered_rows - first, time.monotonic() - began))
                time.sleep(_LOOK_SECONDS)
    except KeyboardInterrupt:
        click.echo(f"{name} goes on in the background: `lakerunner rules list` shows how far it is", err=True)
        return 130
    click.echo(f"{name} v{version.version}: {coverage_text(now, {version.id: coverage})}")
    return 0


def progress_text(coverage: RuleCoverage, rows: int, seconds: float) -> str:
    """Return a line of progress; `rows` were covered in these seconds."""
    rate = round(rows / seconds) if seconds > 0 else 0
    return (
        f"{coverage.covered_segments:,} of {plural(coverage.segments, 'segment')}, {coverage.covered_rows:,} of "
        f"{plural(coverage.rows, 'row')} covered, {plural(rate, 'row')} a second"
    )
