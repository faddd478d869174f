"""What a job did with rules: its counts for meters, and the versions that it stopped.

What always holds: a version is paused after the commit of what the others made. If the process dies before it, the
next job that meets the version pauses it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict

from lakerunner.index.metric_rules import MetricRules
from lakerunner.pipeline.part_segments import RuleBook, RuleStop
from lakerunner.pipeline.rule_parts import RuleCount
from lakerunner.services import meters
from lakerunner.services.logs import Log


def end_rules(
    rules: MetricRules, book: RuleBook, counts: Iterable[tuple[int, RuleCount]], stops: Iterable[RuleStop], log: Log
) -> None:
    """Count what the versions of the book did, and pause those that have no parts of some of the rows."""
    versions = {version.id: version for version in book.versions}
    for id_, count in counts:
        meters.count_rule(versions[id_].rule.name, **asdict(count))
    for id_, reason in dict(stops).items():
        rules.pause(id_, reason)
        log.warning("rule paused", rule=versions[id_].rule.name, version=versions[id_].version, reason=reason)
